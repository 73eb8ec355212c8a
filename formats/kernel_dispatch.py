"""What dispatch needs to know of records, compiled: tag hash, deliver time, index keys, topics, queue entries.

Equal to what :mod:`formats.message.properties`, :func:`formats.primitives.java_hash` and
:func:`formats.index.key_hash` give. Text that is no well-formed UTF-8 and light queues are left to
them: both are rare, and their rules long.
"""

from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np

from formats.jit import (
    Held,
    address_of,
    expect_read,
    i32_at,
    kernel,
    part,
    store_i32,
    store_i64,
    trailing_zeros,
    word_at,
)
from formats.kernel import (
    AT,
    PHYSICAL_OFFSET,
    PROPERTIES_AT,
    PROPERTIES_LENGTH,
    QUEUE_ID,
    QUEUE_OFFSET,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOPIC_AT,
    TOPIC_LENGTH,
    TOTAL_SIZE,
    Column,
    Rows,
    Table,
    Walker,
    begins,
    is_schedule,
    java_int,
    walk_records,
)
from formats.kernel_text import MARKED, first_in, hash_on, index_hash, last_word, marks_in, same_text, signed
from formats.layouts.derived import CQ_ENTRY
from formats.message import properties
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE, TRANSACTION_ROLLBACK

FIELDS = ("physical_offset", "size", "queue_id", "queue_offset", "store_timestamp", "tags_code", "queued", "topic")
DONE, FULL, ODD = range(3)
_PHYSICAL, _SIZE, _QUEUE, _ORDINAL, _STORED, _TAGS_CODE, _QUEUED, _TOPIC = range(len(FIELDS))
_TOPIC_FIELDS = 6
_T_AT, _T_LENGTH, _T_MIX, _T_HASH, _T_GOOD, _T_SLOT = range(_TOPIC_FIELDS)  # _T_HASH: Java's, of the topic and a '#'
_KEYS_PER_ROW = 4
_QUEUE_FIELDS = 3
_Q_NEXT, _Q_LAST, _Q_STEADY = range(_QUEUE_FIELDS)  # place of the next record, the last record, as grouped() tells
_MAX_LONG = 2**63 - 1
_MOST_QUEUES = 1 << 16  # topics of a batch times the range of its queue ids
_ENTRY_SIZE = CQ_ENTRY.size
_AT_PHYSICAL, _AT_SIZE, _AT_TAGS_CODE = (CQ_ENTRY.offsets[name] for name in ("physical_offset", "size", "tags_code"))
_SOON = 6  # records by which the texts of large ones, each in pages of its own, are fetched before their turn
_STEP = 256  # records that are checked, then read: their bytes stay in the processor's cache meanwhile
_MIX = 0x2545F4914F6CDD1D


def _named(name: str) -> "tuple[np.ndarray[Any, np.dtype[np.uint8]], int]":
    """The bytes that an item of this name begins with, and the first four as :func:`i32_at` reads them."""
    text = name.encode() + b"\x01"
    return np.frombuffer(text, np.uint8), int.from_bytes(text[:4], "big", signed=True)


_TAGS, _TAGS_WORD = _named(properties.TAGS)
_KEYS, _KEYS_WORD = _named(properties.KEYS)
_UNIQ_KEY, _UNIQ_KEY_WORD = _named(properties.UNIQ_KEY)
_DELAY, _DELAY_WORD = _named(properties.DELAY)
_MULTI, _MULTI_WORD = _named(properties.MULTI_DISPATCH)


@part
def _topic_number(base: Any, at: Any, length: Any, topics: Any, slots: Any, state: Any) -> Any:
    """Number of a topic in this batch, given at its first appearance."""
    mixed = np.int64(length)
    start, stop = base + at, base + at + length
    while stop - start >= 8:
        mixed = (mixed ^ np.int64(word_at(start))) * _MIX
        mixed ^= mixed >> 29
        start += 8
    if start < stop:
        mixed = (mixed ^ last_word(stop, stop - start)) * _MIX
        mixed ^= mixed >> 29
    mask = len(slots) - 1
    slot = (mixed ^ mixed >> 32) & mask
    while slots[slot]:
        number = slots[slot] - 1
        if (
            topics[_T_MIX, number] == mixed
            and topics[_T_LENGTH, number] == length
            and same_text(base + at, base + topics[_T_AT, number], length)
        ):
            return number
        slot = (slot + 1) & mask
    number = state[2]
    state[2] += 1
    slots[slot] = number + 1
    good, value = hash_on(0, base + at, base + at + length)
    topics[_T_AT, number], topics[_T_LENGTH, number], topics[_T_MIX, number] = at, length, mixed
    topics[_T_HASH, number], topics[_T_GOOD, number], topics[_T_SLOT, number] = value * 31 + ord("#"), good, slot
    return number


