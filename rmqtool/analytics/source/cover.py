"""Checks whether queues lack messages of the log: their entries, laid end to end, must cover it.

Each entry gives the start and length of a message. If the entries of all queues together begin at a file's first byte,
and each ends where another begins, up to the end of the file, no message in it lacks an entry. This is checked by
comparing sums of hashes, so entries need neither sorting nor storing.
"""

from typing import Any

import numpy as np

from rmqtool.analytics.source.times import is_blank
from rmqtool.store.log.commit_log import CommitLog

_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Cover:
    """Accumulates entries per file of a log."""

    def __init__(self, log: CommitLog) -> None:
        self._files = log.segments.files
        self._bases = np.array([file.base for file in self._files], np.int64)
        self._sums = np.zeros(len(self._files), np.uint64)
        self._ends = self._bases.copy()

    def add(self, starts: Any, stops: Any) -> None:
        """Add the messages in a queue by physical offset; none may be before the start of the log."""
        if len(starts):
            number = np.searchsorted(self._bases, starts, side="right") - 1
            np.add.at(self._sums, number, _mix(starts) - _mix(stops))
            np.maximum.at(self._ends, number, stops)

    def gaps(self) -> list[tuple[int, int | None]]:
        """Return the ranges of the log that may contain messages without an entry; the last range has no end."""
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
    """Return a 64-bit hash of each number (the finalizer of SplitMix64); sums wrap around."""
    mixed = np.asarray(values, np.int64).astype(np.uint64) + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))
