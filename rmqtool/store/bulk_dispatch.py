"""Dispatch of large logs: :mod:`rmqtool.store.dispatch` by compiled kernels."""

from collections.abc import Generator
from contextlib import closing

from formats.kernel_dispatch import DONE, FIELDS, FULL, Columns
from formats.message import End, Record, read
from rmqtool.store.ahead import ahead
from rmqtool.store.dispatch import Batch, BatchBuilder, LightQueuePut
from rmqtool.store.scan import Scanned, scan

_STEP = 1 << 13  # records that go from one thread to the next at once
_AHEAD = 4
BATCH_RECORDS = 1 << 16  # more than the plain way has: a queue's share of a batch is written at once


class BulkBuilder:
    """Collects the records of one view into batches.

    Args:
        view: what the records lie in.
        plain: has the settings, and the rules for what the kernel leaves to it.
    """

    def __init__(self, view: memoryview, plain: BatchBuilder) -> None:
        self._view, self._plain = view, plain
        self._columns = Columns(BATCH_RECORDS, plain.delays.millis, light=plain.light_queues)
        self._light: list[LightQueuePut] = []

    def __len__(self) -> int:
        return self._columns.records

    def add(self, scanned: Scanned) -> Generator[Batch, None, None]:
        """Take records; yields batches that become full."""
        rows, table = scanned
        row = 0
        while True:
            row, why = self._columns.add(self._view, table, row, rows.records)
            if why == DONE:
                return
            if why == FULL:
                yield self.take()
            else:
                self._add_odd(int(rows.at[row]), int(rows.total_size[row]))
                row += 1

    def _add_odd(self, at: int, size: int) -> None:
        record = read(self._view, at, at + size, crc=False)
        assert isinstance(record, Record)
        tags_code, hashes, light = self._plain.texts(record, len(self) - 1)
        self._columns.complete(tags_code, hashes)
        self._light += light

    def take(self) -> Batch:
        """The batch so far; the builder starts anew."""
        table, key_rows, key_hashes = self._columns.taken()
        columns = dict(zip(FIELDS, table, strict=True))
        columns["queued"] = columns["queued"].astype(bool)
        topics = [str(self._view[at : at + size], "utf-8", "replace") for at, size in self._columns.topics]
        batch = Batch(**columns, topics=topics, key_row=key_rows, key_hash=key_hashes, light=self._light)
        self._columns.clear()
        self._light = []
        return batch


def batches(
    view: memoryview, at: int, limit: int, plain: BatchBuilder, *, crc: bool = True
) -> Generator[Batch, None, End]:
    """All batches of the records from ``at`` to the first place that is none; returns that place.

    One thread checks records, one reads their properties, and meanwhile earlier batches go into queues and index.
    """
    return ahead(_batches(view, at, limit, plain, crc=crc))


def _batches(view: memoryview, at: int, limit: int, plain: BatchBuilder, *, crc: bool) -> Generator[Batch, None, End]:
    builder = BulkBuilder(view, plain)
    # valid are those that wait, the one that is made and the one that is used
    with closing(ahead(scan(view, at, limit, crc=crc, rows=_STEP, kept=_AHEAD + 2), _AHEAD)) as scanned:
        while True:
            try:
                part = next(scanned)
            except StopIteration as stop:
                end: End = stop.value
                break
            yield from builder.add(part)
    if len(builder):
        yield builder.take()
    return end
