"""Batches of messages in order, whatever order and number of files they come in, in bounded memory.

What is in order already is merged as it is read. What is not is sorted, as much at a time as memory is allowed for, and
put aside as sorted runs, which are merged then; and where more files overlap than may be open, some of them are merged
into a run first.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

RUN_BYTES = 64 << 20  # of Arrow memory that is sorted at once
BATCH_BYTES = 1 << 20  # of it in what is read at once from each that is open
OPEN = 16  # inputs at once
# where a row comes from, beside what it is ordered by: rows that are equal keep their order
FILE, ROW = "file", "row"
_MOST = np.iinfo(np.int64).max

_Keys = np.ndarray[Any, np.dtype[np.int64]]  # of shape (keys, rows)


@dataclass(frozen=True)
class Input:
    """What is in order in itself.

    Attributes:
        low, high: of the first key.
        batches: begins to read it.
    """

    low: int
    high: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


class Order:
    """An order, and where runs are put aside.

    Args:
        by: columns of int64, the first deciding first; null comes last.
        scratch: makes a directory, when it is needed.
    """

    def __init__(
        self, by: Sequence[str], scratch: Callable[[], str], run_bytes: int = RUN_BYTES, most_open: int = OPEN
    ) -> None:
        self._by = (*by, FILE, ROW)
        self._scratch, self._run_bytes, self._most_open = scratch, run_bytes, most_open
        self._runs = 0

    def keys(self, batch: pa.RecordBatch) -> _Keys:
        """What each row is ordered by."""
        columns = (batch.column(name) for name in self._by)
        return np.stack([column.fill_null(_MOST).to_numpy(zero_copy_only=False).astype(np.int64) for column in columns])

    def runs(self, batches: Iterator[pa.RecordBatch]) -> list[Input]:
        """Sorted runs of what is in no order."""
        sorted_runs: list[Input] = []
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            waiting.append(batch)
            size += batch.nbytes
            if size >= self._run_bytes:
                sorted_runs.append(self._run([self._sort(waiting)]))
                waiting, size = [], 0
        if waiting:
            sorted_runs.append(self._run([self._sort(waiting)]))
        return sorted_runs

    def merge(self, inputs: Sequence[Input]) -> Iterator[pa.RecordBatch]:
        """All rows in order."""
        while _overlapping(inputs) > self._most_open:
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
        """Put aside what is in order."""
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
            os.unlink(path)  # it is read once

        return Input(low, high, read)

    def _merge(self, inputs: Sequence[Input]) -> Iterator[pa.RecordBatch]:
        waiting = sorted(inputs, key=lambda each: each.low)[::-1]
        open_: list[_Open] = []
        while waiting or open_:
            while waiting and (not open_ or waiting[-1].low <= min(each.last[0] for each in open_)):
                begun = _Open(waiting.pop().batches(), self)
                if begun.more():
                    open_.append(begun)
            if not open_:
                return
            bound = min(each.last for each in open_)
            taken = [part for each in open_ if (part := each.until(bound)).num_rows]
            yield taken[0] if len(taken) == 1 else self._sort(taken)
            open_ = [each for each in open_ if each.more()]


class _Open:
    """An input that is being read."""

    def __init__(self, batches: Iterator[pa.RecordBatch], order: Order) -> None:
        self._batches, self._order = batches, order
        self._rest: pa.RecordBatch | None = None
        self.last: tuple[int, ...] = ()

    def more(self) -> bool:
        """Whether there are rows; some are read where none are."""
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return False
            self._keys = self._order.keys(self._rest)
            if self._rest.num_rows:
                self.last = tuple(self._keys[:, -1].tolist())
        return True

    def until(self, bound: tuple[int, ...]) -> pa.RecordBatch:
        """The rows that come not after a bound."""
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


def _overlapping(inputs: Sequence[Input]) -> int:
    """How many are open at once while they are merged."""
    events = sorted([(each.low, 0) for each in inputs] + [(each.high, 1) for each in inputs])
    now = most = 0
    for _at, ends in events:
        now += -1 if ends else 1
        most = max(most, now)
    return most
