"""Records written in bulk: what :func:`formats.message.build.compose` and ``pack`` make of one message, compiled.

Source: store.CommitLog.DefaultAppendMessageCallback (4.9.8); store-formats 2.1, 2.5. Queue offsets are given out here
too, in the order of the messages.
"""

from typing import Any, NamedTuple

import numpy as np

from formats.errors import BadLength
from formats.jit import (
    Held,
    address_of,
    byte_at,
    copy_bytes,
    i32_at,
    kernel,
    store_byte,
    store_i16,
    store_i32,
    store_i64,
    u16_at,
)
from formats.kernel import find_byte
from formats.kernel_crc import crc_at, fast_function
from formats.layouts.codes import BORN_V6, MAGIC_V1, MAGIC_V2, STORE_V6
from formats.layouts.derived import BATCH_ITEM_HEAD, HEAD_V4_V4, HEAD_V6_V4
from formats.message.build import BLANK_SIZE, MAX_PROPERTIES, MAX_TOPIC
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE

Column = np.ndarray[Any, np.dtype[np.int64]]
Table = np.ndarray[Any, np.dtype[np.int64]]


class Columns(NamedTuple):
    """Messages to be written, a column of int64 for each field. ``_at`` columns are addresses in memory."""

    topic: Column  # row of the texts' table
    queue: Column  # position in the table of next queue offsets
    queue_id: Column
    flag: Column
    sys_flag: Column  # with the bits of the hosts' widths
    born_timestamp: Column
    store_timestamp: Column
    born_host: Column  # row of the hosts' table
    store_host: Column
    reconsume_times: Column
    prepared_transaction_offset: Column
    body_at: Column
    body_length: Column
    properties_at: Column
    properties_length: Column


(
    TOPIC,
    QUEUE,
    QUEUE_ID,
    FLAG,
    SYS_FLAG,
    BORN_TIMESTAMP,
    STORE_TIMESTAMP,
    BORN_HOST,
    STORE_HOST,
    RECONSUME_TIMES,
    PREPARED_OFFSET,
    BODY_AT,
    BODY_LENGTH,
    PROPERTIES_AT,
    PROPERTIES_LENGTH,
) = range(len(Columns._fields))
TEXT_AT, TEXT_LENGTH, PORT = range(3)  # columns of the topics' and the hosts' tables
OUT_PHYSICAL, OUT_SIZE, OUT_QUEUE_OFFSET = range(3)  # rows of what is answered

_IN_HEAD = HEAD_V4_V4.offsets
_HEAD_SIZE = HEAD_V4_V4.size
_V4, _V6 = 4, 4 + HEAD_V6_V4.size - HEAD_V4_V4.size
_AT_MAGIC = _IN_HEAD["magic"]
_AT_CRC = _IN_HEAD["body_crc"]
_AT_QUEUE_ID = _IN_HEAD["queue_id"]
_AT_FLAG = _IN_HEAD["flag"]
_AT_QUEUE_OFFSET = _IN_HEAD["queue_offset"]
_AT_PHYSICAL = _IN_HEAD["physical_offset"]
_AT_SYS_FLAG = _IN_HEAD["sys_flag"]
_AT_BORN_TIMESTAMP = _IN_HEAD["born_timestamp"]
_AT_BORN_HOST = _IN_HEAD["born_address"]
_LONGEST_V1 = MAX_TOPIC[1]
_SEPARATOR = 2
_BITS_OF_LENGTH = MAX_PROPERTIES.bit_length()  # one of four results has two numbers: there are no more
_INNER_WORD = int.from_bytes(b"INNE", "big", signed=True)
_ITEM_HEAD = BATCH_ITEM_HEAD.size
_AT_ITEM_FLAG, _AT_ITEM_BODY_LENGTH = (BATCH_ITEM_HEAD.offsets[name] for name in ("flag", "body_length"))


