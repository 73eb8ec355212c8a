"""The commit log: one offset space over its files, record by record (store.CommitLog).

There are two ways to read it. :meth:`CommitLog.read` returns the record at one offset. :meth:`CommitLog.walk` goes
through a range and does not stop at damage: it reports the damaged range, searches for the next record that states its
own position, and continues there.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator
from time import sleep
from typing import NamedTuple

from formats.endings import Ending
from formats.layouts.derived import HEAD_V4_V4
from formats.message.inner import is_inner_batch, messages_in
from formats.message.read import End, Record
from rmqtool.store.disk.mapping import forget, is_partial, need
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import extents_of, has_bytes, is_zero
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.records import (
    WINDOW,
    blank_room,
    claimed_size,
    is_entries,
    next_record,
    record_at,
    record_start,
    says_position,
    stated_store_time,
)

_PAGE = 4096  # bytes that the system writes at once
_BEFORE = 1 << 20  # bytes before the end of the log in which such writes are looked for
_SURE = 64  # bytes that are not equal by accident
_RECENT = 10  # seconds after a change of a file within which a broker may still be writing; it flushes twice a second
_PAUSES = (0.001, 0.01, 0.05)  # seconds in which a broker finishes the record that it is writing, however busy it is
_FEW = 1000  # records that are read one by one before they are read in bulk


class LocatedRecord(NamedTuple):
    """A record and its place in the log."""

    file: Segment
    at: int  # byte in the file
    record: Record

    @property
    def physical_offset(self) -> int:
        """Its actual offset in the log, whatever offset the record itself states."""
        return self.file.base + self.at

    @property
    def end(self) -> int:
        """Physical offset after the record."""
        return self.physical_offset + self.record.total_size

    def messages(self) -> "Iterator[LocatedRecord]":
        """The messages in the record: those of an inner batch (5.x), otherwise the record itself."""
        if is_inner_batch(self.record.sys_flag):
            for record in messages_in(self.record):
                yield LocatedRecord(self.file, self.at, record)
        else:
            yield self


class Damage(NamedTuple):
    """A range of the log that should hold a record but does not."""

    path: str
    at: int  # byte in the file
    physical_offset: int
    length: int
    ending: Ending
    reason: str


class CommitLog:
    """The commit log of one store, read-only."""

    def __init__(self, layout: StoreLayout) -> None:
        self.layout = layout
        self.segments = layout.commit_log()
        self.file_size = layout.commit_log_size(self.segments)

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte on disk; -1 without files, as in the broker."""
        return self.segments.files[0].base if self.segments.files else -1

    @property
    def written_end(self) -> int:
        """Physical offset after the last non-zero byte, whatever that byte belongs to; 0 without files."""
        files = self.segments.files
        return files[-1].base + has_bytes(files[-1].path, 0, files[-1].size) if files else 0

    def first(self) -> LocatedRecord | None:
        """The first record of the log; None if the log does not begin with one."""
        if not (files := self.segments.files):
            return None
        return self.read(files[0].base + record_start(files[0].map(), 0), crc=False)

    def read(self, physical_offset: int, *, crc: bool = True) -> LocatedRecord | None:
        """The record at an offset, or None if there is none."""
        item = self.look(physical_offset, crc=crc)
        return item if isinstance(item, LocatedRecord) else None

    def look(self, physical_offset: int, *, crc: bool = True) -> LocatedRecord | Damage:
        """The record at an offset, or what is there instead."""
        file = self.segments.find(physical_offset)
        if file is None:
            where = self.layout.commit_log_paths[0]
            return Damage(where, physical_offset, physical_offset, 0, Ending.CLEAN, "no file holds this offset")
        at = physical_offset - file.base
        view = file.map()
        record = record_at(view, at, len(view), crc=crc)
        if isinstance(record, End):
            return Damage(file.path, at, physical_offset, 0, record.ending, record.reason)
        return LocatedRecord(file, at, record)

    def store_time(self, physical_offset: int) -> int | None:
        """The store timestamp (ms) of the record at an offset, of which little else is read; None without a record."""
        file = self.segments.find(physical_offset)
        if file is None:
            return None
        stated = stated_store_time(file.map(), file.base, physical_offset - file.base)
        if stated is not None:
            return stated
        item = self.read(physical_offset, crc=False)  # one that states another position
        return item.record.store_timestamp if item is not None else None

    def end(self) -> tuple[int, int | None]:
        """(offset after the last record, store timestamp of that record), reading up to the first damage."""
        newest = self.last()
        return (newest.end, newest.record.store_timestamp) if newest is not None else (max(self.min_offset, 0), None)

    def last(self, hint: int = -1) -> LocatedRecord | None:
        """The last record, reading up to the first damage; None without any.

        Args:
            hint: an offset at which a record may begin, such as the end of the last message known to a queue; nothing
                before it is read. By default the last three files are read.
        """
        files = self.segments.files
        if not files:
            return None
        newest: LocatedRecord | None = None
        file = self.segments.find(hint) if hint >= 0 else None
        at = hint - file.base if file is not None else 0
        file = file or files[max(0, len(files) - 3)]
        read = 0  # records in a row
        while True:
            start = record_start(file.map(), at)
            record = record_at(file.map(), start, file.size)
            if isinstance(record, Record):
                newest = LocatedRecord(file, start, record)
                at, read = start + record.total_size, read + 1
                if read % _FEW == 0 and (last := _last_in_row(file, at)) is not None:
                    at = last
                continue
            following = self.segments.find(file.end) if record.ending is Ending.FILLER else None
            if following is None:
                return newest
            file, at = following, 0

    def walk(
        self, start: int | None = None, stop: int | None = None, *, crc: bool = True
    ) -> Iterator[LocatedRecord | Damage]:
        """Records that begin in [start, stop), in order, with every damaged range between them.

        A start inside a file moves forward to the next record that states its own position. Anything that does not
        (damage, records of a file that was moved) belongs to the range of the last such record before it, even if it
        begins after ``stop``: adjacent ranges neither lose nor repeat anything. Unwritten space at the end of the last
        file is not damage; a hole with records after it is.
        """
        files = [f for f in self.segments if (stop is None or f.base < stop) and (start is None or f.end > start)]
        for file in files:
            view = file.map()
            limit = file.size if stop is None else min(file.size, stop - file.base)
            first = 0 if start is None else max(start - file.base, 0)
            if first:
                first = next_record(view, file.base, first, limit)
            yield from walk_file(file, first, limit, last=file is self.segments.files[-1], crc=crc)
            file.release()


