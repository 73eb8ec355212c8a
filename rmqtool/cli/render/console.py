"""Consoles, tables and lines that Rich prints, in the one style of this program."""

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rmqtool.cli.render.text import fold, plain, room_of, use_color
from rmqtool.words import commands_in

NO_WIDTH = 1 << 20


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # the entry point handles it, for every form of output


def console(form: str = "text", *, stderr: bool = False) -> Console:
    """A console on stdout or stderr. Without a terminal a table has unlimited width, and text has 100 columns."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else room_of(stream, form) or NO_WIDTH
    color = "auto" if use_color(stream) else None
    return _Console(stderr=stderr, highlight=False, soft_wrap=True, width=width, color_system=color)  # type: ignore[arg-type]


def text(value: object, style: str = "") -> Text:
    """A cell or line without markup and without control characters."""
    return Text(plain(str(value)), style=style)


def text_of_lines(lines: str, style: str = "") -> Text:
    """Lines whose control characters are already escaped."""
    return Text(lines, style=style)


class _Table(Table):
    """A table without blanks at the ends of its lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in Segment.split_lines(super().__rich_console__(console, options)):  # type: ignore[arg-type]
            while line and not line[-1].text.rstrip(" "):
                line.pop()
            if line:
                yield from line[:-1]
                yield Segment(line[-1].text.rstrip(" "), *line[-1][1:])
            yield Segment.line()


def table(*titles: str, right: tuple[str, ...] = ()) -> Table:
    """A plain table in the one style of this program."""
    grid = _Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        grid.add_column(title, justify="right" if title in right else "left", no_wrap=True)
    return grid


def facts_table(rows: Iterable[tuple[str, str]]) -> Table:
    """A table of names and values, which are wrapped if too long."""
    grid = _Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(text(name, "bold"), text(value))
    return grid


def say(out: Console, line: str, style: str = "", indent: str = "") -> None:
    """Write a line, wrapped to the terminal."""
    columns = out.width if out.width < NO_WIDTH else None
    out.print(text_of_lines(fold(plain(line), out.file, indent, columns=columns), style))


def say_step(out: Console, lead: str, way: str) -> None:
    """Write a command and what it does; the command has a line of its own, so that it can be copied."""
    command = next((line for line in commands_in(way) if way.startswith(f"{line}: ")), None)
    if command is None or out.width >= NO_WIDTH:
        say(out, f"{lead}{way}")
        return
    does = way.removeprefix(f"{command}: ")
    out.print(text(f"{lead}{command}", "bold"))
    say(out, f"{does[:1].upper()}{does[1:]}.", indent=" " * (len(lead) + 2))
