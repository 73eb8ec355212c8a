"""Text as it may be shown: no control characters, JSON, widths in terminal cells, colour where it is wanted."""

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from json import JSONEncoder

_LONGEST_CELL = 1 << 16  # characters; a table is for people, and other forms have all of it
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
    """One line for people, on stderr."""
    sys.stderr.write(plain(text) + "\n")


def plain(text: str) -> str:
    """A text in which every control character is spelled out: hostile bodies and names must not reach a terminal."""
    return text.translate(_CONTROL)


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


def cut_to(text: str, width: int) -> str:
    """The beginning of a text that takes so many terminal cells, with a sign that it goes on."""
    kept = ""
    for character in text:
        if width_of(kept + character) >= width:
            break
        kept += character
    return kept + "…"
