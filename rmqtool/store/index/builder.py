"""Remove, extend and create index files in recovery (store.index.IndexService, IndexFile; store-engine 3.4)."""

import mmap
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from formats.index import Header
from formats.layouts.derived import INDEX_ENTRY, INDEX_HEADER
from rmqtool.store.disk.files import make_file, open_file, open_to_change
from rmqtool.store.disk.mapping import read_at
from rmqtool.store.dispatch import batch as dispatch
from rmqtool.store.dispatch.batch import RecordBatch

if TYPE_CHECKING:
    from rmqtool.kernels.load.library import Implementation

INT_MAX = 2**31 - 1
_HEADER_SIZE = INDEX_HEADER.size
_ENTRIES_AHEAD = 64 << 10  # bytes
_MOST_IN_MEMORY = 64 << 20  # bytes of slots; files of default size have 20 MB


class IndexFile:
    """One index file: its header in memory, its tables on disk or staged."""

    def __init__(self, path: str | None, slots: int, entries: int) -> None:
        self.path, self.slots, self.entries = path, slots, entries
        self.begin_timestamp = self.end_timestamp = 0
        self.begin_physical_offset = self.end_physical_offset = 0
        self.hash_slot_count, self.index_count = 0, 1
        self.staged: str | None = None
        self.map: mmap.mmap | None = None
        # parts that have disk blocks: bytes from the beginning, pages of slots, entries up to this byte
        self._allocated, self._slot_pages, self._allocated_entries = 0, set[int](), 0
        self._table: np.ndarray[Any, np.dtype[np.uint8]] | None = None
        if path is not None:
            header = read_at(path, 0, _HEADER_SIZE).ljust(_HEADER_SIZE, b"\0")
            (
                self.begin_timestamp,
                self.end_timestamp,
                self.begin_physical_offset,
                self.end_physical_offset,
                self.hash_slot_count,
                count,
            ) = INDEX_HEADER.unpack_from(header)
            self.index_count = count if count > 0 else 1

    @property
    def short(self) -> bool:
        """Whether the file on disk is too short; the broker's mapping extends it to its full length."""
        return self.path is not None and os.path.getsize(self.path) < self.length

    @property
    def full(self) -> bool:
        """Whether there is no space for another entry."""
        return self.index_count >= self.entries

    @property
    def length(self) -> int:
        """Bytes of the whole file."""
        return _HEADER_SIZE + 4 * self.slots + INDEX_ENTRY.size * self.entries

    def stage(self, path: str) -> mmap.mmap:
        """Map a writable copy of the file on disk, or an empty file."""
        if self.map is None:
            length = max(self.length, os.path.getsize(self.path)) if self.path is not None else self.length
            with make_file(path, 0o644) as file:
                file.cut(length)
                if self.path is not None:
                    # a damaged header may hide entries that slots still point to; later puts make them reachable again
                    file.copy_from(self.path)
                self.map = file.map(length)
            self.staged = path
        return self.map

    def put(self, key_hash: int, physical_offset: int, timestamp: int) -> None:
        """Add an entry; it must fit, and the file must be staged."""
        assert self.map is not None
        slot_at = _HEADER_SIZE + 4 * (key_hash % self.slots)
        entry_at = _HEADER_SIZE + 4 * self.slots + INDEX_ENTRY.size * self.index_count
        self._reserve_for(slot_at, entry_at)
        previous = int.from_bytes(self.map[slot_at : slot_at + 4], "big", signed=True)
        if previous <= 0 or previous > self.index_count:
            previous = 0
        # relative to the begin time BEFORE this put: in a follow-up file that is still the previous file's end
        seconds = 0
        if self.begin_timestamp > 0:
            # Java divides toward zero; a negative difference counts as 0 anyway
            seconds = min(max(timestamp - self.begin_timestamp, 0) // 1000, INT_MAX)
        INDEX_ENTRY.struct.pack_into(self.map, entry_at, key_hash, physical_offset, seconds, previous)
        self.map[slot_at : slot_at + 4] = self.index_count.to_bytes(4, "big")
        if self.index_count <= 1:
            self.begin_physical_offset, self.begin_timestamp = physical_offset, timestamp
        if previous == 0:
            self.hash_slot_count += 1
        self.index_count += 1
        self.end_physical_offset, self.end_timestamp = physical_offset, timestamp

    def put_bulk(self, batch: RecordBatch, first: int, code: "Implementation | None" = None) -> tuple[int, int]:
        """Bulk form of :meth:`put` for the keys of a batch, as far as they fit: (next key, number of entries)."""
        from rmqtool.kernels.index import put_keys

        assert self.map is not None
        header = Header(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        )
        room = min(len(batch.key_row) - first, self.entries - self.index_count)
        entries = np.empty(INDEX_ENTRY.size * room, np.uint8)
        at = _HEADER_SIZE + 4 * self.slots + INDEX_ENTRY.size * self.index_count
        self._need(at, at + len(entries))
        columns = batch.key_row, batch.hashes, batch.physical_offset, batch.store_timestamp
        following, added, header = put_keys(self._slots(), entries, header, *columns, first, code=code)
        self.begin_timestamp, self.end_timestamp = header.begin_timestamp, header.end_timestamp
        self.begin_physical_offset, self.end_physical_offset = header[2:4]
        self.hash_slot_count, self.index_count = header.hash_slot_count, header.index_count
        # written by pwrite, since in a mapping every new page costs a page fault
        self._write(entries[: INDEX_ENTRY.size * added].data, at)
        return following, added

    def _need(self, start: int, stop: int) -> None:
        """Allocate space for entries before slots point to them; not needed for a staged file."""

    def _write(self, data: memoryview, at: int) -> None:
        assert self.staged is not None
        with open_to_change(self.staged) as file:
            file.write_early(at, data)

    def _reserve(self, start: int, stop: int) -> None:
        """Allocate disk blocks for a range of the mapping; without blocks, a write to it kills the process.

        Raises:
            OSError: the disk is full.
        """
        if stop <= self._allocated or self.staged is None:
            return
        assert self.map is not None
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        last = min(-(-stop // mmap.PAGESIZE) * mmap.PAGESIZE, len(self.map))
        with open_to_change(self.staged) as file:
            file.reserve(first, last)
        if start == 0:
            self._allocated = stop

    def _reserve_for(self, slot_at: int, entry_at: int) -> None:
        """Allocate blocks for one slot and one entry, with some reserve after the entry."""
        page = slot_at // mmap.PAGESIZE
        if page not in self._slot_pages:
            self._reserve(slot_at, slot_at + 4)
            self._slot_pages.add(page)
        if entry_at + INDEX_ENTRY.size > self._allocated_entries:
            stop = min(entry_at + _ENTRIES_AHEAD, self.length)
            self._reserve(entry_at, stop)
            self._allocated_entries = stop

    def _slots(self) -> Any:
        """The slots: in memory until the header is written, or in the file if there are many."""
        assert self.map is not None
        stop = _HEADER_SIZE + 4 * self.slots
        if 4 * self.slots > _MOST_IN_MEMORY:
            self._reserve(0, stop)
            return memoryview(self.map)[_HEADER_SIZE:stop]
        if self._table is None:
            if self.path is None and self.index_count <= 1:
                self._table = np.zeros(4 * self.slots, np.uint8)
            else:
                assert self.staged is not None
                self._table = np.zeros(4 * self.slots, np.uint8)
                with open_file(self.staged) as file:
                    file.read_into(self._table.data, _HEADER_SIZE)
        return self._table

    def let_go(self) -> None:
        """Drop the mapping; nothing more will be added."""
        self.map, self._slot_pages = None, set()

    def write_header(self) -> None:
        """Write the header of a staged file, and the slots held in memory."""
        if self._table is not None:
            self._write(self._table.data, _HEADER_SIZE)
            self._table = None
        if self.map is not None:
            self._reserve(0, _HEADER_SIZE)
            INDEX_HEADER.struct.pack_into(
                self.map,
                0,
                self.begin_timestamp,
                self.end_timestamp,
                self.begin_physical_offset,
                self.end_physical_offset,
                (self.hash_slot_count + 2**31) % 2**32 - 2**31,  # a damaged count may overflow
                self.index_count,
            )


class IndexBuilder:
    """The index during recovery.

    Args:
        paths: index files on disk, oldest first.
        geometry: (hash slots, entries) of new files.
        stage: returns a path for a new staging file.
        code: which implementation adds the keys of large batches.

    Attributes:
        added: number of entries added.
        repeated: how many of them belong to the last message in the last file on disk, which the broker indexes again
            whenever it dispatches it again.
    """

    def __init__(
        self,
        paths: list[str],
        geometry: tuple[int, int],
        stage: Callable[[], str],
        code: "Implementation | None" = None,
    ) -> None:
        self._code = code
        self.slots, self.entries = geometry
        self._stage = stage
        self.files = [self._file(path) for path in paths]
        self.removed: list[IndexFile] = []
        self.added = self.repeated = 0
        self._bulk = self._lengthened = False

    def _file(self, path: str | None) -> IndexFile:
        return IndexFile(path, self.slots, self.entries)

    def prune(self, checkpoint_timestamp: int) -> None:
        """After a crash, drop files that are newer than the checkpoint's index time (IndexService.load)."""
        self.removed = [file for file in self.files if file.end_timestamp > checkpoint_timestamp]
        self.files = [file for file in self.files if file.end_timestamp <= checkpoint_timestamp]

    def _writable(self) -> IndexFile:
        """The last file if it has space, or a new one that begins where the full one ends."""
        last = self.files[-1] if self.files else None
        if last is not None and not last.full:
            return last
        file = self._file(None)
        if last is not None:
            # negative values of a damaged header are not carried over
            file.begin_physical_offset = file.end_physical_offset = max(last.end_physical_offset, 0)
            file.begin_timestamp = file.end_timestamp = max(last.end_timestamp, 0)
            last.write_header()
            last.let_go()
        file.stage(self._stage())
        self.files.append(file)
        return file

    def put(self, batch: RecordBatch) -> None:
        """Index a batch in order; records before the last file's end are indexed already (IndexService.buildIndex)."""
        if not len(batch):
            return
        file = self._writable()  # created for any record, with or without keys
        if (self._bulk or len(batch.key_row) >= dispatch.BULK_KEYS) and self.entries > 1:
            self._put_bulk(batch)
            return
        physical, timestamps = batch.physical_offset.tolist(), batch.store_timestamp.tolist()
        row_before = -1
        skip = again = False
        for row, key_hash in zip(batch.key_row.tolist(), batch.hashes.tolist(), strict=True):
            if row != row_before:
                file = self._writable()
                skip = physical[row] < file.end_physical_offset
                again = file.staged is None and physical[row] == file.end_physical_offset
                row_before = row
            if skip:
                continue
            if file.full:
                file = self._writable()
            if file.map is None:
                file.stage(self._stage())
            file.put(key_hash, physical[row], timestamps[row])
            self.added += 1
            self.repeated += again
        if row_before < len(batch) - 1:
            self._writable()

    def _put_bulk(self, batch: RecordBatch) -> None:
        """Bulk form of :meth:`put`, with kernels."""
        self._bulk = True
        first = 0
        while first < len(batch.key_row):
            file = self._writable()
            if file.map is None:
                # a file to which nothing is added must not be changed on disk
                rows = batch.key_row[first:]
                fresh = np.flatnonzero(batch.physical_offset[rows] >= file.end_physical_offset)
                if not len(fresh):
                    break
                row = rows[fresh[0]]
                if batch.physical_offset[row] == file.end_physical_offset:
                    self.repeated += int((rows == row).sum())
                file.stage(self._stage())
            first, added = file.put_bulk(batch, first, self._code)
            self.added += added
        if not len(batch.key_row) or int(batch.key_row[-1]) < len(batch) - 1:
            self._writable()

    @property
    def unchanged(self) -> bool:
        """Whether nothing but repeated entries was added."""
        same_files = not self.removed and not self._lengthened and all(file.path for file in self.files)
        return same_files and self.added == self.repeated

    def finish(self) -> None:
        """Write the headers of staged files, and extend short ones to their full length."""
        for file in self.files:
            if file.short:
                if file.staged is None:
                    file.stage(self._stage())
                self._lengthened = True
            file.write_header()

    def new_name(self, previous: str) -> str:
        """A file name from the current time, as in the broker, but later than ``previous``."""
        now = time.time()
        begun = max(now, _name_time(previous))
        # ``previous`` may have another form that sorts after any time; and when clocks are set back, an hour repeats
        for moment in (now, begun + 0.0015, begun + 3600.0015, begun + 7200.0015):
            if (name := _time_name(moment)) > previous:
                return name
        return _time_name(now)


def _time_name(moment: float) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.localtime(moment)) + f"{int(moment * 1000) % 1000:03d}"


def _name_time(name: str) -> float:
    if not name[:14].isdecimal() or len(name) < 14:
        return 0.0
    # faster than importing strptime
    parts = [int(name[:4]), *(int(name[at : at + 2]) for at in range(4, 14, 2))]
    try:
        return time.mktime((*parts, 0, 0, -1)) + int(name[14:17] or 0) / 1000  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return 0.0