def _last_in_row(file: Segment, at: int) -> int | None:
    """Where the last of the records begins that follow each other from ``at``; None if none does, or if they must be
    read one by one.
    """
    view = file.map()
    if is_entries(view) or is_partial(view):
        return None
    from rmqtool.kernels.scan import Walker, space_rows  # with NumPy, which most look-ups do without

    walker, last, begin = Walker(view, space_rows(_FEW)), None, at
    while True:
        rows, at = walker.walk(at, file.size, at + WINDOW)
        if not rows.records:
            return last
        last = int(rows.at[-1])
        if at - begin >= WINDOW:
            forget(view, begin, at)
            begin = at


def walk_file(
    file: Segment, at: int, limit: int, *, last: bool, crc: bool = True
) -> Generator[LocatedRecord | Damage, None, int]:
    """The part of :meth:`CommitLog.walk` in one file: what begins in [at, limit), and what follows without a position.

    Args:
        at: the start of a record or of the file.
        last: whether this is the last file of the log, whose end may be unwritten.

    Returns:
        Where the next range of this file must begin: a record that states its own position, at or after ``limit``;
        the file's size when nothing more follows.
    """
    view, size, forgotten = file.map(), file.size, 0
    at = record_start(view, at)
    if at >= limit:
        return at
    while at < size and (at < limit or not says_position(view, file.base, at)):
        record = record_at(view, at, size, crc=crc)
        if isinstance(record, Record):
            yield LocatedRecord(file, at, record)
            at = record_start(view, at + record.total_size)
        else:
            blank = record.ending is Ending.FILLER
            following = _behind_blank(file, at) if blank else next_in_file(file, at + 1)
            if blank and following >= size:
                return size
            quiet = record.ending is Ending.UNWRITTEN and following >= size and (last or is_zero(file.path, at, size))
            quiet = quiet or (following >= size and is_rest_of_page(file, at))
            if not quiet and last and _is_whole_by_now(file, at, crc=crc, wait=following >= size):
                continue
            if not quiet:
                end = min(following, size)
                yield Damage(file.path, at, file.base + at, end - at, record.ending, record.reason)
            at = following
        if at - forgotten >= WINDOW:
            file.forget(forgotten, min(at, size))
            forgotten = at
    return at


