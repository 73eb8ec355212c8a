"""Copy the logs of compacted topics to a salvaged store, since their consumers read nothing else.

Messages in a compaction log are kept even if they have expired in the commit log; damaged parts are rebuilt from the
salvaged commit log.
"""

from collections.abc import Mapping

from rmqtool.errors import RmqError
from rmqtool.store.builders.compaction import CompactionBuilder
from rmqtool.store.changes.writing import changing
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.files import make_file, remove_tree
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.compaction import FOLDER, LOGS, POSITIONS, QUEUES, compaction_queues_of, positions_of
from rmqtool.store.releases.rules import rules_for

_AT_ONCE = 4 << 20


def carry_over(
    source: StoreLayout,
    target: StoreLayout,
    limits: Mapping[tuple[str, int], int],
    backup: str,
    left_out: list[str],
) -> list[str]:
    """Copy a store's compaction logs into the store salvaged from it, and repair them.

    Args:
        limits: by queue, the queue offset from which on its messages were renumbered; from there on only the new commit
            log counts.
        backup: directory for what is replaced.
        left_out: receives the directory if a part of it cannot be read.

    Returns:
        Warnings for the user.
    """
    topics = rules_for(target).rules.compacted_topics
    if not topics:
        return []
    remove_tree(target.path(FOLDER))  # recovery has built it from the commit log only
    warnings: list[str] = []
    for queue in compaction_queues_of(source):
        for kind, segments in ((LOGS, queue.log), (QUEUES, queue.queue)) if queue.topic in topics else ():
            folder = target.path(FOLDER, kind, queue.topic, str(queue.queue_id))
            for file in segments:
                if failed := _copy(file, folder):
                    warnings += failed
                    left_out.append(FOLDER)
    try:
        if positions_of(source) is not None and (data := read_small(source.path(FOLDER, POSITIONS))):
            make_folders(target.path(FOLDER))
            with make_file(target.path(FOLDER, POSITIONS)) as positions:
                positions.write(0, data)
                positions.sync()
    except RmqError as err:
        left_out.append(FOLDER)
        warnings.append(f"{err}: left out: the next compaction looks at all messages again")
    for (topic, queue_id), offset in sorted(limits.items()):
        if topic in topics:
            warnings.append(
                f"{topic} queue {queue_id}: messages from queue offset {offset} on were renumbered: those that only "
                f"its compaction log has are left out; {source.root} has them"
            )
    with changing(target, "rebuild", backup) as change:
        builder = CompactionBuilder(StoreLayout(target.root, target.conf), limits)
        if builder.prepare(change):
            change.commit()
    return warnings + builder.warnings


def _copy(file: Segment, folder: str) -> list[str]:
    """Copy the readable part of a file; returns the error, if any, that cut it short."""
    make_folders(folder)
    with make_file(f"{folder}/{file.base:020d}") as copy:
        copy.cut(file.size)
        try:
            for at in range(0, file.size, _AT_ONCE):
                data = file.read(at, min(_AT_ONCE, file.size - at))
                if data.count(0) != len(data):  # holes stay holes
                    copy.write(at, data)
        except RmqError as err:
            return [f"{err}: the rest of this file is left out"]
        finally:
            copy.sync()
    return []
