"""Sorting batches of messages in bounded memory, whatever their order and the number of files.

Sorted inputs are merged as they are read. Others are sorted in memory-sized pieces and stored as sorted runs, which are
then merged. If more files overlap than may be open, some of them are merged into a run first.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

RUN_BYTES = 64 << 20  # Arrow memory sorted at a time
BATCH_BYTES = 1 << 20  # Arrow memory read at a time from each open input
OPEN = 16  # maximum number of open inputs
# position of a row in the input, as the last sort keys: equal rows keep their order
FILE, ROW = "file", "row"
_MOST = np.iinfo(np.int64).max

_Keys = np.ndarray[Any, np.dtype[np.int64]]  # of shape (keys, rows)


@dataclass(frozen=True)
class Input:
    """A sorted input.

    Attributes:
        low, high: range of the first key.
        batches: starts reading.
    """

    low: int
    high: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


class SortOrder:
    """A sort order, and the place for sorted runs.

    Args:
        by: int64 columns, most significant first; null sorts last.
        scratch: creates a directory; called when needed.
    """

    def __init__(
        self, by: Sequence[str], scratch: Callable[[], str], run_bytes: int = RUN_BYTES, most_open: int = OPEN
    ) -> None:
        self._by = (*by, FILE, ROW)
        self._scratch, self._run_bytes, self._most_open = scratch, run_bytes, most_open
        self._runs = 0

    def keys(self, batch: pa.RecordBatch) -> _Keys:
        """Return the sort keys of each row."""
        columns = (batch.column(name) for name in self._by)
        return np.stack([column.fill_null(_MOST).to_numpy(zero_copy_only=False).astype(np.int64) for column in columns])

    def runs(self, batches: Iterator[pa.RecordBatch]) -> list[Input]:
        """Sort unsorted batches into runs."""
        sorted_runs: list[Input] = []
        pending: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            pending.append(batch)
            size += batch.nbytes
            if size >= self._run_bytes:
                sorted_runs.append(self._run([self._sort(pending)]))
                pending, size = [], 0
        if pending:
            sorted_runs.append(self._run([self._sort(pending)]))
        return sorted_runs

    def merge(self, inputs: Sequence[Input]) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order."""
        while _count_open(inputs) > self._most_open:
            ordered = sorted(inputs, key=lambda each: each.low)
            inputs = [
                self._run(self._merge(ordered[at : at + self._most_open]))
                for at in range(0, len(ordered), self._most_open)
            ]
        yield from self._merge(inputs)

    def _sort(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        batch = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        keys = self.keys(batch)
        return batch.take(pa.array(np.lexsort(keys[::-1])))

    def _run(self, batches: Any) -> Input:
        """Store sorted batches as a run."""
        path = os.path.join(self._scratch(), f"run-{self._runs}.arrow")
        self._runs += 1
        low, high = _MOST, 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        writer = None
        with pa.OSFile(path, "wb") as file:
            for batch in batches:
                if writer is None:
                    writer = pa.ipc.new_stream(file, batch.schema, options=options)
                    low = int(self.keys(batch.slice(0, 1))[0, 0])
                high = int(self.keys(batch.slice(batch.num_rows - 1))[0, 0])
                rows = max(1, batch.num_rows * BATCH_BYTES // max(batch.nbytes, 1))
                for at in range(0, batch.num_rows, rows):
                    writer.write_batch(batch.slice(at, rows))
            if writer is not None:
                writer.close()

        def read() -> Iterator[pa.RecordBatch]:
            with pa.OSFile(path, "rb") as file, pa.ipc.open_stream(file) as reader:
                yield from reader
            os.unlink(path)  # runs are read only once

        return Input(low, high, read)

    def _merge(self, inputs: Sequence[Input]) -> Iterator[pa.RecordBatch]:
        pending = sorted(inputs, key=lambda each: each.low)[::-1]
        open_: list[_Open] = []
        while pending or open_:
            while pending and (not open_ or pending[-1].low <= min(each.last[0] for each in open_)):
                opened = _Open(pending.pop().batches(), self)
                if opened.more():
                    open_.append(opened)
            if not open_:
                return
            bound = min(each.last for each in open_)
            taken = [part for each in open_ if (part := each.until(bound)).num_rows]
            yield taken[0] if len(taken) == 1 else self._sort(taken)
            open_ = [each for each in open_ if each.more()]


class _Open:
    """An input being read."""

    def __init__(self, batches: Iterator[pa.RecordBatch], order: SortOrder) -> None:
        self._batches, self._order = batches, order
        self._rest: pa.RecordBatch | None = None
        self.last: tuple[int, ...] = ()

    def more(self) -> bool:
        """Return whether there are more rows, reading a batch if necessary."""
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return False
            self._keys = self._order.keys(self._rest)
            if self._rest.num_rows:
                self.last = tuple(self._keys[:, -1].tolist())
        return True

    def until(self, bound: tuple[int, ...]) -> pa.RecordBatch:
        """Remove and return the rows up to and including a bound."""
        assert self._rest is not None
        count = self._keys.shape[1]
        if self.last > bound:
            under = np.zeros(count, np.bool_)
            same = np.ones(count, np.bool_)
            for keys, value in zip(self._keys, bound, strict=True):
                under |= same & (keys < value)
                same &= keys == value
            count = int(np.count_nonzero(under | same))
        taken, self._rest = self._rest.slice(0, count), self._rest.slice(count)
        self._keys = self._keys[:, count:]
        return taken


def _count_open(inputs: Sequence[Input]) -> int:
    """Return the maximum number of inputs open at once during a merge."""
    events = sorted([(each.low, 0) for each in inputs] + [(each.high, 1) for each in inputs])
    now = most = 0
    for _at, ends in events:
        now += -1 if ends else 1
        most = max(most, now)
    return most