@kernel
def _encode(
    out: Any,
    capacity: Any,
    room: Any,
    physical: Any,
    first: Any,
    table: Any,
    topics: Any,
    hosts: Any,
    following: Any,
    answer: Any,
    crc_function: Any,
    more_at: Any,
    more_length: Any,
    stop: Any,
) -> Any:
    at = 0
    row = first
    while row < stop:
        sys_flag = table[SYS_FLAG, row]
        born = _V6 if sys_flag & BORN_V6 else _V4
        store = _V6 if sys_flag & STORE_V6 else _V4
        topic_at, topic_length = topics[table[TOPIC, row], TEXT_AT], topics[table[TOPIC, row], TEXT_LENGTH]
        long_topic = topic_length > _LONGEST_V1
        body_length, own_length = table[BODY_LENGTH, row], table[PROPERTIES_LENGTH, row]
        own_at = table[PROPERTIES_AT, row]
        apart = 1 if own_length and more_length and byte_at(own_at + own_length - 1) != _SEPARATOR else 0
        properties_length = own_length + apart + more_length
        head = _HEAD_SIZE - 2 * _V4 + born + store
        size = head + body_length + (2 if long_topic else 1) + topic_length + 2 + properties_length
        if at + size > capacity or at + size + BLANK_SIZE > room:
            break
        here = out + at
        transaction = sys_flag & TRANSACTION_MASK
        queue_offset = 0
        if transaction in (TRANSACTION_NONE, TRANSACTION_COMMIT):
            queue_offset = following[table[QUEUE, row]]
            following[table[QUEUE, row]] = queue_offset + 1
        body_at = here + head
        crc = 0
        if body_length:
            crc = crc_at(table[BODY_AT, row], body_length, crc_function) & 0x7FFFFFFF
        store_i32(here, size)
        store_i32(here + _AT_MAGIC, MAGIC_V2 if long_topic else MAGIC_V1)
        store_i32(here + _AT_CRC, crc)
        store_i32(here + _AT_QUEUE_ID, table[QUEUE_ID, row])
        store_i32(here + _AT_FLAG, table[FLAG, row])
        store_i64(here + _AT_QUEUE_OFFSET, queue_offset)
        store_i64(here + _AT_PHYSICAL, physical + at)
        store_i32(here + _AT_SYS_FLAG, sys_flag)
        store_i64(here + _AT_BORN_TIMESTAMP, table[BORN_TIMESTAMP, row])
        here += _AT_BORN_HOST
        host = table[BORN_HOST, row]
        copy_bytes(here, hosts[host, TEXT_AT], born)
        store_i32(here + born, hosts[host, PORT])
        here += born + 4
        store_i64(here, table[STORE_TIMESTAMP, row])
        here += 8
        host = table[STORE_HOST, row]
        copy_bytes(here, hosts[host, TEXT_AT], store)
        store_i32(here + store, hosts[host, PORT])
        here += store + 4
        store_i32(here, table[RECONSUME_TIMES, row])
        store_i64(here + 4, table[PREPARED_OFFSET, row])
        store_i32(here + 12, body_length)
        copy_bytes(body_at, table[BODY_AT, row], body_length)
        here = body_at + body_length
        if long_topic:
            store_i16(here, topic_length)
            here += 2
        else:
            store_byte(here, topic_length)
            here += 1
        copy_bytes(here, topic_at, topic_length)
        here += topic_length
        store_i16(here, properties_length)
        copy_bytes(here + 2, own_at, own_length)
        if apart:
            store_byte(here + 2 + own_length, _SEPARATOR)
        copy_bytes(here + 2 + own_length + apart, more_at, more_length)
        answer[OUT_PHYSICAL, row] = physical + at
        answer[OUT_SIZE, row] = size
        answer[OUT_QUEUE_OFFSET, row] = queue_offset
        at += size
        row += 1
    return row, at


