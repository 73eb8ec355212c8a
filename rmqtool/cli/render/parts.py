"""Reports with several tables: CSV has one of them, chosen by name."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from rmqtool.cli.render.output import Row, write_all, writer
from rmqtool.cli.render.text import note
from rmqtool.errors import BadValue

SCALARS = "report"  # the table of everything that is not a list, in one row


class Parts:
    """The table that a command line asks for.

    Attributes:
        known: names of the tables in the report; CSV has the first by default.
        asked: one of them, or None.
    """

    def __init__(self) -> None:
        self.known: Sequence[str] = ()
        self.asked: str | None = None

    def ask(self, asked: str | None, known: Sequence[str], output: str) -> None:
        """Set the table that is asked for.

        Raises:
            BadValue: there is no such table, or the form is not CSV.
        """
        if asked is not None and output != "csv":
            raise BadValue("--table needs --output csv: JSON has all tables")
        if asked is not None and asked not in known:
            raise BadValue(f"--table {asked}: give {', '.join(known)}")
        self.known, self.asked = known, asked

    def write(self, report: Any, form: str) -> bool:
        """Write the table that is asked for; False for the first, which the command writes itself.

        Args:
            report: a dataclass with ``to_dict``.
        """
        if form != "csv" or not self.known:
            return False
        if self.asked in (None, self.known[0]):
            if self.asked is None and len(self.known) > 1:
                note(f"this is the table {self.known[0]}; --table has {', '.join(self.known[1:])} too")
            return False
        names, rows = tables_of(report)[self.asked or ""]
        write_all(writer("csv", names, ()), rows)
        return True


PARTS = Parts()


def tables_of(report: Any) -> dict[str, tuple[Sequence[str], list[Row]]]:
    """(columns, rows) of each list in a report, by its JSON name, and of everything else as one row."""
    value: Row = report.to_dict()
    hints = get_type_hints(type(report))
    tables: dict[str, tuple[Sequence[str], list[Row]]] = {}
    alone: Row = {}
    for name, part in value.items():
        if not isinstance(part, list):
            alone[name] = part
            continue
        kind = next(iter(get_args(hints.get(name))), None)
        if isinstance(kind, type) and is_dataclass(kind):
            columns: Sequence[str] = [field.name for field in fields(kind)]
        else:
            columns = list(dict.fromkeys(key for row in part if isinstance(row, dict) for key in row)) or ["value"]
        tables[name] = columns, [row if isinstance(row, dict) else {"value": row} for row in part]
    tables[SCALARS] = list(alone), [alone]
    return tables
