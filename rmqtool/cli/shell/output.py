"""Rows to stdout as table, JSON, NDJSON or CSV, one at a time: no command builds one big list.

Machine forms carry every field by its contract name. The table is for people, shows a choice of columns, and may
change.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from json import JSONEncoder

_SAMPLE = 100  # rows that decide the widths of a table's columns
_SAMPLE_TEXT = 1 << 20  # characters of rows that wait for that: one body may inflate to hundreds of megabytes
_MAX_WIDTH = 60
_LONGEST_CELL = 1 << 16  # characters; a table is for people, and other forms have all of it
_C1 = {i: f"\\u{i:04x}" for i in range(127, 160)}  # JSON may carry them as they are, but terminals obey them
_CONTROL = {i: f"\\x{i:02x}" for i in (*range(32), *range(127, 160))} | {
    # line ends of Unicode, and what turns the direction of text around
    i: f"\\u{i:04x}"
    for i in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}

Row = dict[str, Any]


class Column:
    """A column of a table: title, and how a row's cell is made."""

    __slots__ = ("cell", "right", "title", "wide")

    def __init__(
        self, title: str, cell: Callable[[Row], Any] | None = None, *, right: bool = False, wide: bool = False
    ) -> None:
        self.title, self.right, self.wide = title, right, wide
        self.cell = cell or (lambda row: row.get(title))


class Writer(Protocol):
    """Takes rows; must be closed, also when there were none."""

    def row(self, row: Row) -> None:
        """One more row."""

    def close(self) -> None:
        """No more rows."""


class NdjsonWriter:
    """One JSON object a line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def row(self, row: Row) -> None:
        self._out.write(dump_json(row) + "\n")

    def close(self) -> None:
        self._out.flush()


class JsonWriter:
    """One JSON array, an element a line."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._rows = out, 0

    def row(self, row: Row) -> None:
        self._out.write(("[\n" if not self._rows else ",\n") + dump_json(row))
        self._rows += 1

    def close(self) -> None:
        self._out.write("\n]\n" if self._rows else "[]\n")
        self._out.flush()


class CsvWriter:
    """RFC 4180 with a header. Lists are joined by a blank as RocketMQ joins keys; maps are JSON.

    On a terminal control characters are spelled out.
    """

    def __init__(self, out: TextIO, fields: Sequence[str]) -> None:
        import csv

        self._out, self._fields = out, fields
        self._terminal = out.isatty()
        # a lone CR or LF in a cell gets its quotes only where the line end has it (Python before 3.13)
        self._writer = csv.writer(self, lineterminator="\r\n")
        self._writer.writerow(fields)

    def write(self, line: str) -> None:
        """Take a line from the csv module."""
        self._out.write(line[:-2] + "\n")

    def row(self, row: Row) -> None:
        cells = [_csv_cell(row.get(field)) for field in self._fields]
        if self._terminal:  # a file gets what is there, but a terminal would obey it
            cells = [plain(cell) if isinstance(cell, str) else cell for cell in cells]
        self._writer.writerow(cells)

    def close(self) -> None:
        self._out.flush()


