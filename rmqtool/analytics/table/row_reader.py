"""Reads records as Arrow record batches one by one; reference for :mod:`rmqtool.analytics.table.column_reader`."""

import os
from collections.abc import Callable, Generator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from formats.errors import FormatError
from formats.message.bodies import decompress
from formats.message.ids import offset_id
from formats.message.properties import KEYS, TAGS, UNIQ_KEY, parse, split_keys
from formats.message.read import MIN_SIZE, Record
from formats.primitives import host_text
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.schema import BODY_COLUMNS, BODY_ENCODING, TIME_COLUMNS, micros
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import Damage, walk_file
from rmqtool.store.log.returning import Returning

if TYPE_CHECKING:
    from rmqtool.store.tier.tier import Stretch


class DecodedRow:
    """A message as it is stored, and values derived from it, computed once.

    Args:
        source_file: name of the file of the log.
        file_offset: where its record begins in that file.
    """

    def __init__(self, record: Record, physical_offset: int, source_file: str, file_offset: int) -> None:
        self.record, self.physical_offset = record, physical_offset
        self.source_file, self.file_offset = source_file, file_offset

    @cached_property
    def properties(self) -> dict[str, str]:
        return parse(self.record.properties)

    @cached_property
    def message_id(self) -> str:
        return offset_id(self.record.store_address, self.record.store_port, self.physical_offset)

    @cached_property
    def body(self) -> tuple[bytes, str | None]:
        """(body, reason why it is as stored)."""
        try:
            return decompress(self.record.body, self.record.sys_flag), None
        except FormatError as err:
            return self.record.body, str(err)


_host = lru_cache(4096)(host_text)  # messages have few hosts
_CELLS: dict[str, Callable[[DecodedRow], Any]] = {
    "topic": lambda row: row.record.topic.decode("utf-8", "replace"),
    "queueId": lambda row: row.record.queue_id,
    "queueOffset": lambda row: row.record.queue_offset,
    "physicalOffset": lambda row: row.physical_offset,
    "storeSize": lambda row: row.record.total_size,
    "sysFlag": lambda row: row.record.sys_flag,
    "flag": lambda row: row.record.flag,
    "bodyCrc": lambda row: row.record.body_crc,
    "bornTimestamp": lambda row: micros(row.record.born_timestamp),
    "storeTimestamp": lambda row: micros(row.record.store_timestamp),
    "bornHost": lambda row: _host(row.record.born_address, row.record.born_port),
    "storeHost": lambda row: _host(row.record.store_address, row.record.store_port),
    "reconsumeTimes": lambda row: row.record.reconsume_times,
    "preparedTransactionOffset": lambda row: row.record.prepared_transaction_offset,
    "offsetMsgId": lambda row: row.message_id,
    "msgId": lambda row: row.properties.get(UNIQ_KEY) or row.message_id,
    "tags": lambda row: row.properties.get(TAGS),
    "keys": lambda row: split_keys(row.properties.get(KEYS, "")),
    "properties": lambda row: list(row.properties.items()),
    "bodyLength": lambda row: len(row.body[0]),
    "body": lambda row: row.body[0],
    "bodyEncoding": lambda _row: BODY_ENCODING,
    "sourceFile": lambda row: row.source_file,
    "fileOffset": lambda row: row.file_offset,
    "bodyError": lambda row: row.body[1],
}


class BatchLimits(NamedTuple):
    """Limits of a batch.

    Attributes:
        bytes: size of messages after which it is full.
        rows: maximum number of rows.
        huge: size of a message that starts a new batch: two of them could exceed the 32-bit offsets of a column.
    """

    bytes: int
    rows: int = 1 << 16
    huge: int = 1 << 29


class RowBatch:
    """Collects rows until a batch is full.

    Args:
        tally: updated while collecting.
    """

    def __init__(self, schema: pa.Schema, tally: SplitTally, limits: BatchLimits) -> None:
        self._schema, self._tally, self._limits = schema, tally, limits
        self._cells = [_CELLS[name] for name in schema.names]
        self._with_bodies = not BODY_COLUMNS.isdisjoint(schema.names)
        self._times = [schema.names.index(name) for name in TIME_COLUMNS if name in schema.names]
        self._rows: list[list[Any]] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """Whether it has reached a limit."""
        return self._size >= self._limits.bytes or len(self._rows) >= self._limits.rows

    def add(self, row: DecodedRow) -> None:
        """Append a row."""
        cells = [cell(row) for cell in self._cells]
        self._size += MIN_SIZE + len(row.record.topic) + len(row.record.properties)
        if self._with_bodies:
            body, error = row.body
            self._size += len(body)
            self._tally.not_decompressed += error is not None
        self._tally.times_out_of_range += sum(cells[at] is None for at in self._times)
        self._rows.append(cells)

    def finish(self) -> pa.RecordBatch:
        """Return the rows as a batch and start a new one."""
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]
        self._tally.rows += len(self._rows)
        self._rows, self._size = [], 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class RowReader:
    """Reads the records of a file into batches.

    Args:
        tally: updated while reading.
    """

    def __init__(self, schema: pa.Schema, choice: MessageChoice, tally: SplitTally, limits: BatchLimits) -> None:
        self._choice, self._tally, self._limits = choice, tally, limits
        self._batch = RowBatch(schema, tally, limits)

    def read(
        self, file: Segment, at: int, stop: int, *, last: bool, stretch: "Stretch | None" = None
    ) -> Generator[pa.RecordBatch, None, int]:
        """Yield batches of the records found by :func:`rmqtool.store.log.commit_log.walk_file`; return its result.

        Args:
            stretch: what is read, if the file is a tiered segment.
        """
        walk = Returning(walk_file(file, at, stop, last=last) if stretch is None else stretch.walk(last=last))
        batch = self._batch
        source = os.path.basename(file.path)
        for item in walk:
            if isinstance(item, Damage):
                if self._choice.in_range(item.physical_offset):
                    self._tally.add_damage(item)
                continue
            record = item.record
            self._tally.add_records(1, record.total_size, item.at, item.at + record.total_size)
            for message in item.messages():
                if self._choice.has(message.record, item.physical_offset):
                    if len(batch) and record.total_size > self._limits.huge:
                        yield batch.finish()
                    batch.add(DecodedRow(message.record, message.physical_offset, source, message.at))
                    if batch.is_full:
                        yield batch.finish()
        if len(batch):
            yield batch.finish()
        return walk.value
