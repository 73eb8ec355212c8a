"""One batch queue as the check sees it: what its files hold, and what the log said of it so far."""

from typing import Any, NamedTuple

import numpy as np

from formats.queues.batch import as_array, valid_prefix
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.dispatch.lives import Lives
from rmqtool.store.layout.paths import BATCH_UNIT
from rmqtool.store.queues.reader import SCANNED_FILES

Column = np.ndarray[Any, np.dtype[Any]]
Units = np.ndarray[Any, np.dtype[Any]]
_TOLD = ("physical_offset", "size", "base_queue_offset", "batch_size")


class BatchFile:
    """One file: how many units it has.

    Attributes:
        prefix: valid units before the first invalid one.
        used: units up to the last one that is not zero.
        matched: units that a record was found for.
        live: valid units whose physical offset is not below the beginning of the log.
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
        """Units [start, stop), as far as there are any."""
        return as_array(self.segment.view())[start:stop]


Missing = tuple[bool, int, int, int]  # (comes soon, queue offset, physical offset, messages)


class FormerLife(NamedTuple):
    """What was noted of a queue before it was numbered from 0 on again."""

    missing: list[Missing]
    file: str  # of the log, and where in it the first message is that has the queue offset 0 again
    offset: int
    next_ordinal: int  # that it would have had


class BatchState:
    """A queue, and what the log said of it so far.

    Attributes:
        lives: what the log says of them.
        former: what was noted of each of those that ended.
    """

    def __init__(self, topic: str, queue_id: int, path: str) -> None:
        self.topic, self.queue_id, self.path = topic, queue_id, path
        self.files: list[BatchFile] = []
        self.cursor = (0, 0)  # file, and unit in it, that the next record should have
        self.next_offset: int | None = None
        self.epoch = 0
        self.missing: list[Missing] = []
        self.lives = Lives()
        self.former: list[FormerLife] = []

    def begin_again(self, file: str, offset: int) -> None:
        """The next message has the queue offset 0 again.

        Args:
            file, offset: where it is in the log.
        """
        self.former.append(FormerLife(self.missing, file, offset, self.next_offset or 0))
        self.missing, self.next_offset = [], None

    @property
    def again(self) -> int:
        """Messages without a unit that the next start makes one for."""
        return sum(count for soon, _base, _physical, count in self.missing if soon)

    def forget(self) -> None:
        """Messages without a unit are none that should have one."""
        self.missing = []

    def restore(self) -> None:
        """Those of former lives should have one as well."""
        self.missing = [missing for life in self.former for missing in life.missing] + self.missing

    def load(self, segments: Segments, min_physical: int) -> None:
        """Look at the files."""
        self.files = [BatchFile(segment, min_physical) for segment in segments]

    @property
    def about(self) -> dict[str, Any]:
        """As findings say which queue it is."""
        return {"topic": self.topic, "queueId": self.queue_id}

    @property
    def end(self) -> tuple[int, int]:
        """(file, unit) of the first that is no valid unit: where a broker's start finds the end of the queue."""
        for number, file in enumerate(self.files):
            if file.prefix < file.capacity:
                return number, file.prefix
        return len(self.files), 0

    @property
    def last(self) -> Any:
        """The last unit in front of the end; None without any."""
        number, unit = self.end
        if unit == 0 and number:
            number, unit = number - 1, self.files[number - 1].capacity
        return self.files[number].units(unit - 1, unit)[0] if self.files and unit else None

    @property
    def last_physical(self) -> int:
        """Where the record of the last unit begins, as a broker's start sees it; -1 without any."""
        last = -1
        for file in self.files[-SCANNED_FILES:]:
            if file.prefix:
                last = int(file.units(file.prefix - 1, file.prefix)[0]["physical_offset"])
            if file.prefix < file.capacity:
                break
        return last


def valid(units: Units) -> Column:
    """Which units a broker takes for one."""
    good: Column = (units["physical_offset"] >= 0) & (units["size"] > 0)
    good &= (units["base_queue_offset"] >= 0) & (units["batch_size"] > 0)
    return good


def words(unit: Any) -> str:
    """What a unit says."""
    says = dict(zip(unit.dtype.names, unit.tolist(), strict=True))
    return ", ".join(f"{name} {says[name]}" for name in _TOLD)
