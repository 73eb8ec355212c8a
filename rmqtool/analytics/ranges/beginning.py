"""Finds the first record of a byte range of the commit log; run by the task that reads the range.

It is almost always the first record whose physical offset matches its position. Exceptions are records inside message
bodies, and old records after an end-of-file blank. A queue entry that points to the record proves it. Otherwise, an
unbroken chain of records with matching offsets leading up to it is proof if it is longer than any message; otherwise
the file is walked from its beginning.
"""

from collections.abc import Callable
from dataclasses import replace

from formats.message.read import Record
from rmqtool.analytics.ranges.splits import Split
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.batch import is_bulk
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.log.commit_log import walk_file
from rmqtool.store.log.records import next_record, reach, record_at, says_position
from rmqtool.store.queues.reader import open_queue

WINDOW = 8 << 20  # bytes after which pages are released
CHAIN = 16 << 20  # bytes; four times the default maximum message size


def exact(split: Split, layout: Callable[[], StoreLayout]) -> tuple[Split, int]:
    """Return the split with its true start, which is where a walk of the preceding bytes ends, and the bytes read.

    Args:
        layout: opens the store whose queues can prove a record; called only if needed.
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
        elif (chain_end := _end_of_chain(file, split)) is not None:
            first, looked = chain_end
        else:
            first, looked = _end_of_walk(file, split)
    file.release()
    return replace(split, start=min(first, split.stop), exact=True), looked


def is_queued(layout: StoreLayout, record: Record, physical_offset: int) -> bool:
    """Return whether the queue entry at a record's queue offset points to the record."""
    queue = open_queue(layout, record.topic.decode("utf-8", "surrogateescape"), record.queue_id)
    entry = queue.entry(record.queue_offset) if queue is not None and record.queue_offset >= 0 else None
    return entry is not None and (entry.physical_offset, entry.size) == (physical_offset, record.total_size)


def _end_of_chain(file: Segment, split: Split) -> tuple[int, int] | None:
    """Return (end, length) of a long chain of records up to the start of the split; None if there is none."""
    view, latest = file.map(), split.start - CHAIN
    first = next_record(view, file.base, latest - WINDOW, latest) if latest > WINDOW else latest
    if first >= latest:
        return None
    end = _over_records(file, first, split.start, positioned=True)
    return (end, end - first) if end >= split.start and says_position(view, file.base, end) else None


def _end_of_walk(file: Segment, split: Split) -> tuple[int, int]:
    """Walk the file up to the start of the split; return (where the walk ends, bytes read)."""
    view, at = file.map(), 0
    while at < file.size and (at < split.start or not says_position(view, file.base, at)):
        if (end_of_records := _over_records(file, at, split.start)) > at:
            at = end_of_records
            continue
        walk = walk_file(file, at, at + 1, last=split.last)
        try:
            while True:
                next(walk)
        except StopIteration as finished:
            at = int(finished.value)
    return at, at


def _over_records(file: Segment, at: int, stop: int, *, positioned: bool = False) -> int:
    """Skip whole records using compiled code where it is worthwhile; return the position reached.

    Args:
        positioned: stop after a batch that has a record whose physical offset does not match.
    """
    view = file.map()
    if not is_bulk(view, at, stop):
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
