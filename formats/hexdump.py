"""A hex dump whose rows say which fields begin in them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

WIDTH = 16
_TEXT = 40  # characters of a value that a label shows
_BLOCK = 4096  # rows that are compared at a time


class Labelled(NamedTuple):
    """What a dump needs of a span; :class:`formats.spans.Span` has it."""

    start: int
    end: int
    path: str
    value: int | bytes | None
    note: str


def hexdump(buf: bytes | memoryview, spans: Iterable[tuple[int, int, str, int | bytes | None, str]], base: int = 0) -> Iterator[str]:
    """Lines of offset, 16 bytes, their characters, and the fields that begin there.

    Rows lie on multiples of 16 of the shown offset. A run of equal rows without a new field is one ``*``.

    Args:
        spans: (start, end, path, value, note) in ascending order, as explain yields them; bytes before the first and
            after the last are not shown.
        base: offset of the buffer's first byte, for show.
    """
    dump = _Dump(buf, base)
    for start, end, path, value, note in spans:
        yield from dump.rows_before(start)
        dump.begin(start, end, label(path, value, note))
        yield from dump.rows_before(end)
    yield from dump.last_row()


def label(path: str, value: int | bytes | None, note: str) -> str:
    """A field in a few words: name, value, meaning."""
    text = path
    if isinstance(value, int):
        text += f"={value}"
    elif value is not None and not note:
        text += f"={value[:_TEXT].hex()}" + ("..." if len(value) > _TEXT else "")
    short = note if len(note) <= 4 * _TEXT else note[: 4 * _TEXT] + "..."
    # one line each, whatever bytes the file holds
    return (f"{text} ({short})" if short else text).encode("unicode_escape").decode() if _unclean(text + short) else (
        f"{text} ({short})" if short else text
    )


def _unclean(text: str) -> bool:
    return not text.isprintable()


class _Dump:
    """Rows that are not yet complete, and the labels that wait for them."""
