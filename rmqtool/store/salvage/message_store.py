"""What ``rocksdbstore`` knew and no message says, in a store that was salvaged: which timer messages wait, and that
half messages are open.

The database itself is not taken: its entries lead to places in the old log.
"""

from collections.abc import Mapping

from formats.topics import TIMER
from formats.variants.message_store import PLACE
from formats.variants.timer import QUEUE_ID, Checkpoint, build_checkpoint
from rmqtool.errors import RmqError
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.message_store import Timeline, open_halves_of, timeline_of
from rmqtool.words import counted


def timer_checkpoint(
    source: StoreLayout, limits: Mapping[tuple[str, int], int], left_out: list[str], said: list[str]
) -> bytes | None:
    """``config/timercheck`` for a store with its timer in files; None where the old one has it in files, too.

    Args:
        limits: queue to the queue offset from which on its messages have other numbers there.
        left_out: gets the database where it cannot be read.
        said: gets what the person should know.
    """
    try:
        timeline = timeline_of(source)
        if timeline is None:
            return None
        read = _begin(timeline, said)
    except RmqError as err:
        left_out.append(PLACE)
        said.append(f"{err}: left out: which timer messages were delivered is not known")
        return None
    if not read:  # nothing says what was delivered: the timer's queue is read from its beginning
        said.append(
            f"{PLACE} does not say which timer messages were delivered: those that the log still has, and whose time "
            "has come, are delivered once more; none is lost"
        )
        return build_checkpoint(Checkpoint())
    taken = min(timeline.scanned, limits.get((TIMER, QUEUE_ID), timeline.scanned))
    point = Checkpoint(
        last_read_time=read // source.conf.timer_precision * source.conf.timer_precision,
        last_timer_queue_offset=taken,
        master_timer_queue_offset=taken,
    )
    said.append("the new store has its timer in files: start a broker on it without timerRocksDBEnable")
    return build_checkpoint(point)


def _begin(timeline: Timeline, said: list[str]) -> int:
    """The time from which on timer messages wait, ms; 0 where it is not known."""
    if timeline.delivered is not None:
        return timeline.delivered
    # what was due when it was taken up was delivered at once, and is not in the database
    return min((unit.deliver_time for unit in timeline.units(said.append)), default=0) if timeline.scanned else 0


def open_halves(source: StoreLayout, left_out: list[str]) -> list[str]:
    """What the person should know of half messages that are open."""
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
