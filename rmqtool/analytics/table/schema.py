"""The schema of messages as a table: the fields of :mod:`rmqtool.contract` with Arrow types.

Integer widths are those of the record layout. ``body`` is binary and decompressed, as ``bodyEncoding`` says
(``binary``). Additional fields are ``sourceFile`` and ``fileOffset`` (position of the record) and ``bodyError`` (why a
body is as stored, else null).

Timestamps are UTC instants in microseconds, which every Parquet reader supports. A record may contain any 64-bit
number; times outside the years 1900 to 9998 become null, because readers fail on them, each in other cases.
"""

from collections.abc import Sequence

import pyarrow as pa

from formats.layouts.derived import HEAD_V4_V4
from rmqtool.contract import MESSAGE_FIELDS
from rmqtool.errors import BadValue

MIN_TIME = -2_208_988_800_000  # ms: 1900-01-01; Spark 3 rejects earlier times without a calendar setting
MAX_TIME = 253_370_764_800_000  # ms, exclusive: 9999-01-01; later times can be in the year 10000 in some time zone

_INTEGERS = {"i": pa.int32(), "q": pa.int64()}
_TIME = pa.timestamp("us", tz="UTC")
_TEXT = pa.string()
_IN_HEAD = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "storeSize": "total_size",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "bodyCrc": "body_crc",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
    "bodyLength": "body_length",
}
_OTHERS = {
    "bornTimestamp": _TIME,
    "storeTimestamp": _TIME,
    "keys": pa.list_(pa.field("element", _TEXT, nullable=False)),
    "properties": pa.map_(_TEXT, pa.field("value", _TEXT, nullable=False)),
    "body": pa.binary(),
}
BODY_ENCODING = "binary"
TIME_COLUMNS = ("bornTimestamp", "storeTimestamp")
BODY_COLUMNS = frozenset({"body", "bodyLength", "bodyError"})  # columns that need the decompressed body
_MAY_BE_NULL = {*TIME_COLUMNS, "tags", "bodyError"}


def _field(name: str) -> pa.Field:
    codes = dict(HEAD_V4_V4.fields)
    kind = _INTEGERS[codes[_IN_HEAD[name]]] if name in _IN_HEAD else _OTHERS.get(name, _TEXT)
    return pa.field(name, kind, nullable=name in _MAY_BE_NULL)


MESSAGE_SCHEMA = pa.schema(
    [_field(name) for name in MESSAGE_FIELDS]
    + [_field("sourceFile"), pa.field("fileOffset", pa.int64(), nullable=False), _field("bodyError")]
)

BROKER = pa.field("broker", pa.string())
MESSAGE_TABLE = MESSAGE_SCHEMA.append(BROKER)
"""The messages of several brokers, which the last column tells apart."""


def micros(millis: int) -> int | None:
    """Convert a time of a record for a column; None outside the range that readers support."""
    return millis * 1000 if MIN_TIME <= millis < MAX_TIME else None


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of the given columns in order; None for all columns.

    Raises:
        BadValue: columns are unknown, named twice, or empty.
    """
    if columns is None:
        return MESSAGE_SCHEMA
    unknown = [name for name in columns if name not in MESSAGE_SCHEMA.names]
    if unknown or not columns or len(set(columns)) != len(columns):
        raise BadValue(f"columns {', '.join(columns)}: give some of {', '.join(MESSAGE_SCHEMA.names)}, each once")
    return pa.schema([MESSAGE_SCHEMA.field(name) for name in columns])
