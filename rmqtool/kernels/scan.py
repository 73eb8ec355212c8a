"""Reading commit-log records in bulk, with the checks of :func:`formats.message.read.read`, into one column per field.

Accepts exactly the records that ``read`` accepts (tests/kernels/test_scan.py). To learn why it stopped, call ``read``
at that position.
"""

import ctypes
from typing import NamedTuple, Protocol

import numpy as np

from formats.layouts.derived import HEAD_V4_V4
from rmqtool.kernels.crc import fast_function
from rmqtool.kernels.load.library import INT32, INT64, POINTER, Function, Implementation, is_compiled
from rmqtool.kernels.load.memory import Buffer, Memory, array_address
from rmqtool.kernels.plain import scan as plain
from rmqtool.kernels.tables.shapes import Column, Table

_HEAD_SIZE = HEAD_V4_V4.size
_PER_LINE = 8  # 8-byte numbers per cache line


class Rows(NamedTuple):
    """Consecutive records, one int64 column per field. ``_at`` columns are byte positions in the buffer."""

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
    body_length: Column  # negative lengths are replaced by 0, as for properties
    topic_at: Column
    topic_length: Column
    properties_at: Column
    properties_length: Column

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.at)


class Scan(Protocol):
    """Entry points. Callers have checked that positions are inside the buffer."""

    def walk(
        self, memory: Memory, at: int, limit: int, stop: int, crc: bool, tables: bool, table: Table
    ) -> tuple[int, int]:
        """Return (number of records, start of the next one).

        Args:
            crc: verify body checksums.
            tables: compute them with lookup tables even if vector code is available.
            table: receives a column per record; shape (fields of :class:`Rows`, capacity), C-contiguous.
        """

    def seek(self, memory: Memory, at: int, stop: int, physical_offset: int) -> int:
        """See :meth:`Walker.seek`; the fixed fields of a record must fit in the buffer after ``stop``."""


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


def choose_code(code: Implementation | None) -> Scan:
    """Return the compiled or the plain entry points."""
    if is_compiled(code):
        return _Compiled()
    return plain


def space_rows(rows: int) -> int:
    """Return ``rows`` or up to 15 fewer, but at least 8, such that the columns of a table do not share cache sets.

    Columns whose distance is a power of two map to few cache sets, too few for a row of 19 columns; a walk then takes
    up to twice as long.
    """
    lines = rows // _PER_LINE
    return _PER_LINE * max(lines - 1 + lines % 2, 1)


class Walker:
    """Walks the records of one buffer.

    Args:
        buffer: bytes, or a view of a mapping.
        capacity: maximum number of records per :meth:`walk`.
        crc: verify body checksums.
        tables: compute them with lookup tables even if vector code is available.
        code: implementation to use.

    Attributes:
        memory: the buffer.
        table: output of :meth:`walk`, int64 of shape (fields of :class:`Rows`, capacity).
    """

    def __init__(
        self,
        buffer: Buffer,
        capacity: int = 1,
        *,
        crc: bool = True,
        tables: bool = False,
        code: Implementation | None = None,
    ) -> None:
        self.memory = Memory(buffer)
        self.table: Table = np.empty((len(Rows._fields), capacity), np.int64)
        self.crc, self.tables = crc, tables
        self._code = choose_code(code)

    def walk(self, at: int, limit: int, stop: int | None = None) -> tuple[Rows, int]:
        """Return (records from ``at`` on, start of the next one); the records are views into :attr:`table`.

        Stops when the table is full, at the first record that begins at or after ``stop``, and at the first position
        where :func:`formats.message.read` finds no record.

        Args:
            limit: end of the readable part of the buffer, as for ``read``.

        Raises:
            ValueError: a position is outside the buffer.
        """
        stop = self.bound(at, limit, stop)
        count, at = self._code.walk(self.memory, at, limit, stop, self.crc, self.tables, self.table)
        return Rows(*self.table[:, :count]), at

    def seek(self, at: int, stop: int, physical_offset: int) -> int:
        """Return the first position in [at, stop) with a record's magic and a matching physical offset, else ``stop``.

        Does not search beyond a long run of zeros, which is almost always the unwritten part of the file.

        Args:
            physical_offset: physical offset of the first byte of the buffer.

        Raises:
            ValueError: a position is outside the buffer.
        """
        if at < 0 or stop > self.memory.length:
            raise ValueError(f"bytes {at} to {stop} of a buffer of {self.memory.length}")
        last = self.memory.length - _HEAD_SIZE
        position = self._code.seek(self.memory, at, min(stop, last), physical_offset)
        return position if position < last else stop

    def bound(self, at: int, limit: int, stop: int | None = None) -> int:
        """Return the limit for the start of the last record to read.

        Raises:
            ValueError: the range is outside the buffer.
        """
        if at < 0 or limit > self.memory.length:
            raise ValueError(f"bytes {at} to {limit} of a buffer of {self.memory.length}")
        return limit if stop is None else min(stop, limit)
