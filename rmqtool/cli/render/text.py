"""Text as it may be shown: no control characters, JSON, widths in terminal cells, colour where it is wanted."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import IO, TYPE_CHECKING, Any, TextIO

from rmqtool.words import commands_in

if TYPE_CHECKING:
    from json import JSONEncoder

clearing: list[Callable[[], None]] = []  # what takes a line that is no text off the terminal
holding: list[Callable[[str], None]] = []  # what keeps lines for stderr until a command has shown all it has to show
MOST_COLUMNS = 100  # cells; longer lines of text are hard to read
_LEAST_COLUMNS = 20
_COLUMNS = 80  # of a terminal that does not say how wide it is
_LONGEST_CELL = 1 << 16  # characters; a table is for people, and other forms have all of it
_NO_BREAK = "\0"  # no text of ours has it
_C1 = {i: f"\\u{i:04x}" for i in range(127, 160)}  # JSON may carry them as they are, but terminals obey them
_CONTROL = {i: f"\\x{i:02x}" for i in (*range(32), *range(127, 160))} | {
    # line ends of Unicode, and what turns the direction of text around
    i: f"\\u{i:04x}"
    for i in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def dump_json(value: Any) -> str:
    """Compact JSON, text as it is."""
    return encode(value, None)


def encode(value: Any, indent: int | None) -> str:
    """JSON, indented by so many blanks, or compact."""
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


def bold(text: str) -> str:
    """A text in bold, where stdout may be coloured."""
    return f"\x1b[1m{text}\x1b[0m" if use_color() else text


def use_color(stream: TextIO | None = None) -> bool:
    """Whether a stream, by default stdout, may be coloured (https://no-color.org)."""
    import os

    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(text: str) -> None:
    """One line for people, on stderr; a terminal gets it folded, and in the place of a line of progress."""
    for clear in clearing:
        clear()
    to_stderr(fold(plain(text), sys.stderr) + "\n")


def to_stderr(line: str) -> None:
    """Write a line on stderr, now or when all is shown."""
    if holding:
        holding[-1](line)
    else:
        sys.stderr.write(line)


def room_of(stream: IO[str], form: str = "text") -> int | None:
    """Cells in a line of a stream: those of its terminal, elsewhere 100 for text; None where a line may be of any
    length, as those of a table in a file."""
    return columns_of(stream) or (MOST_COLUMNS if form == "text" else None)


def columns_of(stream: IO[str]) -> int | None:
    """Cells in a line of the terminal that a stream writes to; None where it is none."""
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
    """A text as lines that a terminal holds, broken between words alone; as it is for everything but a terminal.

    A command is copied, so it stays in one line, though the terminal may have to break that.

    Args:
        indent: before every line.
        hang: before every line but the first, too.
        columns: cells in a line, whatever the stream is.
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
    """A text in which no blank of a command is one."""
    for line in commands_in(text):
        text = text.replace(line, line.replace(" ", _NO_BREAK))
    return text


def plain(text: str) -> str:
    """A text in which every control character is spelled out: hostile bodies and names must not reach a terminal."""
    return text if text.isprintable() else text.translate(_CONTROL)


def cell_text(value: Any) -> str:
    """A value in one line."""
    if value is None:
        return ""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    elif isinstance(value, dict):
        value = dump_json(value)
    text = str(value)
    return plain(text if len(text) <= _LONGEST_CELL else text[:_LONGEST_CELL] + "…")


def width_of(text: str) -> int:
    """Terminal cells of a text; the wide characters of CJK take two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def break_lines(text: str, width: int, *, anywhere: bool) -> Iterator[str]:
    """A text in lines of so many terminal cells, broken at blanks.

    Args:
        anywhere: also within a word that is longer than a line, which otherwise stays whole, so that it can be copied.
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
    """The beginning of a text that takes so many terminal cells, with a sign that it goes on."""
    kept = ""
    for character in text:
        if width_of(kept + character) >= width:
            break
        kept += character
    return kept + "…"
