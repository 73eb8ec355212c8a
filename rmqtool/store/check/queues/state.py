"""State of one consume queue during the check: a summary of each file, and its messages in the log so far."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from formats.arrays import Column, Units
from formats.layouts.derived import CQ_ENTRY
from formats.queues.consume import FILLER_SIZE, ConsumeEntry, as_array, read
from rmqtool.store.disk.remote import place_of
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.dispatch.generations import Generations
from rmqtool.store.layout.paths import UNIT
from rmqtool.store.queues.reader import runs_in

CHUNK = 1 << 16
_NEAR = 4  # at most this many units are read per requested one; otherwise the file is mapped
_RUNS = 2000  # runs listed per queue; further ones are only counted

BEFORE, BEHIND, EMPTY, FILLER, OTHER = "before", "behind", "empty", "filler", "other"
NEVER, SOON, LAG = range(3)  # a start does nothing; recreates the entry; recreates it, as after any unclean stop


class Masks(NamedTuple):
    """Classification of units, as bool arrays."""

    valid: Column  # accepted by the broker as an entry; includes fillers
    filler: Column
    nonzero: Column


def masks(units: Units) -> Masks:
    """Classify units."""
    physical, size, tags = units["physical_offset"], units["size"], units["tags_code"]
    return Masks(
        (physical >= 0) & (size > 0),
        (physical == 0) & (size == FILLER_SIZE) & (tags == 0),
        (physical != 0) | (size != 0) | (tags != 0),
    )


class FileSummary:
    """Summary of one file.

    Attributes:
        first: queue offset of its first unit.
        capacity: number of units it has space for.
        prefix: number of valid units before the first invalid one.
        used: number of units up to the last non-zero one.
        live: number of entries, except fillers, whose physical offset is not before the beginning of the log.
        low, high: their lowest and highest physical offset.
        leading: number of fillers at the beginning.
        matched: number of entries whose message was found, at the queue offset that the message states.
        last_matched: highest queue offset of these; -1 without any.
        first_live: number in the file of the first live entry; None without any.
    """

    def __init__(self, segment: Segment, min_physical: int) -> None:
        self.segment = segment
        self.first = segment.base // UNIT
        self.prefix = self.used = self.live = self.leading = self.matched = 0
        self.low, self.high = 2**63 - 1, -1
        self.last_matched = -1
        self.first_live: int | None = None
        self.capacity = segment.size // UNIT
        seen_end = 0  # end of the units read so far
        whole = leading = True
        for start, part in self.runs(0, self.capacity):
            if start > seen_end:
                whole = leading = False  # zeros are neither entry nor filler
            seen_end = start + len(part)
            kind = masks(part)
            used = np.flatnonzero(kind.nonzero)
            if len(used):
                self.used = start + int(used[-1]) + 1
            if whole:
                bad = np.flatnonzero(~kind.valid)
                whole = not len(bad)
                self.prefix += len(part) if whole else int(bad[0])
            if leading:
                other = np.flatnonzero(~kind.filler)
                leading = not len(other)
                self.leading += len(part) if leading else int(other[0])
            rows = np.flatnonzero(kind.valid & ~kind.filler & (part["physical_offset"] >= min_physical))
            physical = part["physical_offset"][rows]
            if len(rows):
                self.first_live = start + int(rows[0]) if self.first_live is None else self.first_live
                self.live += len(physical)
                self.low, self.high = min(self.low, int(physical.min())), max(self.high, int(physical.max()))
        segment.release()

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Units]]:
        """(number of the first unit, units) of units [start, stop), in pieces, skipping holes."""
        return runs_in(self.segment, start, stop)

    def units(self, start: int, stop: int) -> Units:
        """Units [start, stop), including those in holes."""
        array = np.zeros(stop - start, CQ_ENTRY.dtype)
        for first, part in self.runs(start, stop):
            array[first - start : first - start + len(part)] = part
        return array

    def at(self, numbers: Column) -> Units:
        """The units with these numbers."""
        first, stop = int(numbers.min()), int(numbers.max()) + 1
        if stop - first > _NEAR * len(numbers):
            units = as_array(self.segment.view())[numbers]
        else:
            units = as_array(self.segment.read(first * UNIT, (stop - first) * UNIT))[numbers - first]
        self._release()
        return units

    def entry(self, number: int) -> ConsumeEntry:
        """The entry with a number."""
        data = self.segment.read(number * UNIT, UNIT)
        self._release()
        return read(data)

    def _release(self) -> None:
        if place_of(self.segment.path) is not None:
            self.segment.release()  # local files are released when there are too many


class MissingRun(NamedTuple):
    """Consecutive messages of a queue without an entry, for the same reason."""

    reason: str
    soon: int  # NEVER, SOON or LAG
    first: int  # queue offset
    physical: int  # of the first message
    messages: int


class FormerGeneration(NamedTuple):
    """State of a queue before its numbering started again at 0."""

    runs: list[MissingRun]
    overflow: Counter[tuple[str, int]]
    file: str  # log file with the first message of the next generation; ``offset`` is its position there
    offset: int
    next_ordinal: int  # queue offset expected instead of 0


class CheckedQueue:
    """A queue.

    Attributes:
        next_ordinal: queue offset after its last message in the log; None before the first one.
        epoch: epoch of the log at that message.
        runs: messages without an entry.
        overflow: number of further such messages, by reason and ``soon``.
        newest: store time of the newest message, ms, if the queue has no files.
        generations: tracks where the numbering of its messages in the log starts again.
        former: state before each such restart.
    """

    def __init__(self, topic: str, queue_id: int, path: str, file_size: int) -> None:
        self.topic, self.queue_id, self.path, self.file_size = topic, queue_id, path, file_size
        self.files: list[FileSummary] = []
        self.firsts: Column = np.empty(0, np.int64)
        self.next_ordinal: int | None = None
        self.epoch = 0
        self.newest = 0
        self.runs: list[MissingRun] = []
        self.overflow: Counter[tuple[str, int]] = Counter()
        self.generations = Generations()
        self.former: list[FormerGeneration] = []

    def begin_again(self, file: str, offset: int) -> None:
        """Start a new generation: the next message has queue offset 0 again.

        Args:
            file, offset: position of that message in the log.
        """
        self.former.append(FormerGeneration(self.runs, self.overflow, file, offset, self.next_ordinal or 0))
        self.runs, self.overflow, self.next_ordinal = [], Counter(), None

    @property
    def again(self) -> int:
        """Number of messages without an entry for which the next start would create one."""
        overflow = sum(count for (_reason, soon), count in self.overflow.items() if soon)
        return overflow + sum(run.messages for run in self.runs if run.soon)

    def forget(self) -> None:
        """Drop the missing messages, which do not belong in the queue."""
        self.runs, self.overflow = [], Counter()

    def restore(self) -> None:
        """Add the missing messages of former generations, which do belong in the queue."""
        generations = [(generation.runs, generation.overflow) for generation in self.former]
        self.runs = [run for runs, _overflow in generations for run in runs] + self.runs
        self.overflow = sum((overflow for _runs, overflow in generations), self.overflow)

    def load(self, segments: Segments, min_physical: int) -> None:
        """Summarize the files; raises UnreadableStore if one cannot be read."""
        files = [FileSummary(segment, min_physical) for segment in segments]
        self.files = sorted(files, key=lambda file: file.first)
        self.firsts = np.array([file.first for file in self.files], np.int64)

    @property
    def about(self) -> dict[str, Any]:
        """The fields of findings that identify the queue."""
        return {"topic": self.topic, "queueId": self.queue_id}

    @property
    def end(self) -> int:
        """Queue offset of the first invalid unit, or after the last file, where readers find the queue's end."""
        end = 0
        for file in self.files:
            end = file.first + file.prefix
            if file.prefix < file.capacity:
                break
        return end

    @property
    def begin(self) -> int:
        """Queue offset of the first entry whose message is not before the beginning of the log; the end without any."""
        live = (file.first + file.first_live for file in self.files if file.first_live is not None)
        return next(live, self.end)

    @property
    def first_entry(self) -> ConsumeEntry | None:
        """The entry at :attr:`begin`; None without any."""
        for file in self.files:
            if file.first_live is not None:
                return file.entry(file.first_live)
        return None

    @property
    def last_matched(self) -> int:
        """Highest queue offset at which a message's own entry was found; -1 without any."""
        return max((file.last_matched for file in self.files), default=-1)

    @property
    def damaged(self) -> bool:
        """Whether entries before the last right one are wrong, or entries are missing that no start recreates."""
        last = self.last_matched
        strange = sum(file.live - file.matched for file in self.files)
        behind = max((file.first + file.used for file in self.files), default=0) - last - 1
        never = any(not run.soon for run in self.runs) or any(not soon for _reason, soon in self.overflow)
        return last >= self.end or strange > behind or never

    @property
    def leading_end(self) -> int:
        """Queue offset after the fillers at the beginning of the queue."""
        return self.files[0].first + self.files[0].leading if self.files else 0

    def place(self, ordinal: int) -> tuple[str, int]:
        """(path, position) of the entry with a queue offset, whether or not that file exists."""
        at = max(ordinal, 0) * UNIT
        return f"{self.path}/{at - at % self.file_size:020d}", at % self.file_size

    def add_missing(self, reason: str, soon: int, ordinals: Column, physical: Column) -> None:
        """Record messages without an entry, in ascending order."""
        cuts = np.flatnonzero(np.diff(ordinals) != 1) + 1
        for part, offsets in zip(np.split(ordinals, cuts), np.split(physical, cuts), strict=True):
            first, count = int(part[0]), len(part)
            last = self.runs[-1] if self.runs else None
            if last and (last.reason, last.soon) == (reason, soon) and last.first + last.messages == first:
                self.runs[-1] = last._replace(messages=last.messages + count)
            elif len(self.runs) < _RUNS:
                self.runs.append(MissingRun(reason, soon, first, int(offsets[0]), count))
            else:
                self.overflow[reason, soon] += count
