"""Reports drawn for people: a sparkline for each topic, or bars as wide as the terminal."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rmqtool.cli.render.text import bar, cell_text, width_of

_LEVELS = " ▁▂▃▄▅▆▇█"
_MOST_NAME = 48  # cells
_LEAST_ROOM = 10  # cells of a drawing

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plot:
    """How a report is drawn.

    Attributes:
        names: columns that name a line.
        value: the column that is drawn.
        along: the column from left to right of a sparkline; None for bars.
        step: distance of two values of it: seconds for times, or None if each is twice the one before.
        unit: what a step is, in words.
    """

    names: tuple[str, ...]
    value: str
    along: str | None = None
    step: int | None = None
    unit: str = ""


PLOTS = {
    "traffic": Plot(("topic",), "messages", "hour", 3600, "an hour"),
    "traffic-by-minute": Plot(("topic",), "messages", "minute", 60, "a minute"),
    "sizes": Plot(("topic",), "messages", "atMost", None, "sizes up to twice those before"),
    "producers": Plot(("host",), "messages"),
    "lag": Plot(("group", "topic"), "lag"),
}


def draw(plot: Plot, rows: Iterable[Row], width: int, limit: int | None) -> Iterator[str]:
    """The lines of a drawing.

    Args:
        rows: of the report.
        width: cells of a line.
        limit: lines at most, those with the largest sums.
    """
    sums: dict[str, dict[int, int]] = {}
    every = list(rows)
    names = plot.names if len({row["broker"] for row in every}) < 2 else ("broker", *plot.names)
    for row in every:
        name = " ".join(cell_text(row[each]) for each in names)
        line = sums.setdefault(name, {})
        at = _position(plot, row)
        line[at] = line.get(at, 0) + row[plot.value]
    lines = sorted(sums.items(), key=lambda item: (-sum(item[1].values()), item[0]))[:limit]
    if not lines:
        return
    if plot.along is None:
        yield from _bars(plot, [(name, values[0]) for name, values in lines], width)
    else:
        yield from _sparks(plot, lines, width)


def _position(plot: Plot, row: Row) -> int:
    """Which step of the drawing a row is in."""
    if plot.along is None:
        return 0
    if plot.step is None:
        return int(row[plot.along]).bit_length()
    return int(datetime.fromisoformat(row[plot.along]).timestamp()) // plot.step


def _bars(plot: Plot, lines: list[tuple[str, int]], width: int) -> Iterator[str]:
    name_width = min(max(width_of(name) for name, _value in lines), _MOST_NAME)
    number_width = max(len(f"{value:,}") for _name, value in lines)
    room = max(width - name_width - number_width - 4, _LEAST_ROOM)
    most = max(value for _name, value in lines)
    yield f"{plot.value} by {' and '.join(plot.names)}"
    for name, value in lines:
        yield f"{_padded(name, name_width)}  {value:>{number_width},}  {bar(value, most, room)}".rstrip()


def _sparks(plot: Plot, lines: list[tuple[str, dict[int, int]]], width: int) -> Iterator[str]:
    first = min(min(values) for _name, values in lines)
    last = max(max(values) for _name, values in lines)
    name_width = min(max(width_of(name) for name, _values in lines), _MOST_NAME)
    totals = [sum(values.values()) for _name, values in lines]
    number_width = max(len(f"{total:,}") for total in totals)
    room = max(width - name_width - number_width - 4, _LEAST_ROOM)
    steps = last - first + 1
    merged = -(-steps // room)  # steps to a cell
    each = plot.unit if merged == 1 else f"{merged} times {plot.unit}"
    by = "size" if plot.step is None else plot.along
    yield f"{plot.value} by {by}, from {_label(plot, first)} to {_label(plot, last)}; a column is {each}"
    for (name, values), total in zip(lines, totals, strict=True):
        cells = [0] * -(-steps // merged)
        for at, value in values.items():
            cells[(at - first) // merged] += value
        yield f"{_padded(name, name_width)}  {total:>{number_width},}  {spark(cells)}".rstrip()


def spark(values: list[int]) -> str:
    """One character for each value, in proportion to the largest; every positive value can be seen."""
    most = max(values, default=0)
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[max(round(top * value / most), value > 0) if most else 0] for value in values)


def _label(plot: Plot, at: int) -> str:
    if plot.step is None:
        from rmqtool.cli.render.text import size_text

        return size_text(1 << max(at - 1, 0))
    from rmqtool.cli.render.times import iso_utc

    return iso_utc(at * plot.step * 1000)[:16] + "Z"


def _padded(name: str, width: int) -> str:
    while width_of(name) > width:
        name = name[:-2] + "…" if name.endswith("…") else name[:-1] + "…"
    return name + " " * (width - width_of(name))
