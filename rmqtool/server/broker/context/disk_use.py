"""How full the file systems of a store are, as a broker reports it."""

import os

from rmqtool.store.layout.paths import StoreLayout


def share_used(path: str) -> float:
    """The used share of a directory's file system; -1 if the directory is missing (common.UtilAll)."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return -1
    taken = disk.f_blocks - disk.f_bfree
    entire = taken + disk.f_bavail
    return -(-taken * 100 // entire) / 100 if entire else -1


def describe_unavailable(layout: StoreLayout) -> str:
    """A broker's remark when it cannot store a message (SendMessageProcessor.handlePutMessageResult)."""
    places = layout.commit_log_paths[0], layout.path("consumequeue"), layout.path("index")
    log, queues, index = (share_used(place) for place in places)
    return (
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
        f"[CL: {log:5.2f} CQ: {queues:5.2f} INDEX: {index:5.2f}], messages are put to the slave, message store has "
        "been shut down, etc."
    )
