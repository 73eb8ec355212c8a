"""Columns in Arrow's layout, built one text at a time."""

from ctypes import string_at

import numpy as np

from formats.message import properties
from rmqtool.kernels.tables.messages import MOST_NAMES, VIEW_INLINE, Texts
from rmqtool.kernels.tables.shapes import Bytes, Column, Flags, Offsets, Table, Views

_TAGS, _KEYS, _UNIQ_KEY = (name.encode() for name in (properties.TAGS, properties.KEYS, properties.UNIQ_KEY))
_FIRST = 4  # number of leading bytes that a view repeats


def _as_bytes(texts: Texts) -> list[bytes]:
    """Return the texts as bytes; a missing text is empty."""
    places = zip(texts.address.tolist(), texts.length.tolist(), strict=True)
    return [string_at(address, length) if length > 0 else b"" for address, length in places]


def gather(texts: Texts, to: Bytes, offsets: Offsets, filled: int) -> int:
    """See :meth:`rmqtool.kernels.arrow.Arrow.gather`."""
    joined = b"".join(_as_bytes(texts))
    to[filled : filled + len(joined)] = np.frombuffer(joined, np.uint8)
    offsets[:] = filled + np.cumsum(np.maximum(texts.length, 0))
    return filled + len(joined)


def views(texts: Texts, begin: int, number: int, out: Views) -> None:
    """See :meth:`rmqtool.kernels.arrow.Arrow.views`."""
    long = texts.length > VIEW_INLINE
    firsts = _as_bytes(Texts(texts.address, np.where(long, _FIRST, texts.length)))
    inline = b"".join(first.ljust(VIEW_INLINE, b"\0") for first in firsts)
    out[:, 0] = texts.length
    out[:, 1:] = np.frombuffer(inline, np.int32).reshape(-1, 3)
    out[long, 2] = number
    out[long, 3] = texts.address[long] - begin


def parse(texts: Texts, sure: Flags, first: int, items: Table, bounds: Column, named: Table) -> int:
    """See :meth:`rmqtool.kernels.arrow.Arrow.parse`."""
    for row in range(first, len(texts.address)):
        address, begin = int(texts.address[row]), int(bounds[row])
        parsed = _items(string_at(address, int(texts.length[row])), sure=bool(sure[row]))
        if parsed is None:
            return row
        which = {b"": -1}
        for item, (at, name, value_at, value) in enumerate(parsed, begin):
            items[:, item] = address + at, len(name), address + value_at, len(value)
            which[name] = item
        named[:, row] = [which.get(name, -1) for name in (_TAGS, _KEYS, _UNIQ_KEY)]
        bounds[row + 1] = begin + len(parsed)
    return len(texts.address)


def _items(data: bytes, *, sure: bool) -> list[tuple[int, bytes, int, bytes]] | None:
    """Return (position, name, position of the value, value) of each item; None if the row is odd and not ``sure``."""
    items, places, at = list[tuple[int, bytes, int, bytes]](), dict[bytes, int](), 0
    if not sure:
        try:
            data.decode()
        except UnicodeDecodeError:
            return None
    for item in data.split(b"\x02"):
        name, separator, value = item.partition(b"\x01")
        if name and separator and value:
            value_at = at + len(name) + 1
            if not sure and name in places:
                items[places[name]] = items[places[name]][0], name, value_at, value
            elif not sure and len(places) >= MOST_NAMES:
                return None
            else:
                places[name] = len(items)
                items.append((at, name, value_at, value))
        at += len(item) + 1
    return items


def split(texts: Texts, parts: Texts, bounds: Column) -> int:
    """See :meth:`rmqtool.kernels.arrow.Arrow.split`."""
    places: list[tuple[int, int]] = []
    for row, (address, text) in enumerate(zip(texts.address.tolist(), _as_bytes(texts), strict=True)):
        for part in text.split(b" "):
            if part:
                places.append((address, len(part)))
            address += len(part) + 1
        bounds[row + 1] = len(places)
    parts.address[: len(places)], parts.length[: len(places)] = np.array(places, np.int64).reshape(-1, 2).T
    return len(places)


def offset_ids(hosts: Texts, offsets: Column, out: Bytes) -> None:
    """See :meth:`rmqtool.kernels.arrow.Arrow.offset_ids`."""
    for row, (host, offset) in enumerate(zip(_as_bytes(hosts), offsets.tolist(), strict=True)):
        digits = (host + offset.to_bytes(8, "big", signed=True)).hex().upper().encode()
        out[row, : len(digits)] = np.frombuffer(digits, np.uint8)
