"""Compare batches from compiled and plain code."""

from collections.abc import Generator
from typing import Any

import numpy as np

from formats.layouts.codes import MAGIC_V1
from formats.message.build import pack
from formats.message.read import Record
from rmqtool.kernels.load.library import Implementation
from rmqtool.rules.releases import V4_9
from rmqtool.store.dispatch import bulk as bulk_dispatch
from rmqtool.store.dispatch.batch import BatchBuilder, DelayLevels, RecordBatch
from rmqtool.store.dispatch.reading import recovery_batches
from rmqtool.store.log.returning import Returning

LEVELS = [1000, 5000, 10000]
MAGIC = MAGIC_V1.to_bytes(4, "big", signed=True)


def drained(batches: Generator[RecordBatch, None, Any]) -> tuple[list[RecordBatch], Any]:
    """All batches, and the generator's return value."""
    taken = Returning(batches)
    return [*taken], taken.value


def rows_of(batches: list[RecordBatch]) -> list[tuple[Any, ...]]:
    """One tuple per record, regardless of batch boundaries."""
    rows = []
    for batch in batches:
        assert len(batch)
        assert batch.queued.dtype == bool
        for column in (*batch[:6], batch.topic, batch.key_row, batch.key_hash):
            assert column.dtype == np.int64
        keys: list[list[int]] = [[] for _ in range(len(batch))]
        for row, value in zip(batch.key_row.tolist(), batch.key_hash.tolist(), strict=True):
            keys[row].append(value)
        light: list[list[tuple[str, int]]] = [[] for _ in range(len(batch))]
        for put in batch.light:
            light[put.row].append((put.queue, put.queue_offset))
        columns = [column.tolist() for column in (*batch[:6], batch.queued)]
        names = [batch.topics[number] for number in batch.topic.tolist()]
        numbers = dict(
            zip(batch.numbers.row.tolist(), zip(*map(column_of, batch.numbers[1:]), strict=True), strict=True)
        )
        rows += zip(*columns, names, keys, light, map(numbers.get, range(len(batch))), strict=True)
    return rows


def column_of(column: np.ndarray[Any, np.dtype[Any]]) -> list[int]:
    """A column of numbers."""
    assert column.dtype == np.int64
    result: list[int] = column.tolist()
    return result


def agree(raw: bytes, *, light: bool = False, levels: list[int] | None = None, crc: bool = True) -> int:
    """Compare dispatching record by record and in bulk, with either code; returns the number of records."""
    view = memoryview(raw)
    delays = DelayLevels(LEVELS if levels is None else levels)
    builder = BatchBuilder(delays, light_queues=V4_9 if light else None, index_tags=not light)
    expected, end = drained(recovery_batches(view, 0, len(raw), builder, crc=crc))
    for code in Implementation:
        read_batches, found_end = drained(bulk_dispatch.batches(view, 0, len(raw), builder, crc=crc, code=code))
        assert rows_of(read_batches) == rows_of(expected), code
        assert found_end == end
        for batch in read_batches:
            same_puts(batch, RecordBatch(*batch[:-1]))
    return sum(map(len, expected))


def same_puts(batch: RecordBatch, plain: RecordBatch) -> None:
    """Check that each queue gets the same entries in the same order, whichever code groups them."""
    assert [rows.tolist() for rows in batch.by_queue()] == [rows.tolist() for rows in plain.by_queue()]
    for (row, puts), (plain_row, plain_puts) in zip(batch.puts(), plain.puts(), strict=True):
        assert row == plain_row
        assert puts.steady is plain_puts.steady
        assert puts.entries.dtype == plain_puts.entries.dtype
        assert puts.entries.tolist() == plain_puts.entries.tolist()
        assert puts.batch_units().tolist() == plain_puts.batch_units().tolist()
        assert puts.store_timestamp.tolist() == plain_puts.store_timestamp.tolist()
        assert puts.ends.tolist() == plain_puts.ends.tolist()
        for number in range(len(plain_puts)):
            assert puts.message(number) == plain_puts.message(number)


def positioned(made: list[Record], base: int = 0) -> bytes:
    """Concatenated records with correct positions."""
    raw = b""
    for record in made:
        raw += pack(record._replace(physical_offset=base + len(raw)))
    return raw
