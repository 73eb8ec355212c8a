"""Data that dispatch needs about records: tags code, deliver time, index keys, topics, queue entries.

Equivalent to :mod:`formats.message.properties`, :func:`formats.primitives.java_hash` and
:func:`formats.index.key_hash`. Compiled code leaves text that is not well-formed UTF-8 to the caller, and both
implementations leave light queues to it.
"""

import ctypes
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np

from formats.arrays import Units
from formats.layouts.derived import CQ_ENTRY
from rmqtool.kernels.crc import fast_function
from rmqtool.kernels.load.library import INT32, INT64, POINTER, Function, Implementation, is_compiled
from rmqtool.kernels.load.memory import Buffer, Memory, array_address
from rmqtool.kernels.plain import dispatch as plain
from rmqtool.kernels.scan import Walker
from rmqtool.kernels.tables.collected import FIELDS, TOPIC_FIELDS, BatchNumbers, Collector
from rmqtool.kernels.tables.shapes import Column, Table

_KEYS_PER_ROW = 4
_QUEUE_FIELDS = 3
_MOST_QUEUES = 1 << 16  # topics of a batch times the range of its queue ids


class Grouped(NamedTuple):
    """Records that get a consume-queue entry, grouped by topic and queue id, in order; views into a :class:`Room`."""

    stop: Column  # end of each group in the other columns
    steady: "np.ndarray[Any, np.dtype[np.bool_]]"  # whether physical offsets increase and queue offsets are consecutive
    row: Column  # row of each record
    entries: Units  # entry of each record, dtype CQ_ENTRY.dtype


class Dispatch(Protocol):
    """Entry points. Callers have checked that positions are inside the buffer."""

    def take(self, memory: Memory, rows: Table, first: int, count: int, into: Collector) -> tuple[int, int]:
        """See :meth:`DispatchColumns.add`; ``rows`` has shape (fields of Rows, capacity) and is C-contiguous."""

    def survey(
        self, memory: Memory, at: int, limit: int, stop: int, crc: bool, tables: bool, into: Collector
    ) -> tuple[int, int]:
        """See :meth:`DispatchColumns.survey`; other arguments as in :meth:`rmqtool.kernels.scan.Scan.walk`."""

    def group(self, into: Collector, queues: Table, groups: Table, rows: Column, entries: Units) -> tuple[int, int]:
        """Group records by topic and queue id.

        Args:
            queues: scratch space for the number of topics times the range of queue ids.
            groups: receives, for each queue with records, the end of its group and whether it is steady.
            rows, entries: receive record number and consume-queue entry of each queued record, in the order of queues.

        Returns:
            The number of queues with records, or -1 if ``queues`` is too small; the number of queued records.
        """


class _CCollector(ctypes.Structure):
    _fields_ = (
        ("delays", POINTER),
        ("delay_levels", INT64),
        ("light", INT64),
        ("tags", INT64),
        ("records", POINTER),
        ("capacity", INT64),
        ("keys", POINTER),
        ("key_capacity", INT64),
        ("topics", POINTER),
        ("slots", POINTER),
        ("slot_count", INT64),
        ("numbers", POINTER),
        ("record_count", INT64),
        ("key_count", INT64),
        ("topic_count", INT64),
        ("number_count", INT64),
    )


_take = Function("rmq_take", INT64, POINTER, POINTER, INT64, INT64, INT64, POINTER, POINTER)
_survey = Function("rmq_survey", INT64, POINTER, INT64, INT64, INT64, INT32, POINTER, POINTER, POINTER)
_group = Function("rmq_group", INT64, POINTER, INT64, INT64, INT64, POINTER, INT64, POINTER, POINTER, POINTER, POINTER)


class _Compiled:
    def take(self, memory: Memory, rows: Table, first: int, count: int, into: Collector) -> tuple[int, int]:
        return self._collect(into, _take, memory.address, array_address(rows), rows.shape[1], first, count)

    def survey(
        self, memory: Memory, at: int, limit: int, stop: int, crc: bool, tables: bool, into: Collector
    ) -> tuple[int, int]:
        function = fast_function() if crc and not tables else 0
        return self._collect(into, _survey, memory.address, at, limit, stop, crc, function)

    def _collect(self, into: Collector, function: Function, *arguments: int) -> tuple[int, int]:
        why = ctypes.c_int64()
        collector = _CCollector(
            array_address(into.delays),
            len(into.delays),
            into.light,
            into.tags,
            array_address(into.table),
            into.table.shape[1],
            array_address(into.keys),
            into.keys.shape[1],
            array_address(into.topics),
            array_address(into.slots),
            len(into.slots),
            array_address(into.numbers),
            into.records,
            into.key_count,
            into.topic_count,
            into.number_count,
        )
        position = function(*arguments, ctypes.byref(collector), ctypes.byref(why))
        into.records, into.key_count, into.topic_count = (
            collector.record_count,
            collector.key_count,
            collector.topic_count,
        )
        into.number_count = collector.number_count
        return position, why.value

    def group(self, into: Collector, queues: Table, groups: Table, rows: Column, entries: Units) -> tuple[int, int]:
        total = ctypes.c_int64()
        grouped = _group(
            array_address(into.table),
            into.table.shape[1],
            into.records,
            into.topic_count,
            array_address(queues),
            len(queues),
            array_address(groups),
            array_address(rows),
            array_address(entries),
            ctypes.byref(total),
        )
        return grouped, total.value


def choose_code(code: Implementation | None) -> Dispatch:
    """Return the compiled or the plain entry points."""
    if is_compiled(code):
        return _Compiled()
    return plain


