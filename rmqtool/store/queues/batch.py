"""Batch consume queues of 5.x: 46-byte units, one per record, of topics with ``queue.type=BatchCQ``.

Source: store.queue.BatchConsumeQueue; store-formats 4.3, store-engine 3.5. A unit's position does not determine its
queue offset: units are searched by the first queue offset that they contain, which increases along the queue.
"""

from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from formats.queues.batch import BatchEntry, as_array, is_valid, valid_prefix
from rmqtool.errors import UnreadableStore
from rmqtool.rules.releases import Release
from rmqtool.store.disk.mapping import need
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import BATCH_QUEUES, BATCH_UNIT, StoreLayout, is_path_name
from rmqtool.store.queues.reader import (
    NO_OFFSET,
    SCANNED_FILES,
    ConsumeQueue,
    QueueEnd,
    QueueEntry,
    open_queue,
)
from rmqtool.store.queues.rocks import RocksQueue
from rmqtool.store.queues.rocks_open import open_rocks_queue, rocks_queues_of

if TYPE_CHECKING:
    from formats.arrays import Units


_STEP = 4096  # units converted to Python objects at a time


class BatchQueue:
    """One batch consume queue, read-only. Damage appears as an early end, as to a broker; it is not an error."""

    def __init__(self, layout: StoreLayout, topic: str, queue_id: int, path: str | None = None) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.path = path or layout.queue_path(topic, queue_id, BATCH_QUEUES)
        self.segments = layout.files_in(self.path)
        self._layout = layout

    def __repr__(self) -> str:
        return f"BatchQueue({self.topic!r}, {self.queue_id})"

    @cached_property
    def file_size(self) -> int:
        """Bytes per file."""
        return self._layout.batch_queue_size(self.segments)

    @cached_property
    def recovered(self) -> QueueEnd:
        """The end by the broker's rule: in the last three files, at the first invalid unit.

        ``max_physical_offset`` is where the last unit's record begins, unlike in plain queues.
        """
        files = self.segments.files
        end, max_physical = 0, NO_OFFSET
        for file in files[max(0, len(files) - SCANNED_FILES) :]:
            try:
                units = _units(file, file.size // BATCH_UNIT)
            except UnreadableStore as err:
                self._layout.pass_over_file(file.path, err)
                continue  # files after it may show where the queue ends
            count = valid_prefix(units)
            if count:
                max_physical = int(units[count - 1]["physical_offset"])
            end = file.base + count * BATCH_UNIT
            del units
            file.release()
            if count * BATCH_UNIT < self.file_size:
                break
        return QueueEnd(end, max_physical)

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message; 0 without any (reviseMaxOffsetInQueue)."""
        last = self._last
        return last.next_queue_offset if last is not None else 0

    @cached_property
    def _last(self) -> BatchEntry | None:
        end = self.recovered.end
        file = self.segments.find(end - BATCH_UNIT) if end else None
        if file is None:
            return None
        unit = self._unit(file, (end - BATCH_UNIT - file.base) // BATCH_UNIT)
        return unit if is_valid(unit) else None

    def min_offset(self, min_physical_offset: int, release: Release | None = None) -> int:
        """The lowest queue offset whose record is still in the log, by the first file (correctMinOffset); 0 without
        units (a broker returns -1).

        Args:
            min_physical_offset: where the log begins.
            release: unused, as all releases have the same rule; see :class:`rmqtool.store.queues.reader.ConsumeQueue`.
        """
        if not self.recovered.end:
            return 0
        file = self.segments.files[0]
        units = _units(file, self._count(file))
        if not len(units):
            return 0
        there = units["physical_offset"] >= min_physical_offset
        first = int(there.argmax()) if there.any() else len(units)
        if first:
            before = units[first - 1]
            return int(before["base_queue_offset"]) + int(before["batch_size"])
        return int(units[0]["base_queue_offset"])

    def _count(self, file: Segment) -> int:
        """Number of a file's units that are before the queue's end; 0 if they cannot be read."""
        if file.path in (self._layout.passed or {}):
            return 0
        return min(max(self.recovered.end - file.base, 0), file.size) // BATCH_UNIT

    def _unit(self, file: Segment, number: int) -> BatchEntry:
        view = file.map()
        need(view, number * BATCH_UNIT, (number + 1) * BATCH_UNIT)
        return BatchEntry(*as_array(view)[number].tolist())

    def runs(self) -> Generator[tuple[int, "Units"], None, None]:
        """(byte offset of the first unit, units) for each file's part of the queue."""
        for file in self.segments:
            count = self._count(file)
            if count:
                try:
                    yield file.base, _units(file, count)
                finally:
                    file.release()

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[QueueEntry]:
        """Units that contain queue offsets in [start, stop), in the order of the files."""
        for _base, units in self.runs():
            first = units["base_queue_offset"]
            mask = first + units["batch_size"] > start
            if stop is not None:
                mask &= first < stop
            chosen = mask.nonzero()[0]
            for at in range(0, len(chosen), _STEP):
                for physical, size, tags, _time, base, count, *_rest in units[chosen[at : at + _STEP]].tolist():
                    yield QueueEntry(base, physical, size, tags, count)

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """The unit that contains a queue offset; None if none does."""
        if queue_offset < 0:
            return None
        for file in reversed(self.segments.files):
            count = self._count(file)
            if not count or self._unit(file, 0).base_queue_offset > queue_offset:
                continue
            units = _units(file, count)
            number = int(units["base_queue_offset"].searchsorted(queue_offset, "right")) - 1
            unit = self._unit(file, max(number, 0))
            if not unit.base_queue_offset <= queue_offset < unit.next_queue_offset:
                return None
            return QueueEntry(unit.base_queue_offset, unit.physical_offset, unit.size, unit.tags_code, unit.batch_size)
        return None


def _units(file: Segment, count: int) -> "Units":
    view = file.map()
    need(view, 0, count * BATCH_UNIT)
    return as_array(view)[:count]


PlainQueue = ConsumeQueue | RocksQueue  # one entry per message
AnyQueue = PlainQueue | BatchQueue


def batch_queues_of(layout: StoreLayout) -> list[BatchQueue]:
    """Every batch queue of the store, sorted by topic and queue id."""
    return [BatchQueue(layout, topic, queue_id, path) for topic, queue_id, path in layout.queue_dirs(BATCH_QUEUES)]


def queues_where(layout: StoreLayout, wanted: Callable[[str, int], bool]) -> Iterator[AnyQueue]:
    """Queues of all forms, selected by topic and queue id; one form after the other, each sorted.

    Raises:
        MissingRuntime: there are queues in RocksDB, and the library to read them is not installed.
        CorruptFile: the database cannot be read.
    """
    files = set()
    for topic, queue_id, path in layout.queue_dirs():
        files.add((topic, queue_id))
        if wanted(topic, queue_id):
            yield ConsumeQueue(layout, topic, queue_id, path)
    for queue in rocks_queues_of(layout):
        if (queue.topic, queue.queue_id) not in files and wanted(queue.topic, queue.queue_id):
            yield queue
    for topic, queue_id, path in layout.queue_dirs(BATCH_QUEUES):
        if wanted(topic, queue_id):
            yield BatchQueue(layout, topic, queue_id, path)


def every_queue(layout: StoreLayout) -> list[AnyQueue]:
    """All queues; raises the errors of :func:`queues_where`."""
    return list(queues_where(layout, lambda _topic, _queue_id: True))


def open_any_queue(layout: StoreLayout, topic: str, queue_id: int) -> AnyQueue | None:
    """A queue of any form, or None if there is none of that name. If there are several, files of entries win.

    Raises:
        MissingRuntime: there are queues in RocksDB, and the library to read them is not installed.
    """
    plain: AnyQueue | None = open_queue(layout, topic, queue_id) or open_rocks_queue(layout, topic, queue_id)
    if plain is not None or not is_path_name(topic):
        return plain
    queue = BatchQueue(layout, topic, queue_id)
    return queue if queue.segments.files else None