@part
def _take(
    base: Any,
    rows: Any,
    first: Any,
    count: Any,
    delays: Any,
    light: Any,
    table: Any,
    keys: Any,
    topics: Any,
    slots: Any,
    state: Any,
) -> Any:
    for i in range(first, count):
        row, key = state[0], state[1]
        # a key has at least one byte, so no record has more keys than bytes of properties
        if row >= table.shape[1] or keys.shape[1] - key < rows[i, PROPERTIES_LENGTH]:
            return i, FULL
        if i + _SOON < count:
            soon = base + rows[i + _SOON, TOPIC_AT]
            expect_read(soon)
            expect_read(soon + 64)
            expect_read(soon + 128)
        topic_at, topic_length = rows[i, TOPIC_AT], rows[i, TOPIC_LENGTH]
        topic = _topic_number(base, topic_at, topic_length, topics, slots, state)
        transaction = rows[i, SYS_FLAG] & TRANSACTION_MASK
        table[_PHYSICAL, row] = rows[i, PHYSICAL_OFFSET]
        table[_SIZE, row] = rows[i, TOTAL_SIZE]
        table[_QUEUE, row] = rows[i, QUEUE_ID]
        table[_ORDINAL, row] = rows[i, QUEUE_OFFSET]
        table[_STORED, row] = rows[i, STORE_TIMESTAMP]
        table[_QUEUED, row] = transaction in (TRANSACTION_NONE, TRANSACTION_COMMIT)
        table[_TOPIC, row] = topic
        state[0] += 1

        tags_at = tags_end = keys_at = keys_end = unique_at = unique_end = delay_at = delay_end = 0
        multi = False
        at = base + rows[i, PROPERTIES_AT]
        stop = at + rows[i, PROPERTIES_LENGTH]
        window, marks = at - MARKED, np.uint64(0)
        while at < stop:
            while marks == 0 and stop - window > MARKED:
                window += MARKED
                marks = marks_in(window, stop, 2)
            end = stop
            if marks != 0:
                end = window + trailing_zeros(marks)
                marks &= marks - np.uint64(1)
            word = i32_at(at) if end - at > 4 else 0
            if word == _TAGS_WORD and begins(at, end, _TAGS):
                tags_at, tags_end = at + len(_TAGS), end
            elif word == _KEYS_WORD and begins(at, end, _KEYS):
                keys_at, keys_end = at + len(_KEYS), end
            elif word == _UNIQ_KEY_WORD and begins(at, end, _UNIQ_KEY):
                unique_at, unique_end = at + len(_UNIQ_KEY), end
            elif word == _DELAY_WORD and begins(at, end, _DELAY):
                delay_at, delay_end = at + len(_DELAY), end
            elif word == _MULTI_WORD and begins(at, end, _MULTI):
                multi = True
            at = end + 1

        good, tags_code = hash_on(0, tags_at, tags_end)
        tags_code = signed(tags_code)
        if delay_at and is_schedule(base + topic_at, topic_length):
            level = min(java_int(delay_at, delay_end)[1], len(delays))
            if level > 0:
                tags_code = rows[i, STORE_TIMESTAMP] + delays[level - 1]
        table[_TAGS_CODE, row] = tags_code
        if transaction != TRANSACTION_ROLLBACK and (unique_at or keys_at):
            start = topics[_T_HASH, topic]
            good &= topics[_T_GOOD, topic] != 0
            if unique_at:
                fine, value = hash_on(start, unique_at, unique_end)
                good &= fine
                keys[0, key], keys[1, key] = row, index_hash(value)
                key += 1
            while keys_at < keys_end:
                end = first_in(keys_at, keys_end, ord(" "))
                if end > keys_at:
                    fine, value = hash_on(start, keys_at, end)
                    good &= fine
                    keys[0, key], keys[1, key] = row, index_hash(value)
                    key += 1
                keys_at = end + 1
        if not good or (light and multi):
            return i, ODD
        state[1] = key
    return count, DONE


