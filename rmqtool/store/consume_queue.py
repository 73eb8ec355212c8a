"""Consume queues: fixed 20-byte entries, one per message of a queue.

Source: store.ConsumeQueue; store-engine 4.3, 4.7, 5.2.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.consume_queue import as_array, valid_prefix
from formats.derived import CQ_ENTRY
from rmqtool.store.disk.remote import need
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout import UNIT, StoreLayout, is_path_name

if TYPE_CHECKING:
    import numpy as np

    Units = np.ndarray[Any, np.dtype[Any]]

SCANNED_FILES = 3  # recovery looks at the last three files only
NO_OFFSET = -1
_STEP = 1 << 13  # entries that are looked at together


class Entry(NamedTuple):
    """One entry with its ordinal."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


class QueueEnd(NamedTuple):
    """Where a queue's entries end, as the broker's own recovery finds it."""

    end: int  # byte offset after the last entry
    max_physical_offset: int  # end of the message of the last entry; -1 without entries


class ConsumeQueue:
    """One queue, read-only. A queue without files is empty, not an error."""

    def __init__(self, layout: StoreLayout, topic: str, queue_id: int, path: str | None = None) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.path = path or layout.queue_path(topic, queue_id)
        self.segments = Segments.of([self.path])
        self.file_size = layout.queue_size(self.segments)
        self._end: QueueEnd | None = None

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id})"

    @property
    def recovered(self) -> QueueEnd:
        """The end by the broker's rule: the last three files, up to the first invalid entry."""
        if self._end is None:
            self._end = self._recover()
        return self._end

    def _recover(self) -> QueueEnd:
        files = self.segments.files
        end, max_physical = 0, NO_OFFSET
        for file in files[max(0, len(files) - SCANNED_FILES) :]:
            units = as_array(file.mapped())
            count = _valid_entries(file, units)
            if count:
                last = units[count - 1]
                max_physical = int(last["physical_offset"]) + int(last["size"])
            end = file.base + count * UNIT
            del units
            file.release()
            if count * UNIT < self.file_size:
                break
        return QueueEnd(end, max_physical)

    @property
    def max_offset(self) -> int:
        """Queue offset after the last entry."""
        return self.recovered.end // UNIT

    def min_offset(self, min_physical_offset: int, engine: str = "4.9") -> int:
        """The lowest queue offset whose message is still in the log, by the rules of 4.9 or of 5.3.

        4.9 looks through the first file only and answers 0 when nothing there is young enough; 5.3 answers the queue's
        end when even its last entry is too old.
        """
        if not self.segments.files or not self.recovered.end:
            return 0
        first = self.segments.files[0]
        end = max(self.recovered.end - first.base, 0)
        view = first.mapped()
        need(view, 0, end)
        units = as_array(view)[: end // UNIT]
        if engine != "4.9":
            return self._min_offset_v5(units, first, min_physical_offset)
        fits = (units["physical_offset"] >= min_physical_offset).nonzero()[0]
        return first.base // UNIT + int(fits[0]) if len(fits) else 0

    def _min_offset_v5(self, units: "Units", first: Segment, min_physical_offset: int) -> int:
        last = self.entry(self.max_offset - 1)
        if last is not None and last.physical_offset < min_physical_offset:
            return self.max_offset
        low, high = 0, len(units) - 1
        answer = 0
        while low <= high:
            middle = (low + high) // 2
            offset = int(units[middle]["physical_offset"])
            if offset == min_physical_offset:
                return first.base // UNIT + middle
            if offset > min_physical_offset:
                answer, high = middle, middle - 1
            else:
                low = middle + 1
        return first.base // UNIT + answer

    def entry(self, queue_offset: int) -> Entry | None:
        """The entry at an ordinal, whatever it holds; None outside the files."""
        file = self.segments.find(queue_offset * UNIT)
        at = queue_offset * UNIT - (file.base if file else 0)
        if file is None or queue_offset < 0 or at + UNIT > file.size:
            return None
        view = file.mapped()
        need(view, at, at + UNIT)
        return Entry(queue_offset, *CQ_ENTRY.unpack_from(view, at))

    def runs(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, "Units"]]:
        """(queue offset of the first, entries) for each file's part of [start, stop), up to the queue's end."""
        end = self.max_offset if stop is None else min(stop, self.max_offset)
        for file in self.segments:
            base = file.base // UNIT
            low, high = max(start, base), min(end, file.end // UNIT)
            if low < high:
                view = file.mapped()
                need(view, (low - base) * UNIT, (high - base) * UNIT)
                yield low, as_array(view)[low - base : high - base]
                file.release()

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """Entries of [start, stop) one by one."""
        for first, units in self.runs(start, stop):
            for number in range(0, len(units), 4096):
                part = units[number : number + 4096]
                columns = (part["physical_offset"].tolist(), part["size"].tolist(), part["tags_code"].tolist())
                for i, values in enumerate(zip(*columns, strict=True)):
                    yield Entry(first + number + i, *values)


def _valid_entries(file: Segment, units: "Units") -> int:
    """Number of entries before the first invalid one; what is behind that is not looked at."""
    for start in range(0, len(units), _STEP):
        need(file.mapped(), start * UNIT, (start + _STEP) * UNIT)
        part = units[start : start + _STEP]
        if (count := valid_prefix(part)) < len(part):
            return start + count
    return len(units)


def queues_of(layout: StoreLayout) -> list[ConsumeQueue]:
    """Every queue of the store, sorted by topic and queue id."""
    return [ConsumeQueue(layout, topic, queue_id, path) for topic, queue_id, path in layout.queue_dirs()]


def open_queue(layout: StoreLayout, topic: str, queue_id: int) -> ConsumeQueue | None:
    """One queue, or None when the store has none of that name."""
    if not is_path_name(topic):
        return None
    queue = ConsumeQueue(layout, topic, queue_id)
    return queue if queue.segments.files else None
