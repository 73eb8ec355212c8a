"""The expected chains of an index file: from each slot to its newest entry, and from each entry to the next older."""

import numpy as np

from formats.arrays import Column

BLOCK = 1 << 16


class Chains:
    """The expected chains of one file, computed entry by entry in order; takes four bytes of memory per slot.

    Attributes:
        newest: number of the newest entry of each slot; 0 for none.
    """

    def __init__(self, slots: int) -> None:
        self.newest = np.zeros(slots, np.int32)

    def previous(self, start: int, hashes: Column) -> Column:
        """The number of the previous entry in the same slot, for each of the next entries.

        Args:
            start: number of the first entry, which follows the last one given before.
            hashes: hashes of their keys.
        """
        newest = self.newest
        slots = hashes.astype(np.int64) % len(newest)
        numbers = np.arange(start, start + len(hashes))
        order = np.argsort(slots, kind="stable")
        ranked, sorted_slots = numbers[order], slots[order]
        expected = np.empty(len(hashes), np.int64)
        first = np.ones(len(hashes), bool)
        first[1:] = sorted_slots[1:] != sorted_slots[:-1]
        before = np.empty(len(hashes), np.int64)
        before[1:] = ranked[:-1]
        before[first] = newest[sorted_slots[first]]
        expected[order] = before
        last = np.ones(len(hashes), bool)
        last[:-1] = first[1:]
        newest[sorted_slots[last]] = ranked[last]
        return expected


def used_entries(table: Column) -> int:
    """Number after the last non-zero entry; at least 1.

    Args:
        table: all entries that the file has space for, from number 0.
    """
    for stop in range(len(table), 0, -BLOCK):
        start = max(stop - BLOCK, 0)
        part = table[start:stop]
        rows = np.flatnonzero((part["key_hash"] != 0) | (part["physical_offset"] != 0) | (part["previous_entry"] != 0))
        if len(rows):
            return max(start + int(rows[-1]) + 1, 1)
    return 1
