"""What dispatch needs to know of records: tags code, deliver time, index keys, topics, queue entries.

Equal to what :mod:`formats.message.properties`, :func:`formats.primitives.java_hash` and
:func:`formats.index.key_hash` give. Compiled code leaves text that is no well-formed UTF-8 to the caller, and either
code leaves light queues to it.
"""

import ctypes
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np

from formats.layouts.derived import CQ_ENTRY
from rmqtool.kernels.crc import fast_function
from rmqtool.kernels.load.library import INT32, INT64, POINTER, Code, Function, is_compiled
from rmqtool.kernels.load.memory import Buffer, Memory, array_address
from rmqtool.kernels.plain import dispatch as plain
from rmqtool.kernels.scan import Walker
from rmqtool.kernels.tables.collected import FIELDS, TOPIC_FIELDS, BatchNumbers, Collector
from rmqtool.kernels.tables.shapes import Column, Table

_KEYS_PER_ROW = 4
_QUEUE_FIELDS = 3
_MOST_QUEUES = 1 << 16  # topics of a batch times the range of its queue ids
_Entries = np.ndarray[Any, np.dtype[Any]]


class Grouped(NamedTuple):
    """Records that get a consume-queue entry, apart by topic and queue id, in order; views of a room."""

    stop: Column  # where each group ends in the other columns
    steady: "np.ndarray[Any, np.dtype[np.bool_]]"  # whether its physical offsets grow and its queue offsets count up
    row: Column  # of each record
    entries: _Entries  # of each record, of CQ_ENTRY.dtype


