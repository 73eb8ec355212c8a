"""Where a byte range of the commit log really begins, found by the task that reads it.

The first record that says its own position is where it begins, nearly always. It is not when a message's body holds
such a record, or when old records lie behind the blank that ends a file. A queue entry that points at it proves it
real. Where no queue does, the chain of records does that leads to it without a break, each of which says its own
position, if it is longer than any message is; else the file is gone through from its beginning, from record to record.
"""

from collections.abc import Callable
from dataclasses import replace

from formats.message.read import Record
from rmqtool.analytics.ranges.large import is_large
from rmqtool.analytics.ranges.splits import Split
from rmqtool.store.disk.remote import reach, record_at
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.log.commit_log import next_record, says_position, walk_file
from rmqtool.store.queues.reader import open_queue

WINDOW = 8 << 20  # bytes after which pages are given back
CHAIN = 16 << 20  # bytes; four times the longest message that a broker takes by default


def exact(split: Split, layout: Callable[[], StoreLayout]) -> tuple[Split, int]:
    """(the split with its true start, bytes looked at): it begins where a walk of what lies before it ends.

    Args:
        layout: opens the store whose queues prove a record; only called where that is needed.
    """
    if split.exact:
        return split, 0
    file = split.segment()
    first = next_record(file.map(), file.base, split.start, split.stop)
    looked = 0
    if first < split.stop:
        record = record_at(file.map(), first, file.size, crc=True)
        if isinstance(record, Record) and is_queued(layout(), record, file.base + first):
            looked = record.total_size + UNIT
        elif (proved := _end_of_chain(file, split)) is not None:
            first, looked = proved
        else:
            first, looked = _end_of_walk(file, split)
    file.release()
    return replace(split, start=min(first, split.stop), exact=True), looked


def is_queued(layout: StoreLayout, record: Record, physical_offset: int) -> bool:
    """Whether the entry of a record's queue offset points at it."""
    queue = open_queue(layout, record.topic.decode("utf-8", "surrogateescape"), record.queue_id)
    entry = queue.entry(record.queue_offset) if queue is not None and record.queue_offset >= 0 else None
    return entry is not None and (entry.physical_offset, entry.size) == (physical_offset, record.total_size)


def _end_of_chain(file: Segment, split: Split) -> tuple[int, int] | None:
    """(where a long chain up to the split's start ends, bytes of it); None where it breaks, or none begins."""
    view, latest = file.map(), split.start - CHAIN
    first = next_record(view, file.base, latest - WINDOW, latest) if latest > WINDOW else latest
    if first >= latest:
        return None
    end = _over_records(file, first, split.start, positioned=True)
    return (end, end - first) if end >= split.start and says_position(view, file.base, end) else None


def _end_of_walk(file: Segment, split: Split) -> tuple[int, int]:
    """(where the walk of the file up to the split's start ends, bytes gone over)."""
    view, at = file.map(), 0
    while at < file.size and (at < split.start or not says_position(view, file.base, at)):
        if (behind := _over_records(file, at, split.start)) > at:
            at = behind
            continue
        walk = walk_file(file, at, at + 1, last=split.last)
        try:
            while True:
                next(walk)
        except StopIteration as end:
            at = int(end.value)
    return at, at


def _over_records(file: Segment, at: int, stop: int, *, positioned: bool = False) -> int:
    """Over whole records, by compiled code where there are many: where it ends, at ``stop`` or what is no record.

    Args:
        positioned: end behind records that do not all say their own positions, too.
    """
    view = file.map()
    if not is_large(view, at, stop):
        return at
    from rmqtool.kernels.scan import Walker
    from rmqtool.store.log.scan import ROWS

    walker = Walker(view, ROWS)
    forgotten = at
    while True:
        rows, following = walker.walk(at, reach(view, at, min(at + WINDOW, stop), file.size), stop)
        if not rows.records or (positioned and (rows.physical_offset != rows.at + file.base).any()):
            return at
        at = following
        if at - forgotten >= WINDOW:
            file.forget(forgotten, at)
            forgotten = at
