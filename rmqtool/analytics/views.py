"""Bodies that stay where they lie: views into the mapped file, which only writing a Parquet file reads.

Bodies are most of a message log, and a dump would copy each into new memory only to copy it from there into a Parquet
page. Arrow's kernels know little of views, so what must be done to such batches is done here.
"""

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats.jit import address_of
from formats.kernel_arrow import Texts, Views, views_of
from rmqtool.analytics.schema import MESSAGE_SCHEMA

_BODY = MESSAGE_SCHEMA.get_field_index("body")
_OFFSET = 4  # bytes of memory for each row that views do without
VIEW_SCHEMA = MESSAGE_SCHEMA.set(_BODY, MESSAGE_SCHEMA.field(_BODY).with_type(pa.binary_view()))

_Rows = np.ndarray[Any, np.dtype[Any]]


class Lying(Protocol):
    """Rows whose bodies lie in a mapped file, but for those that were inflated."""

    def __len__(self) -> int:
        """How many rows there are."""

    @property
    def bodies(self) -> Texts:
        """Where they are."""

    @property
    def inflated(self) -> dict[int, bytes]:
        """By row."""

    def mapped(self) -> tuple[int, memoryview]:
        """The part of the file in which all rows lie: its address, and its bytes."""


class BodyViews:
    """Grows a column of bodies."""

    def __init__(self) -> None:
        self._views: list[Views] = []
        self._buffers: list[pa.Buffer] = []

    def add(self, part: Lying) -> None:
        """Append rows."""
        if not len(part):
            return
        texts, inflated = part.bodies, part.inflated
        address, view = part.mapped()
        if inflated:
            rows = list(inflated)
            texts = Texts(texts.address.copy(), texts.length.copy())
            texts.address[rows], texts.length[rows] = address, 0
        views = views_of(texts, address, self._buffer(view))
        if inflated:
            joined = b"".join(inflated.values())
            begin, _keep = address_of(joined)
            length = np.array([len(body) for body in inflated.values()], np.int64)
            views[rows] = views_of(Texts(begin + np.cumsum(length) - length, length), begin, self._buffer(joined))
        self._views.append(views)

    def _buffer(self, data: bytes | memoryview) -> int:
        self._buffers.append(pa.py_buffer(data))
        return len(self._buffers) - 1

    def finish(self) -> pa.Array:
        """The column; a new one begins."""
        views = np.concatenate(self._views) if self._views else np.zeros((0, 4), np.int32)
        made = _array(views, self._buffers)
        self._views, self._buffers = [], []
        return made


def _array(views: _Rows, buffers: list[pa.Buffer]) -> pa.Array:
    return pa.Array.from_buffers(pa.binary_view(), len(views), [None, pa.py_buffer(views), *buffers])


def has_views(schema: pa.Schema) -> bool:
    """Whether a schema of messages is :data:`VIEW_SCHEMA`."""
    return bool(schema.field(_BODY).type == pa.binary_view())


def take(batch: pa.RecordBatch, rows: _Rows) -> pa.RecordBatch:
    """Some rows of a batch of messages, by their numbers."""
    picked = pa.array(rows)
    if not has_views(batch.schema):
        return batch.take(picked)
    body = batch.column(_BODY)
    _valid, views, *buffers = body.buffers()
    views = np.frombuffer(views, np.int32).reshape(-1, 4)[body.offset :][rows]
    columns = [column.take(picked) if at != _BODY else _array(views, buffers) for at, column in enumerate(batch)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def memory_of(batch: pa.RecordBatch) -> int:
    """Bytes of Arrow memory that a batch of messages takes, or would if its bodies were copied."""
    if not has_views(batch.schema):
        return int(batch.nbytes)
    others = sum(int(column.nbytes) for at, column in enumerate(batch) if at != _BODY)
    bodies: int = pc.sum(batch.column("bodyLength"), min_count=0).as_py()
    return others + bodies + _OFFSET * int(batch.num_rows)
