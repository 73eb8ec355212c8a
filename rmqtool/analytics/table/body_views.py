"""A column of bodies as views into the mapped file (:mod:`rmqtool.analytics.table.views`)."""

from typing import Protocol

import numpy as np
import pyarrow as pa

from rmqtool.analytics.table.views import array_of
from rmqtool.kernels.arrow import views_of
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.tables.messages import Texts
from rmqtool.kernels.tables.shapes import Views


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

    def map(self) -> tuple[int, memoryview]:
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
        """The column; a new one begins."""
        views = np.concatenate(self._views) if self._views else np.zeros((0, 4), np.int32)
        array = array_of(views, self._buffers)
        self._views, self._buffers = [], []
        return array
