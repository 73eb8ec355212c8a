"""Compare a queue with the messages of the log that belong to it, and rewrite it from the first difference.

A broker's start only changes the end of a queue. Here every message is compared with the entry at its queue offset, in
the order of the log. At the first difference the queue is truncated, in staging files, and continued from the log.
Entries before the first message that is still in the log belong to expired messages; they are kept if a broker can read
over them.
"""

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from formats.arrays import Column, Units
from formats.layouts.derived import BATCH_CQ_ENTRY, CQ_ENTRY
from formats.queues.consume import FILLER_SIZE
from rmqtool.store.disk.mapping import map_file
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.generations import Generations
from rmqtool.store.layout.paths import BATCH_UNIT, UNIT
from rmqtool.store.queues.batch_builder import BatchQueueBuilder
from rmqtool.store.queues.builder import QueueBuilder, QueueFile
from rmqtool.store.queues.reader import runs_of

Stage = Callable[[], str]
SameTags = Callable[[Units, Units, Column], Column]
"""Which tags codes are valid although different: (actual entries, expected entries, store timestamps)."""
_CHUNK = 1 << 16
_SHORTEST = 91  # minimum size of a record


class WholeQueue:
    """A plain queue.

    Args:
        queue: in the state after a broker's start; changed in place.
        min_physical: where the log begins.
        same_tags: see :data:`SameTags`.
        unloaded: whether a broker would not load the queue; then the contents of its files count as existing entries,
            too.

    Attributes:
        put_in: number of messages without an entry in their place, or with a wrong one.
        taken_out: number of entries after the last message of the log.
        gaps: number of messages missing in the log between others, by their queue offsets.
        fillers: how many of them got a filler before a message of the log's first file.
        blanks: physical offsets [start, stop) of new blanks in the log, where messages of the queue may have been.
        ends_at: queue offset of its restored end, if no message of the log determines it; None if it was right.
        irregular: whether the log has two messages with the same queue offset, or in decreasing order. Such a queue is
            left alone.
        generations: tracks where the numbering of the messages starts again; only the current generation is kept.
    """

    unit: ClassVar[int] = UNIT
    dtype: ClassVar[Any] = CQ_ENTRY.dtype

    def __init__(
        self, queue: QueueBuilder, min_physical: int, stage: Stage, same_tags: SameTags, *, unloaded: bool = False
    ) -> None:
        self.queue, self._min_physical, self._stage, self._same_tags = queue, min_physical, stage, same_tags
        self._files = list(queue.files)  # in the state after the start
        # files that a broker reads at other offsets than it writes them; they do not count as contents
        self._misaligned = [file for file in queue.files if file.base % queue.file_size]
        self._before = [file for file in queue.files if file not in self._misaligned]  # only read
        self._bounds = queue.min_logic_offset, queue.max_physical_offset
        self.generations = Generations()
        self._removed = list(queue.removed)
        self._on_disk = [*queue.sources, *queue.removed] if unloaded else []
        self._next: int | None = None  # queue offset after the last message
        self._writing = False
        self.put_in = self.taken_out = self.gaps = self.fillers = 0
        self.first_end = self.log_end = 0  # physical offsets after the log's first file, and after its last record
        self.blanks: list[tuple[int, int]] = []
        self.ends_at: int | None = None
        self.irregular = self._is_left_out = False

    # -- what the queue holds before --------------------------------------------------------------------------------

    @property
    def _end(self) -> int:
        """Queue offset after the last entry, in the state after the start."""
        return (self._before[-1].base + self._before[-1].wrote) // self.unit if self._before else 0

    def _units(self, first: int, stop: int) -> Units:
        """Units of queue offsets [first, stop); zeros where there are none."""
        units = np.zeros(stop - first, self.dtype)
        for file in self._before:
            low = file.base // self.unit
            start, end = max(first, low), min(stop, low + file.wrote // self.unit)
            if start < end:
                units[start - first : end - first] = file.units()[start - low : end - low]
        return units

    def _units_on_disk(self, first: int, stop: int) -> Units:
        """Like :meth:`_units`, from the files on disk, whatever their length."""
        units = np.zeros(stop - first, self.dtype)
        for segment in self._on_disk:
            low = segment.base // self.unit
            start, end = max(first, low), min(stop, low + min(segment.size, self.queue.file_size) // self.unit)
            if start < end:
                data = memoryview(map_file(segment.path))[: (end - low) * self.unit]
                units[start - first :][: end - start] = self.queue.form.as_array(data)[start - low :]
        return units

    def _is_old(self, units: Units) -> Column:
        """Which units are entries of expired messages; placeholders count as such."""
        return are_old(units, self._min_physical)

    def _placeholder(self) -> Units:
        """A unit like that of an expired message: a broker skips it, and takes all following messages for new.

        If the last unit were a filler, it would take every message below 2 GiB for a repeated one.
        """
        unit = np.zeros(1, self.dtype)
        unit["size"] = size = min(self._min_physical, _SHORTEST)
        unit["physical_offset"] = self._min_physical - size
        return unit

    def _is_chain(self, up_to: int) -> bool:
        """Whether files are contiguous up to the one that contains a byte."""
        size = self.queue.file_size
        files = [file for file in self._before if file.base <= up_to]
        bases = [file.base for file in files]
        if any(base % size for base in bases) or any(b - a != size for a, b in pairwise(bases)):
            return False
        return not files or all(file.wrote == size for file in files[:-1])

    # -- messages ---------------------------------------------------------------------------------------------------

    def take(self, units: Units, ordinals: Column, times: Column) -> None:
        """Compare messages of the queue, in the order of the log.

        Args:
            units: their entries.
            ordinals: their queue offsets.
            times: their store timestamps.
        """
        counts = units["batch_size"].astype(np.int64) if self.unit == BATCH_UNIT else None
        for rows, begins in self.generations.take(ordinals, units["physical_offset"].astype(np.int64), times, counts):
            if begins:
                self._begin_again()
            self._take(units[rows], ordinals[rows], times[rows])

    def _begin_again(self) -> None:
        """Drop the messages taken so far: they are of a former generation and do not belong in the queue."""
        queue = self.queue
        queue.files, queue.removed = list(self._files), list(self._removed)
        queue.min_logic_offset, queue.max_physical_offset = self._bounds
        self.irregular = self._writing = False
        self._next = None
        self.put_in = self.taken_out = self.gaps = self.fillers = 0

    @property
    def is_on_disk(self) -> bool:
        """Whether the queue has files, or had some before the start."""
        return bool(self._removed) or any(file.source is not None for file in self._files)

    def leave_out(self) -> None:
        """Keep the queue without files: all of its messages are of a former generation of the topic."""
        self._begin_again()
        self.queue.files, self.queue.added = [], 0
        self._is_left_out = True

    def _take(self, units: Units, ordinals: Column, times: Column) -> None:
        if self.irregular or not len(units):
            return
        steps = np.diff(ordinals)
        # no more messages can be missing in between than the log had space for
        far = steps > units["physical_offset"][1:] // _SHORTEST
        if self._next is not None:
            far = np.append(far, ordinals[0] - self._next > units["physical_offset"][0] // _SHORTEST)
        if (steps <= 0).any() or ordinals[0] < (self._next or 0) or far.any():
            self._leave_alone()
            return
        stops = [*(np.flatnonzero(steps != 1) + 1).tolist(), len(units)]
        start = 0
        for stop in stops:
            self._compare(int(ordinals[start]), units[start:stop], times[start:stop])
            start = stop

    def _leave_alone(self) -> None:
        """Leave the queue as a broker makes it, since its contents do not follow from the log."""
        self.irregular = True
        self.queue.files, self.queue.removed = self._files, self._removed
        self.put_in = self.taken_out = 0

    def _compare(self, first: int, units: Units, times: Column) -> None:
        if self._next is None:
            self._begin(first)
        elif first > self._next:
            self.gaps += first - self._next
            if not self._writing and (
                self._has_nulls(self._next, first) or self._leads_into_a_blank(self._next, first)
            ):
                self._cut(self._next)
            if self._writing:
                self._bridge(self._next, first, int(units["physical_offset"][0]))
        self._next = first + len(units)
        same = self._same(self._units(first, self._next), units, times)
        existing = same | self._same(self._units_on_disk(first, self._next), units, times) if self._on_disk else same
        self.put_in += int((~existing).sum())
        if not self._writing:
            if same.all():
                return
            at = int(np.flatnonzero(~same)[0])
            self._cut(first + at)
            units, times = units[at:], times[at:]
        self._write(units, times)

    def _same(self, has: Units, units: Units, times: Column) -> Column:
        same: Column = (has["physical_offset"] == units["physical_offset"]) & (has["size"] == units["size"])
        other = np.flatnonzero(same & (has["tags_code"] != units["tags_code"]))
        if len(other):
            same[other] = self._same_tags(has[other], units[other], times[other])
        return same

    def _begin(self, first: int) -> None:
        """Handle the first message in the log: everything before it must be entries of older ones."""
        at = first * self.unit
        low = self._before[0].base // self.unit if self._before else first
        if low > first or (self._is_chain(at) and self._end >= first and self._all_old(low, first)):
            return
        self._cut(first, restart=True)

    def _all_old(self, low: int, stop: int) -> bool:
        return all(
            bool(self._is_old(self._units(start, min(start + _CHUNK, stop))).all())
            for start in range(low, stop, _CHUNK)
        )

    def _leads_into_a_blank(self, first: int, stop: int) -> bool:
        physical = self._units(first, stop)["physical_offset"] if self.blanks else np.empty(0, np.int64)
        return any(((physical >= start) & (physical < end)).any() for start, end in self.blanks)

    def _has_nulls(self, first: int, stop: int) -> bool:
        """Whether a broker would find the queue's end at one of these queue offsets."""
        return any(
            bool(_are_nulls(self._units(start, min(start + _CHUNK, stop))).any())
            for start in range(first, stop, _CHUNK)
        )

    def _bridge(self, first: int, stop: int, physical: int) -> None:
        """Write entries for messages missing in the log: the existing ones, or placeholders.

        A broker that meets a filler continues with the second file of the log. If nothing has expired there is no other
        unit that it skips, so fillers before messages of the first file are in the way.

        Args:
            physical: physical offset of the message after them.
        """
        for start in range(first, stop, _CHUNK):
            units = self._units(start, min(start + _CHUNK, stop))
            bad = _are_nulls(units)
            if self._min_physical > 0:
                units[bad] = self._placeholder()
            else:
                units["physical_offset"][bad], units["size"][bad], units["tags_code"][bad] = 0, FILLER_SIZE, 0
                self.fillers += int(bad.sum()) if physical < self.first_end else 0
            for begin, end in self.blanks:
                # a broker would return what is there now; it skips what extends beyond the file
                lost = (units["physical_offset"] >= begin) & (units["physical_offset"] < end)
                units["size"][lost] = end + 1 - units["physical_offset"][lost]
            self._write(units, np.zeros(len(units), np.int64))

    # -- writing ----------------------------------------------------------------------------------------------------

    def _cut(self, ordinal: int, *, restart: bool = False) -> None:
        """End the queue before a queue offset, so that writing continues there.

        Args:
            restart: whether to drop everything before it, too.
        """
        self._writing = True
        queue, at = self.queue, ordinal * self.unit
        base = at - at % queue.file_size
        complete = [] if restart else [file for file in self._before if file.base + queue.file_size <= at]
        head = self._units(base // self.unit, ordinal)
        if at > base and (restart or not any(file.base == base for file in self._before)):
            head[:] = 0
            head["size"] = FILLER_SIZE
            if not complete:
                queue.min_logic_offset = at
        queue.files = complete
        if at > base:
            self._append_file(base)
            queue.files[-1].write(head, self._stage)

    def _append_file(self, base: int) -> None:
        sources: list[Segment] = [*(file.source for file in self._before if file.source is not None), *self._removed]
        source = next((segment for segment in sources if segment.base == base), None)
        file = QueueFile(base, self.queue.file_size, source, self.queue.form)
        file.begin(self._stage())
        self.queue.files.append(file)

    def _write(self, units: Units, times: Column) -> None:
        queue, start = self.queue, 0
        at = queue.end if queue.files else ((self._next or 0) - len(units)) * self.unit
        while start < len(units):
            if not queue.files or queue.files[-1].wrote >= queue.file_size:
                self._append_file(at)
            file = queue.files[-1]
            stop = min(len(units), start + (queue.file_size - file.wrote) // self.unit)
            file.write(units[start:stop], self._stage)
            file.last_store_timestamp = int(times[stop - 1])
            at, start = file.base + file.wrote, stop
        queue.max_physical_offset = queue.form.physical(units[-1])

    # -- the end ----------------------------------------------------------------------------------------------------

    def finish(self, at_least: int = 0) -> None:
        """End the queue after the last message of the log.

        Args:
            at_least: an end known from elsewhere; used if the log has no message of the queue, and if its entries up to
                there lead to damaged messages.
        """
        if self.irregular or self._is_left_out:
            return
        self._end_after(at_least)
        for file in self._misaligned:
            if file in self.queue.files:
                self.queue.files.remove(file)
            if file.source is not None and file.source not in self.queue.removed:
                self.queue.removed = [*self.queue.removed, file.source]

    def _end_after(self, at_least: int) -> None:
        if self._next is None:
            self._finish_old(at_least)
        elif self._keeps(self._next, at_least):
            if self._writing:
                self._write(self._units(self._next, at_least), np.zeros(at_least - self._next, np.int64))
            self._next = at_least
        if self._next is not None and not self._writing and self._end > self._next:
            self.taken_out = self._end - self._next
            self._cut(self._next)
        if self._writing:
            kept = {self.queue.target(file) for file in self.queue.files}
            self.queue.removed = self._removed + [
                file.source
                for file in self._before
                if file.source is not None and file.source.path not in kept and file.source not in self._removed
            ]

    def _keeps(self, first: int, stop: int) -> bool:
        """Whether to keep entries after the queue's last message in the log, given that the queue once ended later.

        Such entries refer to damaged messages before the end of the log.
        """
        if stop <= first or stop > self._end:
            return False
        units = self._units(first, stop)
        places = np.concatenate(([self.generations.last], units["physical_offset"], [self.log_end])).astype(np.int64)
        return bool((np.diff(places) > 0).all() and (units["size"] > 0).all())

    def _finish_old(self, at_least: int) -> None:
        """Preserve the end of a queue whose messages have all expired, since the next message goes there.

        A start that found a damaged entry may have truncated it, so the original contents of its files count.
        """
        queue, size = self.queue, self.queue.file_size
        segments = {segment.base: segment for segment in [*queue.sources, *self._removed] if segment.base % size == 0}
        end = max(at_least, self._before[-1].base // self.unit if self._before else 0)
        for base, segment in segments.items():
            with closing(runs_of(segment.path, 0, min(segment.size, size) // self.unit, self.queue.form)) as runs:
                for first, units in runs:
                    rows = np.flatnonzero(self._is_old(units))
                    end = max(end, base // self.unit + first + int(rows[-1]) + 1) if len(rows) else end
        start = self._before[0].base // self.unit if self._before else end
        ends_right = self._end == end and (not self._before or self._before[-1].wrote > 0)
        ends_right &= not end or not bool(_are_fillers(self._units(end - 1, end)).all())
        if ends_right and self._is_chain(max(end - 1, 0) * self.unit) and self._all_old(start, end):
            return
        if self._min_physical <= 0:  # nothing has expired, so no unit can be a placeholder
            if at_least:
                return
            end = 0
        self.taken_out = max(self._end - end, 0)
        self.ends_at = end if end > self._end else None
        if not end:
            self._cut(0, restart=True)
            return
        # a single placeholder before the end is enough to mark it
        self._cut(end - 1, restart=True)
        self._next = end
        self._write(self._placeholder(), np.zeros(1, np.int64))

    def drop_unchanged(self) -> None:
        """Do not replace files by identical ones."""
        for file in self.queue.files if self._writing else ():
            if file.staged is None or file.source is None or file.source.size != file.size:
                continue
            file.finish()
            if memoryview(map_file(file.staged)) == memoryview(map_file(file.source.path)):
                file.staged = None


class WholeBatchQueue(WholeQueue):
    """A batch queue of 5.x: its units are adjacent, whatever queue offset the first one has."""

    unit = BATCH_UNIT
    dtype = BATCH_CQ_ENTRY.dtype

    def _take(self, units: Units, ordinals: Column, times: Column) -> None:
        """Compare records of the queue, in the order of the log; ``ordinals`` are ignored: the units have theirs."""
        fits = (units["base_queue_offset"] >= 0) & (units["batch_size"] >= 0)
        units, times = units[fits], times[fits]
        if self.irregular or not len(units):
            return
        ends = units["base_queue_offset"] + units["batch_size"]
        if (units["base_queue_offset"][1:] < ends[:-1]).any() or units["base_queue_offset"][0] < self._last_end:
            self._leave_alone()
            return
        self._last_end = int(ends[-1])
        first = self._next
        if first is None:
            first = self._place_of(int(units["physical_offset"][0]))
        self._compare(first, units, times)

    _last_end = 0

    def _begin_again(self) -> None:
        super()._begin_again()
        self._last_end = 0

    def _place_of(self, physical: int) -> int:
        """Number of a record's unit; that of the queue's first unit if there is none."""
        for file in self._before:
            units = file.units()[: file.wrote // self.unit]
            places = np.flatnonzero(units["physical_offset"] == physical)
            if len(places):
                return file.base // self.unit + int(places[0])
        return 0

    def _keeps(self, first: int, stop: int) -> bool:
        return False  # its units are not numbered by queue offsets

    def _same(self, has: Units, units: Units, times: Column) -> Column:
        same = np.ones(len(units), bool)
        for name in ("physical_offset", "size", "tags_code", "store_timestamp", "base_queue_offset", "batch_size"):
            same &= has[name] == units[name]
        return same

    def _is_old(self, units: Units) -> Column:
        fits: Column = (units["physical_offset"] >= 0) & (units["size"] > 0)
        return fits & (units["physical_offset"] < self._min_physical)

    def _finish_old(self, at_least: int) -> None:
        """Remove units that point into the log, which has no message of the queue."""
        low, end = (self._before[0].base // self.unit, self._end) if self._before else (0, 0)
        good = self._is_old(self._units(low, end))
        bad = np.flatnonzero(~good)
        if len(bad):
            self.taken_out = len(good) - int(bad[0])
            self._cut(low + int(bad[0]))


def keep_end(queue: QueueBuilder, min_physical: int, stage: Stage, at_least: int = 0) -> None:
    """Let a queue without messages in the log end where its next message goes, without entries that point into the log.

    Args:
        at_least: an end of the queue known from elsewhere.
    """
    kind = WholeBatchQueue if isinstance(queue, BatchQueueBuilder) else WholeQueue
    whole = kind(queue, min_physical, stage, _no_tags)
    whole.finish(at_least)
    whole.drop_unchanged()


def _no_tags(has: Units, _units: Units, _times: Column) -> Column:
    return np.zeros(len(has), bool)


def are_old(units: Units, min_physical: int) -> Column:
    """Which units of a plain queue are entries of expired messages; placeholders count as such.

    Args:
        min_physical: where the log begins.
    """
    fits: Column = (units["physical_offset"] >= 0) & (units["size"] > 0)
    fits &= (units["physical_offset"] < min_physical) | _are_fillers(units)
    return fits


def _are_fillers(units: Units) -> Column:
    filler: Column = (units["physical_offset"] == 0) & (units["size"] == FILLER_SIZE) & (units["tags_code"] == 0)
    return filler


def _are_nulls(units: Units) -> Column:
    """Which units are not entries."""
    nulls: Column = (units["physical_offset"] < 0) | (units["size"] <= 0)
    return nulls