class Dispatch(Protocol):
    """Entry points. Whoever calls them has checked that positions lie in the buffer."""

    def take(self, memory: Memory, rows: Table, first: int, count: int, into: Collector) -> tuple[int, int]:
        """As :meth:`DispatchColumns.add`; ``rows`` of shape (fields of Rows, capacity), C-contiguous."""

    def survey(
        self, memory: Memory, at: int, limit: int, stop: int, crc: bool, tables: bool, into: Collector
    ) -> tuple[int, int]:
        """As :meth:`DispatchColumns.survey`; the others are those of :meth:`rmqtool.kernels.scan.Scan.walk`."""

    def group(self, into: Collector, queues: Table, groups: Table, rows: Column, entries: _Entries) -> tuple[int, int]:
        """Tell records apart by topic and queue id.

        Args:
            queues: room for as many queues as topics times the range of queue ids can be.
            groups: gets of each queue that has records: where they end, whether they are steady.
            rows, entries: get the record and the consume-queue entry of those that are queued, in the order of queues.

        Returns:
            How many queues have records, or -1 where there is no room; how many records are queued.
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

    def group(self, into: Collector, queues: Table, groups: Table, rows: Column, entries: _Entries) -> tuple[int, int]:
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


def choose_code(code: Code | None) -> Dispatch:
    """The entry points by compiled or by plain code."""
    if is_compiled(code):
        return _Compiled()
    return plain


class Room:
    """What one batch lies in.

    Args:
        capacity: records at most.
        home: where it waits for the next batch from :meth:`release` on.

    Attributes:
        table: int64 of shape (:data:`FIELDS`, capacity).
        keys: int64 of shape (2, room): row and hash of each index key.
        numbers: int64 of shape (fields of :class:`BatchNumbers`, capacity).
        rows, entries: of those that get a consume-queue entry, apart by queue: row, and entry (of CQ_ENTRY.dtype).
    """

    def __init__(self, capacity: int, home: "deque[Room] | None" = None) -> None:
        self._home = home
        self.table: Table = np.empty((len(FIELDS), capacity), np.int64)
        self.keys: Table = np.empty((2, _KEYS_PER_ROW * capacity + 0x8000), np.int64)
        self.numbers: Table = np.empty((len(BatchNumbers._fields), capacity), np.int64)
        self.rows: Column = np.empty(capacity, np.int64)
        self.entries = np.empty(capacity, CQ_ENTRY.dtype)

    def release(self) -> None:
        """Nobody looks at it any more: new memory costs as much time as what is put there."""
        if self._home is not None:
            self._home.append(self)


class DispatchColumns:
    """What dispatch needs to know of records, collected in columns.

    Args:
        capacity: records at most.
        delays: milliseconds of delay levels 1, 2, ...; empty where deliver times are not to be worked out.
        light: leave records with further queues to the caller.
        tags: tags are keys too.
        spare: has rooms of that capacity that can be used again, or not yet.
        code: which code collects them.

    Attributes:
        room: what they lie in.
    """

    def __init__(
        self,
        capacity: int,
        delays: list[int],
        *,
        light: bool,
        tags: bool = False,
        spare: "deque[Room] | None" = None,
        code: Code | None = None,
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
        """The one that was left last, of which most is in the processor's cache; else a new one."""
        room = None
        if self._spare is not None:
            with suppress(IndexError):
                room = self._spare.pop()
        if room is None or len(room.rows) != self._capacity:
            room = Room(self._capacity, self._spare)
        return room

    @property
    def records(self) -> int:
        """How many are collected."""
        return self._into.records

    @property
    def topics(self) -> list[tuple[int, int]]:
        """(position, length) in the buffer of each topic, by number."""
        return [(int(at), int(length)) for at, length in self._into.topics[:2, : self._into.topic_count].T]

    def add(self, buffer: Buffer, rows: Table, first: int, count: int) -> tuple[int, int]:
        """Take rows ``first`` to ``count`` of a walker's table; returns (next row, why it stopped there).

        ``DONE``: all are taken. ``FULL``: clear, and go on with that row. ``ODD``: the row is taken as the last one
        but has neither its tags code nor keys; complete it, and go on with the row after it.
        """
        return self._code.take(Memory(buffer), rows, first, count, self._into)

    def survey(self, walker: Walker, at: int, limit: int, stop: int) -> tuple[int, int]:
        """Walk from ``at`` on and take what is found; returns (position, why it stopped there).

        ``DONE``: no record begins there, or it is at ``stop`` or behind it. ``FULL`` and ``ODD``: the record that
        begins there, as :meth:`add` tells of rows. Other arguments and errors are those of
        :meth:`rmqtool.kernels.scan.Walker.walk`.
        """
        stop = walker.bound(at, limit, stop)
        return self._code.survey(walker.memory, at, limit, stop, walker.crc, walker.tables, self._into)

    def complete(self, tags_code: int, key_hashes: list[int]) -> None:
        """Give the last row what :meth:`add` left out."""
        into = self._into
        row, key = into.records - 1, into.key_count
        into.table[FIELDS.index("tags_code"), row] = tags_code
        into.keys[0, key : key + len(key_hashes)] = row
        into.keys[1, key : key + len(key_hashes)] = key_hashes
        into.key_count += len(key_hashes)

    def take(self) -> tuple[Table, Column, Column]:
        """(table, key rows, key hashes) so far: views of the room."""
        records, keys = self._into.records, self._into.key_count
        return self.room.table[:, :records], self.room.keys[0, :keys], self.room.keys[1, :keys]

    @property
    def numbers(self) -> BatchNumbers:
        """Of those records that are inner batches: views of the room."""
        return BatchNumbers(*self.room.numbers[:, : self._into.number_count])

    def group(self) -> Grouped | None:
        """The records that get a consume-queue entry, apart by queue; None for very many queues."""
        room = self.room
        groups = np.empty((min(self.records, _MOST_QUEUES), 2), np.int64)
        count, total = self._code.group(self._into, self._queues, groups, room.rows, room.entries)
        if count < 0:
            return None
        stops, steady = groups[:count, 0].copy(), groups[:count, 1].astype(np.bool_)
        return Grouped(stops, steady, room.rows[:total], room.entries[:total])

    def clear(self) -> None:
        """Start again in another room."""
        into = self._into
        into.slots[into.topics[TOPIC_FIELDS.index("slot"), : into.topic_count]] = 0  # few, nearly always
        into.records = into.key_count = into.topic_count = into.number_count = 0
        self.room = self._free_room()
        into.table, into.keys, into.numbers = self.room.table, self.room.keys, self.room.numbers
