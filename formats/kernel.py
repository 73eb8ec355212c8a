"""Commit-log records in bulk: the checks of :func:`formats.message.read`, compiled, and a column for each field.

What this accepts, ``read`` accepts, and the other way round (tests/formats/test_kernel.py). Where it stops it gives no
reason: ``read`` does, asked at that place.
"""

from typing import Any, NamedTuple

import numpy as np

from formats.jit import (
    Held,
    address_of,
    byte_at,
    expect_read,
    i32_at,
    i64_at,
    kernel,
    part,
    trailing_zeros,
    u16_at,
    word_at,
)
from formats.kernel_crc import crc_at, fast_function
from formats.layouts.codes import BORN_V6, MAGIC_V1, MAGIC_V2, STORE_V6
from formats.layouts.derived import HEAD_V4_V4, HEAD_V4_V6, HEAD_V6_V4
from formats.message.properties import DELAY
from formats.message.read import MIN_SIZE, SCHEDULE_TOPIC

Column = np.ndarray[Any, np.dtype[np.int64]]
Table = np.ndarray[Any, np.dtype[np.int64]]


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


(
    AT,
    TOTAL_SIZE,
    MAGIC,
    BODY_CRC,
    QUEUE_ID,
    FLAG,
    QUEUE_OFFSET,
    PHYSICAL_OFFSET,
    SYS_FLAG,
    BORN_TIMESTAMP,
    STORE_TIMESTAMP,
    RECONSUME_TIMES,
    PREPARED_OFFSET,
    BODY_AT,
    BODY_LENGTH,
    TOPIC_AT,
    TOPIC_LENGTH,
    PROPERTIES_AT,
    PROPERTIES_LENGTH,
) = range(len(Rows._fields))

_IN_HEAD = HEAD_V4_V4.offsets
_HEAD_SIZE = HEAD_V4_V4.size
_BORN_WIDER = HEAD_V6_V4.size - _HEAD_SIZE
_STORE_WIDER = HEAD_V4_V6.size - _HEAD_SIZE
_AT_MAGIC = _IN_HEAD["magic"]
_AT_BODY_CRC = _IN_HEAD["body_crc"]
_AT_QUEUE_ID = _IN_HEAD["queue_id"]
_AT_FLAG = _IN_HEAD["flag"]
_AT_QUEUE_OFFSET = _IN_HEAD["queue_offset"]
_AT_PHYSICAL_OFFSET = _IN_HEAD["physical_offset"]
_AT_SYS_FLAG = _IN_HEAD["sys_flag"]
_AT_BORN_TIMESTAMP = _IN_HEAD["born_timestamp"]
_AT_STORE_TIMESTAMP = _IN_HEAD["store_timestamp"]  # moved by a wider born host
# these are counted from the head's end, which both hosts move
_BACK_RECONSUME_TIMES = _HEAD_SIZE - _IN_HEAD["reconsume_times"]
_BACK_PREPARED_OFFSET = _HEAD_SIZE - _IN_HEAD["prepared_transaction_offset"]
_BACK_BODY_LENGTH = _HEAD_SIZE - _IN_HEAD["body_length"]

_SCHEDULE_TOPIC = np.frombuffer(SCHEDULE_TOPIC, np.uint8)
_DELAY = np.frombuffer(DELAY.encode() + b"\x01", np.uint8)
_LOWS, _HIGHS = 0x0101010101010101, 0x8080808080808080
_AHEAD = 4096  # bytes by which what lies behind short records is fetched before its turn
_SHORT = 1024  # bytes of a record; the processor itself fetches a long one's while its first ones are looked at
_LINE = 64
_PER_LINE = _LINE // np.dtype(np.int64).itemsize
_UNWRITTEN = 1 << 16  # zeros
_MAX_INT_TEXT = 63  # longer texts are no number to formats.message.read.is_java_int


@part
def find_byte(at: Any, stop: Any, byte: Any) -> Any:
    """Address of the first such byte in [at, stop), or ``stop``."""
    ones = np.uint64(_LOWS)
    pattern = np.uint64(byte) * ones
    while stop - at >= 8:
        word = word_at(at) ^ pattern
        hits = (word - ones) & ~word & np.uint64(_HIGHS)
        if hits != 0:
            return at + (trailing_zeros(hits) >> 3)
        at += 8
    while at < stop and byte_at(at) != byte:
        at += 1
    return at


