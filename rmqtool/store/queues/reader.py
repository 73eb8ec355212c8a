"""Consume queues: 20-byte entries, one per message of a queue.

Source: store.ConsumeQueue; store-engine 4.3, 4.7, 5.2.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.layouts.derived import CQ_ENTRY
from formats.queues import batch
from formats.queues.consume import as_array, valid_prefix
from rmqtool.errors import UnreadableStore
from rmqtool.rules.releases import Release
from rmqtool.store.config.release import release_of
from rmqtool.store.disk.mapping import need
from rmqtool.store.disk.remote import place_of
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import written_units
from rmqtool.store.layout.paths import BATCH_UNIT, UNIT, StoreLayout, is_path_name

if TYPE_CHECKING:
    from formats.arrays import Units


SCANNED_FILES = 3  # recovery checks only the last three files
NO_OFFSET = -1
_STEP = 1 << 13  # entries per step


class QueueEntry(NamedTuple):
    """One entry with its queue offset."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    batch_num: int = 1  # messages in the record; can be more than one in a batch queue


class QueueEnd(NamedTuple):
    """End of a queue's entries, as determined by the broker's own recovery."""

    end: int  # byte offset after the last entry
    max_physical_offset: int  # end of the message of the last entry; -1 without entries


class UnitForm(NamedTuple):
    """One of the two forms of queue files, with what a broker's recovery uses of it."""

    size: int  # bytes of a unit
    as_array: Callable[[bytes | memoryview], "Units"]
    valid_prefix: Callable[["Units"], int]  # units before the first invalid one
    physical: Callable[
        [Any], int
    ]  # how far a queue with this unit last has got in the log, for the guard against repeats


PLAIN = UnitForm(UNIT, as_array, valid_prefix, lambda unit: int(unit["physical_offset"]) + int(unit["size"]))
BATCH = UnitForm(BATCH_UNIT, batch.as_array, batch.valid_prefix, lambda unit: int(unit["physical_offset"]))


def runs_of(path: str, start: int, stop: int, form: UnitForm = PLAIN) -> Generator[tuple[int, "Units"], None, None]:
    """(number of the first unit, units) of units [start, stop) of a queue file, skipping holes.

    Skipped units are zero, and so not entries: queue files have their full length from the beginning, and most of many
    is unwritten. For other arguments and errors see :func:`rmqtool.store.disk.sparse.written_units`.
    """
    for first, data in written_units(path, form.size, start, stop):
        yield first, form.as_array(data)


