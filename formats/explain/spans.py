"""Named byte ranges of a buffer, and the walk over a construct declaration that produces them."""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple

from construct import Bytes, Computed, Container, Struct

from formats.layouts.docs import leaf_of

_NOT_ZERO = re.compile(rb"[^\0]")
_HOLE_SIZE = 16
_HOLE = re.compile(rb"\0{16,}")
_SHOWN = 4096  # maximum size of a field whose value is kept in its span

Note = Callable[[Any, Any], str]  # (value, fields before it) -> its meaning
Expand = Callable[[bytes, int, str], Iterator["Span"]]  # (bytes, where they begin, path) -> spans for the field


class Span(NamedTuple):
    """One field, or one run of bytes without fields."""

    start: int  # bytes from the beginning of the buffer
    end: int
    path: str  # as "record[0].sys_flag"; the part before the first dot names the unit
    value: int | bytes | None  # as stored; None for runs, and for fields of more than 4096 bytes
    note: str


def utc_text(ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC; empty if out of range."""
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_note(value: int, _fields: Any) -> str:
    """The note for a timestamp in ms."""
    return utc_text(value)


def walk(
    layout: Struct,
    buf: bytes | memoryview,
    at: int,
    limit: int,
    unit: str,
    notes: Mapping[str, Note] | None = None,
    expand: Mapping[str, Expand] | None = None,
) -> Generator[Span, None, int]:
    """Spans of one unit's fields by its declaration; returns the position after the unit.

    Empty fields have no span. If the buffer ends inside a field, or a length is negative, the rest of the buffer is one
    last span.

    Args:
        notes: by field name, a function that explains a value.
        expand: by field name, a function that yields spans to replace the field's own.
    """
    fields = Container()
    for named in layout.subcons:
        leaf = leaf_of(named)
        if isinstance(leaf, Computed):
            continue
        size = leaf.length(fields) if callable(leaf.length) else leaf.length
        path = f"{unit}.{named.name}"
        if not 0 <= size <= limit - at:
            if at < limit:
                yield Span(at, limit, path, None, f"cut: {size} bytes should be here, {limit - at} are")
            return limit
        raw = bytes(buf[at : at + size])
        value = raw if isinstance(leaf, Bytes) else leaf.parse(raw)
        fields[named.name] = value
        if expand and named.name in expand:
            yield from expand[named.name](raw, at, path)
        elif size:
            note = notes[named.name](value, fields) if notes and named.name in notes else ""
            yield Span(at, at + size, path, value if size <= _SHOWN else None, note)
        at += size
    return at


def zero_end(buf: bytes | memoryview, at: int, limit: int) -> int:
    """The first byte at or after ``at`` that is not zero, or ``limit``."""
    match = _NOT_ZERO.search(buf, at, limit)
    return match.start() if match else limit


def rest(buf: bytes | memoryview, at: int, limit: int, name: str, note: str) -> Iterator[Span]:
    """Bytes outside units: one span, plus spans of their own for 16 or more zero bytes before and after."""
    lead = zero_end(buf, at, limit)
    if at < lead < limit and lead - at >= _HOLE_SIZE:
        yield Span(at, lead, "unwritten", None, "zero bytes")
        at = lead
    tail = at
    while (used := zero_end(buf, tail, limit)) < limit:
        hole = _HOLE.search(buf, used, limit)
        tail = hole.start() if hole else limit
    if tail > at:
        yield Span(at, tail, name, None, note)
    if tail < limit:
        yield Span(tail, limit, "unwritten", None, "zero bytes")
