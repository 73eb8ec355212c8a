"""Rows to stdout as table, JSON, NDJSON or CSV, one at a time: no command builds one big list.

Machine forms carry every field by its contract name. The table is for people, shows a choice of columns, and may
change.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from json import JSONEncoder

_SAMPLE = 100  # rows that decide the widths of a table's columns
_SAMPLE_TEXT = 1 << 20  # characters of rows that wait for that: one body may inflate to hundreds of megabytes
# columns that go first where a line does not hold all, in this order
_LESS = (
    *(
        "batchNum",
        "configured",
        "consumeEnable",
        "retryMaxTimes",
        "order",
        "perm",
        "writeQueueNums",
        "slot",
        "timeDiff",
        "previous",
        "maxHashSlotNum",
    ),
    *("maxIndexNum", "hashSlotCount", "delay", "checkTimes", "halfQueueOffset", "minOffset", "lastStoreTime"),
    *("lastTime", "storeSize", "delivered", "lastDeliverTime"),
)
_READABLE = 24  # cells; a cut text says something as long as it has so many
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


class Tables:
    """How tables of this run are to look, as the command line says.

    Attributes:
        columns: titles of the only columns that are shown; all where it is empty.
        wide: every column whole, however long the lines get.
    """

    def __init__(self) -> None:
        self.columns: tuple[str, ...] = ()
        self.wide = self._used = False

    def ask(self, columns: str | None, *, wide: bool) -> None:
        """As the options say: titles with commas between them."""
        self.columns = tuple(title.strip() for title in columns.split(",")) if columns else ()
        self.wide, self._used = wide, False

    def tell(self) -> None:
        """Say so where there was no table to choose columns of."""
        if (self.columns or self.wide) and not self._used:
            note("--columns and --wide are for tables, and there was none")

    def chosen(self, columns: Sequence[Column]) -> Sequence[Column]:
        """The columns that are asked for, in the order in which they are asked for.

        Raises:
            BadValue: there is no such column.
        """
        self._used = True
        if not self.columns:
            return columns
        by_title = {column.title: column for column in columns}
        if strange := [title for title in self.columns if title not in by_title]:
            raise BadValue(f"no column {', '.join(strange)}; there are {', '.join(by_title)}")
        return [by_title[title] for title in self.columns]


TABLES = Tables()


class TableWriter:
    """Aligned columns. Their widths come from the first rows, so that a table streams too.

    A terminal whose lines do not hold the columns does without those that matter least, and tells so. Where the others
    do not fit either it gets a block for each row, a line for each column: nothing is cut, and ids and file names can
    be copied.
    """

    def __init__(self, out: TextIO, columns: Sequence[Column]) -> None:
        self._out, self._columns = out, TABLES.chosen(columns)
        self._terminal = out.isatty()
        self._waiting: list[list[str]] = []
        self._waiting_text = 0
        self._widths: list[int] | None = None
        self._shown = list(range(len(self._columns)))
        self._stacked = False
        self._blocks = 0  # rows that were written as such

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
        self._widths = [max(map(_width, column)) for column in zip(titles, *self._waiting, strict=True)]
        if self._terminal and self._waiting and not TABLES.wide:
            self._lay_out(self._widths)
        if not self._stacked:
            self._line(titles, bold=True)
        for cells in self._waiting:
            self._line(cells)
        self._waiting = []

    def _lay_out(self, widths: list[int]) -> None:
        """Find the layout that keeps most and fits."""
        import shutil

        room = shutil.get_terminal_size().columns
        titles = [column.title for column in self._columns]
        less = [titles.index(title) for title in _LESS if title in titles and not TABLES.columns]
        for without in range(len(less) + 1):
            shown = [number for number in range(len(widths)) if number not in less[:without]]
            fitting = self._cut_to(room, widths, shown)
            if fitting is not None:
                self._shown, self._widths = shown, fitting
                return
        self._stacked = True

    def _cut_to(self, room: int, widths: list[int], shown: list[int]) -> list[int] | None:
        """Widths at which columns fit, free text cut as far as it can still be read; None where there are none."""
        excess = sum(widths[number] for number in shown) + 2 * (len(shown) - 1) - room
        fitting = list(widths)
        for number in reversed(shown):
            if excess > 0 and self._columns[number].wide:
                cut = min(excess, max(widths[number] - _READABLE, 0))
                fitting[number] -= cut
                excess -= cut
        return fitting if excess <= 0 else None

    def _line(self, cells: list[str], *, bold: bool = False) -> None:
        assert self._widths is not None
        if self._stacked:
            self._block(cells)
            return
        parts = []
        for number in self._shown:
            column, cell, width = self._columns[number], cells[number], self._widths[number]
            if self._terminal and column.wide and not TABLES.wide and _width(cell) > width:
                cell = _cut(cell, width)
            pad = " " * max(width - _width(cell), 0)
            parts.append(pad + cell if column.right else cell + pad)
        line = "  ".join(parts).rstrip()
        self._out.write((_bold(line) if bold and self._terminal else line) + "\n")

    def _block(self, cells: list[str]) -> None:
        """A row as lines of title and cell, without the empty ones."""
        room = max(_width(column.title) for column in self._columns)
        self._out.write("\n" * bool(self._blocks))
        self._blocks += 1
        for column, cell in zip(self._columns, cells, strict=True):
            if cell:
                self._out.write(f"{_bold(column.title.ljust(room))}  {cell}\n")

    def close(self) -> None:
        if self._widths is None:
            self._begin()
        self._out.flush()
        left_out = [column.title for number, column in enumerate(self._columns) if number not in self._shown]
        if left_out:
            note(f"no room for {', '.join(left_out)}: --wide or --columns shows them")


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


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if use_color() else text


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
