"""A column of bodies as views into the mapped file (:mod:`rmqtool.analytics.table.views`)."""

from typing import Protocol

import numpy as np
import pyarrow as pa

from rmqtool.analytics.table.views import array_of
from rmqtool.kernels.arrow import views_of
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.tables.messages import Texts
from rmqtool.kernels.tables.shapes import Views


class MappedRows(Protocol):
    """Rows whose bodies are in a mapped file, except for those that were inflated."""

    def __len__(self) -> int:
        """Number of rows."""

    @property
    def bodies(self) -> Texts:
        """Positions of the bodies."""

    @property
    def inflated(self) -> dict[int, bytes]:
        """Inflated bodies by row."""

    def map(self) -> tuple[int, memoryview]:
        """Address and content of the part of the file that contains all rows."""


class BodyViews:
    """Builder of a column of bodies."""

    def __init__(self) -> None:
        self._views: list[Views] = []
        self._buffers: list[pa.Buffer] = []

    def add(self, part: MappedRows) -> None:
        """Append rows."""
        if not len(part):
            return
        texts, inflated = part.bodies, part.inflated
        address, view = part.map()
        if inflated:
            rows = list(inflated)
            texts = Texts(texts.address.copy(), texts.length.copy())
            texts.address[rows], texts.length[rows] = address, 0
        views = views_of(texts, address, self._buffer(view))
        if inflated:
            joined = b"".join(inflated.values())
            begin = Memory(joined).address
            length = np.array([len(body) for body in inflated.values()], np.int64)
            views[rows] = views_of(Texts(begin + np.cumsum(length) - length, length), begin, self._buffer(joined))
        self._views.append(views)

    def _buffer(self, data: bytes | memoryview) -> int:
        self._buffers.append(pa.py_buffer(data))
        return len(self._buffers) - 1

    def finish(self) -> pa.Array:
        """Return the column and start a new one."""
        views = np.concatenate(self._views) if self._views else np.zeros((0, 4), np.int32)
        array = array_of(views, self._buffers)
        self._views, self._buffers = [], []
        return array