@kernel
def _dispatch(base: Any, rows: Any, first: Any, count: Any, *mine: Any) -> Any:
    return _take(base, rows, first, count, *mine)


@kernel
def _survey(base: Any, at: Any, limit: Any, stop: Any, crc: Any, crc_function: Any, rows: Any, *mine: Any) -> Any:
    while True:
        count, following = walk_records(base, at, limit, stop, crc, crc_function, rows)
        if count == 0:
            return at, DONE
        row, why = _take(base, rows, 0, count, *mine)
        if why != DONE:
            return rows[row, AT], why
        at = following


@kernel
def _group(table: Any, count: Any, topics: Any, queues: Any, groups: Any, rows: Any, entries: Any) -> Any:
    low, high, total = np.int64(_MAX_LONG), np.int64(-_MAX_LONG), np.int64(0)
    for i in range(count):
        queued = table[_QUEUED, i]
        low = min(low, table[_QUEUE, i] if queued else low)
        high = max(high, table[_QUEUE, i] if queued else high)
        total += queued
    if total == 0:
        return 0, 0
    span = high - low + 1
    if span * topics > len(queues):
        return -1, total
    for queue in range(span * topics):
        queues[queue, _Q_NEXT], queues[queue, _Q_LAST], queues[queue, _Q_STEADY] = 0, -1, 1
    for i in range(count):
        if table[_QUEUED, i]:
            queues[table[_TOPIC, i] * span + table[_QUEUE, i] - low, _Q_NEXT] += 1
    start = 0
    for queue in range(span * topics):
        start, queues[queue, _Q_NEXT] = start + queues[queue, _Q_NEXT], start
    for i in range(count):
        if table[_QUEUED, i]:
            queue = table[_TOPIC, i] * span + table[_QUEUE, i] - low
            place, last = queues[queue, _Q_NEXT], queues[queue, _Q_LAST]
            queues[queue, _Q_NEXT], queues[queue, _Q_LAST] = place + 1, i
            physical = table[_PHYSICAL, i]
            if last >= 0 and (physical <= table[_PHYSICAL, last] or table[_ORDINAL, i] - table[_ORDINAL, last] != 1):
                queues[queue, _Q_STEADY] = 0
            rows[place] = i
            at = entries + _ENTRY_SIZE * place
            store_i64(at + _AT_PHYSICAL, physical)
            store_i32(at + _AT_SIZE, table[_SIZE, i])
            store_i64(at + _AT_TAGS_CODE, table[_TAGS_CODE, i])
    found = 0
    for queue in range(span * topics):
        if queues[queue, _Q_LAST] >= 0:
            groups[found, 0], groups[found, 1] = queues[queue, _Q_NEXT], queues[queue, _Q_STEADY]
            found += 1
    return found, total


class Room:
    """What one batch lies in.

    Args:
        capacity: records at most.
        home: where it waits for the next batch from :meth:`release` on.

    Attributes:
        table: int64 of shape (:data:`FIELDS`, capacity).
        keys: int64 of shape (2, room): row and hash of each index key.
        rows, entries: of those that get a consume-queue entry, apart by queue: row, and entry (of CQ_ENTRY.dtype).
    """

    def __init__(self, capacity: int, home: "deque[Room] | None" = None) -> None:
        self._home = home
        self.table: Table = np.empty((len(FIELDS), capacity), np.int64)
        self.keys: Table = np.empty((2, _KEYS_PER_ROW * capacity + 0x8000), np.int64)
        self.rows: Column = np.empty(capacity, np.int64)
        self.entries = np.empty(capacity, CQ_ENTRY.dtype)

    def release(self) -> None:
        """Nobody looks at it any more: new memory costs as much time as what is put there."""
        if self._home is not None:
            self._home.append(self)


