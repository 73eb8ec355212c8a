"""Numbering texts by content."""

from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.tables.shapes import Column


def number(data: Memory, at: Column, length: Column, first: Column, numbers: Column) -> int:
    """See :meth:`rmqtool.kernels.texts.TextsKernel.number`."""
    known: dict[bytes, int] = {}
    for row, (start, size) in enumerate(zip(at.tolist(), length.tolist(), strict=True)):
        text = bytes(data.view[start : start + size])
        if text not in known:
            first[len(known)] = row
            known[text] = len(known)
        numbers[row] = known[text]
    return len(known)