@part
def begins(at: Any, stop: Any, text: Any) -> Any:
    """Whether [at, stop) begins with a text and has more after it."""
    if stop - at <= len(text):
        return False
    for i in range(len(text)):  # noqa: SIM110 (compiled: no generators)
        if byte_at(at + i) != text[i]:
            return False
    return True


@part
def java_int(at: Any, stop: Any) -> Any:
    """(whether it is one, value) of the text in [at, stop), as :func:`formats.message.read.is_java_int` tells."""
    if stop - at > _MAX_INT_TEXT:
        return False, 0
    sign = byte_at(at) if at < stop else 0
    if sign == ord("-") or sign == ord("+"):
        at += 1
    value = 0
    for i in range(at, stop):
        digit = byte_at(i) - ord("0")
        if digit < 0 or digit > 9:
            return False, 0
        value = min(value * 10 + digit, 1 << 32)
    if sign == ord("-"):
        value = -value
    return at < stop and -(1 << 31) <= value < 1 << 31, value


@part
def _delay_is_number(at: Any, stop: Any) -> Any:
    """Whether the properties in [at, stop) have no delay level, or a number; of equal names the last counts."""
    good = True
    while at < stop:
        item_end = find_byte(at, stop, 2)
        if begins(at, item_end, _DELAY):
            good = java_int(at + len(_DELAY), item_end)[0]
        at = item_end + 1
    return good


@part
def is_schedule(at: Any, length: Any) -> Any:
    if length != len(_SCHEDULE_TOPIC):
        return False
    for i in range(length):  # noqa: SIM110 (compiled: no generators)
        if byte_at(at + i) != _SCHEDULE_TOPIC[i]:
            return False
    return True


@part
def walk_records(base: Any, at: Any, limit: Any, stop: Any, crc: Any, crc_function: Any, out: Any) -> Any:
    """(records found, where the next one would begin); a row of ``out`` for each, with the fields of :class:`Rows`."""
    count, capacity = 0, out.shape[0]
    while count < capacity and at < stop:
        if limit - at < MIN_SIZE:
            break
        here = base + at
        size, magic = i32_at(here), i32_at(here + _AT_MAGIC)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size > limit - at or size < MIN_SIZE:
            break
        sys_flag = i32_at(here + _AT_SYS_FLAG)
        store_wider = _BORN_WIDER if sys_flag & BORN_V6 else 0
        body_at = at + _HEAD_SIZE + store_wider + (_STORE_WIDER if sys_flag & STORE_V6 else 0)
        if body_at + 3 > limit:
            break
        body_length = max(i32_at(base + body_at - _BACK_BODY_LENGTH), 0)
        topic_at = body_at + body_length
        if topic_at + 3 > limit:
            break
        if magic == MAGIC_V1:
            topic_length = byte_at(base + topic_at)
            topic_at += 1
            if topic_length > 0x7F:
                break
        else:
            topic_length = u16_at(base + topic_at)
            topic_at += 2
            if topic_length > 0x7FFF:
                break
        properties_at = topic_at + topic_length + 2
        if properties_at > limit:
            break
        properties_length = u16_at(base + properties_at - 2)
        if properties_length > 0x7FFF:
            properties_length = 0
        if properties_at + properties_length != at + size:
            break
        body_crc = i32_at(here + _AT_BODY_CRC)
        # a page of the file may lie anywhere in memory: the processor itself looks no further ahead than the page's end
        if size < _SHORT:
            for soon in range(_AHEAD, _AHEAD + size, _LINE):
                expect_read(here + soon)
        if crc and body_length and crc_at(base + body_at, body_length, crc_function) & 0x7FFFFFFF != body_crc:
            break
        if is_schedule(base + topic_at, topic_length) and not _delay_is_number(base + properties_at, here + size):
            break
        out[count, AT] = at
        out[count, TOTAL_SIZE] = size
        out[count, MAGIC] = magic
        out[count, BODY_CRC] = body_crc
        out[count, QUEUE_ID] = i32_at(here + _AT_QUEUE_ID)
        out[count, FLAG] = i32_at(here + _AT_FLAG)
        out[count, QUEUE_OFFSET] = i64_at(here + _AT_QUEUE_OFFSET)
        out[count, PHYSICAL_OFFSET] = i64_at(here + _AT_PHYSICAL_OFFSET)
        out[count, SYS_FLAG] = sys_flag
        out[count, BORN_TIMESTAMP] = i64_at(here + _AT_BORN_TIMESTAMP)
        out[count, STORE_TIMESTAMP] = i64_at(here + _AT_STORE_TIMESTAMP + store_wider)
        out[count, RECONSUME_TIMES] = i32_at(base + body_at - _BACK_RECONSUME_TIMES)
        out[count, PREPARED_OFFSET] = i64_at(base + body_at - _BACK_PREPARED_OFFSET)
        out[count, BODY_AT] = body_at
        out[count, BODY_LENGTH] = body_length
        out[count, TOPIC_AT] = topic_at
        out[count, TOPIC_LENGTH] = topic_length
        out[count, PROPERTIES_AT] = properties_at
        out[count, PROPERTIES_LENGTH] = properties_length
        count += 1
        at += size
    return count, at