class Columns:
    """What dispatch needs to know of records, collected in columns.

    Args:
        capacity: records at most.
        delays: milliseconds of delay levels 1, 2, ...; empty where deliver times are not to be worked out.
        light: leave records with further queues to the caller.
        spare: has rooms of that capacity that can be used again, or not yet.

    Attributes:
        room: what they lie in.
    """

    def __init__(self, capacity: int, delays: list[int], *, light: bool, spare: "deque[Room] | None" = None) -> None:
        self._capacity, self._spare = capacity, spare
        self._topics: Table = np.empty((_TOPIC_FIELDS, capacity), np.int64)
        self._slots = np.zeros(1 << (2 * capacity - 1).bit_length(), np.int32)
        self._state = np.zeros(3, np.int64)
        self._queues: Table = np.empty((_MOST_QUEUES, _QUEUE_FIELDS), np.int64)
        self._settings = Held(np.array(delays, np.int64)), Held(light)
        self._own = Held(self._topics), Held(self._slots), Held(self._state)
        self._step = Held(np.empty((_STEP, len(Rows._fields)), np.int64))
        self._move()

    def _move(self) -> None:
        """Into a room that is free: the one that was left last, of which most is in the processor's cache."""
        room = None
        if self._spare is not None:
            with suppress(IndexError):
                room = self._spare.pop()
        if room is None or len(room.rows) != self._capacity:
            room = Room(self._capacity, self._spare)
        self.room = room
        self._mine = *self._settings, Held(self.room.table), Held(self.room.keys), *self._own

    @property
    def records(self) -> int:
        """How many are collected."""
        return int(self._state[0])

    @property
    def topics(self) -> list[tuple[int, int]]:
        """(position, length) in the buffer of each topic, by number."""
        return [(int(at), int(length)) for at, length in self._topics[:2, : self._state[2]].T]

    def add(self, buffer: Any, rows: Table, first: int, count: int) -> tuple[int, int]:
        """Take rows ``first`` to ``count`` of a walker's table; returns (next row, why it stopped there).

        ``DONE``: all are taken. ``FULL``: clear, and go on with that row. ``ODD``: the row is taken as the last one
        but has neither its tags code nor keys; complete it, and go on with the row after it.
        """
        address, _keep = address_of(buffer)
        row, why = _dispatch(address, rows.T, first, count, *self._mine)
        return int(row), int(why)

    def survey(self, walker: Walker, at: int, limit: int, stop: int) -> tuple[int, int]:
        """Walk from ``at`` on and take what is found; returns (position, why it stopped there).

        ``DONE``: no record begins there, or it is at ``stop`` or behind it. ``FULL`` and ``ODD``: the record that
        begins there, as :meth:`add` tells of rows. Other arguments and errors are those of
        :meth:`formats.kernel.Walker.walk`.
        """
        at, why = _survey(*walker.task(at, limit, stop), self._step, *self._mine)
        return int(at), int(why)

    def complete(self, tags_code: int, key_hashes: list[int]) -> None:
        """Give the last row what :meth:`add` left out."""
        row, key = int(self._state[0]) - 1, int(self._state[1])
        self.room.table[FIELDS.index("tags_code"), row] = tags_code
        self.room.keys[0, key : key + len(key_hashes)] = row
        self.room.keys[1, key : key + len(key_hashes)] = key_hashes
        self._state[1] += len(key_hashes)

    def taken(self) -> tuple[Table, Column, Column]:
        """(table, key rows, key hashes) so far: views of the room."""
        count, keys = int(self._state[0]), int(self._state[1])
        return self.room.table[:, :count], self.room.keys[0, :keys], self.room.keys[1, :keys]

    def grouped(self) -> tuple[Any, ...] | None:
        """The records that get a consume-queue entry, apart by topic and queue id, in order; None for very many queues.

        Returns:
            Where each group ends; whether its physical offsets grow and its queue offsets count up, bool; then of
            each record, as views of the room: row, entry.
        """
        count, room = self.records, self.room
        groups = np.empty((min(count, _MOST_QUEUES), 2), np.int64)
        numbers = count, int(self._state[2])
        found, total = _group(room.table, *numbers, self._queues, groups, room.rows, room.entries.ctypes.data)
        if found < 0:
            return None
        stops, steady = groups[:found, 0].copy(), groups[:found, 1].astype(np.bool_)
        return stops, steady, room.rows[:total], room.entries[:total]

    def clear(self) -> None:
        """Begin anew in another room."""
        self._slots[self._topics[_T_SLOT, : self._state[2]]] = 0  # few, nearly always
        self._state[:] = 0
        self._move()
