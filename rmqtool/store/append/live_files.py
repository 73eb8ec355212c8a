"""Consume queues, their extensions and index files, written in place as by a running broker.

Source: store.ConsumeQueue, ConsumeQueueExt, store.index.IndexService; store-engine 3.2 to 3.4, store-formats 4.4. The
rules are those of recovery's builders, which build aside; here files only grow at their ends. Units are written by
``pwrite``, so that a full disk is an error instead of killing the process.
"""

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from formats import checkpoint
from formats.arrays import Column, Units
from formats.checkpoint import Checkpoint
from formats.endings import UnitEnd
from formats.layouts.derived import INDEX_HEADER, INDEX_SLOT
from formats.queues.consume import ext_address
from formats.queues.extension import END_MARK, build_unit, fits, read
from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.durable import is_lacking, sync, sync_names
from rmqtool.store.disk.files import open_to_change
from rmqtool.store.disk.new_files import make_file, open_at_length
from rmqtool.store.disk.segments import Segment, Segments, name_of
from rmqtool.store.dispatch.batch import QueuePuts, RecordBatch
from rmqtool.store.index.builder import IndexBuilder, IndexFile
from rmqtool.store.queues.batch_builder import BatchQueueBuilder
from rmqtool.store.queues.builder import QueueBuilder, QueueFile, Stage
from rmqtool.store.queues.reader import UnitForm

DEFAULT_EXT = 48 << 20


