"""Arrow arrays from NumPy arrays and texts.

``pa.array`` and ``pa.scalar`` import pandas wherever it is installed, which takes most of the start of a Spark worker;
these do not.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, Any]


def numbers_of(values: Numbers, kind: pa.DataType, missing: Numbers | None = None) -> pa.Array:
    """Return numbers as an array, without a copy if they have the type's own width.

    Args:
        missing: which of them are null; by default none.
    """
    values = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [valid_of(missing), pa.py_buffer(values)])


def valid_of(missing: Numbers | None) -> pa.Buffer | None:
    """Return the bitmap of the values that are not missing; None if all are there."""
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))


def strings_of(values: Iterable[str | None]) -> pa.StringArray:
    """Return texts as an array; None becomes null."""
    texts = list(values)
    encoded = [b"" if text is None else text.encode() for text in texts]
    ends = np.concatenate(([0], np.cumsum([len(text) for text in encoded], dtype=np.int64))).astype(np.int32)
    missing = np.fromiter((text is None for text in texts), np.bool_, len(texts))
    buffers = [valid_of(missing), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def repeat(text: str, count: int) -> pa.StringArray:
    """Return an array that has a text ``count`` times."""
    encoded = text.encode()
    ends = np.arange(count + 1, dtype=np.int64) * len(encoded)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(encoded * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)
