"""Truncate and extend a batch queue in recovery, in memory and staging files; the store itself is only read.

Follows store.queue.BatchConsumeQueue of 5.3.3 (store-engine 3.5). Most is inherited from plain queues. The differences:
``max_physical_offset`` is where the last record begins; a unit contains its queue offset, so that none is ever out of
place; and the first unit of a queue is at byte 0 whatever its queue offset is.
"""

from typing import Any, ClassVar

import numpy as np

from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.batch import QueuePuts
from rmqtool.store.queues.builder import QueueBuilder, QueueFile
from rmqtool.store.queues.reader import BATCH, UnitForm

_NONE = -1  # a broker's lowest queue offset for a queue without units


class BatchQueueBuilder(QueueBuilder):
    """State of a batch queue during recovery.

    Attributes:
        max_physical_offset: where the record of the last unit begins; just before the offset of the truncation if no
            unit is left.
        misplaced: number of records whose first queue offset is already in the queue.
    """

    form: ClassVar[UnitForm] = BATCH
    _min_offset, _max_offset = _NONE, 0
    _begun_here = False  # whether the first file was created by dispatch

    @property
    def min_offset(self) -> int:
        """Lowest queue offset; 0 without units."""
        return max(self._min_offset, 0)

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message."""
        return self._max_offset

    @property
    def ends_in_filler(self) -> bool:
        return False

    def first_of(self, segment: Segment) -> int:
        return int(self.form.as_array(segment.read(0, self.form.size))["base_queue_offset"][0])

    @property
    def unknown_from(self) -> int:
        return self.max_physical_offset + 1

    def recover(self) -> None:
        """Find the end in the last three files and drop everything after it (BatchConsumeQueue.recover)."""
        super().recover()
        self._revise()

    def truncate(self, physical_offset: int) -> None:
        """Drop units whose record begins at or after a physical offset (BatchConsumeQueue.truncateDirtyLogicFiles)."""
        super().truncate(physical_offset)
        if not self.files:
            self.max_physical_offset = physical_offset - 1
        self._revise()

    def destroy(self) -> None:
        super().destroy()
        self._revise()

    def _revise(self) -> None:
        """Set the lowest and highest queue offset from the first and last unit (reviseMaxAndMinOffsetInQueue)."""
        self._min_offset, self._max_offset = self._first_offset(), 0
        for file in self.files[:-3:-1]:
            if file.wrote:
                unit = _unit(file, file.wrote // self.form.size - 1)
                self._max_offset = int(unit["base_queue_offset"]) + int(unit["batch_size"])
                break

    def _first_offset(self) -> int:
        """Queue offset in the first unit."""
        return int(_unit(self.files[0], 0)["base_queue_offset"]) if self.files and self.files[0].wrote else _NONE

    def correct_min(self, min_physical_offset: int) -> None:
        """Set the lowest queue offset to the first record of the first file that is in the log, else after them."""
        self._min_offset = self._first_offset()
        if self._min_offset == _NONE:
            return
        file = self.files[0]
        units = file.units()[: file.wrote // self.form.size]
        there = np.flatnonzero(units["physical_offset"] >= min_physical_offset)
        before = int(there[0]) if len(there) else len(units)
        if before:
            unit = units[before - 1]
            self._min_offset = int(unit["base_queue_offset"]) + int(unit["batch_size"])

    def put(self, puts: QueuePuts) -> None:
        """Append units that are not in the queue yet, in order (BatchConsumeQueue.putMessagePositionInfoWrapper)."""
        units = puts.batch_units()
        # a broker makes no unit for a record with such numbers
        units = units[(units["base_queue_offset"] >= 0) & (units["batch_size"] >= 0)]
        physical = units["physical_offset"].astype(np.int64)
        reached = np.maximum.accumulate(np.append(self.max_physical_offset, physical))
        units = units[physical > reached[:-1]]
        if not len(units):
            return
        base, ends = units["base_queue_offset"], units["base_queue_offset"] + units["batch_size"]
        self.misplaced += int((base < np.append(self._max_offset, ends[:-1])).sum())
        if not self.files:
            self._begun_here, self.begun_at = True, int(base[0])
        self.max_physical_offset, self._max_offset = int(reached[-1]), int(ends[-1])
        self._write(units, lambda number: int(units["store_timestamp"][number]))
        if self._begun_here and self._min_offset == _NONE:
            self._min_offset = int(base[0])


def _unit(file: QueueFile, number: int) -> Any:
    """One unit of a file."""
    return file.units()[number]
