"""Look for what is rare in many bytes, at the speed of memory: a short text, or properties that are not plain."""

from typing import Protocol

import numpy as np

from rmqtool.kernels.load.library import INT64, POINTER, Code, Function, is_compiled
from rmqtool.kernels.load.memory import Buffer, Memory
from rmqtool.kernels.plain import search as plain
from rmqtool.kernels.tables.messages import cells_address
from rmqtool.kernels.tables.shapes import Column

SHORTEST = 4  # bytes of a text that is looked for
_find = Function("rmq_find", INT64, POINTER, INT64, INT64, POINTER, INT64)
_odd_properties = Function("rmq_odd_properties", INT64, POINTER, POINTER, POINTER, INT64, POINTER)


class Search(Protocol):
    """Entry points."""

    def find(self, data: Memory, start: int, stop: int, text: bytes) -> int:
        """Where in [start, stop) a text begins first; -1 where none does. One that begins before ``stop`` fits."""

    def odd_properties(self, data: Memory, at: Column, length: Column, out: Column) -> int:
        """Write the rows whose properties are odd; returns how many."""


class _Compiled:
    def find(self, data: Memory, start: int, stop: int, text: bytes) -> int:
        wanted = Memory(text)
        return _find(data.address, start, stop, wanted.address, wanted.length)

    def odd_properties(self, data: Memory, at: Column, length: Column, out: Column) -> int:
        places = cells_address(at), cells_address(length), len(at)
        return _odd_properties(data.address, *places, cells_address(out))


def choose_code(code: Code | None) -> Search:
    """The entry points by compiled or by plain code."""
    return _Compiled() if is_compiled(code) else plain


def find(buffer: Buffer, text: bytes, start: int, stop: int, *, code: Code | None = None) -> int:
    """Where in [start, stop) a text begins first; -1 where none does. It may end behind ``stop``.

    Args:
        code: which code looks.

    Raises:
        ValueError: a position outside the buffer, or a text of fewer than 4 bytes.
    """
    data = Memory(buffer)
    if start < 0 or stop > data.length or len(text) < SHORTEST:
        raise ValueError(f"{len(text)} bytes in bytes {start} to {stop} of a buffer of {data.length}")
    stop = min(stop, data.length - len(text) + 1)
    return choose_code(code).find(data, start, stop, text) if start < stop else -1


def odd_properties(buffer: Buffer, at: Column, length: Column, *, code: Code | None = None) -> Column:
    """Rows whose properties are anything but ASCII items with a name and a separator; ascending.

    Args:
        at, length: where each record's properties lie in the buffer, int64.
        code: which code looks.

    Raises:
        ValueError: a position outside the buffer.
    """
    data = Memory(buffer)
    if len(at) and (int(at.min()) < 0 or int(length.min()) < 0 or int((at + length).max()) > data.length):
        raise ValueError("properties outside the buffer")
    out = np.empty(len(at), np.int64)
    count = choose_code(code).odd_properties(data, np.ascontiguousarray(at), np.ascontiguousarray(length), out)
    return out[:count]
