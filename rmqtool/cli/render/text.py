"""Text for output: escaped control characters, JSON, widths in terminal cells, colour."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import IO, TYPE_CHECKING, Any, TextIO

from rmqtool.words import commands_in

if TYPE_CHECKING:
    from json import JSONEncoder

clearing: list[Callable[[], None]] = []  # removes the line of progress from the terminal
holding: list[Callable[[str], None]] = []  # holds lines for stderr back until a command has shown its output
LONGEST_CELL = 1 << 16  # most characters of a cell; machine forms have all of it
MOST_COLUMNS = 100  # cells; longer lines of text are hard to read
_LEAST_COLUMNS = 20
_COLUMNS = 80  # columns of a terminal of unknown width
_NO_BREAK = "\0"  # stands for a space inside a command
_C1 = {i: f"\\u{i:04x}" for i in range(127, 160)}  # valid in JSON, but terminals interpret them
_CONTROL = {i: f"\\x{i:02x}" for i in (*range(32), *range(127, 160))} | {
    # Unicode line ends, and characters that change the direction of text
    i: f"\\u{i:04x}"
    for i in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def dump_json(value: Any) -> str:
    """Compact JSON, text as it is."""
    return encode(value, None)


def encode(value: Any, indent: int | None) -> str:
    """JSON, indented by this many spaces, or compact."""
    try:
        text = _encoder(indent).encode(value)
    except ValueError:
        text = _encoder(indent).encode(_without_nan(value))
    return text if text.isascii() and "\x7f" not in text else text.translate(_C1)


@cache
def _encoder(indent: int | None) -> "JSONEncoder":
    from json import JSONEncoder  # tables do not need them

    return JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent, separators=(",", ": " if indent else ":"))


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_without_nan, value))
    return value


def bold(text: str) -> str:
    """Text in bold, if stdout may be coloured."""
    return f"\x1b[1m{text}\x1b[0m" if use_color() else text


def use_color(stream: TextIO | None = None) -> bool:
    """Whether a stream, by default stdout, may be coloured (https://no-color.org)."""
    import os

    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(text: str) -> None:
    """Write a line for people to stderr, folded on a terminal, replacing a line of progress."""
    for clear in clearing:
        clear()
    to_stderr(fold(plain(text), sys.stderr) + "\n")


def to_stderr(line: str) -> None:
    """Write a line to stderr, now or when the output has been shown."""
    if holding:
        holding[-1](line)
    else:
        sys.stderr.write(line)


def room_of(stream: IO[str], form: str = "text") -> int | None:
    """Cells in a line of a stream: those of its terminal, else 100 for text; None for a table in a file."""
    return columns_of(stream) or (MOST_COLUMNS if form == "text" else None)


def columns_of(stream: IO[str]) -> int | None:
    """Cells in a line of the terminal that a stream writes to; None if it is not a terminal."""
    import os

    if not stream.isatty():
        return None
    try:
        return int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except OSError:  # a pager's
        from shutil import get_terminal_size

        return get_terminal_size((_COLUMNS, 24)).columns


def fold(text: str, stream: IO[str], indent: str = "", hang: str = "  ", columns: int | None = None) -> str:
    """Wrap text between words to fit the terminal; unchanged if the stream is not a terminal.

    Commands are not broken, so that they can be copied.

    Args:
        indent: before every line.
        hang: before every line but the first, too.
        columns: cells in a line, regardless of the stream.
    """
    columns = columns or columns_of(stream)
    if columns is None or width_of(indent + text) <= (room := max(min(columns, MOST_COLUMNS), _LEAST_COLUMNS)):
        return indent + text
    from textwrap import wrap

    lines = wrap(
        _glue_commands(text), room, initial_indent=indent, subsequent_indent=indent + hang,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines).replace(_NO_BREAK, " ")


def _glue_commands(text: str) -> str:
    """The text with the spaces inside commands replaced, so that commands are not broken."""
    for line in commands_in(text):
        text = text.replace(line, line.replace(" ", _NO_BREAK))
    return text


def plain(text: str) -> str:
    """The text with control characters escaped: hostile bodies and names must not reach a terminal."""
    return text if text.isprintable() else text.translate(_CONTROL)


def cell_text(value: Any) -> str:
    """A value in one line."""
    if type(value) is int:  # most cells
        return str(value)
    if value is None:
        return ""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    elif isinstance(value, dict):
        value = dump_json(value)
    text = str(value)
    return plain(text if len(text) <= LONGEST_CELL else text[:LONGEST_CELL] + "…")


def width_of(text: str) -> int:
    """Terminal cells of a text; the wide characters of CJK take two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def break_lines(text: str, width: int, *, anywhere: bool) -> Iterator[str]:
    """Break text at spaces into lines of at most this many terminal cells.

    Args:
        anywhere: also break words that are longer than a line; otherwise they stay whole, so that they can be copied.
    """
    start = 0
    while True:
        end, cells = start, 0
        while end < len(text) and (cells := cells + width_of(text[end])) <= width:
            end += 1
        if end == len(text):
            yield text[start:]
            return
        blank = text.rfind(" ", start + 1, end + 1)
        if blank < 0 and not anywhere:
            blank = text.find(" ", end)
            if blank < 0:
                yield text[start:]
                return
        stop = max(end, start + 1) if blank < 0 else blank
        yield text[start:stop]
        start = stop if blank < 0 else blank + 1


def cut_to(text: str, width: int) -> str:
    """Cut text to this many terminal cells, with an ellipsis."""
    kept = ""
    for character in text:
        if width_of(kept + character) >= width:
            break
        kept += character
    return kept + "…"


def bar(value: int, most: int, width: int) -> str:
    """A bar for a value, in proportion to ``most``, which has ``width`` cells; every positive value has one."""
    return "█" * max(round(width * value / most), value > 0) if most else ""


def size_text(size: int) -> str:
    """Bytes with a unit."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
