"""Carry over what only ``rocksdbstore`` knows: which timer messages are waiting, and that half messages are open.

The database itself is not copied, as its entries refer to positions in the old log.
"""

from collections.abc import Mapping

from formats.topics import TIMER
from formats.variants.message_store import PLACE
from formats.variants.timer import QUEUE_ID, TimerCheckpoint, build_checkpoint
from rmqtool.errors import RmqError
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.message_store import Timeline, open_halves_of, timeline_of
from rmqtool.words import counted


def timer_checkpoint(
    source: StoreLayout, limits: Mapping[tuple[str, int], int], left_out: list[str], warnings: list[str]
) -> bytes | None:
    """``config/timercheck`` for a new store with its timer in files; None if the old one has it in files, too.

    Args:
        limits: by queue, the queue offset from which on its messages were renumbered.
        left_out: receives the database if it cannot be read.
        warnings: receives warnings for the user.
    """
    try:
        timeline = timeline_of(source)
        if timeline is None:
            return None
        read = _begin(source, timeline, warnings)
    except RmqError as err:
        left_out.append(PLACE)
        warnings.append(f"{err}: left out: which timer messages were delivered is not known")
        return None
    if not read:  # deliveries are unknown: the timer's queue is read from its beginning
        warnings.append(
            f"{PLACE} does not say which timer messages were delivered: those that the log still has, and whose time "
            "has come, are delivered once more; none is lost"
        )
        return build_checkpoint(TimerCheckpoint())
    taken = min(timeline.scanned, limits.get((TIMER, QUEUE_ID), timeline.scanned))
    point = TimerCheckpoint(
        last_read_time=read // source.conf.timer_precision * source.conf.timer_precision,
        last_timer_queue_offset=taken,
        master_timer_queue_offset=taken,
    )
    return build_checkpoint(point)


def _begin(source: StoreLayout, timeline: Timeline, warnings: list[str]) -> int:
    """The time in ms from which on timer messages are waiting; 0 if unknown.

    It is not later than the last message, for those whose time has come, and that the database does not have yet.
    """
    if timeline.delivered is not None:
        return timeline.delivered
    # messages that were due when they were read were delivered at once, and are not in the database
    begin = min((unit.deliver_time for unit in timeline.units(warnings.append)), default=0) if timeline.scanned else 0
    last = CommitLog(source).last()
    return begin if last is None else min(begin, last.record.store_timestamp + source.conf.timer_precision)


def open_halves(source: StoreLayout, left_out: list[str]) -> list[str]:
    """Warnings about open half messages."""
    warnings: list[str] = []
    try:
        halves = open_halves_of(source, warnings.append)
    except RmqError as err:
        left_out.append(PLACE)
        return [f"{err}: left out: which half messages are open is not known"]
    if halves is not None and (count := len(halves)):
        warnings.append(
            f"{counted(count, 'half message is open', 'half messages are open')}: producers are asked about them only "
            "by a broker that has transRocksDBEnable=true and transWriteOriginTransHalfEnable=false"
        )
    return warnings
