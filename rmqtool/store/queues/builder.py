"""A consume queue that recovery may cut and extend, in memory and staging files; the store itself is only read.

Follows store.ConsumeQueue and store.MappedFileQueue of 4.9.8 move by move (store-engine 3.3, 4.3, 4.6), with one
difference on disk: what is cut is zero afterwards, so that no later start can take it for entries again.
"""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, ClassVar

import numpy as np

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
_GATHERED = 128 << 10  # bytes of a file that are written together
Column = np.ndarray[Any, np.dtype[Any]]
Units = np.ndarray[Any, np.dtype[Any]]
Stage = Callable[[], str]


class QueueFile:
    """One file of the queue: the one on disk, or a staged copy of its valid part once something was written."""

    def __init__(self, base: int, size: int, source: Segment | None, form: UnitForm = PLAIN) -> None:
        self.base, self.size, self.source, self.form = base, size, source, form
        self.wrote = 0
        self._gathered = bytearray()  # what comes last of that, and is not in the file yet
        self._used = 0  # bytes of a staged file that may not be zero
        self.staged: str | None = None
        self.last_store_timestamp = 0

    def where(self) -> str:
        """The file that holds the entries now."""
        if self.staged is not None:
            self.hand_over()
            return self.staged
        assert self.source is not None
        return self.source.path

    def units(self) -> Units:
        """All entries the file has room for, mapped as long as they are in use."""
        return self.form.as_array(memoryview(map_file(self.where())))

    def runs(self, start: int = 0, stop: int | None = None) -> Generator[tuple[int, Units], None, None]:
        """(number of the first, entries) of entries [start, stop), by default all, without those in holes."""
        return runs_of(self.where(), start, self.size // self.form.size if stop is None else stop, self.form)

    def write(self, units: Units, stage: Stage) -> None:
        """Append entries; the caller has made sure that they fit."""
        if self.staged is None:
            self._make(stage())
        self._gathered += units.view(np.uint8).data
        self.wrote += units.nbytes
        if len(self._gathered) >= _GATHERED:
            self.hand_over()

    def hand_over(self) -> None:
        """Write what was gathered."""
        if not self._gathered or self.staged is None:
            return
        # none stays open: a store may have more files than a process may open
        with open_to_change(self.staged) as file, memoryview(self._gathered) as data:
            # not by a mapping: of a new file each page of that costs as much as many of these calls
            file.write_early(self.wrote - len(data), data)
        self._used = max(self._used, self.wrote)
        self._gathered = bytearray()

    def begin(self, path: str) -> None:
        """Make the staged file empty, whatever the one on disk holds."""
        with make_file(path, 0o644) as file:
            file.cut(self.size)
        self.staged = path

    def fit(self, path: str) -> None:
        """Make the staged file with what the one on disk holds, cut or filled up with zeros to the right length."""
        assert self.source is not None
        with make_file(path, 0o644) as file:
            file.copy_from(self.source.path, min(self.size, self.source.size))
            file.cut(self.size)
        self.staged, self._used = path, self.size

    def _make(self, path: str) -> None:
        """Make the staged file: empty, or with what the one on disk holds."""
        with make_file(path, 0o644) as file:
            file.cut(self.size)
            if self.source is not None:
                # what lies behind the end too: a cut of the broker's goes over it again and may find it valid
                self._used = max(file.copy_from(self.source.path, self.size), self.wrote)
        self.staged = path

    def finish(self) -> None:
        """Write what was gathered, and make zero what lies behind the end of a staged file."""
        self.hand_over()
        if self.staged is not None and self._used > self.wrote:
            with open_to_change(self.staged) as file:
                file.write(self.wrote, bytes(self._used - self.wrote))


class QueueBuilder:
    """State of one queue during recovery.

    Attributes:
        form: of its files.
        max_physical_offset: end of the message of the last entry; the only guard against dispatching twice.
        min_offset: lowest queue offset, as the broker would report it.
        cut, added: entries that went and came.
        misplaced: messages whose queue offset was not the next one: passed over as seen before, or put where the queue
            ended, which moves all that follow.
        begun_at: queue offset of the message with which a queue without files was begun, unless that is 0.
        foreign: what lies in the directory and is no queue file.
        foreign_removed: those of them that are to leave the store.

    Args:
        path: its directory.
        file_size: bytes of each file.
        stage: gives a path for a new staging file.
        segments: what is in the directory.
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
        """Whether the last entry is a filler, in front of the first message of a queue that begins later."""
        file = self.files[-1] if self.files else None
        if file is None or not file.wrote:
            return False
        return tuple(file.units()[file.wrote // UNIT - 1].tolist()) == (0, FILLER_SIZE, 0)

    def first_of(self, segment: Segment) -> int:
        """Queue offset of the first unit of one of its files."""
        return segment.base // UNIT

    @property
    def written_offset(self) -> int:
        """Queue offset after the last entry that its files have, also when a put has failed."""
        return self.max_offset

    @property
    def unknown_from(self) -> int:
        """Physical offset from which on records may be there that the queue does not know."""
        return self.max_physical_offset

    def fit(self) -> None:
        """Give files of a wrong length the right one, in staging files."""
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
        """Find the end in the last three files and drop what lies behind it (ConsumeQueue.recover)."""
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
        """Drop entries whose message starts at or after an offset (ConsumeQueue.truncateDirtyLogicFiles).

        Like the broker's, it goes by the entry's start only, and keeps the first entry of a file whatever it holds.
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
        """Drop every file: the broker does so when there is no commit log (ConsumeQueue.destroy)."""
        self.cut += sum(file.wrote for file in self.files) // self.form.size
        self.max_physical_offset, self.min_logic_offset = NO_OFFSET, 0
        for file in list(self.files):
            self._drop(file)

    def correct_min(self, min_physical_offset: int) -> None:
        """The first entry of the first file whose message is in the log (4.9: no other file is looked at)."""
        if not self.files:
            return
        file = self.files[0]
        stop = file.wrote // UNIT
        with closing(file.runs(0, stop)) as runs:
            fits = first_from(runs, stop, min_physical_offset)
        if fits is not None:
            self.min_logic_offset = file.base + fits * UNIT

    def put(self, puts: QueuePuts) -> None:
        """Append what is not there yet, in order (ConsumeQueue.putMessagePositionInfo)."""
        first, steady = 0, puts.steady
        message = puts.message(0)
        if steady and message[0] + message[1] <= self.max_physical_offset:
            # where positions grow, what is already there is a prefix
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
                return  # no file can have such a name; only a damaged record says so
            file = self._file(expected - expected % self.file_size, self.file_size, None)
            self.files.append(file)
            if queue_offset:
                self.min_logic_offset, self.begun_at = expected, queue_offset
                self._fill(file, expected)
        elif self.files[-1].wrote >= self.file_size:
            self._add_file()  # the broker does so before it looks whether it has seen this message
        # below the write position: seen before; above it: appended all the same, as the broker does (and logs a bug)
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
        """Append units, in as many files as they need.

        Args:
            time_of: gives the store timestamp of each.
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
        """Write what files have gathered."""
        for file in self.files:
            file.hand_over()

    def drop_unwritten(self) -> None:
        """Drop a last file without entries, which the broker would leave.

        Its next start may take the zeros in it for an entry, 5.3 does not load such a queue at all, and the file comes
        back with the next message.
        """
        if len(self.files) > 1 and not self.files[-1].wrote:
            self._drop(self.files[-1])

    def stale(self) -> tuple[str, int, int] | None:
        """(path, start, stop) of bytes behind the end in the last file on disk, if any is not zero."""
        if not self.files or self.files[-1].staged or self.files[-1].source is None:
            return None
        file, path = self.files[-1], self.files[-1].source.path
        stop = has_bytes(path, file.wrote, file.source.size) if file.source else 0
        return (path, file.wrote, file.source.size) if file.source and stop > file.wrote else None

    def target(self, file: QueueFile) -> str:
        """Where a staged file belongs."""
        return file.source.path if file.source is not None else os.path.join(self.path, name_of(file.base))


def _before(runs: Iterator[tuple[int, Units]], physical_offset: int, form: UnitForm) -> tuple[int, int]:
    """(entries of a file before the first one that goes, physical offset of the last of them by its form).

    What goes is what begins at a physical offset or behind it, and what is no entry; the first one only for its offset,
    and then there is none.
    """
    hole = 1 if physical_offset > 0 else 0  # units that stay of a file that begins with a hole
    count = end = 0
    for first, units in runs:
        if not count and first:
            count = hole
        if first > count:
            return count, end
        kept = form.valid_prefix(units) if first else 1 + form.valid_prefix(units[1:])
        behind = np.flatnonzero(units["physical_offset"][:kept] >= physical_offset)
        kept = int(behind[0]) if len(behind) else kept
        if kept:
            count, end = first + kept, form.physical(units[kept - 1])
        if kept < len(units):
            return count, end
    return count or hole, end
