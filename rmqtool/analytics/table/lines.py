"""Formats rows given as columns as lines of JSON or CSV, in bulk.

Cells are numbers, or texts that need no escaping in either format; other rows are passed individually.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class TextColumn(Protocol):
    """Concatenated texts, as in :class:`rmqtool.services.timers.plain.PlainTexts`."""

    @property
    def data(self) -> "np.ndarray[Any, Any]":
        """Bytes of all texts."""

    @property
    def ends(self) -> "np.ndarray[Any, Any]":
        """Start of each text, and end of the last; int32."""

    @property
    def missing(self) -> "np.ndarray[Any, Any]":
        """Which texts are missing."""

    @property
    def listed(self) -> bool:
        """Whether each value is a list: of one text, or empty if it is missing."""


class HasColumns(Protocol):
    """Rows given as columns; at least one."""

    def __len__(self) -> int:
        """Number of rows."""

    def columns(self) -> Mapping[str, Any]:
        """Return int64 arrays, :class:`TextColumn` objects or values common to all rows, by contract name."""

    def rows(self) -> Iterator[Any]:
        """Return the rows one by one."""


def json_lines(columns: Mapping[str, Any]) -> str:
    """Return one JSON object per row, each followed by a line feed."""
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
    """Return one line of CSV per row."""
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
    """Format a CSV value that needs no quotes."""
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
    """Return a text as an Arrow scalar. Converting a Python object would load pandas, which takes very long."""
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
