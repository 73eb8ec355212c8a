"""Consume queues in RocksDB: a key and a value for each message, and for each end of a queue.

Source: org.apache.rocketmq.store.queue.RocksDBConsumeQueueTable (column family ``default``: units) and
RocksDBConsumeQueueOffsetTable (column family ``offset``: where queues begin and end); store-formats 4.6. Keys sort by
the length of the topic, then topic, queue id and queue offset.
"""

from typing import NamedTuple

from formats.errors import BadLength, BadText
from formats.layouts.derived import (
    ROCKS_BUILT,
    ROCKS_OFFSET,
    ROCKS_OFFSET_KEY_TAIL,
    ROCKS_TOPIC_HEAD,
    ROCKS_UNIT,
    ROCKS_UNIT_KEY_TAIL,
)

UNITS, OFFSETS = "default", "offset"  # column families
MAX, MIN = b"max", b"min"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
_MARK = 1
_BEHIND = 2  # what follows every unit of a queue has this in place of the last separator


class RocksUnit(NamedTuple):
    """One unit, as stored."""

    physical_offset: int  # of the record's first byte in the commit log
    size: int  # of the record, bytes
    tags_code: int
    store_timestamp: int  # ms


class UnitKey(NamedTuple):
    """Which message a unit belongs to."""

    topic: str
    queue_id: int
    queue_offset: int


class OffsetKey(NamedTuple):
    """Which end of which queue an offset is."""

    topic: str
    bound: bytes  # MAX or MIN
    queue_id: int


class RocksOffset(NamedTuple):
    """One end of a queue, as stored. ``max`` is that of the last message, so the next one gets ``queue_offset`` + 1."""

    physical_offset: int
    queue_offset: int


def _head(topic: str) -> bytes:
    name = topic.encode("utf-8", "surrogateescape")
    return ROCKS_TOPIC_HEAD.pack(len(name), _MARK) + name


def unit_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    """The key of one unit."""
    return _head(topic) + ROCKS_UNIT_KEY_TAIL.pack(_MARK, queue_id, _MARK, queue_offset)


def end_of_units(topic: str, queue_id: int) -> bytes:
    """What sorts behind every unit of a queue, and before those of the next."""
    return _head(topic) + ROCKS_UNIT_KEY_TAIL.pack(_MARK, queue_id, _BEHIND, 0)


def offset_key(topic: str, queue_id: int, bound: bytes) -> bytes:
    """The key of one end of a queue."""
    return _head(topic) + ROCKS_OFFSET_KEY_TAIL.pack(_MARK, bound, _MARK, queue_id)


CHECKPOINT_KEY = offset_key(CHECKPOINT_TOPIC, 0, MAX)  # its value says how far the log is in the queues


def parse_unit_key(key: bytes) -> UnitKey:
    """What the key of a unit says.

    Raises:
        FormatError: not such a key.
    """
    topic, at = _topic(key, ROCKS_UNIT_KEY_TAIL.size)
    mark, queue_id, mark_2, queue_offset = ROCKS_UNIT_KEY_TAIL.unpack_from(key, at)
    if mark != _MARK or mark_2 != _MARK:
        raise BadText(at, "no separators where the key of a unit has them")
    return UnitKey(topic, queue_id, queue_offset)


def parse_offset_key(key: bytes) -> OffsetKey:
    """What the key of a queue's end says.

    Raises:
        FormatError: not such a key.
    """
    topic, at = _topic(key, ROCKS_OFFSET_KEY_TAIL.size)
    mark, bound, mark_2, queue_id = ROCKS_OFFSET_KEY_TAIL.unpack_from(key, at)
    if mark != _MARK or mark_2 != _MARK or bound not in (MAX, MIN):
        raise BadText(at, "neither max nor min between separators")
    return OffsetKey(topic, bound, queue_id)


def _topic(key: bytes, tail: int) -> tuple[str, int]:
    """(topic, where it ends) of a key that goes on with ``tail`` bytes."""
    start = ROCKS_TOPIC_HEAD.size
    if len(key) < start + tail:
        raise BadLength(0, f"a key of {len(key)} bytes is too short")
    length, mark = ROCKS_TOPIC_HEAD.unpack_from(key, 0)
    if length != len(key) - start - tail:
        raise BadLength(0, f"a topic of {length} bytes does not fit a key of {len(key)}")
    if mark != _MARK:
        raise BadText(start - 1, "no separator before the topic")
    return key[start : start + length].decode("utf-8", "surrogateescape"), start + length


def parse_unit(value: bytes) -> RocksUnit:
    """A unit. What a longer value has behind it, brokers do not look at.

    Raises:
        BadLength: too short; to a broker there is no such unit.
    """
    if len(value) < ROCKS_UNIT.size:
        raise BadLength(0, f"a unit of {len(value)} bytes, not {ROCKS_UNIT.size}")
    return RocksUnit._make(ROCKS_UNIT.unpack_from(value, 0))


def parse_offset(value: bytes) -> RocksOffset:
    """One end of a queue.

    Raises:
        BadLength: no 16 bytes.
    """
    if len(value) != ROCKS_OFFSET.size:
        raise BadLength(0, f"an offset of {len(value)} bytes, not {ROCKS_OFFSET.size}")
    return RocksOffset._make(ROCKS_OFFSET.unpack_from(value, 0))


def parse_built(value: bytes) -> int:
    """The value of :data:`CHECKPOINT_KEY`: up to which physical offset the queues were built.

    Raises:
        BadLength: fewer than 8 bytes.
    """
    if len(value) < ROCKS_BUILT.size:
        raise BadLength(0, f"a physical offset of {len(value)} bytes, not {ROCKS_BUILT.size}")
    offset: int = ROCKS_BUILT.unpack_from(value, 0)[0]
    return offset


def build_unit(unit: RocksUnit) -> bytes:
    """Stored form of a unit."""
    return ROCKS_UNIT.pack(*unit)
