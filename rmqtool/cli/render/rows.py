"""Rows of the services' dataclasses in every form of output, and warnings."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol, cast

from rmqtool.cli.render.output import Column, rank_in, write_all, writer
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import time_text
from rmqtool.contract import PlainRow, PlainRows

if TYPE_CHECKING:
    from rmqtool.analytics.table.lines import HasColumns


class HasRow(Protocol):
    """A row of the services."""

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""


class Warnings:
    """Collects warnings, to show them after the rows and not beside an error."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def __call__(self, text: str) -> None:
        self._seen[text] = None

    def tell(self) -> int:
        """Show them on stderr; returns the exit code: 1 if there are any, as the answer may be incomplete."""
        for text in self._seen:
            note(f"warning: {text}")
        return 1 if self._seen else 0


def names_of(kind: type) -> tuple[str, ...]:
    """Contract names of a dataclass, in order."""
    return tuple(field.name for field in fields(kind))


def columns_of(
    kind: type, names: Sequence[str] = (), wide: Sequence[str] = (), spare: Sequence[str] = ()
) -> list[Column]:
    """Columns of a table, with numbers aligned right and readable times.

    Args:
        names: the fields to show; all by default.
        wide: fields that may be cut on a narrow terminal.
        spare: fields that are dropped first, in this order, if the line is too narrow.
    """
    types = {field.name: field.type for field in fields(kind)}
    return [_column(name, types[name], wide=name in wide, rank=rank_in(spare, name)) for name in names or types]


def _column(name: str, kind: object, *, wide: bool, rank: int) -> Column:
    if name.endswith("Timestamp") or (name == "time" and kind is int):
        return Column(name.replace("Timestamp", "Time"), field=name, text=_time_or_none, rank=rank)
    return Column(name, right=kind in (int, int | None, float, float | None), wide=wide, rank=rank)


def _time_or_none(time: int | None) -> str | None:
    return time_text(time) if time else None


def write_rows(
    form: str,
    kind: type,
    rows: "Iterable[HasRow | PlainRows | HasColumns]",
    names: Sequence[str] = (),
    wide: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> int:
    """Write rows; returns their number. Machine forms have every field, the table the named ones."""
    to = writer(form, names_of(kind), columns_of(kind, names, wide, spare))
    if issubclass(kind, PlainRow) and kind.to_dict is PlainRow.to_dict:
        return write_all(to, cast("Iterable[PlainRow]", rows))
    # looking up a name is much cheaper per row than a protocol check
    return write_all(to, (row.to_dict() if hasattr(row, "to_dict") else row for row in rows))
