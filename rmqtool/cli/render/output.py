"""Rows to stdout as text, table, JSON, NDJSON or CSV, streamed one at a time.

Machine forms have every field under its contract name. Text and table are for people, show selected columns, and may
change. Text fits the terminal, or 100 columns elsewhere; lines of a table in a file may be of any length.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rmqtool.cli.render.text import (
    LONGEST_CELL,
    bold,
    break_lines,
    cell_text,
    cut_to,
    dump_json,
    encode,
    note,
    plain,
    room_of,
    width_of,
)
from rmqtool.contract import PlainRow, PlainRows
from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from rmqtool.analytics.table.lines import HasColumns

PEOPLE = ("text", "table")  # forms for people
_SAMPLE = 100  # rows that decide the widths of a table's columns
_SAMPLE_TEXT = 1 << 20  # most characters of rows held for that: one body may be hundreds of megabytes
_PLAIN = frozenset((int, str, bool))  # types of values that str() makes the text of
_AS_CSV = frozenset((int, str, type(None)))  # types that the csv module writes as they are to be
_READABLE = 24  # cells; a shorter text would say nothing

Row = dict[str, Any]


class Column:
    """A column of a table.

    Args:
        cell: makes the cell of a row; by default the field named like the title.
        field: the one field that the cell shows, if it has another name.
        text: makes the cell of the value of that field; by default the value itself.
        right: aligned to the right, for numbers.
        wide: may be cut on a narrow terminal.
        rank: columns with a rank are dropped first if the line is too narrow, from 1 on.
    """

    __slots__ = ("cell", "field", "rank", "right", "text", "title", "wide")

    def __init__(
        self,
        title: str,
        cell: Callable[[Row], Any] | None = None,
        *,
        field: str | None = None,
        text: Callable[[Any], Any] | None = None,
        right: bool = False,
        wide: bool = False,
        rank: int = 0,
    ) -> None:
        self.title, self.right, self.wide, self.rank = title, right, wide, rank
        self.field = field or title if cell is None else None
        self.text = text
        self.cell = cell or self._cell

    def _cell(self, row: Row) -> Any:
        value = row.get(self.field or "")
        return value if self.text is None else self.text(value)

    @property
    def is_field(self) -> bool:
        """Whether the cell is the field named like the title."""
        return self.field == self.title and self.text is None


def rank_in(spare: Sequence[str], name: str) -> int:
    """The rank of a column in the list of those that are dropped first."""
    return spare.index(name) + 1 if name in spare else 0


class Tables:
    """How tables look, from the options --columns and --wide.

    Attributes:
        columns: titles of the columns, or in machine forms names of the fields, to show; all if empty.
        wide: show every column in full, however long the lines get.
    """

    def __init__(self) -> None:
        self.columns: tuple[str, ...] = ()
        self.wide = self._chose = self._laid_out = False

    def ask(self, columns: str | None, *, wide: bool) -> None:
        """Set both from the options; titles are separated by commas."""
        self.columns = tuple(title.strip() for title in columns.split(",")) if columns else ()
        self.wide, self._chose, self._laid_out = wide, False, False

    def tell(self) -> None:
        """Note it if the options had no effect."""
        if self.columns and not self._chose:
            note("--columns chooses columns of rows, and this output has none")
        if self.wide and not self._laid_out:
            note("--wide applies to tables, and this output has none")

    def choose(self, columns: Sequence[Column]) -> Sequence[Column]:
        """The columns that --columns names, in its order.

        Raises:
            BadValue: there is no such column.
        """
        self._laid_out = True
        by_title = {column.title: column for column in columns}
        return [by_title[title] for title in self.names(tuple(by_title))]

    def names(self, known: Sequence[str]) -> Sequence[str]:
        """As :meth:`choose`, for names of columns or fields.

        Raises:
            BadValue: there is no such column.
        """
        self._chose = True
        if strange := [name for name in self.columns if name not in known]:
            raise BadValue(f"no column {', '.join(strange)}; there are {', '.join(known)}")
        return self.columns or known


TABLES = Tables()


class Writer(Protocol):
    """Writes rows; must be closed, even if there were none."""

    def row(self, row: Row) -> None:
        """Write a row."""

    def plain(self, row: PlainRow) -> None:
        """Write a row of plain values."""

    def plain_rows(self, rows: PlainRows) -> None:
        """Write rows given as their values."""

    def close(self) -> None:
        """End the output."""


class NdjsonWriter:
    """One JSON object per line.

    Args:
        only: the fields to write; all if empty.
    """

    def __init__(self, out: TextIO, only: Sequence[str] = ()) -> None:
        self._out, self._only, self._lines = out, only, _JsonLines(only)

    def row(self, row: Row) -> None:
        self._out.write(dump_json(_only(row, self._only)) + "\n")

    def plain(self, row: PlainRow) -> None:
        """Write a row of plain values, at a fifth of the cost."""
        self._out.write(self._lines.line(row) + "\n")

    def plain_rows(self, rows: PlainRows) -> None:
        """Write rows given as their values, at half the cost of that."""
        self._out.write("".join([f"{line}\n" for line in self._lines.lines(rows)]))

    def many(self, rows: "HasColumns") -> None:
        """Write rows given as columns."""
        from rmqtool.analytics.table.lines import json_lines  # loads pyarrow

        self._out.write(json_lines(_only(rows.columns(), self._only)))

    def close(self) -> None:
        self._out.flush()


class JsonWriter:
    """One JSON array, one element per line.

    Args:
        only: as for :class:`NdjsonWriter`.
    """

    def __init__(self, out: TextIO, only: Sequence[str] = ()) -> None:
        self._out, self._rows, self._only, self._lines = out, 0, only, _JsonLines(only)

    def row(self, row: Row) -> None:
        self._write(dump_json(_only(row, self._only)))

    def plain(self, row: PlainRow) -> None:
        """Write a row of plain values, at a fifth of the cost."""
        self._write(self._lines.line(row))

    def plain_rows(self, rows: PlainRows) -> None:
        """Write rows given as their values, at half the cost of that."""
        self._write(",\n".join(self._lines.lines(rows)))

    def _write(self, text: str) -> None:
        self._out.write((",\n" if self._rows else "[\n") + text)
        self._rows += 1

    def many(self, rows: "HasColumns") -> None:
        """Write rows given as columns."""
        from rmqtool.analytics.table.lines import json_lines

        self._write(json_lines(_only(rows.columns(), self._only))[:-1].replace("\n", ",\n"))

    def close(self) -> None:
        self._out.write("\n]\n" if self._rows else "[]\n")
        self._out.flush()


class CsvWriter:
    """RFC 4180 with a header. Lists are joined by spaces, as RocketMQ joins keys; maps are JSON.

    On a terminal control characters are escaped.
    """

    def __init__(self, out: TextIO, fields: Sequence[str]) -> None:
        import csv

        self._out, self._fields, self._pick = out, fields, PlainRow.values_of(fields)
        self._terminal = out.isatty()
        # before Python 3.13 a lone CR or LF is quoted only if the line terminator has it
        self._writer = csv.writer(self, lineterminator="\r\n")
        self._writer.writerow(fields)

    def write(self, line: str) -> None:
        """Write a line for the csv module."""
        self._out.write(line[:-2] + "\n")

    def row(self, row: Row) -> None:
        cells = [_csv_cell(row.get(field)) for field in self._fields]
        if self._terminal:  # a file gets the data, but a terminal would interpret it
            cells = [plain(cell) if isinstance(cell, str) else cell for cell in cells]
        self._writer.writerow(cells)

    def plain(self, row: PlainRow) -> None:
        """Write a row of plain values, faster."""
        values = self._pick(row)
        if self._terminal or not _AS_CSV.issuperset(map(type, values)):
            self.row(row.to_dict())
        else:
            self._writer.writerow(values)

    def plain_rows(self, rows: PlainRows) -> None:
        """Write rows given as their values, faster still."""
        columns = [rows.column(name) for name in self._fields]
        if self._terminal or not all(_AS_CSV.issuperset(map(type, column)) for column in columns):
            for row in rows.dicts():
                self.row(row)
        else:
            self._writer.writerows(zip(*columns, strict=True))

    def many(self, rows: "HasColumns") -> None:
        """Write rows given as columns."""
        from rmqtool.analytics.table.lines import csv_lines

        columns = rows.columns()
        self._out.write(csv_lines({field: columns[field] for field in self._fields}))

    def close(self) -> None:
        self._out.flush()


class TableWriter:
    """Aligned columns. Widths come from the first rows, so that tables can be streamed.

    If a line is too narrow, the least important columns are left out, with a note. If that is not enough, each row
    becomes a block with one line per column: nothing is cut, and ids and file names can be copied.

    Args:
        room: cells in a line; None for any length.
    """

    def __init__(self, out: TextIO, columns: Sequence[Column], room: int | None = None) -> None:
        self._out, self._columns = out, TABLES.choose(columns)
        self._terminal, self._room = out.isatty(), room
        self._cuts = room is not None and not TABLES.wide
        self._waiting: list[list[str]] = []
        self._waiting_text = 0
        self._widths: list[int] | None = None
        self._shown = list(range(len(self._columns)))
        self._in_line: list[Column] = []  # the columns of a line, once widths are known
        self._pick: Callable[[Any], Any] = self._values  # a faster way if each of them is a field
        self._pick_plain: Callable[[PlainRow], Any] = lambda row: self._pick(row.to_dict())
        self._layout: list[tuple[bool, bool, int]] = []  # of each of them: right, wide, width
        self._format = ""  # of a line whose cells are plain
        self._longest = LONGEST_CELL  # characters of a line in which no cell needs to be cut
        self._stacked = False
        self._blocks = 0  # rows written

    def row(self, row: Row) -> None:
        if self._widths is not None and not self._stacked:
            try:
                values: tuple[Any, ...] = self._pick(row)
            except KeyError:  # a field that this row does not have
                values = self._values(row)
            if None in values:
                values = tuple(["" if value is None else value for value in values])
            if (line := self._plain_line(values)) is not None:
                self._out.write(line)
            else:
                self._line([cell_text(value) for value in values])
            return
        cells = [cell_text(column.cell(row)) for column in self._columns]
        if self._widths is None:
            self._waiting.append(cells)
            self._waiting_text += sum(map(len, cells))
            if len(self._waiting) >= _SAMPLE or self._waiting_text >= _SAMPLE_TEXT:
                self._begin()
        else:
            self._block(cells)

    def plain(self, row: PlainRow) -> None:
        """Write a row of plain values, faster."""
        if self._widths is not None and not self._stacked:
            try:
                values = self._pick_plain(row)
            except AttributeError:  # a field that rows of this kind do not have
                values = (object(),)
            if None in values:
                values = tuple(["" if value is None else value for value in values])
            if (line := self._plain_line(values)) is not None:
                self._out.write(line)
                return
        self.row(row.to_dict())

    def plain_rows(self, rows: PlainRows) -> None:
        """Write rows given as their values, faster still."""
        lines = self._plain_lines(rows) if self._widths is not None and not self._stacked else None
        if lines is not None:
            self._out.write("".join(lines))
            return
        held = rows.values if self._widths is not None or len(rows.values) <= _SAMPLE else rows.values[:_SAMPLE]
        for row in PlainRows(rows.kind, held).dicts():
            self.row(row)
        if len(held) < len(rows.values):
            self.plain_rows(PlainRows(rows.kind, rows.values[len(held) :]))

    def _plain_lines(self, rows: PlainRows) -> list[str] | None:
        """The lines of rows, if none of their values needs a closer look; else None."""
        cells = []
        for column in self._in_line:
            if column.field not in rows.names:
                return None
            values = rows.column(column.field)
            if column.text is not None:
                values = [*map(column.text, values)]
            kinds = set(map(type, values))
            if NoneType in kinds:
                values = ["" if value is None else value for value in values]
            if not kinds <= _PLAIN | {NoneType}:
                return None
            texts = "".join({value for value in values if type(value) is str})
            if not texts.isascii() or not texts.isprintable():
                return None
            cells.append(values)
        lines = [(self._format % values).rstrip() + "\n" for values in zip(*cells, strict=True)]
        return lines if max(map(len, lines)) - 1 <= self._longest else None

    def begin(self) -> None:
        """Write the rows that are held back, because no more may come for a while."""
        if self._waiting:
            self._begin()

    def _begin(self) -> None:
        titles = [column.title for column in self._columns]
        self._widths = [max(map(width_of, column)) for column in zip(titles, *self._waiting, strict=True)]
        if self._room is not None and self._waiting and self._cuts:
            self._lay_out(self._widths, self._room)
        waiting, self._waiting = self._waiting, []
        if self._stacked:
            for cells in waiting:
                self._block(cells)
            return
        self._in_line = [self._columns[number] for number in self._shown]
        if len(self._in_line) > 1 and all(column.is_field for column in self._in_line):
            fields = [column.title for column in self._in_line]
            self._pick, self._pick_plain = itemgetter(*fields), PlainRow.values_of(fields)
        self._layout = [(column.right, column.wide, self._widths[number])
                        for column, number in zip(self._in_line, self._shown, strict=True)]  # fmt: skip
        signs = ("%{}{}s".format("" if right else "-", width) for right, _wide, width in self._layout)
        self._format = "  ".join(signs)
        if self._cuts and any(wide for _right, wide, _width in self._layout):
            self._longest = sum(width + 2 for _right, _wide, width in self._layout) - 2
        self._line([titles[number] for number in self._shown], title=True)
        for cells in waiting:
            self._line([cells[number] for number in self._shown])

    def _lay_out(self, widths: list[int], room: int) -> None:
        """Find the fitting layout that keeps the most."""
        ranked = sorted((column.rank, number) for number, column in enumerate(self._columns) if column.rank)
        empty = [number for number, column in enumerate(zip(*self._waiting, strict=True)) if not any(column)]
        less = [*empty, *(number for _rank, number in ranked)] if not TABLES.columns else []
        for without in range(len(less) + 1):
            shown = [number for number in range(len(widths)) if number not in less[:without]]
            fitting = self._cut_to(room, widths, shown)
            if fitting is not None:
                self._shown, self._widths = shown, fitting
                return
        self._stacked = len(widths) > 1

    def _cut_to(self, room: int, widths: list[int], shown: list[int]) -> list[int] | None:
        """Widths at which the columns fit, with text cut as far as is readable; None if they cannot fit."""
        excess = sum(widths[number] for number in shown) + 2 * (len(shown) - 1) - room
        fitting = list(widths)
        for number in reversed(shown):
            if excess > 0 and self._columns[number].wide:
                cut = min(excess, max(widths[number] - _READABLE, 0))
                fitting[number] -= cut
                excess -= cut
        return fitting if excess <= 0 else None

    def _values(self, row: Row) -> tuple[Any, ...]:
        """The values of the cells of a line."""
        return tuple([column.cell(row) for column in self._in_line])

    def _plain_line(self, values: tuple[Any, ...]) -> str | None:
        """What :meth:`_line` writes, at a third of its cost, if no value needs a closer look; else None."""
        if not _PLAIN.issuperset(map(type, values)):
            return None
        line = self._format % values
        if len(line) > self._longest or not line.isascii() or not line.isprintable():
            return None
        return line.rstrip() + "\n"

    def _line(self, cells: list[str], *, title: bool = False) -> None:
        parts = []
        for cell, (right, wide, width) in zip(cells, self._layout, strict=True):
            length = len(cell) if cell.isascii() else width_of(cell)
            if length > width and wide and self._cuts:
                cell = cut_to(cell, width)
                length = width_of(cell)
            pad = " " * (width - length)
            parts.append(pad + cell if right else cell + pad)
        line = "  ".join(parts).rstrip()
        self._out.write((bold(line) if title and self._terminal else line) + "\n")

    def _block(self, cells: list[str]) -> None:
        """A row as lines of title and cell, without empty cells; the terminal wraps long lines."""
        room = max(width_of(column.title) for column in self._columns)
        self._out.write("\n" * bool(self._blocks))
        self._blocks += 1
        for column, cell in zip(self._columns, cells, strict=True):
            if cell and (self._terminal or self._room is None):
                self._out.write(f"{bold(column.title.ljust(room))}  {cell}\n")
            elif cell:
                title = column.title.ljust(room)
                for line in break_lines(cell, max((self._room or 0) - room - 2, _READABLE), anywhere=column.wide):
                    self._out.write(f"{title}  {line}\n")
                    title = " " * room

    def close(self) -> None:
        if self._widths is None and (self._room is None or self._waiting):  # a title alone is useless to a person
            self._begin()
        self._out.flush()
        left_out = [column.title for number, column in enumerate(self._columns) if number not in self._shown]
        if left_out:
            note(f"not shown: {', '.join(left_out)} (--wide or --columns)")


class _JsonLines:
    """Makes JSON of rows of one kind whose values are plain. There may be millions, and many of the texts are equal.

    Args:
        only: the fields to write; all if empty.
    """

    def __init__(self, only: Sequence[str]) -> None:
        self._only, self._kind = only, PlainRow
        self._pick = PlainRow.values_of(())
        self._form = ""

    def line(self, row: PlainRow) -> str:
        """The object of a row."""
        if type(row) is not self._kind:
            kind: Any = type(row)
            names = [name for name in self._only or kind.__dataclass_fields__ if name in kind.__dataclass_fields__]
            self._kind, self._pick = kind, PlainRow.values_of(names)
            self._form = "{" + ",".join(dump_json(name).replace("%", "%%") + ":%s" for name in names) + "}"
        try:
            values = [value if type(value) is int else _json_of(value) for value in self._pick(row)]
        except TypeError:  # a list
            return dump_json(_only(row.to_dict(), self._only))
        return self._form % tuple(values)

    def lines(self, rows: PlainRows) -> list[str]:
        """The objects of rows given as their values."""
        names = [name for name in self._only or rows.names if name in rows.names]
        form = "{" + ",".join(dump_json(name).replace("%", "%%") + ":%s" for name in names) + "}"
        cells = []
        for name in names:
            column = rows.column(name)
            try:
                cells.append(column if set(map(type, column)) == {int} else [*map(_json_of, column)])
            except TypeError:  # a list
                return [dump_json(_only(row, self._only)) for row in rows.dicts()]
        return [form % values for values in zip(*cells, strict=True)]


@lru_cache(1 << 12, typed=True)
def _json_of(value: Any) -> str:
    return dump_json(value)


def _only(row: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    return {name: row[name] for name in names if name in row} if names else row


def writer(form: str, fields: Sequence[str], columns: Sequence[Column], out: TextIO | None = None) -> Writer:
    """The writer for an output form.

    Args:
        fields: contract names, in order, for machine forms.
        columns: for the table.

    Raises:
        BadValue: ``--columns`` names an unknown column.
    """
    out = out or sys.stdout
    if form not in PEOPLE:
        names = TABLES.names(fields)
        only = names if TABLES.columns else ()
        return (
            NdjsonWriter(out, only)
            if form == "ndjson"
            else JsonWriter(out, only)
            if form == "json"
            else CsvWriter(out, names)
        )
    return TableWriter(out, columns, room_of(out, form))


def write_all(to: Writer, rows: "Iterable[Row | PlainRow | PlainRows | HasColumns]") -> int:
    """Write every row and close; returns the number of rows."""
    count = 0
    for row in rows:
        if isinstance(row, dict):
            to.row(row)
            count += 1
        elif isinstance(row, PlainRow):
            to.plain(row)
            count += 1
        elif isinstance(row, PlainRows):
            to.plain_rows(row)
            count += len(row.values)
        elif isinstance(to, NdjsonWriter | JsonWriter | CsvWriter):
            to.many(row)
            count += len(row)
        else:
            for item in row.rows():
                to.row(item.to_dict())
                count += 1
    to.close()
    return count


def write_object(form: str, value: Row, out: TextIO | None = None) -> None:
    """Write one object: indented JSON, or one line of NDJSON."""
    out = out or sys.stdout
    if form == "ndjson":
        out.write(dump_json(value) + "\n")
    else:
        out.write(encode(value, 2) + "\n")
    out.flush()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return dump_json(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value