@kernel
def _walk(base: Any, at: Any, limit: Any, stop: Any, crc: Any, crc_function: Any, out: Any) -> Any:
    return walk_records(base, at, limit, stop, crc, crc_function, out)


@kernel
def _seek(base: Any, at: Any, stop: Any, physical_offset: Any) -> Any:
    zeros = 0
    while at < stop and zeros < _UNWRITTEN:
        here = base + at
        if word_at(here + _AT_MAGIC) == 0:
            at += 8  # no magic begins in any of these
            zeros += 8
            continue
        zeros = 0
        magic = i32_at(here + _AT_MAGIC)
        if magic in (MAGIC_V1, MAGIC_V2) and i64_at(here + _AT_PHYSICAL_OFFSET) == physical_offset + at:
            return at
        at += 1
    return stop


def spaced(rows: int) -> int:
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

    Attributes:
        table: what :meth:`walk` writes to, int64 of shape (fields of :class:`Rows`, capacity).
    """

    def __init__(self, buffer: Any, capacity: int = 1, *, crc: bool = True, tables: bool = False) -> None:
        self.address, self._keep = address_of(buffer)
        self.length = memoryview(buffer).nbytes
        self.table: Table = np.empty((len(Rows._fields), capacity), np.int64)
        self._held = Held(self.table.T)
        self._crc = int(crc)
        self._crc_function = 0 if tables else fast_function()

    def walk(self, at: int, limit: int, stop: int | None = None) -> tuple[Rows, int]:
        """(records from ``at`` on, where the next one would begin); the records are views of :attr:`table`.

        It ends when the table is full, at the first record that begins at ``stop`` or later, and at the first place
        where :func:`formats.message.read` finds no record.

        Args:
            limit: where the readable part of the buffer ends, as for ``read``.

        Raises:
            ValueError: a position outside the buffer.
        """
        count, at = _walk(*self.task(at, limit, stop), self._held)
        return Rows(*self.table[:, :count]), at

    def seek(self, at: int, stop: int, physical_offset: int) -> int:
        """Where in [at, stop) bytes have a record's magic and say their own position; ``stop`` if nowhere.

        Behind many zeros it is not looked on: nearly always they are what is not written yet.

        Args:
            physical_offset: of the buffer's first byte.

        Raises:
            ValueError: a position outside the buffer.
        """
        if at < 0 or stop > self.length:
            raise ValueError(f"bytes {at} to {stop} of a buffer of {self.length}")
        found = int(_seek(self.address, at, min(stop, self.length - _HEAD_SIZE), physical_offset))
        return found if found < self.length - _HEAD_SIZE else stop

    def task(self, at: int, limit: int, stop: int | None = None) -> tuple[int, int, int, int, int, int]:
        """The arguments of :func:`walk_records` for a walk, but for ``out``; raises what :meth:`walk` raises."""
        if at < 0 or limit > self.length:
            raise ValueError(f"bytes {at} to {limit} of a buffer of {self.length}")
        stop = limit if stop is None else min(stop, limit)
        return self.address, at, limit, stop, self._crc, self._crc_function
