"""Rows that come as columns, many at once, as lines of JSON or CSV.

Cells are numbers, or texts that need no escapes in either form; whatever does comes as a row.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class TextColumn(Protocol):
    """Texts one behind the other; as :class:`rmqtool.services.timers.plain.PlainTexts` has them."""

    @property
    def data(self) -> "np.ndarray[Any, Any]":
        """Their bytes."""

    @property
    def ends(self) -> "np.ndarray[Any, Any]":
        """Where each begins, and the last ends; int32."""

    @property
    def missing(self) -> "np.ndarray[Any, Any]":
        """Which are not there."""

    @property
    def listed(self) -> bool:
        """Each is a list of one, or of none where it is missing."""


class HasColumns(Protocol):
    """Rows that come as columns; one at least."""

    def __len__(self) -> int:
        """How many rows."""

    def columns(self) -> Mapping[str, Any]:
        """Arrays of int64, :class:`TextColumn` or a value that all have in common, by contract name."""

    def rows(self) -> Iterator[Any]:
        """The same one by one."""


def json_lines(columns: Mapping[str, Any]) -> str:
    """A JSON object for each row, each with a line feed."""
    parts: list[Any] = []
    before = "{"
    for name, column in columns.items():
        before += json.dumps(name) + ":"
        if column is None or isinstance(column, str | int):
            before += json.dumps(column) + ","
            continue
        if hasattr(column, "listed"):
            begin, end, nothing = ('["', '"]', "[]") if column.listed else ('"', '"', "null")
            parts += [before, _texts(column, begin, end, nothing)]
        else:
            parts += [before, _numbers(column)]
        before = ","
    return _join([*parts, before.removesuffix(",") + "}\n"])


def csv_lines(columns: Mapping[str, Any]) -> str:
    """A line of CSV for each row."""
    parts: list[Any] = []
    before = ""
    for column in columns.values():
        if column is None or isinstance(column, str | int):
            before += _csv_value(column) + ","
            continue
        parts += [before, _texts(column, "", "", "") if hasattr(column, "listed") else _numbers(column)]
        before = ","
    return _join([*parts, before.removesuffix(",") + "\n"])


def _csv_value(value: str | int | None) -> str:
    """A value as CSV has it that needs no quotes there."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbers(column: "np.ndarray[Any, Any]") -> "pa.StringArray":
    import numpy as np
    import pyarrow as pa

    cells = pa.py_buffer(np.ascontiguousarray(column, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(column), [None, cells]).cast(pa.string())


def _texts(column: TextColumn, begin: str, end: str, nothing: str) -> "pa.StringArray":
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    valid = pa.py_buffer(np.packbits(~column.missing, bitorder="little"))
    buffers = [valid, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    texts = pa.Array.from_buffers(pa.string(), len(column.missing), buffers)
    if begin or end:
        texts = pc.binary_join_element_wise(_value(begin), texts, _value(end), _value(""))
    return pc.fill_null(texts, _value(nothing)) if column.missing.any() else texts


def _value(text: str) -> "pa.StringScalar":
    """A text as one value. Whatever makes a Python object one loads pandas, which takes longer than all the rest."""
    import numpy as np
    import pyarrow as pa

    data = text.encode()
    ends = np.array([0, len(data)], np.int32)
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])[0]


def _join(parts: list[Any]) -> str:
    import numpy as np
    import pyarrow.compute as pc

    lines = pc.binary_join_element_wise(
        *(_value(part) if isinstance(part, str) else part for part in parts), _value("")
    )
    ends = np.frombuffer(lines.buffers()[1], np.int32)
    data: bytes = lines.buffers()[2][: ends[len(lines)]].to_pybytes()
    return data.decode("ascii")