def _is_whole_by_now(file: Segment, at: int, *, crc: bool, wait: bool) -> bool:
    """Whether a record of which a running broker had only written the first bytes is whole by now.

    Args:
        wait: whether to give a broker that changed the file in the last seconds a moment to finish.
    """
    pauses = _PAUSES if wait and file.is_changed_within(_RECENT) else ()
    for seconds in (0.0, *pauses):
        sleep(seconds)
        if isinstance(record_at(file.map(), at, file.size, crc=crc), Record):
            return True
    return False


def is_rest_of_page(file: Segment, at: int) -> bool:
    """Whether only the rest of a page follows that was written with the last record.

    A damaged record would still state its position. Unless the settings say that brokers write whole pages, these bytes
    have to be what their buffer had before, see :func:`_is_of_earlier_records`.
    """
    page_end = -(-at // _PAGE) * _PAGE
    if not is_zero(file.path, page_end, file.size):
        return False
    view = file.map()
    place = at + HEAD_V4_V4.offsets["physical_offset"]
    need(view, at, max(page_end, place + 8))
    if int.from_bytes(view[place : place + 8], "big") == file.base + at:
        return False
    return file.whole_pages or _is_of_earlier_records(file, at, bytes(view[at:page_end]))


def _is_of_earlier_records(file: Segment, at: int, rest: bytes) -> bool:
    """Whether bytes behind the last record are what earlier writes have at the same distance from their start.

    A buffer that each message, or batch of them, is written to from its beginning, and then to the file up to the end
    of a page, has the ends of longer writes behind the last message, and zeros behind the longest of them
    (``writeWithoutMmap`` of 5.4 and later).

    Args:
        at: end of the last record.
        rest: the bytes from there to the end of the page.
    """
    view, used = file.map(), len(rest.rstrip(b"\0"))
    if not used or is_entries(view):
        return False
    low = max(at - _BEFORE, 0)
    need(view, low, at)
    start = next_record(view, file.base, low, at)
    starts: list[int] = []
    while start < at and (size := claimed_size(view, file.base, start)) is not None and size >= HEAD_V4_V4.size:
        starts.append(start)
        start += size
    if start != at or len(starts) < 2:
        return False
    last, explained = at - starts[-1], 0
    for start in reversed(starts[:-1]):
        base = start + last
        same = _count_same(view[base + explained : min(base + len(rest), at)], rest[explained:])
        # a write ends where a record does
        end = starts[bisect_right(starts, base + explained + same) - 1] - base
        if end > explained:
            explained = end
            if explained >= used:
                return True
    return explained >= _SURE


def _count_same(one: memoryview, other: bytes) -> int:
    """The number of bytes with which both begin."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bytes(one[low:middle]) == other[low:middle] else (low, middle - 1)
    return low


def _behind_blank(file: Segment, at: int) -> int:
    """Return where records continue after an end-of-file blank; the file's size if they do not.

    A blank whose length differs from the space left has overwritten a message. After a proper blank there can only be
    stale bytes.
    """
    if blank_room(file.map(), at) == file.size - at:
        return file.size
    return next_in_file(file, at + 8)


def next_in_file(file: Segment, at: int) -> int:
    """:func:`next_record` in the rest of a file, skipping holes; the file's size if there is none."""
    for start, stop in extents_of(file.where, at, file.size):
        # a record's first non-zero byte is at most its fifth, the magic's first, so data may begin 4 bytes late
        position = next_record(file.map(), file.base, max(at, start - 4), stop)
        if position < stop:
            return position
    return file.size
