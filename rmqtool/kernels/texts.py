"""Numbering texts by content, for example the topics of many records."""

from typing import Protocol

import numpy as np

from rmqtool.kernels.load.library import INT64, POINTER, Function, Implementation, is_compiled
from rmqtool.kernels.load.memory import Buffer, Memory, array_address
from rmqtool.kernels.plain import texts as plain
from rmqtool.kernels.tables.messages import cells_address
from rmqtool.kernels.tables.shapes import Column

_number = Function("rmq_number", INT64, *[POINTER] * 3, INT64, POINTER, INT64, POINTER, POINTER)


class TextsKernel(Protocol):
    """Entry points. Callers have checked that positions are inside the buffer."""

    def number(self, data: Memory, at: Column, length: Column, first: Column, numbers: Column) -> int:
        """Write the first text of each number, and the number of each text; return the count of numbers."""


class _Compiled:
    def number(self, data: Memory, at: Column, length: Column, first: Column, numbers: Column) -> int:
        slots = np.zeros(1 << (2 * len(at)).bit_length(), np.int32)
        table = array_address(slots), len(slots)
        places = cells_address(at), cells_address(length), len(at)
        return _number(data.address, *places, *table, cells_address(first), cells_address(numbers))


def choose_code(code: Implementation | None) -> TextsKernel:
    """Return the compiled or the plain entry points."""
    return _Compiled() if is_compiled(code) else plain


def number_texts(
    buffer: Buffer, at: Column, length: Column, *, code: Implementation | None = None
) -> tuple[Column, Column]:
    """Return (the first text of each number, the number of each text), numbered in order of appearance.

    Args:
        at, length: position and length of each text in the buffer, int64.
        code: implementation to use.

    Raises:
        ValueError: a position is outside the buffer.
    """
    data = Memory(buffer)
    if len(at) and (int(at.min()) < 0 or int(length.min()) < 0 or int((at + length).max()) > data.length):
        raise ValueError("texts outside the buffer")
    first, numbers = np.empty(len(at), np.int64), np.empty(len(at), np.int64)
    places = np.ascontiguousarray(at), np.ascontiguousarray(length)
    count = choose_code(code).number(data, *places, first, numbers)
    return first[:count], numbers
