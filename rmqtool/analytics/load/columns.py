"""Converts the columns of arbitrary Parquet files to the columns that an import reads.

Writers of Parquet differ in types: pandas turns integers with missing values into floats, and maps into structs. Any
type with the same meaning is accepted. A value that cannot be converted causes its row to be refused; a column whose
type cannot be converted is reported once for the whole file.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.analytics.table.schema import TIME_COLUMNS
from rmqtool.services.sending.fields import TAKEN

NUMBER_COLUMNS = (
    "physicalOffset",
    "queueOffset",
    "queueId",
    "sysFlag",
    "flag",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bodyLength",
)
_TEXT_COLUMNS = ("topic", "bornHost", "storeHost", "tags", "bodyEncoding", "bodyError")
_PROPERTIES = pa.map_(pa.string(), pa.string())
_KEYS = pa.list_(pa.string())
_TEXT_BODY, _ERROR = "bodyText", "error"
SCHEMA = pa.schema(
    [(name, pa.int64()) for name in (*NUMBER_COLUMNS, *TIME_COLUMNS)]
    + [(name, pa.string()) for name in _TEXT_COLUMNS]
    + [("keys", _KEYS), ("properties", _PROPERTIES), ("body", pa.binary()), (_TEXT_BODY, pa.string())]
    + [(_ERROR, pa.string())]
)
COLUMNS = TAKEN
_MILLIS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_LIMIT = 2.0**63

Row = dict[str, Any]
_Refused = dict[int, str]  # row to reason


class UnfitColumn(ValueError):
    """A column's type cannot represent its values."""

    def __init__(self, name: str, kind: pa.DataType, wanted: str) -> None:
        super().__init__(f"column {name} is {kind}, not {wanted}")
        self.name, self.kind, self.wanted = name, kind, wanted


def fit_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch to :data:`SCHEMA`; missing columns are null, and ``error`` contains why a row is refused.

    Raises:
        UnfitColumn: a column with values has an unsuitable type.
    """
    refused: _Refused = {}
    columns: dict[str, pa.Array] = {}
    for name in COLUMNS:
        if name not in batch.schema.names:
            continue
        column = _plain(batch.column(name))
        if column.null_count == len(column):
            continue
        unreadable = _unreadable(column)
        if len(unreadable):
            refused.update((row, f"{name}: not UTF-8") for row in unreadable.tolist() if row not in refused)
            column = _without(column, unreadable)
        columns.update(_CONVERTERS[name](name, column, refused))
    if refused:
        columns[_ERROR] = pa.array(map(refused.get, range(batch.num_rows)), pa.string())
    arrays = [columns.get(field.name) for field in SCHEMA]
    arrays = [
        pa.nulls(batch.num_rows, kind) if array is None else array
        for array, kind in zip(arrays, SCHEMA.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def rows_of(batch: pa.RecordBatch) -> Iterator[Row | ValueError]:
    """Yield the rows of a batch in :data:`SCHEMA` as dicts like machine-readable output, or the reason for refusal."""
    for row in batch.select(SCHEMA.names).to_pylist():
        error, text = row.pop(_ERROR), row.pop(_TEXT_BODY)
        if error is not None:
            yield ValueError(error)
            continue
        if text is not None:
            row["body"] = text
        if row["properties"] is not None:
            row["properties"] = dict(row["properties"])
        if row["bodyError"] is None:
            del row["bodyError"]
        yield row


def _plain(column: pa.Array) -> pa.Array:
    """Remove extension types and encodings from a column."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    return column


def _unreadable(column: pa.Array) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return the rows with text that is not UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowException:
        bad = []
        for row in range(len(column)):
            try:
                column.take(pa.array([row])).validate(full=True)
            except pa.ArrowException:
                bad.append(row)
        return np.array(bad, np.int64)
    return np.zeros(0, np.int64)


def _without(column: pa.Array, rows: Any) -> pa.Array:
    """Return the column with null in some rows."""
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    return column.take(pa.array(np.arange(len(column)), mask=mask))


def _refuse(column: pa.Array, bad: Any, refused: _Refused, reason: Callable[[Any], str]) -> pa.Array:
    """Replace bad values (a bool per row) by null and refuse their rows."""
    rows = np.flatnonzero(bad)
    if not len(rows):
        return column
    for row in rows.tolist():
        refused.setdefault(row, reason(column[row].as_py()))
    return _without(column, rows)


def _number(name: str, column: pa.Array, refused: _Refused) -> dict[str, pa.Array]:
    kind, describe = column.type, lambda value: f"{name}: {value} is not a whole number of 64 bits"
    if pa.types.is_unsigned_integer(kind):
        column = _refuse(
            column, _true(pc.greater(column.cast(pa.uint64()), pa.scalar(2**63 - 1, pa.uint64()))), refused, describe
        )
    elif pa.types.is_floating(kind):
        values = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        whole = np.isfinite(values) & (np.floor(values) == values) & (values >= -_LIMIT) & (values < _LIMIT)
        column = _refuse(column.cast(pa.float64()), ~whole, refused, describe)
    elif pa.types.is_decimal(kind):
        numbers = [value is None or (value == int(value) and abs(value) < 2**63) for value in column.to_pylist()]
        column = _refuse(column, ~np.array(numbers, np.bool_), refused, describe)
        values = [None if value is None else int(value) for value in column.to_pylist()]
        return {name: pa.array(values, pa.int64())}
    elif not pa.types.is_integer(kind):
        raise UnfitColumn(name, kind, "a number")
    return {name: column.cast(pa.int64())}