class TableWriter:
    """Aligned columns. Their widths come from the first rows, so that a table streams too."""

    def __init__(self, out: TextIO, columns: Sequence[Column]) -> None:
        self._out, self._columns = out, columns
        self._terminal = out.isatty()
        self._waiting: list[list[str]] = []
        self._waiting_text = 0
        self._widths: list[int] | None = None

    def row(self, row: Row) -> None:
        cells = [_cell(column.cell(row)) for column in self._columns]
        if self._widths is None:
            self._waiting.append(cells)
            self._waiting_text += sum(map(len, cells))
            if len(self._waiting) >= _SAMPLE or self._waiting_text >= _SAMPLE_TEXT:
                self._begin()
        else:
            self._line(cells)

    def begin(self) -> None:
        """Write what waits for the widths of columns: nothing more may come for a while."""
        if self._waiting:
            self._begin()

    def _begin(self) -> None:
        titles = [column.title for column in self._columns]
        widths = [max(map(_width, column)) for column in zip(titles, *self._waiting, strict=True)]
        if self._terminal:
            widths = self._fit([min(width, _MAX_WIDTH) for width in widths])
        self._widths = widths
        self._line(titles, bold=True)
        for cells in self._waiting:
            self._line(cells)
        self._waiting = []

    def _fit(self, widths: list[int]) -> list[int]:
        """Take from the wide columns what a terminal's line does not hold."""
        import shutil

        excess = sum(widths) + 2 * (len(widths) - 1) - shutil.get_terminal_size().columns
        for number in reversed(range(len(widths))):
            if excess > 0 and self._columns[number].wide:
                cut = min(excess, max(widths[number] - 12, 0))
                widths[number] -= cut
                excess -= cut
        return widths

    def _line(self, cells: list[str], *, bold: bool = False) -> None:
        assert self._widths is not None
        parts = []
        for column, cell, width in zip(self._columns, cells, self._widths, strict=True):
            if self._terminal and _width(cell) > width:
                cell = _cut(cell, width)
            pad = " " * max(width - _width(cell), 0)
            parts.append(pad + cell if column.right else cell + pad)
        line = "  ".join(parts).rstrip()
        if bold and self._terminal and use_color():
            line = f"\x1b[1m{line}\x1b[0m"
        self._out.write(line + "\n")

    def close(self) -> None:
        if self._widths is None:
            self._begin()
        self._out.flush()


def writer(form: str, fields: Sequence[str], columns: Sequence[Column], out: TextIO | None = None) -> Writer:
    """The writer of an output form.

    Args:
        fields: contract names, in order, for CSV.
        columns: for the table.
    """
    out = out or sys.stdout
    if form == "ndjson":
        return NdjsonWriter(out)
    if form == "json":
        return JsonWriter(out)
    if form == "csv":
        return CsvWriter(out, fields)
    return TableWriter(out, columns)


def write_all(to: Writer, rows: Iterable[Row]) -> int:
    """Every row, then close; the number of rows."""
    count = 0
    for row in rows:
        to.row(row)
        count += 1
    to.close()
    return count


def write_object(form: str, value: Row, out: TextIO | None = None) -> None:
    """One object: indented JSON, or one line of NDJSON."""
    out = out or sys.stdout
    if form == "ndjson":
        out.write(dump_json(value) + "\n")
    else:
        out.write(_encode(value, 2) + "\n")
    out.flush()


def dump_json(value: Any) -> str:
    """Compact JSON, text as it is."""
    return _encode(value, None)


def _encode(value: Any, indent: int | None) -> str:
    try:
        text = _encoder(indent).encode(value)
    except ValueError:
        text = _encoder(indent).encode(_without_nan(value))
    return text if text.isascii() and "\x7f" not in text else text.translate(_C1)


@cache
def _encoder(indent: int | None) -> "JSONEncoder":
    from json import JSONEncoder  # a table does without

    return JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent, separators=(",", ": " if indent else ":"))


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity, which SQL's numbers may be: they become null."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_without_nan, value))
    return value


def use_color(stream: TextIO | None = None) -> bool:
    """Whether a stream, by default stdout, may be coloured (https://no-color.org)."""
    import os

    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(text: str) -> None:
    """One line for people, on stderr."""
    sys.stderr.write(plain(text) + "\n")


def confirm(question: str) -> bool:
    """Ask on the terminal; anything but a yes is a no, the end of the input too."""
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def plain(text: str) -> str:
    """A text in which every control character is spelled out: hostile bodies and names must not reach a terminal."""
    return text.translate(_CONTROL)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return dump_json(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _cell(value: Any) -> str:
    """A value in one line."""
    if value is None:
        return ""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    elif isinstance(value, dict):
        value = dump_json(value)
    text = str(value)
    return plain(text if len(text) <= _LONGEST_CELL else text[:_LONGEST_CELL] + "…")


def _width(text: str) -> int:
    """Terminal cells of a text; the wide characters of CJK take two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, width: int) -> str:
    kept = ""
    for character in text:
        if _width(kept + character) >= width:
            break
        kept += character
    return kept + "…"
