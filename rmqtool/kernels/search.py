"""Searching large buffers for rare items: a short text, or unusual properties."""

from typing import Protocol

import numpy as np

from rmqtool.kernels.load.library import INT64, POINTER, Function, Implementation, is_compiled
from rmqtool.kernels.load.memory import Buffer, Memory
from rmqtool.kernels.plain import search as plain
from rmqtool.kernels.tables.messages import cells_address
from rmqtool.kernels.tables.shapes import Column

SHORTEST = 4  # minimum length of a search text, bytes
_find = Function("rmq_find", INT64, POINTER, INT64, INT64, POINTER, INT64)
_odd_properties = Function("rmq_odd_properties", INT64, POINTER, POINTER, POINTER, INT64, POINTER)


class SearchKernel(Protocol):
    """Entry points."""

    def find(self, data: Memory, start: int, stop: int, text: bytes) -> int:
        """Return the first position in [start, stop) where a text begins, or -1. Every such text fits in the buffer."""

    def odd_properties(self, data: Memory, at: Column, length: Column, out: Column) -> int:
        """Write the rows with odd properties to ``out``; return their number."""


class _Compiled:
    def find(self, data: Memory, start: int, stop: int, text: bytes) -> int:
        pattern = Memory(text)
        return _find(data.address, start, stop, pattern.address, pattern.length)

    def odd_properties(self, data: Memory, at: Column, length: Column, out: Column) -> int:
        places = cells_address(at), cells_address(length), len(at)
        return _odd_properties(data.address, *places, cells_address(out))


def choose_code(code: Implementation | None) -> SearchKernel:
    """Return the compiled or the plain entry points."""
    return _Compiled() if is_compiled(code) else plain


def find(buffer: Buffer, text: bytes, start: int, stop: int, *, code: Implementation | None = None) -> int:
    """Return the first position in [start, stop) where a text begins, or -1. The text may end after ``stop``.

    Args:
        code: implementation to use.

    Raises:
        ValueError: a position is outside the buffer, or the text is shorter than 4 bytes.
    """
    data = Memory(buffer)
    if start < 0 or stop > data.length or len(text) < SHORTEST:
        raise ValueError(f"{len(text)} bytes in bytes {start} to {stop} of a buffer of {data.length}")
    stop = min(stop, data.length - len(text) + 1)
    return choose_code(code).find(data, start, stop, text) if start < stop else -1


def odd_properties(buffer: Buffer, at: Column, length: Column, *, code: Implementation | None = None) -> Column:
    """Return the rows, ascending, whose properties are not just ASCII items with a name and a separator.

    Args:
        at, length: position and length of each record's properties in the buffer, int64.
        code: implementation to use.

    Raises:
        ValueError: a position is outside the buffer.
    """
    data = Memory(buffer)
    if len(at) and (int(at.min()) < 0 or int(length.min()) < 0 or int((at + length).max()) > data.length):
        raise ValueError("properties outside the buffer")
    out = np.empty(len(at), np.int64)
    count = choose_code(code).odd_properties(data, np.ascontiguousarray(at), np.ascontiguousarray(length), out)
    return out[:count]