@kernel
def _items(start: Any, length: Any, more_length: Any, table: Any) -> Any:
    at, row, total, longest, odd = 0, 0, 0, 0, 0
    while at < length and row < table.shape[1]:
        if length - at < _ITEM_HEAD + 2:
            return -1, at, 0, 0
        body_length = i32_at(start + at + _AT_ITEM_BODY_LENGTH)
        if body_length < 0 or body_length > length - at - _ITEM_HEAD - 2:
            return -1, at, 0, 0
        properties_at = at + _ITEM_HEAD + body_length + 2
        properties_length = u16_at(start + properties_at - 2)
        too_long = properties_length > 0x7FFF or properties_length > length - properties_at
        if too_long or i32_at(start + at) != properties_at + properties_length - at:
            return -1, at, 0, 0
        table[FLAG, row] = i32_at(start + at + _AT_ITEM_FLAG)
        table[BODY_AT, row] = start + at + _ITEM_HEAD
        table[BODY_LENGTH, row] = body_length
        table[PROPERTIES_AT, row] = start + properties_at
        table[PROPERTIES_LENGTH, row] = properties_length
        name, stop = start + properties_at, start + properties_at + properties_length
        while stop - name > 4:
            if i32_at(name) == _INNER_WORD:
                odd += 1
            name = find_byte(name, stop, _SEPARATOR) + 1
        at = properties_at + properties_length
        total += body_length + properties_length + more_length
        longest = max(longest, properties_length)
        if properties_length and more_length and byte_at(start + at - 1) != _SEPARATOR:
            total += 1
        row += 1
    return row, at, total, longest | odd << _BITS_OF_LENGTH


def read_batch(body: bytes, more_length: int, table: Table | Held) -> tuple[int, int, int, int, Any]:
    """Find the messages of a batch in the form in which clients send it (:func:`formats.message.bodies.build_batch`).

    Args:
        more_length: of the properties that are put behind those of every message.
        table: columns as :class:`Columns` has them, of which flag, body and properties are filled.

    Returns:
        The number of messages, -1 when the table is too short for them; bytes of all bodies and properties as they will
        be stored; bytes of the longest properties as they are; how many properties have names that begin as those do
        which brokers take for numbers (``INNER_``); and what keeps the addresses valid.

    Raises:
        BadLength: the batch does not read as messages.
    """
    address, keep = address_of(body)
    rows, at, total, found = _items(address, len(body), more_length, table)
    if rows < 0:
        raise BadLength(int(at), "no message of a batch")
    return (
        (int(rows) if at == len(body) else -1),
        int(total),
        int(found) & MAX_PROPERTIES,
        int(found) >> _BITS_OF_LENGTH,
        keep,
    )


def text_table(texts: list[bytes], ports: list[int] | None = None) -> tuple[Table, Any]:
    """(address, length, port) of each text, shape (texts, 3), and what keeps the addresses valid."""
    joined = b"".join(texts) or b"\0"
    address, keep = address_of(joined)
    table = np.zeros((max(len(texts), 1), 3), np.int64)
    at = 0
    for row, text in enumerate(texts):
        table[row] = address + at, len(text), ports[row] if ports is not None else 0
        at += len(text)
    return table, (joined, keep)


class Encoder:
    """Writes messages into a buffer, record after record.

    Args:
        table: :class:`Columns` as one array, shape (fields, messages).
        topics, hosts: as :func:`text_table` gives them.
        following: next queue offset of each queue; counted up.

    Attributes:
        answer: physical offset, size and queue offset of each message, shape (3, messages).
    """

    def __init__(self, table: Table, topics: Table, hosts: Table, following: Column) -> None:
        self._messages = table.shape[1]
        self.answer: Table = np.zeros((3, table.shape[1]), np.int64)
        self._held: tuple[Any, ...] = tuple(map(Held, (table, topics, hosts, following, self.answer)))
        self._crc_function = fast_function()

    def encode(
        self,
        out: bytearray | memoryview,
        room: int,
        physical_offset: int,
        first: int,
        more: bytes = b"",
        stop: int | None = None,
    ) -> tuple[int, int]:
        """(next message, bytes written) from message ``first`` on, as far as they fit.

        Args:
            out: where records are written, from its beginning.
            room: bytes that the commit-log file has left; a record leaves 8 of them for the blank.
            physical_offset: of the first record.
            more: properties that are put behind those of every message, as a batch's own are.
            stop: message before which to end, else all are written.
        """
        address, _keep = address_of(out, writable=True)
        more_at, _keep_more = address_of(more)
        places = address, memoryview(out).nbytes, room, physical_offset, first
        rest = self._crc_function, more_at, len(more), self._messages if stop is None else stop
        row, size = _encode(*(*places, *self._held, *rest))
        return int(row), int(size)