def runs_in(file: Segment, start: int, stop: int) -> Generator[tuple[int, "Units"], None, None]:
    """:func:`runs_of` for local and remote files; remote ones stay mapped."""
    if place_of(file.path) is None:
        yield from runs_of(file.path, start, stop)
        return
    view = file.map()
    for low in range(start, min(stop, len(view) // UNIT), _STEP):
        high = min(low + _STEP, stop)
        need(view, low * UNIT, high * UNIT)
        yield low, as_array(view)[low:high]


def valid_units(runs: Iterator[tuple[int, "Units"]], form: UnitForm = PLAIN) -> tuple[int, int]:
    """(number of entries before the first invalid one, physical offset of the last by its form or -1 without any).

    Args:
        runs: from the file's first unit on; read only as far as needed.
    """
    count, end = 0, NO_OFFSET
    for first, units in runs:
        if first > count:
            break  # a hole
        valid = form.valid_prefix(units)
        if valid:
            count, end = count + valid, form.physical(units[valid - 1])
        if valid < len(units):
            break
    return count, end


def first_from(runs: Iterator[tuple[int, "Units"]], stop: int, physical_offset: int) -> int | None:
    """Number of the first unit that points to a physical offset or beyond; None if there is none.

    Args:
        runs: from the file's first unit on, up to ``stop``.
    """
    behind = 0
    for first, units in runs:
        if first > behind and physical_offset <= 0:
            return behind  # the zeros of a hole
        fits = (units["physical_offset"] >= physical_offset).nonzero()[0]
        if len(fits):
            return first + int(fits[0])
        behind = first + len(units)
    return behind if behind < stop and physical_offset <= 0 else None


class ConsumeQueue:
    """One queue, read-only. A queue without files is empty, not an error."""

    def __init__(self, layout: StoreLayout, topic: str, queue_id: int, path: str | None = None) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.path = path or layout.queue_path(topic, queue_id)
        self.segments = layout.files_in(self.path)
        self._layout = layout
        self._end: QueueEnd | None = None

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id})"

    @cached_property
    def file_size(self) -> int:
        """Bytes per file; computed on demand, since a queue without files has to consult others."""
        return self._layout.queue_size(self.segments)

    @property
    def recovered(self) -> QueueEnd:
        """The end by the broker's rule: in the last three files, at the first invalid entry."""
        if self._end is None:
            self._end = self._recover()
        return self._end

    def _recover(self) -> QueueEnd:
        files = self.segments.files
        end, max_physical = 0, NO_OFFSET
        for file in files[max(0, len(files) - SCANNED_FILES) :]:
            try:
                with closing(runs_in(file, 0, file.size // UNIT)) as runs:
                    count, last_end = valid_units(runs)
            except UnreadableStore as err:
                self._layout.pass_over_file(file.path, err)
                continue  # files after it may show where the queue ends
            max_physical = last_end if count else max_physical
            end = file.base + count * UNIT
            file.release()
            if count * UNIT < self.file_size:
                break
        return QueueEnd(end, max_physical)

    @property
    def max_offset(self) -> int:
        """Queue offset after the last entry."""
        return self.recovered.end // UNIT

    def min_offset(self, min_physical_offset: int, release: Release | None = None) -> int:
        """The lowest queue offset whose message is still in the log, by the rules of 4.9 or of 5.3.

        4.9 searches only the first file and returns 0 if no entry there is recent enough; 5.3 returns the queue's end
        if even its last entry is too old (ConsumeQueue.correctMinOffset).

        Args:
            min_physical_offset: where the log begins.
            release: None for the release that seems to have written the store.
        """
        if not self.segments.files or not self.recovered.end:
            return 0
        first = self.segments.files[0]
        if not first.base and min_physical_offset <= 0:
            return 0  # nothing was deleted yet, neither of the queue nor of the log
        end = min(max(self.recovered.end - first.base, 0), first.size)
        if (release or release_of(self._layout)).searches_lowest_offset:
            return self._min_offset_v5(first, end // UNIT, min_physical_offset)
        try:
            with closing(runs_in(first, 0, end // UNIT)) as runs:
                fits = first_from(runs, end // UNIT, min_physical_offset)
        except UnreadableStore as err:
            self._layout.pass_over_file(first.path, err)
            fits = 0
        first.release()
        return first.base // UNIT + fits if fits is not None else 0

    def _min_offset_v5(self, first: Segment, count: int, min_physical_offset: int) -> int:
        """Binary search in the first ``count`` entries of the first file."""
        last = self.entry(self.max_offset - 1)
        if last is not None and last.physical_offset < min_physical_offset:
            return self.max_offset
        if not first.base and first.size and self._offset_at(0) >= min_physical_offset:
            return 0
        base = first.base // UNIT
        low, high = 0, count - 1
        answer = -base  # if no entry of the first file fits, the offset keeps its value after a start: 0
        while low <= high:
            middle = (low + high) // 2
            offset = self._offset_at(base + middle)
            if offset == min_physical_offset:
                return base + middle
            if offset > min_physical_offset:
                answer, high = middle, middle - 1
            else:
                low = middle + 1
        return base + answer

    def _offset_at(self, queue_offset: int) -> int:
        entry = self.entry(queue_offset)
        return entry.physical_offset if entry is not None else 0

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """The entry at a queue offset, whatever it contains; None outside the files."""
        file = self.segments.find(queue_offset * UNIT)
        at = queue_offset * UNIT - (file.base if file else 0)
        if file is None or queue_offset < 0 or at + UNIT > file.size:
            return None
        try:
            data = file.read(at, UNIT)
        except UnreadableStore as err:
            self._layout.pass_over_file(file.path, err)
            return None
        return QueueEntry(queue_offset, *CQ_ENTRY.unpack_from(data, 0)) if len(data) == UNIT else None

    def runs(self, start: int = 0, stop: int | None = None) -> Generator[tuple[int, "Units"], None, None]:
        """(queue offset of the first entry, entries) for each file's part of [start, stop), up to the queue's end."""
        end = self.max_offset if stop is None else min(stop, self.max_offset)
        for file in self.segments:
            base = file.base // UNIT
            low, high = max(start, base), min(end, file.end // UNIT)
            if low < high:
                try:
                    view = file.map()
                except UnreadableStore as err:
                    self._layout.pass_over_file(file.path, err)
                    continue
                need(view, (low - base) * UNIT, (high - base) * UNIT)
                try:
                    yield low, as_array(view)[low - base : high - base]
                finally:
                    file.release()

    def units(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """(queue offset, (physical offset, size, tags code)) of each entry in [start, stop)."""
        for first, units in self.runs(start, stop):
            for number in range(0, len(units), 4096):
                part = units[number : number + 4096]
                columns = (part["physical_offset"].tolist(), part["size"].tolist(), part["tags_code"].tolist())
                yield from enumerate(zip(*columns, strict=True), first + number)

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[QueueEntry]:
        """Like :meth:`units`, as :class:`QueueEntry`."""
        for queue_offset, unit in self.units(start, stop):
            yield QueueEntry(queue_offset, *unit)


def queues_of(layout: StoreLayout) -> list[ConsumeQueue]:
    """Every queue of the store, sorted by topic and queue id."""
    return [ConsumeQueue(layout, topic, queue_id, path) for topic, queue_id, path in layout.queue_dirs()]


def open_queue(layout: StoreLayout, topic: str, queue_id: int) -> ConsumeQueue | None:
    """A queue, or None if the store has none of that name."""
    if not is_path_name(topic):
        return None
    queue = ConsumeQueue(layout, topic, queue_id)
    return queue if queue.segments.files else None
