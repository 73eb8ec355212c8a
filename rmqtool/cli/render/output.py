"""Rows to stdout as text, table, JSON, NDJSON or CSV, one at a time: no command builds one big list.

Machine forms carry every field by its contract name. Text and table are for people, show a choice of columns, and may
change. Text fits a terminal, or 100 columns where it goes elsewhere; a line of a table in a file has any length.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rmqtool.cli.render.table import TABLES, Column, Row, TableWriter
from rmqtool.cli.render.text import dump_json, encode, folded, note, plain, room_of, use_color

if TYPE_CHECKING:
    from rmqtool.analytics.table.lines import HasColumns

__all__ = [
    "PEOPLE", "TABLES", "Column", "CsvWriter", "JsonWriter", "NdjsonWriter", "Row", "TableWriter", "Writer", "confirm",
    "dump_json", "note", "plain", "use_color", "with_times", "write_all", "write_object", "writer",
]  # fmt: skip


PEOPLE = ("text", "table")  # forms for people


class Writer(Protocol):
    """Takes rows; must be closed, also when there were none."""

    def row(self, row: Row) -> None:
        """One more row."""

    def close(self) -> None:
        """No more rows."""


class NdjsonWriter:
    """One JSON object a line.

    Args:
        only: the only fields that are written; all where it is empty.
    """

    def __init__(self, out: TextIO, only: Sequence[str] = ()) -> None:
        self._out, self._only = out, only

    def row(self, row: Row) -> None:
        self._out.write(dump_json(_only(row, self._only)) + "\n")

    def many(self, rows: "HasColumns") -> None:
        """As many rows as the columns have."""
        from rmqtool.analytics.table.lines import json_lines  # loads pyarrow

        self._out.write(json_lines(_only(rows.columns(), self._only)))

    def close(self) -> None:
        self._out.flush()


class JsonWriter:
    """One JSON array, an element a line.

    Args:
        only: as of :class:`NdjsonWriter`.
    """

    def __init__(self, out: TextIO, only: Sequence[str] = ()) -> None:
        self._out, self._rows, self._only = out, 0, only

    def row(self, row: Row) -> None:
        self._out.write(("[\n" if not self._rows else ",\n") + dump_json(_only(row, self._only)))
        self._rows += 1

    def many(self, rows: "HasColumns") -> None:
        """As many rows as the columns have."""
        from rmqtool.analytics.table.lines import json_lines

        lines = json_lines(_only(rows.columns(), self._only))[:-1]
        self._out.write(("[\n" if not self._rows else ",\n") + lines.replace("\n", ",\n"))
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

    def many(self, rows: "HasColumns") -> None:
        """As many rows as the columns have."""
        from rmqtool.analytics.table.lines import csv_lines

        columns = rows.columns()
        self._out.write(csv_lines({field: columns[field] for field in self._fields}))

    def close(self) -> None:
        self._out.flush()


def _only(row: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    return {name: row[name] for name in names if name in row} if names else row


def writer(form: str, fields: Sequence[str], columns: Sequence[Column], out: TextIO | None = None) -> Writer:
    """The writer of an output form.

    Args:
        fields: contract names, in order, for machine forms.
        columns: for the table.

    Raises:
        BadValue: a column that is asked for (``--columns``) is none of them.
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


def write_all(to: Writer, rows: "Iterable[Row | HasColumns]") -> int:
    """Every row, then close; the number of rows. Machine forms take those that come as columns as such."""
    count = 0
    for row in rows:
        if isinstance(row, dict):
            to.row(row)
            count += 1
        elif isinstance(to, NdjsonWriter | JsonWriter | CsvWriter):
            to.many(row)
            count += len(row)
        else:
            for one in row.rows():
                to.row(one.to_dict())
                count += 1
    to.close()
    return count


def write_object(form: str, value: Row, out: TextIO | None = None) -> None:
    """One object: indented JSON, or one line of NDJSON."""
    out = out or sys.stdout
    if form == "ndjson":
        out.write(dump_json(value) + "\n")
    else:
        out.write(encode(value, 2) + "\n")
    out.flush()


def with_times(value: Any) -> Any:
    """The same, with a time for people beside each one in ms: ``storeTime`` beside ``storeTimestamp``."""
    from rmqtool.cli.render.times import time_text

    if isinstance(value, list):
        return [with_times(element) for element in value]
    if not isinstance(value, dict):
        return value
    shown: Row = {}
    for name, inner in value.items():
        shown[name] = inner if name == "groups" else with_times(inner)  # groups may be called anything
        twin = "isoTime" if name == "time" else name.replace("Timestamp", "Time")
        if twin != name and (inner is None or type(inner) is int):
            shown[twin] = time_text(inner) if inner else None
    return shown


def confirm(question: str) -> bool:
    """Ask on the terminal; anything but a yes is a no, the end of the input too."""
    sys.stderr.write(f"{folded(f'{question} [y/N]:', sys.stderr)} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return dump_json(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value
