"""Simulate how a broker changes the ends of queues in RocksDB in recovery; the database itself is only read.

Source: store.queue.RocksDBConsumeQueueOffsetTable, RocksDBConsumeQueueTable of 5.3.3.
"""

import numpy as np

from formats.arrays import Column
from formats.queues.rocks import RocksOffset
from rmqtool.store.queues.rocks import RocksQueue
from rmqtool.store.queues.rocks_columns import units_at


class PlannedQueue:
    """One queue: the units in the database, overlaid by those that the broker would write.

    Attributes:
        added: number of units that the broker would write and that differ from the database's.
        cut: number of units after an end that was set back.
    """

    def __init__(self, stored: RocksQueue) -> None:
        self._stored = stored
        self.topic, self.queue_id = stored.topic, stored.queue_id
        self.first, self.last = stored.first, stored.last
        self.added = self.cut = 0
        self._offsets, self._physical = list[Column](), list[Column]()  # of the added units
        self._merged: tuple[Column, Column] | None = None

    def __repr__(self) -> str:
        return f"PlannedQueue({self.topic!r}, {self.queue_id})"

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message."""
        return self.last.queue_offset + 1 if self.last is not None else 0

    def put(self, offsets: Column, physical: Column, size: Column, tags: Column, times: Column) -> None:
        """Add units of messages in the order of the log; a unit with the same key is replaced.

        Raises:
            CorruptFile: a part of the database cannot be read.
        """
        stored = units_at(self._stored, offsets)
        at = np.searchsorted(stored["offset"], offsets)
        there = at < len(stored)
        there[there] = stored["offset"][at[there]] == offsets[there]
        same = there.copy()
        for name, column in (("physical", physical), ("size", size), ("tags", tags), ("time", times)):
            same[there] &= stored[name][at[there]] == column[there]
        new = ~same
        if new.any():
            self.added += len(np.unique(offsets[new]))
            self._offsets.append(offsets[new])
            self._physical.append(physical[new])
            self._merged = None
        self.last = RocksOffset(int(physical[-1]), int(offsets[-1]))

    def physical_offset(self, queue_offset: int) -> int | None:
        """Physical offset in a unit; None if there is no such unit."""
        if self._offsets:
            if self._merged is None:
                offsets, physical = np.concatenate(self._offsets), np.concatenate(self._physical)
                order = np.argsort(offsets, kind="stable")
                self._merged = offsets[order], physical[order]
            offsets, physical = self._merged
            at = int(np.searchsorted(offsets, queue_offset, side="right")) - 1
            if at >= 0 and offsets[at] == queue_offset:
                return int(physical[at])
        unit = self._stored.unit(queue_offset)
        return None if unit is None else unit.physical_offset

    def min_offset(self, log_begins: int) -> int:
        """The lowest queue offset, which the broker records when asked for it (getMinCqOffset)."""
        if self.first is not None and self.first.physical_offset >= log_begins:
            return self.first.queue_offset
        recorded = self.first.queue_offset if self.first is not None else 0
        if self.last is None:
            self.first = RocksOffset(log_begins, 0)
            return 0
        if self.last.physical_offset < log_begins:
            self.first = RocksOffset(log_begins, self.last.queue_offset + 1)
            return self.first.queue_offset
        lowest_offset = self._search(recorded, self.last.queue_offset, log_begins, lowest=True)
        if lowest_offset is None:
            if self.last.queue_offset != recorded:
                self.first = self.last
            return recorded
        self.first = lowest_offset
        return lowest_offset.queue_offset

    def destroy(self) -> None:
        """Remove all units."""
        self.cut += self.max_offset
        self.first = self.last = None

    def set_back(self, log_begins: int, end: int) -> bool:
        """Set the end back to the last message before the end of the log (correctMaxCqOffset).

        Returns:
            Whether the broker can do so; otherwise it logs an error and leaves the end as it is.
        """
        if self.last is None:
            return True
        low = self.min_offset(log_begins)
        if self.first is None or self.first.queue_offset != low or self.first.physical_offset > end:
            return False
        highest = self._search(low, self.last.queue_offset, end, lowest=False)
        before = self.last.queue_offset
        if highest is not None:
            self.last = highest
        elif before != low:
            self.last = self.first  # one message stays in any case
        self.cut += max(before - self.last.queue_offset, 0)
        return True

    def _search(self, low: int, high: int, target: int, *, lowest: bool) -> RocksOffset | None:
        """The first unit at or after a physical offset, or the last before it, by the broker's binary search."""
        nearest: RocksOffset | None = None
        while high >= low:
            middle = low + (high - low) // 2
            physical = self.physical_offset(middle)
            if physical is None or physical < target:
                low = middle + 1
                if physical is not None and not lowest:
                    nearest = RocksOffset(physical, middle)
                continue
            if lowest:
                nearest = RocksOffset(physical, middle)
            if physical == target:
                break
            high = middle - 1
        return nearest
