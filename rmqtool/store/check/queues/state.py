"""One consume queue as the check sees it: a summary of each file, and what the log said of it so far."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from formats.layouts.derived import CQ_ENTRY
from formats.queues.consume import FILLER_SIZE, ConsumeEntry, as_array, read
from rmqtool.store.disk.remote import place_of
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.dispatch.lives import Lives
from rmqtool.store.layout.paths import UNIT
from rmqtool.store.queues.reader import runs_in

Column = np.ndarray[Any, np.dtype[Any]]
Units = np.ndarray[Any, np.dtype[Any]]
CHUNK = 1 << 16
_NEAR = 4  # units that are read for each that is asked for, at most: else the file is mapped
_RUNS = 2000  # kept apart in one queue; what comes beyond is only counted

BEFORE, BEHIND, EMPTY, FILLER, OTHER = "before", "behind", "empty", "filler", "other"
NEVER, SOON, LAG = range(3)  # what a start does: nothing; makes the entry again; makes it, as after any unclean stop


class Masks(NamedTuple):
    """Which of some units are what; bool arrays."""

    valid: Column  # the broker takes it for an entry; fillers are valid
    filler: Column
    nonzero: Column


def masks(units: Units) -> Masks:
    """What each unit is."""
    physical, size, tags = units["physical_offset"], units["size"], units["tags_code"]
    return Masks(
        (physical >= 0) & (size > 0),
        (physical == 0) & (size == FILLER_SIZE) & (tags == 0),
        (physical != 0) | (size != 0) | (tags != 0),
    )


class FileSummary:
    """One file: where its units are, and how many of them messages were found for.

    Attributes:
        first: ordinal of its first unit.
        capacity: units that it has room for.
        prefix: valid units before the first invalid one.
        used: units up to the last one that is not zero.
        live: entries, no fillers, whose physical offset is not below the beginning of the log.
        low, high: their lowest and highest physical offset.
        leading: fillers that it begins with.
        matched: entries that a message was found for, at the place that the message says.
        last_matched: highest ordinal of them; -1 without any.
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
        behind = 0  # units that were looked at
        whole = leading = True
        for start, part in self.runs(0, self.capacity):
            if start > behind:
                whole = leading = False  # zeros are neither entry nor filler
            behind = start + len(part)
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
        """(number of the first, units) of units [start, stop), in pieces, without those that lie in holes."""
        return runs_in(self.segment, start, stop)

    def units(self, start: int, stop: int) -> Units:
        """Units [start, stop), those in holes too."""
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
        """One of them."""
        data = self.segment.read(number * UNIT, UNIT)
        self._release()
        return read(data)

    def _release(self) -> None:
        if place_of(self.segment.path) is not None:
            self.segment.release()  # others are when there are too many


class Run(NamedTuple):
    """Consecutive messages of a queue that no entry points to, for one reason."""

    reason: str
    soon: int  # NEVER, SOON or LAG
    first: int  # queue offset
    physical: int  # of the first one
    messages: int


class FormerLife(NamedTuple):
    """What was noted of a queue before it was numbered from 0 on again."""

    runs: list[Run]
    overflow: Counter[tuple[str, int]]
    file: str  # of the log, and where in it the first message is that has the queue offset 0 again
    offset: int
    next_ordinal: int  # that it would have had


