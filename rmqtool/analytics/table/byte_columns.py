"""Columns of bytes and text built from addresses in memory."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from rmqtool.analytics.table.arrays import strings_of, valid_of
from rmqtool.analytics.table.record_block import Mask
from rmqtool.kernels.arrow import gather
from rmqtool.kernels.tables.messages import Texts


class ByteColumn:
    """Builder of a column of bytes."""

    def __init__(self) -> None:
        self._data = np.empty(1 << 12, np.uint8)
        self._offsets = np.zeros(1 << 8, np.int32)
        self._missing: list[Mask] = []
        self._filled = self._rows = 0

    def add(self, texts: Texts) -> None:
        """Append texts; a missing one becomes null."""
        rows = self._rows + len(texts.length)
        missing = texts.length < 0
        size = int(texts.length.sum() + np.count_nonzero(missing))
        self._data = _grow(self._data, self._filled, self._filled + size)
        self._offsets = _grow(self._offsets, self._rows + 1, rows + 1)
        self._filled = gather(texts, self._data, self._offsets[self._rows + 1 : rows + 1], self._filled)
        self._missing.append(missing)
        self._rows = rows

    def finish(self) -> pa.BinaryArray:
        """Return the column and start a new one."""
        missing = np.concatenate(self._missing) if self._missing else np.zeros(0, np.bool_)
        buffers = [
            valid_of(missing),
            pa.py_buffer(self._offsets[: self._rows + 1]),
            pa.py_buffer(self._data[: self._filled]),
        ]
        array = pa.Array.from_buffers(pa.binary(), self._rows, buffers)
        # the next batch will probably be of similar size
        self._data = np.empty(self._filled + self._filled // 8 + 1, np.uint8)
        self._offsets = np.zeros(len(self._offsets), np.int32)
        self._missing, self._filled, self._rows = [], 0, 0
        return array


_Values = TypeVar("_Values", bound=np.ndarray[Any, Any])


def _grow(values: _Values, filled: int, needed: int) -> _Values:
    if needed <= len(values):
        return values
    grown = np.empty(max(needed, 2 * len(values)), values.dtype)
    grown[:filled] = values[:filled]
    return grown  # type: ignore[return-value]


def binary_of(texts: Texts) -> pa.BinaryArray:
    """Return the texts as an array of bytes."""
    column = ByteColumn()
    column.add(texts)
    return column.finish()


def text_of(values: pa.BinaryArray) -> pa.StringArray:
    """Convert bytes to text; malformed UTF-8 becomes U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return each_text(values, lambda value: value.decode("utf-8", "replace"))


def each_text(values: pa.BinaryArray, text: Callable[[bytes], str]) -> pa.StringArray:
    """Convert each value to text, computing equal values only once."""
    encoded = values.dictionary_encode()
    return strings_of(map(text, encoded.dictionary.to_pylist())).take(encoded.indices)
