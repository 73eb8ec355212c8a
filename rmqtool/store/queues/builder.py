"""Truncate and extend a consume queue in recovery, in memory and staging files; the store itself is only read.

Follows store.ConsumeQueue and store.MappedFileQueue of 4.9.8 step by step (store-engine 3.3, 4.3, 4.6), with one
difference on disk: truncated entries are zeroed, so that no later start can take them for valid ones.
"""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import ClassVar

import numpy as np

from formats.arrays import Units
from formats.layouts.derived import CQ_ENTRY
from formats.queues.consume import FILLER_SIZE
from rmqtool.store.disk.files import make_file, open_to_change
from rmqtool.store.disk.mapping import map_file
from rmqtool.store.disk.segments import Segment, Segments, name_of
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.dispatch.batch import QueuePuts
from rmqtool.store.layout.paths import UNIT
from rmqtool.store.queues.reader import NO_OFFSET, PLAIN, SCANNED_FILES, UnitForm, first_from, runs_of, valid_units

MAX_OFFSET = 2**63 - 2**32
_BUFFER = 128 << 10  # bytes of a file buffered before they are written
Stage = Callable[[], str]


class QueueFile:
    """One file of the queue: the original, or once it has been modified a staged copy of its valid part."""

    def __init__(self, base: int, size: int, source: Segment | None, form: UnitForm = PLAIN) -> None:
        self.base, self.size, self.source, self.form = base, size, source, form
        self.wrote = 0
        self._buffer = bytearray()  # the last part of ``wrote``, not in the file yet
        self._used = 0  # bytes of a staged file that may not be zero
        self.staged: str | None = None
        self.last_store_timestamp = 0

    def where(self) -> str:
        """Path of the file that has the entries now."""
        if self.staged is not None:
            self.hand_over()
            return self.staged
        assert self.source is not None
        return self.source.path

    def units(self) -> Units:
        """All entries that the file has space for; mapped while in use."""
        return self.form.as_array(memoryview(map_file(self.where())))

    def runs(self, start: int = 0, stop: int | None = None) -> Generator[tuple[int, Units], None, None]:
        """(number of the first entry, entries) of [start, stop), by default all, skipping holes."""
        return runs_of(self.where(), start, self.size // self.form.size if stop is None else stop, self.form)

    def write(self, units: Units, stage: Stage) -> None:
        """Append entries; they must fit."""
        if self.staged is None:
            self._make(stage())
        self._buffer += units.view(np.uint8).data
        self.wrote += units.nbytes
        if len(self._buffer) >= _BUFFER:
            self.hand_over()

    def hand_over(self) -> None:
        """Write the buffer."""
        if not self._buffer or self.staged is None:
            return
        # no file stays open: a store may have more files than a process may open
        with open_to_change(self.staged) as file, memoryview(self._buffer) as data:
            # pwrite, since for a new file each page of a mapping costs as much as many of these calls
            file.write_early(self.wrote - len(data), data)
        self._used = max(self._used, self.wrote)
        self._buffer = bytearray()

    def begin(self, path: str) -> None:
        """Create an empty staged file, whatever the original contains."""
        with make_file(path, 0o644) as file:
            file.cut(self.size)
        self.staged = path

    def fit(self, path: str) -> None:
        """Create the staged file as a copy of the original, truncated or zero-filled to the right length."""
        assert self.source is not None
        with make_file(path, 0o644) as file:
            file.copy_from(self.source.path, min(self.size, self.source.size))
            file.cut(self.size)
        self.staged, self._used = path, self.size

    def _make(self, path: str) -> None:
        """Create the staged file: empty, or as a copy of the original."""
        with make_file(path, 0o644) as file:
            file.cut(self.size)
            if self.source is not None:
                # including what is after the end: a later truncation checks it again and may find it valid, as in the
                # broker
                self._used = max(file.copy_from(self.source.path, self.size), self.wrote)
        self.staged = path

    def finish(self) -> None:
        """Write the buffer, and zero a staged file after its end."""
        self.hand_over()
        if self.staged is not None and self._used > self.wrote:
            with open_to_change(self.staged) as file:
                file.write(self.wrote, bytes(self._used - self.wrote))


class QueueBuilder:
    """State of a queue during recovery.

    Attributes:
        form: form of its files.
        max_physical_offset: end of the last entry's message; the only guard against dispatching a message twice.
        min_offset: lowest queue offset, as the broker would report it.
        cut, added: number of entries removed and added.
        misplaced: number of messages whose queue offset was not the next one: skipped as already seen, or appended at
            the end, which shifts all that follow.
        begun_at: queue offset of the first message of a new queue.
        foreign: paths in the directory that are not queue files.
        foreign_removed: those of them to be removed from the store.

    Args:
        path: its directory.
        file_size: bytes per file.
        stage: returns a path for a new staging file.
        segments: the files in the directory.
    """

    form: ClassVar[UnitForm] = PLAIN

    def __init__(self, topic: str, queue_id: int, path: str, file_size: int, stage: Stage, segments: Segments) -> None:
        self.topic, self.queue_id, self.path = topic, queue_id, path
        self.file_size = file_size
        self._stage = stage
        self.files = [self._file(s.base, s.size, s) for s in segments]
        self.foreign, self.foreign_removed = segments.foreign, list[str]()
        self.removed: list[Segment] = []
        self.max_physical_offset = NO_OFFSET
        self.min_logic_offset = 0
        self.cut = self.added = self.misplaced = self.begun_at = 0

    def _file(self, base: int, size: int, source: Segment | None) -> QueueFile:
        return QueueFile(base, size, source, self.form)

    @property
    def sources(self) -> list[Segment]:
        """The queue's files on disk."""
        return [file.source for file in self.files if file.source is not None]

    @property
    def end(self) -> int:
        """Byte offset after the last entry."""
        return self.files[-1].base + self.files[-1].wrote if self.files else 0

    @property
    def min_offset(self) -> int:
        """Lowest queue offset."""
        return self.min_logic_offset // UNIT

    @property
    def max_offset(self) -> int:
        """Queue offset after the last entry."""
        return self.end // UNIT

    @property
    def ends_in_filler(self) -> bool:
        """Whether the last entry is a filler, in front of the first message of a queue that does not begin at 0."""
        file = self.files[-1] if self.files else None
        if file is None or not file.wrote:
            return False
        return tuple(file.units()[file.wrote // UNIT - 1].tolist()) == (0, FILLER_SIZE, 0)

    def first_of(self, segment: Segment) -> int:
        """Queue offset of the first unit of one of its files."""
        return segment.base // UNIT

    @property
    def written_offset(self) -> int:
        """Queue offset after the last entry in its files, even after a put has failed."""
        return self.max_offset

    @property
    def unknown_from(self) -> int:
        """Physical offset from which on there may be records missing in the queue."""
        return self.max_physical_offset

    def fit(self) -> None:
        """Correct the length of files, in staging files."""
        for file in self.files:
            if file.source is not None and file.size != self.file_size:
                file.size = self.file_size
                file.fit(self._stage())

    def _drop(self, file: QueueFile) -> None:
        self.files.remove(file)
        if file.source is not None:
            self.removed.append(file.source)
            file.source.release()

    def recover(self) -> None:
        """Find the end in the last three files and drop everything after it (ConsumeQueue.recover)."""
        if not self.files:
            return
        end = 0
        for file in self.files[max(0, len(self.files) - SCANNED_FILES) :]:
            with closing(file.runs()) as runs:
                count, last = valid_units(runs, self.form)
            if count:
                self.max_physical_offset = last
            end = file.base + count * self.form.size
            if count * self.form.size < self.file_size:
                break
        for file in list(self.files):
            if file.base + self.file_size <= end:
                file.wrote = self.file_size
            elif end >= file.base:
                file.wrote = end % self.file_size
            else:
                self._drop(file)

    def truncate(self, physical_offset: int) -> None:
        """Drop entries whose message begins at or after a physical offset (ConsumeQueue.truncateDirtyLogicFiles).

        Like the broker, it compares only the start of messages, and keeps the first entry of a file whatever it
        contains.
        """
        before = self.end
        self.max_physical_offset = physical_offset
        while self.files:
            file = self.files[-1]
            with closing(file.runs()) as runs:
                count, last = _before(runs, physical_offset, self.form)
            if not count:
                self._drop(file)
                continue
            self.max_physical_offset = last
            file.wrote = count * self.form.size
            break
        self.cut += max(before - self.end, 0) // self.form.size

    def destroy(self) -> None:
        """Drop every file, as the broker does if there is no commit log (ConsumeQueue.destroy)."""
        self.cut += sum(file.wrote for file in self.files) // self.form.size
        self.max_physical_offset, self.min_logic_offset = NO_OFFSET, 0
        for file in list(self.files):
            self._drop(file)

    def correct_min(self, min_physical_offset: int) -> None:
        """Set the lowest queue offset to the first entry of the first file whose message is in the log (4.9)."""
        if not self.files:
            return
        file = self.files[0]
        stop = file.wrote // UNIT
        with closing(file.runs(0, stop)) as runs:
            fits = first_from(runs, stop, min_physical_offset)
        if fits is not None:
            self.min_logic_offset = file.base + fits * UNIT

    def put(self, puts: QueuePuts) -> None:
        """Append entries that are not in the queue yet, in order (ConsumeQueue.putMessagePositionInfo)."""
        first, steady = 0, puts.steady
        message = puts.message(0)
        if steady and message[0] + message[1] <= self.max_physical_offset:
            # positions increase, so that the entries already in the queue are a prefix
            first = int(np.searchsorted(puts.ends, self.max_physical_offset, side="right"))
        for row in range(first, len(puts)):
            physical, size, offset, _timestamp = puts.message(row) if row else message
            if steady and self.files and offset and offset * UNIT == self.end:
                self._append(puts, row, len(puts))
                return
            self._put_one(puts, row, physical, size, offset)

    def _put_one(self, puts: QueuePuts, row: int, physical: int, size: int, queue_offset: int) -> None:
        if physical + size <= self.max_physical_offset:
            return
        expected = (queue_offset * UNIT + 2**63) % 2**64 - 2**63  # Java's long wraps
        if not self.files:
            if not 0 <= expected < MAX_OFFSET:
                return  # no file can have such a name; the record must be damaged
            file = self._file(expected - expected % self.file_size, self.file_size, None)
            self.files.append(file)
            if queue_offset:
                self.min_logic_offset, self.begun_at = expected, queue_offset
                self._fill(file, expected)
        elif self.files[-1].wrote >= self.file_size:
            self._add_file()  # before the check for a repeated message, as in the broker
        # below the write position: a repeated message; above it: appended anyway, as by the broker (which logs a bug)
        self.misplaced += expected != self.end
        if queue_offset and expected < self.end:
            return
        self._append(puts, row, row + 1)

    def _fill(self, file: QueueFile, upto: int) -> None:
        filler = np.zeros((upto - file.base) // UNIT, CQ_ENTRY.dtype)
        filler["size"] = FILLER_SIZE
        file.write(filler, self._stage)

    def _add_file(self) -> None:
        base = self.files[-1].base + self.file_size if self.files else 0
        self.files.append(self._file(base, self.file_size, None))
        self.files[-1].write(self.form.as_array(b""), self._stage)

    def _append(self, puts: QueuePuts, start: int, stop: int) -> None:
        physical, size, _offset, _timestamp = puts.message(stop - 1)
        self.max_physical_offset = physical + size
        self._write(puts.entries[start:stop], lambda number: puts.message(start + number)[3])

    def _write(self, units: Units, time_of: Callable[[int], int]) -> None:
        """Append units to as many files as needed.

        Args:
            time_of: returns the store timestamp of a unit by its number.
        """
        self.added += len(units)
        start = 0
        while start < len(units):
            if not self.files or self.files[-1].wrote >= self.file_size:
                self._add_file()
            file = self.files[-1]
            end = min(len(units), start + (self.file_size - file.wrote) // self.form.size)
            file.write(units[start:end], self._stage)
            file.last_store_timestamp = time_of(end - 1)
            start = end

    def hand_over(self) -> None:
        """Write the buffers of all files."""
        for file in self.files:
            file.hand_over()

    def drop_unwritten(self) -> None:
        """Drop a last file without entries, which the broker would keep.

        Its next start might take the zeros in it for an entry, 5.3 does not load such a queue at all, and the next
        message creates the file again.
        """
        if len(self.files) > 1 and not self.files[-1].wrote:
            self._drop(self.files[-1])

    def stale(self) -> tuple[str, int, int] | None:
        """(path, start, stop) of the bytes after the end in the last file on disk; None if they are zero."""
        if not self.files or self.files[-1].staged or self.files[-1].source is None:
            return None
        file, path = self.files[-1], self.files[-1].source.path
        stop = has_bytes(path, file.wrote, file.source.size) if file.source else 0
        return (path, file.wrote, file.source.size) if file.source and stop > file.wrote else None

    def target(self, file: QueueFile) -> str:
        """Path in the store of a staged file."""
        return file.source.path if file.source is not None else os.path.join(self.path, name_of(file.base))


def _before(runs: Iterator[tuple[int, Units]], physical_offset: int, form: UnitForm) -> tuple[int, int]:
    """(number of a file's entries before the first one to drop, the last entry's physical offset by its form).

    Entries at or after a physical offset are dropped, and invalid ones; the first entry only because of its offset, in
    which case none is left.
    """
    hole = 1 if physical_offset > 0 else 0  # units kept in a file that begins with a hole
    count = end = 0
    for first, units in runs:
        if not count and first:
            count = hole
        if first > count:
            return count, end
        keep = form.valid_prefix(units) if first else 1 + form.valid_prefix(units[1:])
        behind = np.flatnonzero(units["physical_offset"][:keep] >= physical_offset)
        keep = int(behind[0]) if len(behind) else keep
        if keep:
            count, end = first + keep, form.physical(units[keep - 1])
        if keep < len(units):
            return count, end
    return count or hole, end
