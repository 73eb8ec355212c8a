"""Searching for texts, and for unusual properties."""

from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.tables.shapes import Column

_STEP = 1 << 20  # bytes copied and searched at a time


def find(data: Memory, start: int, stop: int, text: bytes) -> int:
    """See :meth:`rmqtool.kernels.search.SearchKernel.find`."""
    for at in range(start, stop, _STEP):
        end = min(at + _STEP, stop)
        position = bytes(data.view[at : end + len(text) - 1]).find(text)
        if position >= 0:
            return at + position
    return -1


def odd_properties(data: Memory, at: Column, length: Column, out: Column) -> int:
    """See :meth:`rmqtool.kernels.search.SearchKernel.odd_properties`."""
    places = zip(at.tolist(), length.tolist(), strict=True)
    rows = [row for row, (start, size) in enumerate(places) if _is_odd(bytes(data.view[start : start + size]))]
    out[: len(rows)] = rows
    return len(rows)


def _is_odd(properties: bytes) -> bool:
    if not properties:
        return False
    if not properties.isascii() or properties[-1] == 0:
        return True
    for item in properties.split(b"\x02"):
        name, separator, _value = item.partition(b"\x01")
        if item and (not name or not separator or 0 in name):
            return True
    return False
