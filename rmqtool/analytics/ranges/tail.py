"""Finds how far a log that is being written can be read: up to the end of the last record that is certainly complete.

A broker appends records one after the other, so a record followed by something is complete. For the last one, the
checksum covers the body, and the bytes after the body contain no zeros unless they are not written yet.
"""

from dataclasses import dataclass

from formats.endings import Ending
from formats.message.read import Record
from rmqtool.analytics.ranges.beginning import WINDOW, is_queued
from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.mapping import forget, need
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.batch import is_bulk
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.records import blank_room, next_record, reach, record_at, record_start

_WORD = 8  # first bytes of a record or blank, never all zero


class PositionExpired(UnreadableStore):
    """A position is before the start of the log: retention has deleted what should be read next."""


@dataclass(slots=True)
class Budget:
    """What may be read at once; None means no limit. ``bytes`` never holds back the first record."""

    bytes: int | None = None
    records: int | None = None
    taken: int = 0

    @property
    def unlimited(self) -> bool:
        """Whether there is no limit."""
        return self.bytes is None and self.records is None

    def take(self, size: int) -> bool:
        """Return whether a record of this size may be read; if so, count it."""
        if self.records is not None and self.records < 1:
            return False
        if self.bytes is not None and self.taken and size > self.bytes:
            return False
        if self.bytes is not None:
            self.bytes -= size
        if self.records is not None:
            self.records -= 1
        self.taken += 1
        return True


def frontier(log: CommitLog, start: int, budget: Budget) -> int:
    """Return the physical offset up to which records from ``start`` on can be read within a budget.

    Damage is skipped if the log continues in another file or if a queue points to a record after it. In the file being
    written, anything else may be an incomplete record, so reading stops there.

    Args:
        start: a record boundary.

    Raises:
        Expired: ``start`` is before the log.
        UnreadableStore: ``start`` is after the log, which was therefore truncated or replaced.
    """
    files = log.segments.files
    if not files:
        if start <= 0:
            return 0
        raise UnreadableStore(f"{log.layout.root}: the log has no files, and was read up to {start}")
    if start < log.min_offset:
        raise PositionExpired(
            f"{log.layout.root}: the log begins at {log.min_offset}, and was read up to {start}: "
            f"{log.min_offset - start} bytes have expired (onExpired=skip goes on after them)"
        )
    number = max(i for i, file in enumerate(files) if file.base <= start)
    if number == len(files) - 1 and start > max(files[-1].end, files[-1].base + log.file_size):
        raise UnreadableStore(f"{log.layout.root}: the log ends at {files[-1].end}, and was read up to {start}")
    position = start
    if budget.unlimited:  # cannot end in an earlier file
        number, position = len(files) - 1, max(start, files[-1].base)
    while number < len(files):
        following = files[number + 1] if number + 1 < len(files) else None
        position, more = _in_file(log, files[number], position, following, budget)
        files[number].release()
        if not more or following is None:
            break
        number, position = number + 1, following.base
    return position


def _in_file(
    log: CommitLog, file: Segment, position: int, following: Segment | None, budget: Budget
) -> tuple[int, bool]:
    """Return (how far one file can be read, whether to continue in the next one)."""
    view, at = file.map(), position - file.base
    while at < file.size:
        at, stopped = _over_records(view, at, file.size, budget)
        if stopped:
            return file.base + at, False
        start = record_start(view, at)
        record = record_at(view, start, file.size, crc=False)
        if isinstance(record, Record):
            end = start + record.total_size
            need(view, end, end + _WORD)
            followed = following is not None or any(view[end : end + _WORD])
            if not (followed or _is_whole(view, start, file.size)) or not budget.take(record.total_size):
                return file.base + at, False
            at = end
            continue
        if record.ending is Ending.FILLER:
            room = blank_room(view, at)
            return (file.base + at + room if following is None and room >= _WORD else file.end), True
        if following is None and record.ending not in (Ending.DAMAGED, Ending.CUT):
            break  # nothing is written there yet
        next_at = next_record(view, file.base, at + 1, file.size)
        if following is None and not _is_proven(log, file, next_at):
            break
        at = next_at
    return file.base + at, following is not None


def _over_records(view: memoryview, at: int, size: int, budget: Budget) -> tuple[int, bool]:
    """Skip whole records that are followed by another one; return (position, whether the budget ended it)."""
    if not is_bulk(view, at, size):
        return at, False
    from rmqtool.kernels.scan import Walker
    from rmqtool.store.log.scan import ROWS

    walker = Walker(view, ROWS, crc=False)
    forgotten = at
    while True:
        if at - forgotten >= WINDOW:
            forget(view, forgotten, at)
            forgotten = at
        rows, _following = walker.walk(at, reach(view, at, at + WINDOW, size))
        sizes = rows.total_size.tolist()
        if len(sizes) < 2:
            return at, False
        for record_size in sizes[:-1]:
            if not budget.take(record_size):
                return at, True
            at += record_size


def _is_whole(view: memoryview, at: int, size: int) -> bool:
    """Return whether the last record of a log is completely written."""
    record = record_at(view, at, size, crc=True)
    return isinstance(record, Record) and 0 not in record.topic and 0 not in record.properties


def _is_proven(log: CommitLog, file: Segment, at: int) -> bool:
    if at >= file.size:
        return False
    record = record_at(file.map(), at, file.size, crc=True)
    return isinstance(record, Record) and is_queued(log.layout, record, file.base + at)
