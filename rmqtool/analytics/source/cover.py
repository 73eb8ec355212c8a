"""Whether queues lack messages of the log: their entries, laid end to end, must be the log.

Each entry says where a message begins and how long it is. Where the entries of all queues together begin at a file's
first byte, and each ends where another begins, up to the file's end, no message in it is without an entry. That is
compared by sums of hashes, so that entries need not be sorted, or held.
"""

from typing import Any

import numpy as np

from rmqtool.analytics.source.times import is_blank
from rmqtool.store.log.commit_log import CommitLog

_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Cover:
    """What entries were seen of each file of a log."""

    def __init__(self, log: CommitLog) -> None:
        self._files = log.segments.files
        self._bases = np.array([file.base for file in self._files], np.int64)
        self._sums = np.zeros(len(self._files), np.uint64)
        self._ends = self._bases.copy()

    def add(self, starts: Any, stops: Any) -> None:
        """Messages that a queue points at, by physical offset, none of them before the log."""
        if len(starts):
            number = np.searchsorted(self._bases, starts, side="right") - 1
            np.add.at(self._sums, number, _mix(starts) - _mix(stops))
            np.maximum.at(self._ends, number, stops)

    def gaps(self) -> list[tuple[int, int | None]]:
        """Stretches of the log in which a message may be that no entry points at; the last one has no end."""
        whole = self._sums == _mix(self._bases) - _mix(self._ends)
        used = np.flatnonzero(self._ends > self._bases)
        last = int(used[-1]) if len(used) else 0
        stretches: list[tuple[int, int | None]] = []
        for number, file in enumerate(self._files[:last]):
            if not whole[number] or not is_blank(file, int(self._ends[number]) - file.base):
                stretches.append((file.base, file.end))
            file.release()
        end = int(self._ends[last] if whole[last] else self._bases[last])
        return [*stretches, (end, None)]


def _mix(values: Any) -> Any:
    """A 64-bit hash of each number (the finalizer of SplitMix64); sums of them wrap around."""
    mixed = np.asarray(values, np.int64).astype(np.uint64) + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))
