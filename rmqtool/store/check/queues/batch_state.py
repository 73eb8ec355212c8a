"""State of one batch queue during the check: its files, and its messages in the log so far."""

from typing import Any, NamedTuple

import numpy as np

from formats.arrays import Column, Units
from formats.queues.batch import as_array, valid_prefix
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.dispatch.generations import Generations
from rmqtool.store.layout.paths import BATCH_UNIT
from rmqtool.store.queues.reader import SCANNED_FILES

_SHOWN = ("physical_offset", "size", "base_queue_offset", "batch_size")


class BatchFile:
    """One file of the queue.

    Attributes:
        prefix: number of valid units before the first invalid one.
        used: number of units up to the last non-zero one.
        matched: number of units whose record was found.
        live: number of valid units whose physical offset is not before the beginning of the log.
    """

    def __init__(self, segment: Segment, min_physical: int) -> None:
        self.segment = segment
        units = self.units(0, segment.size // BATCH_UNIT)
        self.capacity, self.prefix = len(units), valid_prefix(units)
        raw = np.frombuffer(segment.view(), np.uint8, count=len(units) * BATCH_UNIT)
        nonzero = np.flatnonzero(raw.reshape(-1, BATCH_UNIT).any(axis=1))
        self.used = int(nonzero[-1]) + 1 if len(nonzero) else 0
        self.matched, self.last_matched = 0, -1
        self.live = int((valid(units) & (units["physical_offset"] >= min_physical)).sum())
        del units, raw
        segment.release()

    def units(self, start: int, stop: int) -> Units:
        """Units [start, stop), as far as the file has any."""
        return as_array(self.segment.view())[start:stop]


Missing = tuple[bool, int, int, int]  # (comes soon, queue offset, physical offset, messages)


class FormerBatchGeneration(NamedTuple):
    """State of a queue before its numbering started again at 0."""

    missing: list[Missing]
    file: str  # log file with the first message of the next generation; ``offset`` is its position there
    offset: int
    next_ordinal: int  # queue offset expected instead of 0


class BatchState:
    """A queue and its messages in the log so far.

    Attributes:
        generations: tracks where the numbering of its messages in the log starts again.
        former: state before each such restart.
    """

    def __init__(self, topic: str, queue_id: int, path: str) -> None:
        self.topic, self.queue_id, self.path = topic, queue_id, path
        self.files: list[BatchFile] = []
        self.cursor = (0, 0)  # file, and unit in it, expected for the next record
        self.next_offset: int | None = None
        self.epoch = 0
        self.missing: list[Missing] = []
        self.generations = Generations()
        self.former: list[FormerBatchGeneration] = []

    def begin_again(self, file: str, offset: int) -> None:
        """Start a new generation: the next message has queue offset 0 again.

        Args:
            file, offset: position of that message in the log.
        """
        self.former.append(FormerBatchGeneration(self.missing, file, offset, self.next_offset or 0))
        self.missing, self.next_offset = [], None

    @property
    def again(self) -> int:
        """Number of messages without a unit for which the next start would create one."""
        return sum(count for soon, _base, _physical, count in self.missing if soon)

    def forget(self) -> None:
        """Drop the missing messages, which do not belong in the queue."""
        self.missing = []

    def restore(self) -> None:
        """Add the missing messages of former generations, which do belong in the queue."""
        self.missing = [missing for generation in self.former for missing in generation.missing] + self.missing

    def load(self, segments: Segments, min_physical: int) -> None:
        """Read the files."""
        self.files = [BatchFile(segment, min_physical) for segment in segments]

    @property
    def about(self) -> dict[str, Any]:
        """The fields of findings that identify the queue."""
        return {"topic": self.topic, "queueId": self.queue_id}

    @property
    def end(self) -> tuple[int, int]:
        """(file, unit) of the first invalid unit, where a broker's start finds the end of the queue."""
        for number, file in enumerate(self.files):
            if file.prefix < file.capacity:
                return number, file.prefix
        return len(self.files), 0

    @property
    def last(self) -> Any:
        """The last unit before the end; None without any."""
        number, unit = self.end
        if unit == 0 and number:
            number, unit = number - 1, self.files[number - 1].capacity
        return self.files[number].units(unit - 1, unit)[0] if self.files and unit else None

    @property
    def last_physical(self) -> int:
        """Physical offset of the last unit's record, as found by a broker's start; -1 without any."""
        last = -1
        for file in self.files[-SCANNED_FILES:]:
            if file.prefix:
                last = int(file.units(file.prefix - 1, file.prefix)[0]["physical_offset"])
            if file.prefix < file.capacity:
                break
        return last


def valid(units: Units) -> Column:
    """Which units a broker accepts."""
    good: Column = (units["physical_offset"] >= 0) & (units["size"] > 0)
    good &= (units["base_queue_offset"] >= 0) & (units["batch_size"] > 0)
    return good


def describe_unit(unit: Any) -> str:
    """The fields of a unit, as text."""
    values = dict(zip(unit.dtype.names, unit.tolist(), strict=True))
    return ", ".join(f"{name} {values[name]}" for name in _SHOWN)
