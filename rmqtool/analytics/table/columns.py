"""Builders for the columns of the message schema, one class per kind of column."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from formats.primitives import host_text
from rmqtool.analytics.table.arrays import numbers_of, repeat, strings_of
from rmqtool.analytics.table.body_views import BodyViews
from rmqtool.analytics.table.byte_columns import ByteColumn, each_text, text_of
from rmqtool.analytics.table.record_block import RecordBlock
from rmqtool.analytics.table.schema import BODY_ENCODING, MAX_TIME, MIN_TIME
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.kernels.arrow import Lists
from rmqtool.kernels.tables.messages import Texts
from rmqtool.kernels.tables.shapes import Column


class GrowingColumn(Protocol):
    """Builder of one column of a batch."""

    def add(self, block: RecordBlock) -> None:
        """Append rows."""

    def finish(self) -> pa.Array:
        """Return the column and start a new one."""


class _Numbers:
    """Integers of a field's type."""

    def __init__(self, kind: pa.DataType, values: Callable[[RecordBlock], Column]) -> None:
        self._kind, self._values = kind, values
        self._parts: list[Column] = []

    def add(self, block: RecordBlock) -> None:
        self._parts.append(self._values(block).astype(self._kind.to_pandas_dtype()))

    def finish(self) -> pa.Array:
        values, self._parts = np.concatenate(self._parts), []
        return numbers_of(values, self._kind)


class _Times:
    """Milliseconds converted to timestamps; null outside the range that readers support."""

    def __init__(self, kind: pa.DataType, tally: SplitTally, values: Callable[[RecordBlock], Column]) -> None:
        self._kind, self._tally, self._values = kind, tally, values
        self._parts: list[Column] = []

    def add(self, block: RecordBlock) -> None:
        self._parts.append(self._values(block).copy())

    def finish(self) -> pa.Array:
        values, self._parts = np.concatenate(self._parts), []
        missing = (values < MIN_TIME) | (values >= MAX_TIME)
        self._tally.times_out_of_range += int(np.count_nonzero(missing))
        return numbers_of(np.where(missing, 0, values) * 1000, pa.int64(), missing).view(self._kind)


class _Text:
    """Bytes or text, one value per row."""

    def __init__(self, texts: Callable[[RecordBlock], Texts], convert: Callable[[pa.BinaryArray], pa.Array]) -> None:
        self._texts, self._convert = texts, convert
        self._bytes = ByteColumn()

    def add(self, block: RecordBlock) -> None:
        self._bytes.add(self._texts(block))

    def finish(self) -> pa.Array:
        return self._convert(self._bytes.finish())


class _Nested:
    """Lists or maps: their bounds and their texts."""

    def __init__(self, lists: Callable[[RecordBlock], list[Lists]], convert: Callable[..., pa.Array]) -> None:
        self._lists, self._convert = lists, convert
        self._ends: list[Column] = [np.zeros(1, np.int64)]
        self._columns: list[ByteColumn] = []

    def add(self, block: RecordBlock) -> None:
        lists = self._lists(block)
        self._columns = self._columns or [ByteColumn() for each in lists]
        self._ends.append(lists[0].bounds[1:] + self._ends[-1][-1])
        for column, (_bounds, texts) in zip(self._columns, lists, strict=True):
            column.add(texts)

    def finish(self) -> pa.Array:
        offsets = numbers_of(np.concatenate(self._ends), pa.int32())
        self._ends = self._ends[:1]
        return self._convert(offsets, *(text_of(column.finish()) for column in self._columns))


class _Constant:
    """The same text in every row."""

    def __init__(self, text: str) -> None:
        self._text, self._rows = text, 0

    def add(self, block: RecordBlock) -> None:
        self._rows += len(block)

    def finish(self) -> pa.Array:
        array, self._rows = repeat(self._text, self._rows), 0
        return array


class _Errors:
    """Reasons why bodies are as stored."""

    def __init__(self) -> None:
        self._errors: dict[int, str] = {}
        self._rows = 0

    def add(self, block: RecordBlock) -> None:
        self._errors.update((self._rows + row, error) for row, error in block.errors)
        self._rows += len(block)

    def finish(self) -> pa.Array:
        values = map(self._errors.get, range(self._rows)) if self._errors else None
        column = pa.nulls(self._rows, pa.string()) if values is None else strings_of(values)
        self._errors, self._rows = {}, 0
        return column


def _host(value: bytes) -> str:
    return host_text(value[:-4], int.from_bytes(value[-4:], "big", signed=True))


_NUMBERS: dict[str, Callable[[RecordBlock], Column]] = {
    "queueId": lambda block: block.rows.queue_id,
    "queueOffset": lambda block: block.rows.queue_offset,
    "physicalOffset": lambda block: block.offsets,
    "storeSize": lambda block: block.rows.total_size,
    "sysFlag": lambda block: block.rows.sys_flag,
    "flag": lambda block: block.rows.flag,
    "bodyCrc": lambda block: block.rows.body_crc,
    "reconsumeTimes": lambda block: block.rows.reconsume_times,
    "preparedTransactionOffset": lambda block: block.rows.prepared_transaction_offset,
    "bodyLength": lambda block: block.bodies.length,
    "fileOffset": lambda block: block.file_offsets,
}
_TIMES: dict[str, Callable[[RecordBlock], Column]] = {
    "bornTimestamp": lambda block: block.rows.born_timestamp,
    "storeTimestamp": lambda block: block.rows.store_timestamp,
}
_TEXTS: dict[str, tuple[Callable[[RecordBlock], Texts], Callable[[pa.BinaryArray], pa.Array]]] = {
    "topic": (lambda block: block.topics, text_of),
    "bornHost": (lambda block: block.born_hosts, lambda values: each_text(values, _host)),
    "storeHost": (lambda block: block.store_hosts, lambda values: each_text(values, _host)),
    "offsetMsgId": (lambda block: block.offset_ids, text_of),
    "msgId": (lambda block: block.message_ids, text_of),
    "tags": (lambda block: block.items.tags, text_of),
    "body": (lambda block: block.bodies, lambda values: values),
}


def column_of(name: str, kind: pa.DataType, tally: SplitTally, source: str) -> GrowingColumn:
    """Return a builder for a field of the message schema.

    Args:
        name: name of the field.
        kind: type of its values.
        tally: counts values that could not be decoded.
        source: file name for the field ``sourceFile``.
    """
    if name in _NUMBERS:
        return _Numbers(kind, _NUMBERS[name])
    if name in _TIMES:
        return _Times(kind, tally, _TIMES[name])
    if kind == pa.binary_view():
        return BodyViews()
    if name in _TEXTS:
        return _Text(*_TEXTS[name])
    if name == "keys":
        return _Nested(lambda block: [block.keys], lambda *parts: pa.ListArray.from_arrays(*parts, type=kind))
    if name == "properties":
        names_and_values: Callable[[RecordBlock], list[Lists]] = lambda block: [block.items.names, block.items.values]  # noqa: E731
        return _Nested(names_and_values, lambda *parts: pa.MapArray.from_arrays(*parts, type=kind))
    return _Errors() if name == "bodyError" else _Constant({"bodyEncoding": BODY_ENCODING, "sourceFile": source}[name])