class QueueState:
    """A queue.

    Attributes:
        next_ordinal: after the last message of it in the log; None before the first one.
        epoch: of the log when that message was met.
        runs: messages without an entry.
        newest: store time of the newest message, ms, of a queue without files.
        overflow: how many more, by reason and whether they come soon.
        lives: what the log says of them.
        former: what was noted of each of those that ended.
    """

    def __init__(self, topic: str, queue_id: int, path: str, file_size: int) -> None:
        self.topic, self.queue_id, self.path, self.file_size = topic, queue_id, path, file_size
        self.files: list[FileSummary] = []
        self.firsts: Column = np.empty(0, np.int64)
        self.next_ordinal: int | None = None
        self.epoch = 0
        self.newest = 0
        self.runs: list[Run] = []
        self.overflow: Counter[tuple[str, int]] = Counter()
        self.lives = Lives()
        self.former: list[FormerLife] = []

    def begin_again(self, file: str, offset: int) -> None:
        """The next message has the queue offset 0 again.

        Args:
            file, offset: where it is in the log.
        """
        self.former.append(FormerLife(self.runs, self.overflow, file, offset, self.next_ordinal or 0))
        self.runs, self.overflow, self.next_ordinal = [], Counter(), None

    @property
    def again(self) -> int:
        """Messages without an entry that the next start makes one for."""
        overflow = sum(count for (_reason, soon), count in self.overflow.items() if soon)
        return overflow + sum(run.messages for run in self.runs if run.soon)

    def forget(self) -> None:
        """Messages without an entry are none that should have one."""
        self.runs, self.overflow = [], Counter()

    def restore(self) -> None:
        """Those of former lives should have one as well."""
        lives = [(life.runs, life.overflow) for life in self.former]
        self.runs = [run for runs, _overflow in lives for run in runs] + self.runs
        self.overflow = sum((overflow for _runs, overflow in lives), self.overflow)

    def load(self, segments: Segments, min_physical: int) -> None:
        """Summarise the files; an unreadable one raises UnreadableStore."""
        files = [FileSummary(segment, min_physical) for segment in segments]
        self.files = sorted(files, key=lambda file: file.first)
        self.firsts = np.array([file.first for file in self.files], np.int64)

    @property
    def about(self) -> dict[str, Any]:
        """As findings say which queue it is."""
        return {"topic": self.topic, "queueId": self.queue_id}

    @property
    def end(self) -> int:
        """Ordinal of the first invalid unit, or after the last file: where readers find the queue's end."""
        end = 0
        for file in self.files:
            end = file.first + file.prefix
            if file.prefix < file.capacity:
                break
        return end

    @property
    def begin(self) -> int:
        """Ordinal of the first entry whose message is not below the beginning of the log; the end without any."""
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
        """Highest ordinal at which a message's own entry stands; -1 without any."""
        return max((file.last_matched for file in self.files), default=-1)

    @property
    def damaged(self) -> bool:
        """Whether entries in front of the last right one are wrong, or messages lack one that no start makes."""
        last = self.last_matched
        strange = sum(file.live - file.matched for file in self.files)
        behind = max((file.first + file.used for file in self.files), default=0) - last - 1
        never = any(not run.soon for run in self.runs) or any(not soon for _reason, soon in self.overflow)
        return last >= self.end or strange > behind or never

    @property
    def leading_end(self) -> int:
        """Ordinal after the fillers that the queue begins with."""
        return self.files[0].first + self.files[0].leading if self.files else 0

    def place(self, ordinal: int) -> tuple[str, int]:
        """(path, byte) of the entry with an ordinal, whether or not there is such a file."""
        at = max(ordinal, 0) * UNIT
        return f"{self.path}/{at - at % self.file_size:020d}", at % self.file_size

    def lose(self, reason: str, soon: int, ordinals: Column, physical: Column) -> None:
        """Note messages without an entry, in ascending order."""
        cuts = np.flatnonzero(np.diff(ordinals) != 1) + 1
        for part, offsets in zip(np.split(ordinals, cuts), np.split(physical, cuts), strict=True):
            first, count = int(part[0]), len(part)
            last = self.runs[-1] if self.runs else None
            if last and (last.reason, last.soon) == (reason, soon) and last.first + last.messages == first:
                self.runs[-1] = last._replace(messages=last.messages + count)
            elif len(self.runs) < _RUNS:
                self.runs.append(Run(reason, soon, first, int(offsets[0]), count))
            else:
                self.overflow[reason, soon] += count
