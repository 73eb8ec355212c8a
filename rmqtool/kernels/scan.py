"""Commit-log records in bulk: the checks of :func:`formats.message.read.read`, and a column for each field.

What this accepts, ``read`` accepts, and the other way round (tests/kernels/test_scan.py). Where it stops it gives no
reason: ``read`` does, asked at that place.
"""

import ctypes
from typing import NamedTuple, Protocol

import numpy as np

from formats.layouts.derived import HEAD_V4_V4
from rmqtool.kernels.crc import fast_function
from rmqtool.kernels.load.library import INT32, INT64, POINTER, Code, Function, is_compiled
from rmqtool.kernels.load.memory import Buffer, Memory, array_address
from rmqtool.kernels.plain import scan as plain
from rmqtool.kernels.tables.shapes import Column, Table

_HEAD_SIZE = HEAD_V4_V4.size
_PER_LINE = 8  # numbers of eight bytes in a cache line


class Rows(NamedTuple):
    """Consecutive records, a column of int64 for each field. ``_at`` columns are byte positions in the buffer."""

    at: Column
    total_size: Column
    magic: Column
    body_crc: Column
    queue_id: Column
    flag: Column
    queue_offset: Column
    physical_offset: Column
    sys_flag: Column
    born_timestamp: Column
    store_timestamp: Column
    reconsume_times: Column
    prepared_transaction_offset: Column
    body_at: Column
    body_length: Column  # of the body that is there: a negative length counts as 0, as for properties
    topic_at: Column
    topic_length: Column
    properties_at: Column
    properties_length: Column

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.at)


class Scan(Protocol):
    """Entry points. Whoever calls them has checked that positions lie in the buffer."""

    def walk(
        self, memory: Memory, at: int, limit: int, stop: int, crc: bool, tables: bool, table: Table
    ) -> tuple[int, int]:
        """(records found, where the next one would begin).

        Args:
            crc: compare body checksums.
            tables: compute them by tables even where there is vector code.
            table: gets a column for each record; of shape (fields of :class:`Rows`, capacity), C-contiguous.
        """

    def seek(self, memory: Memory, at: int, stop: int, physical_offset: int) -> int:
        """As :meth:`Walker.seek`; ``stop`` is so far from the buffer's end that a record's fixed fields fit."""


_walk = Function("rmq_walk", INT64, POINTER, INT64, INT64, INT64, INT32, POINTER, POINTER, INT64, POINTER)
_seek = Function("rmq_seek", INT64, POINTER, INT64, INT64, INT64)


class _Compiled:
    def walk(
        self, memory: Memory, at: int, limit: int, stop: int, crc: bool, tables: bool, table: Table
    ) -> tuple[int, int]:
        following = ctypes.c_int64()
        function = fast_function() if crc and not tables else 0
        cells = array_address(table), table.shape[1]
        count = _walk(memory.address, at, limit, stop, crc, function, *cells, ctypes.byref(following))
        return count, following.value

    def seek(self, memory: Memory, at: int, stop: int, physical_offset: int) -> int:
        return _seek(memory.address, at, stop, physical_offset)


def choose_code(code: Code | None) -> Scan:
    """The entry points by compiled or by plain code."""
    if is_compiled(code):
        return _Compiled()
    return plain


def space_rows(rows: int) -> int:
    """So many rows of a table, or up to 15 fewer, but 8 at least, so that its columns keep out of each other's way.

    Columns that lie a power of two apart share few places in the processor's cache. A row of 19 columns does not fit
    into those; a walk takes up to twice as long.
    """
    lines = rows // _PER_LINE
    return _PER_LINE * max(lines - 1 + lines % 2, 1)


class Walker:
    """Goes through the records of one buffer.

    Args:
        buffer: bytes, or a mapping's view.
        capacity: records of one :meth:`walk` at most.
        crc: compare body checksums.
        tables: compute them by tables even where there is vector code.
        code: which code does it.

    Attributes:
        memory: the buffer.
        table: what :meth:`walk` writes to, int64 of shape (fields of :class:`Rows`, capacity).
    """

    def __init__(
        self, buffer: Buffer, capacity: int = 1, *, crc: bool = True, tables: bool = False, code: Code | None = None
    ) -> None:
        self.memory = Memory(buffer)
        self.table: Table = np.empty((len(Rows._fields), capacity), np.int64)
        self.crc, self.tables = crc, tables
        self._code = choose_code(code)

    def walk(self, at: int, limit: int, stop: int | None = None) -> tuple[Rows, int]:
        """(records from ``at`` on, where the next one would begin); the records are views of :attr:`table`.

        It ends when the table is full, at the first record that begins at ``stop`` or later, and at the first place
        where :func:`formats.message.read` finds no record.

        Args:
            limit: where the readable part of the buffer ends, as for ``read``.

        Raises:
            ValueError: a position outside the buffer.
        """
        stop = self.bound(at, limit, stop)
        count, at = self._code.walk(self.memory, at, limit, stop, self.crc, self.tables, self.table)
        return Rows(*self.table[:, :count]), at

    def seek(self, at: int, stop: int, physical_offset: int) -> int:
        """Where in [at, stop) bytes have a record's magic and say their own position; ``stop`` if nowhere.

        It looks no further behind many zeros: nearly always they are what is not written yet.

        Args:
            physical_offset: of the buffer's first byte.

        Raises:
            ValueError: a position outside the buffer.
        """
        if at < 0 or stop > self.memory.length:
            raise ValueError(f"bytes {at} to {stop} of a buffer of {self.memory.length}")
        last = self.memory.length - _HEAD_SIZE
        position = self._code.seek(self.memory, at, min(stop, last), physical_offset)
        return position if position < last else stop

    def bound(self, at: int, limit: int, stop: int | None = None) -> int:
        """Where the last record that is wanted begins at the latest.

        Raises:
            ValueError: the range does not lie in the buffer.
        """
        if at < 0 or limit > self.memory.length:
            raise ValueError(f"bytes {at} to {limit} of a buffer of {self.memory.length}")
        return limit if stop is None else min(stop, limit)
