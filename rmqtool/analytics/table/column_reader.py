"""Reads records as Arrow record batches in bulk; equivalent to :mod:`rmqtool.analytics.table.row_reader`."""

import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from formats.message.read import MIN_SIZE
from rmqtool.analytics.ranges.record_rows import walk_rows
from rmqtool.analytics.table.byte_columns import ByteColumn, binary_of
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.columns import GrowingColumn, column_of
from rmqtool.analytics.table.inner import divide_batches
from rmqtool.analytics.table.record_block import Mask, RecordBlock
from rmqtool.analytics.table.row_reader import BatchLimits
from rmqtool.analytics.table.schema import BODY_COLUMNS
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.kernels.arrow import ItemParser, offset_ids, split_keys, views_of
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.scan import Walker
from rmqtool.kernels.tables.messages import ID_SPACE, Texts
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import Damage
from rmqtool.store.log.returning import Returning

if TYPE_CHECKING:
    from rmqtool.store.tier.tier import Stretch


class ColumnBatch:
    """Collects columns of records until a batch is full.

    Args:
        tally: updated while collecting.
        source: name of the file that the records are in.
    """

    def __init__(self, schema: pa.Schema, tally: SplitTally, limits: BatchLimits, source: str = "") -> None:
        self._schema, self._tally, self._limits = schema, tally, limits
        self._with_bodies = not BODY_COLUMNS.isdisjoint(schema.names)
        self._columns: list[GrowingColumn] = [column_of(field.name, field.type, tally, source) for field in schema]
        self._rows = self._size = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, block: RecordBlock) -> Generator[pa.RecordBatch, None, None]:
        """Append rows; yield each batch that is full."""
        start = 0
        while start < len(block):
            stop, bodies = self._fit(block, start)
            if stop > start:
                taken = block if stop - start == len(block) and not bodies else block.pick(slice(start, stop), bodies)
                for column in self._columns:
                    column.add(taken)
                self._tally.not_decompressed += len(taken.errors)
            if stop == start or self._size >= self._limits.bytes or self._rows >= self._limits.rows:
                yield self.finish()
            start = stop

    def _fit(self, block: RecordBlock, start: int) -> tuple[int, dict[int, bytes | str]]:
        """Return (end of the rows from ``start`` that fit the batch, their inflated bodies); no rows if it must end."""
        rows = block.rows
        huge = np.flatnonzero(rows.total_size[start:] > self._limits.huge)
        stop = min(len(block), start + self._limits.rows - self._rows)
        if len(huge):
            before = int(huge[0])
            stop = min(stop, start + before if before or self._rows else start + 1)
        sizes = MIN_SIZE + rows.topic_length[start:stop] + rows.properties_length[start:stop]
        bodies: dict[int, bytes | str] = {}
        if self._with_bodies:
            ends = self._size + np.cumsum(sizes + rows.body_length[start:stop])
            for row in (row - start for row in block.compressed_rows() if start <= row < stop):
                if row and ends[row - 1] >= self._limits.bytes:
                    break
                body = bodies[row] = block.inflate(start + row)
                if isinstance(body, bytes):
                    ends[row:] += len(body) - rows.body_length[start + row]
        else:
            ends = self._size + np.cumsum(sizes)
        taken = min(int(np.searchsorted(ends, self._limits.bytes)) + 1, stop - start)
        if taken:
            self._size = int(ends[taken - 1])
            self._rows += taken
        return start + taken, {row: body for row, body in bodies.items() if row < taken}

    def finish(self) -> pa.RecordBatch:
        """Return the rows as a batch and start a new one."""
        self._tally.rows += self._rows
        self._rows = self._size = 0
        return pa.RecordBatch.from_arrays([column.finish() for column in self._columns], schema=self._schema)


class ColumnReader:
    """Reads the records of a file into batches.

    Args:
        tally: updated while reading.
    """

    def __init__(self, schema: pa.Schema, choice: MessageChoice, tally: SplitTally, limits: BatchLimits) -> None:
        self._schema, self._choice, self._tally, self._limits = schema, choice, tally, limits

    def read(
        self, file: Segment, at: int, stop: int, *, last: bool, stretch: "Stretch | None" = None
    ) -> Generator[pa.RecordBatch, None, int]:
        """See :meth:`rmqtool.analytics.table.row_reader.RowReader.read`."""
        batch = ColumnBatch(self._schema, self._tally, self._limits, os.path.basename(file.path))
        memory = Memory(file.map())
        walk = Returning(walk_rows(file, at, stop, last=last, stretch=stretch))
        for item in walk:
            if isinstance(item, Damage):
                if self._choice.in_range(item.physical_offset):
                    self._tally.add_damage(item)
                continue
            begin, size = int(item.at[-1]), int(item.total_size[-1])
            self._tally.add_records(item.records, int(item.total_size.sum()), begin, begin + size)
            for rows in divide_batches(memory.view, item):
                block = RecordBlock(file, memory.address, rows)
                mask = choose_rows(block, self._choice)
                yield from batch.add(block if mask.all() else block.pick(mask))
        if len(batch):
            yield batch.finish()
        return walk.value


def _among(texts: Texts, values: tuple[str, ...]) -> Mask:
    import pyarrow.compute as pc  # reports do not need it

    wanted = pa.array([value.encode("utf-8", "surrogatepass") for value in values], pa.binary())
    mask: Mask = pc.is_in(binary_of(texts), wanted).to_numpy(zero_copy_only=False)
    return mask


def choose_rows(block: RecordBlock, choice: MessageChoice) -> Mask:
    """Return which rows are selected; see :meth:`rmqtool.analytics.table.choice.MessageChoice.has`."""
    rows, mask = block.rows, np.ones(len(block), np.bool_)
    for values, start, stop in (
        (rows.store_timestamp, choice.since, choice.until),
        (block.offsets, choice.start, choice.stop),
        (rows.queue_offset, choice.queue_start, choice.queue_stop),
    ):
        if start is not None:
            mask &= values >= start
        if stop is not None:
            mask &= values < stop
    if choice.queues:
        mask &= np.isin(rows.queue_id, choice.queues)
    if choice.topics:
        topics = binary_of(block.topics).dictionary_encode()
        wanted = np.array([choice.has_topic(topic) for topic in topics.dictionary.to_pylist()], np.bool_)
        mask &= wanted[topics.indices.to_numpy()]
    if choice.tags and mask.any():
        mask &= _among(block.items.tags, choice.tags)
    if choice.keys and mask.any():
        bounds, texts = block.keys
        hits = np.concatenate(([0], np.cumsum(_among(texts, choice.keys))))
        mask &= hits[bounds[1:]] > hits[bounds[:-1]]
    return mask


def load() -> None:
    """Load all compiled code and libraries by running them on empty input."""
    empty = Texts(np.zeros(0, np.int64), np.zeros(0, np.int64))
    Walker(b"", 1).walk(0, 0)
    ItemParser(empty).odd()
    split_keys(empty)
    offset_ids(empty, empty.length, np.empty((0, ID_SPACE), np.uint8))
    ByteColumn().add(empty)
    views_of(empty, 0, 0)
    pa.array(empty.length)  # imports pandas if it is installed