def _true(mask: pa.Array) -> Any:
    return mask.fill_null(False).to_numpy(zero_copy_only=False)


def _time(name: str, column: pa.Array, refused: _Refused) -> dict[str, pa.Array]:
    """Convert to milliseconds since the epoch."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.date32()).cast(pa.timestamp("s"))
    if not pa.types.is_timestamp(column.type):
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise UnfitColumn(name, column.type, "a time or a number of milliseconds")
        return _number(name, column, refused)
    times, per = _MILLIS[column.type.unit]
    values = column.cast(pa.int64())
    # the product cannot overflow: times in seconds come from dates
    times_ms = values.fill_null(0).to_numpy(zero_copy_only=False) * times // per
    return {name: pa.array(times_ms, pa.int64(), mask=_true(column.is_null()))}


def _text(name: str, column: pa.Array, refused: _Refused) -> dict[str, pa.Array]:
    if not (_is_text(column.type) or _is_bytes(column.type)):
        raise UnfitColumn(name, column.type, "a text")
    try:
        return {name: column.cast(pa.string())}
    except pa.ArrowInvalid:
        texts = []
        for row, value in enumerate(column.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError:
                refused.setdefault(row, f"{name}: not UTF-8")
                texts.append(None)
        return {name: pa.array(texts, pa.string())}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    fixed = pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view() or fixed)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _keys(name: str, column: pa.Array, refused: _Refused) -> dict[str, pa.Array]:
    if _is_text(column.type) or _is_bytes(column.type):
        texts = _text(name, column, refused)[name].to_pylist()
        return {name: pa.array([None if v is None else [v] for v in texts], _KEYS)}
    if not _is_list(column.type) or not (_is_text(column.type.value_type) or pa.types.is_null(column.type.value_type)):
        raise UnfitColumn(name, column.type, "a list of texts")
    return {name: column.cast(_KEYS)}


def _properties(name: str, column: pa.Array, refused: _Refused) -> dict[str, pa.Array]:
    """Convert a map, or an equivalent: a list of keys and values, or a struct with a field per key."""
    kind = column.type
    if pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type):
        return {name: column.cast(_PROPERTIES)}
    pairs = _is_list(kind) and pa.types.is_struct(kind.value_type)
    pairs = pairs and [field.name for field in kind.value_type] == ["key", "value"]
    if not (pairs or pa.types.is_map(kind) or pa.types.is_struct(kind)):
        raise UnfitColumn(name, kind, "a map of texts")
    properties: list[list[tuple[str, str]] | None] = []
    for row, value in enumerate(column.to_pylist()):
        items: list[tuple[Any, Any]] | None = None
        if value is not None and pairs:
            items = [(None, None) if pair is None else (pair["key"], pair["value"]) for pair in value]
        elif value is not None:
            items = [(k, v) for k, v in value.items() if v is not None] if isinstance(value, dict) else list(value)
        if items is not None:
            items = [(_decode(key), _decode(item)) for key, item in items]
            if not all(isinstance(part, str) for item in items for part in item):
                refused.setdefault(row, f"{name}: not a map of texts")
                items = None
            elif len(dict(items)) < len(items):
                refused.setdefault(row, f"{name}: one of them is there twice")
                items = None
        properties.append(items)
    return {name: pa.array(properties, _PROPERTIES)}


def _decode(value: Any) -> Any:
    """Decode text given as bytes, like Kafka headers; return other values, and invalid UTF-8, unchanged."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _body(name: str, column: pa.Array, refused: _Refused) -> dict[str, pa.Array]:
    """Convert bytes, text in the encoding given by ``bodyEncoding``, or another value, which becomes JSON."""
    kind = column.type
    if _is_bytes(kind):
        return {name: column.cast(pa.binary())}
    if _is_text(kind):
        return {_TEXT_BODY: column.cast(pa.string())}
    simple = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not (simple or pa.types.is_nested(kind)):
        raise UnfitColumn(name, kind, "bytes, a text, or what JSON has")
    bodies: list[bytes | None] = []
    for row, value in enumerate(column):
        try:
            bodies.append(_json(value.as_py(maps_as_pydicts="strict")) if value.is_valid else None)
        except (ValueError, TypeError, KeyError, OverflowError, pa.ArrowException) as err:
            refused.setdefault(row, f"{name}: not JSON: {err}")
            bodies.append(None)
    return {name: pa.array(bodies, pa.binary())}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


_CONVERTERS: dict[str, Callable[[str, pa.Array, _Refused], dict[str, pa.Array]]] = {
    **dict.fromkeys(NUMBER_COLUMNS, _number),
    **dict.fromkeys(TIME_COLUMNS, _time),
    **dict.fromkeys(_TEXT_COLUMNS, _text),
    "keys": _keys,
    "properties": _properties,
    "body": _body,
}
