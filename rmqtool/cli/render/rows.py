"""Rows of the services' dataclasses in every form of output, and what was wrong on the way."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

from rmqtool.cli.render.output import Column, rank_in, write_all, writer
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import time_text

if TYPE_CHECKING:
    from rmqtool.analytics.table.lines import HasColumns


class HasRow(Protocol):
    """What the services give."""

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""


class Warnings:
    """Collects warnings, so that they come behind the rows, and none beside an error."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def __call__(self, text: str) -> None:
        self._seen[text] = None

    def tell(self) -> int:
        """Say them on stderr; the exit code: 1 where there are any, for the answer may not be whole."""
        for text in self._seen:
            note(f"warning: {text}")
        return 1 if self._seen else 0


def names_of(kind: type) -> tuple[str, ...]:
    """Contract names of a dataclass, in order."""
    return tuple(field.name for field in fields(kind))


def columns_of(
    kind: type, names: Sequence[str] = (), wide: Sequence[str] = (), spare: Sequence[str] = ()
) -> list[Column]:
    """Columns of a table: numbers to the right, times as people read them.

    Args:
        names: a choice of fields; all by default.
        wide: those that may be cut on a narrow terminal.
        spare: those that go first where a line does not hold all, in this order.
    """
    types = {field.name: field.type for field in fields(kind)}
    return [_column(name, types[name], wide=name in wide, rank=rank_in(spare, name)) for name in names or types]


def _column(name: str, kind: object, *, wide: bool, rank: int) -> Column:
    if name.endswith("Timestamp") or (name == "time" and kind is int):
        return Column(
            name.replace("Timestamp", "Time"), lambda row: time_text(row[name]) if row[name] else None, rank=rank
        )
    return Column(name, right=kind in (int, int | None), wide=wide, rank=rank)


def write_rows(
    form: str,
    kind: type,
    rows: "Iterable[HasRow | HasColumns]",
    names: Sequence[str] = (),
    wide: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> int:
    """Write rows; the number of them. Machine forms have every field, the table those that are named."""
    # a name is looked up at a fraction of what asking for a protocol costs each row
    dicts = (row.to_dict() if hasattr(row, "to_dict") else row for row in rows)
    return write_all(writer(form, names_of(kind), columns_of(kind, names, wide, spare)), dicts)