class Room:
    """Arrays for one batch.

    Args:
        capacity: maximum number of records.
        home: pool to which :meth:`release` returns it.

    Attributes:
        table: int64 of shape (:data:`FIELDS`, capacity).
        keys: int64 of shape (2, keys): row and hash of each index key.
        numbers: int64 of shape (fields of :class:`BatchNumbers`, capacity).
        rows, entries: row and entry (CQ_ENTRY.dtype) of the records that get a consume-queue entry, grouped by queue.
    """

    def __init__(self, capacity: int, home: "deque[Room] | None" = None) -> None:
        self._home = home
        self.table: Table = np.empty((len(FIELDS), capacity), np.int64)
        self.keys: Table = np.empty((2, _KEYS_PER_ROW * capacity + 0x8000), np.int64)
        self.numbers: Table = np.empty((len(BatchNumbers._fields), capacity), np.int64)
        self.rows: Column = np.empty(capacity, np.int64)
        self.entries = np.empty(capacity, CQ_ENTRY.dtype)

    def release(self) -> None:
        """Return the arrays to the pool. Reusing them matters: allocating takes as long as filling them."""
        if self._home is not None:
            self._home.append(self)


class DispatchColumns:
    """Collects what dispatch needs to know about records, in columns.

    Args:
        capacity: maximum number of records.
        delays: delays of levels 1, 2, ... in ms; empty if deliver times are not needed.
        light: leave records with additional queues to the caller.
        tags: add tags as keys.
        spare: pool of rooms to reuse.
        code: implementation to use.

    Attributes:
        room: the arrays of the current batch.
    """

    def __init__(
        self,
        capacity: int,
        delays: list[int],
        *,
        light: bool,
        tags: bool = False,
        spare: "deque[Room] | None" = None,
        code: Implementation | None = None,
    ) -> None:
        self._capacity, self._spare = capacity, spare
        self._code = choose_code(code)
        self._queues: Table = np.empty((_MOST_QUEUES, _QUEUE_FIELDS), np.int64)
        self.room = self._free_room()
        self._into = Collector(
            np.array(delays, np.int64),
            light,
            tags,
            self.room.table,
            self.room.keys,
            np.empty((len(TOPIC_FIELDS), capacity), np.int64),
            np.zeros(1 << (2 * capacity - 1).bit_length(), np.int32),
            self.room.numbers,
        )

    def _free_room(self) -> Room:
        """Return the room released last, most of which is still in the CPU cache, or a new one."""
        room = None
        if self._spare is not None:
            with suppress(IndexError):
                room = self._spare.pop()
        if room is None or len(room.rows) != self._capacity:
            room = Room(self._capacity, self._spare)
        return room

    @property
    def records(self) -> int:
        """Number of collected records."""
        return self._into.records

    @property
    def topics(self) -> list[tuple[int, int]]:
        """(position, length) of each topic in the buffer, by number."""
        return [(int(at), int(length)) for at, length in self._into.topics[:2, : self._into.topic_count].T]

    def add(self, buffer: Buffer, rows: Table, first: int, count: int) -> tuple[int, int]:
        """Add rows ``first`` to ``count`` of a walker's table; return (next row, reason for stopping).

        ``DONE``: all rows were added. ``FULL``: call :meth:`clear` and continue with that row. ``ODD``: the row was
        added without tags code and keys; call :meth:`complete` and continue with the next row.
        """
        return self._code.take(Memory(buffer), rows, first, count, self._into)

    def survey(self, walker: Walker, at: int, limit: int, stop: int) -> tuple[int, int]:
        """Walk the records from ``at`` on and add them; return (position, reason for stopping).

        ``DONE``: there is no record at the position, or it is at or after ``stop``. ``FULL`` and ``ODD`` refer to the
        record at the position, as in :meth:`add`. Other arguments and errors are those of
        :meth:`rmqtool.kernels.scan.Walker.walk`.
        """
        stop = walker.bound(at, limit, stop)
        return self._code.survey(walker.memory, at, limit, stop, walker.crc, walker.tables, self._into)

    def complete(self, tags_code: int, key_hashes: list[int]) -> None:
        """Set tags code and keys of the last row, which :meth:`add` left out."""
        into = self._into
        row, key = into.records - 1, into.key_count
        into.table[FIELDS.index("tags_code"), row] = tags_code
        into.keys[0, key : key + len(key_hashes)] = row
        into.keys[1, key : key + len(key_hashes)] = key_hashes
        into.key_count += len(key_hashes)

    def take(self) -> tuple[Table, Column, Column]:
        """Return (table, key rows, key hashes) collected so far, as views into the room."""
        records, keys = self._into.records, self._into.key_count
        return self.room.table[:, :records], self.room.keys[0, :keys], self.room.keys[1, :keys]

    @property
    def numbers(self) -> BatchNumbers:
        """Batch numbers of the records that are inner batches, as views into the room."""
        return BatchNumbers(*self.room.numbers[:, : self._into.number_count])

    def group(self) -> Grouped | None:
        """Return the records that get a consume-queue entry, grouped by queue; None if there are too many queues."""
        room = self.room
        groups = np.empty((min(self.records, _MOST_QUEUES), 2), np.int64)
        count, total = self._code.group(self._into, self._queues, groups, room.rows, room.entries)
        if count < 0:
            return None
        stops, steady = groups[:count, 0].copy(), groups[:count, 1].astype(np.bool_)
        return Grouped(stops, steady, room.rows[:total], room.entries[:total])

    def clear(self) -> None:
        """Start a new batch in another room."""
        into = self._into
        into.slots[into.topics[TOPIC_FIELDS.index("slot"), : into.topic_count]] = 0  # usually few
        into.records = into.key_count = into.topic_count = into.number_count = 0
        self.room = self._free_room()
        into.table, into.keys, into.numbers = self.room.table, self.room.keys, self.room.numbers