class Touched:
    """Records what has to be made durable: files written, and directories with new names."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()

    def write(self, path: str, length: int, at: int, data: bytes | memoryview) -> None:
        """Write to a file of a queue, ``ROOT/consumequeue/TOPIC/QUEUE/FILE``, or of its extension.

        Args:
            length: length of the whole file, used if it has to be created.

        Raises:
            UnreadableStore: it cannot be written, as when the disk is full.
        """
        # a broker ignores files among the topics' directories
        queues = os.path.dirname(os.path.dirname(os.path.dirname(path)))
        with open_at_length(path, length, queues, self.folders) as file:
            self.files.add(path)
            try:
                file.write(at, data)
            except OSError as err:
                with suppress(OSError):  # a partial unit may look like a complete one
                    file.clear(at, at + len(data))
                raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err

    def sync(self) -> None:
        """Make everything durable: first the contents of the files, then their names, innermost first."""
        for path in sorted(self.files):
            sync(path)
        sync_names(self.folders)
        self.files.clear()
        self.folders.clear()

    def take(self) -> tuple[list[str], set[str]]:
        """(files, folders), which the caller then has to make durable."""
        unsynced = sorted(self.files), self.folders
        self.files, self.folders = set(), set()
        return unsynced

    def give_back(self, files: Iterable[str], folders: Iterable[str]) -> None:
        """Take back what the caller could not make durable."""
        self.files.update(files)
        self.folders.update(folders)


class CheckpointFile:
    """The checkpoint of a running store, which records up to where it is durable.

    Args:
        path: of the file; it is created if it does not exist.
        point: its current contents.
    """

    def __init__(self, path: str, point: Checkpoint) -> None:
        self._path, self._point = path, point

    def write(self, last_store_timestamp: int, index_timestamp: int, last_record: int | None = None) -> None:
        """Record that log and queues are durable up to a message, and the index up to the last full file.

        Args:
            last_store_timestamp: store timestamp of the message, ms.
            index_timestamp: end time of that file, ms; a value before the recorded one is ignored.
            last_record: physical offset of the message; None for a release that does not record it.
        """
        point = self._point._replace(
            physic_msg_timestamp=last_store_timestamp,
            logics_msg_timestamp=last_store_timestamp,
            index_msg_timestamp=max(index_timestamp, self._point.index_msg_timestamp),
        )
        if last_record is not None:
            point = point._replace(logics_physical_offset=last_record)
        data = checkpoint.build(point)
        if not make_file(self._path, data):
            with open_to_change(self._path) as file:
                file.write(0, data)
                file.sync()
        self._point = point


class LiveQueueFile(QueueFile):
    """A queue file written in place."""

    def __init__(
        self, path: str, base: int, size: int, source: Segment | None, form: UnitForm, touched: Touched
    ) -> None:
        super().__init__(base, size, source, form)
        self.path = path
        self._touched = touched

    def where(self) -> str:
        return self.path

    def write(self, units: Units, stage: Stage) -> None:
        self._touched.write(self.path, self.size, self.wrote, units.tobytes())
        self.wrote += units.nbytes


class QueueExtension:
    """The extension of one queue (ConsumeQueueExt).

    Args:
        path: its directory.
        file_size: bytes per file.
        touched: writes the files.
    """

    def __init__(self, path: str, file_size: int, touched: Touched) -> None:
        self.path, self.file_size, self._touched = path, file_size, touched
        segments = Segments.of([path])
        self.position = 0
        if segments.files:
            last = segments.files[-1]
            at, view = 0, last.view()
            while not isinstance(unit := read(view, at, len(view)), UnitEnd):
                at += unit.unit_size
            self.position = last.base + at
            last.release()

    def put(self, tags: Column, timestamps: Column) -> Column:
        """Write one unit per entry; returns their addresses, which replace the tags codes."""
        addresses = np.empty(len(tags), np.int64)
        start, buffer = self.position, bytearray()
        for row, (tags_code, timestamp) in enumerate(zip(tags.tolist(), timestamps.tolist(), strict=True)):
            unit = build_unit(tags_code, timestamp)
            at = self.position % self.file_size
            if not fits(at, len(unit), self.file_size):
                self._write(start, bytes(buffer) + END_MARK)
                self.position += self.file_size - at
                start, buffer = self.position, bytearray()
            addresses[row] = ext_address(self.position)
            buffer += unit
            self.position += len(unit)
        self._write(start, bytes(buffer))
        return addresses

    def _write(self, position: int, data: bytes) -> None:
        at = position % self.file_size
        path = os.path.join(self.path, name_of(position - at))
        self._touched.write(path, self.file_size, at, data)


class WritableQueue(QueueBuilder):
    """A queue written in place.

    Attributes:
        extension: receives the tags codes, with ``enableConsumeQueueExt``.
        touched: writes the files and records what is not durable yet.
    """

    def __init__(self, topic: str, queue_id: int, path: str, file_size: int, touched: Touched) -> None:
        self.touched = touched
        self.path = path
        super().__init__(topic, queue_id, path, file_size, str, Segments.of([path]))
        self.extension: QueueExtension | None = None

    def _file(self, base: int, size: int, source: Segment | None) -> QueueFile:
        path = os.path.join(self.path, name_of(base))
        return LiveQueueFile(path, base, self.file_size, source, self.form, self.touched)

    def put(self, puts: QueuePuts) -> None:
        if self.extension is not None:
            codes = self.extension.put(puts.entries["tags_code"].astype(np.int64), puts.store_timestamp)
            puts = puts.with_codes(codes)
        super().put(puts)


class LiveBatchQueue(BatchQueueBuilder):
    """A batch queue written in place; it has no extension."""

    @property
    def written_offset(self) -> int:
        self._revise()
        return self.max_offset

    def __init__(self, topic: str, queue_id: int, path: str, file_size: int, touched: Touched) -> None:
        self._touched = touched
        super().__init__(topic, queue_id, path, file_size, str, Segments.of([path]))

    def _file(self, base: int, size: int, source: Segment | None) -> QueueFile:
        path = os.path.join(self.path, name_of(base))
        return LiveQueueFile(path, base, self.file_size, source, self.form, self._touched)


class LiveIndexFile(IndexFile):
    """An index file that is mapped in place.

    Attributes:
        until: latest store timestamp of the entries about to be put.
    """

    until = 0

    def stage(self, path: str) -> mmap.mmap:
        if self.map is None:
            self.path = self.path or path
            with open_at_length(self.path, self.length, os.path.dirname(self.path)) as file:
                self.map = file.map(self.length)
            self.staged = self.path
        self._announce()
        return self.map

    def _write(self, data: memoryview, at: int) -> None:
        try:
            super()._write(data, at)
        except OSError as err:
            if not is_lacking(err) or self.map is None:
                raise
            # the slots refer to it already, and its blocks are allocated
            self.map[at : at + len(data)] = data.tobytes()

    def _need(self, start: int, stop: int) -> None:
        self._reserve(start, stop)

    def _slots(self) -> memoryview:
        assert self.map is not None  # readers see entries as they are put
        stop = INDEX_HEADER.size + INDEX_SLOT.size * self.slots
        self._reserve(0, stop)
        return memoryview(self.map)[INDEX_HEADER.size : stop]

    def _announce(self) -> None:
        """Write the end time of the entries about to be put: after a kill in between, a start drops this file."""
        end, self.end_timestamp = self.end_timestamp, max(self.end_timestamp, self.until)
        self.write_header()
        self.end_timestamp = end


class LiveIndex(IndexBuilder):
    """The index of a running store.

    Args:
        folder: its directory.
        paths: index files, oldest first.
        geometry: (hash slots, entries) of new files.
    """

    def __init__(self, folder: str, paths: list[str], geometry: tuple[int, int]) -> None:
        self._folder = folder
        self._newest = os.path.basename(paths[-1]) if paths else ""
        self._until = 0
        super().__init__(paths, geometry, self._new_path)
        self._synced = len(self.files) - 1

    def _file(self, path: str | None) -> IndexFile:
        file = LiveIndexFile(path, self.slots, self.entries)
        file.until = self._until
        return file

    def put(self, batch: RecordBatch) -> None:
        if len(batch):
            self._until = int(batch.store_timestamp.max())
            last = self._writable()
            assert isinstance(last, LiveIndexFile)
            last.until = self._until
            last.stage(self._stage())
            super().put(batch)
            self.write_headers()

    def _new_path(self) -> str:
        """Path of a file created now; existing files keep theirs."""
        last = self.files[-1] if self.files else None
        if last is not None and not last.full:
            return ""
        if self._newest and (last is None or last.path is None or os.path.basename(last.path) < self._newest):
            return os.path.join(self._folder, self._newest)  # creating it has failed before
        self._newest = self.new_name(self._newest)
        return os.path.join(self._folder, self._newest)

    def sync(self) -> int:
        """Make everything durable; returns the end time of the last full file, 0 without one."""
        for file in self._take_changed():
            if file.map is not None:
                file.map.flush()
            if file.path is not None:
                sync(file.path)
        self._synced = len(self.files) - 1
        return self.full_until

    def take(self) -> list[str]:
        """Paths of the files that :meth:`sync` would make durable, for a caller that syncs them itself."""
        paths = [file.path for file in self._take_changed() if file.path is not None]
        self._synced = len(self.files) - 1
        return paths

    @property
    def full_until(self) -> int:
        """End time of the last full file; 0 without one."""
        return max((file.end_timestamp for file in self.files if file.full), default=0)

    def _take_changed(self) -> list[IndexFile]:
        changed = [file for file in self.files[max(self._synced, 0) :] if file.staged is not None]
        for file in changed:
            file.write_header()
        return changed

    def write_headers(self) -> None:
        """Update the headers, so that readers see what was put."""
        for file in self.files[-2:]:
            file.write_header()

    def close(self) -> None:
        """Drop the mappings."""
        for file in self.files:
            file.let_go()
