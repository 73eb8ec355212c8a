"""Consume queues in RocksDB: one entry per message, and one per end of a queue.

Source: org.apache.rocketmq.store.queue.RocksDBConsumeQueueTable (column family ``default``: units) and
RocksDBConsumeQueueOffsetTable (column family ``offset``: first and last offset of each queue); store-formats 4.6. Keys
sort by the length of the topic, then topic, queue id and queue offset.
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
_BEHIND = 2  # replaces the last separator in a key that sorts after every unit of a queue


class RocksUnit(NamedTuple):
    """One unit as stored."""

    physical_offset: int  # of the record's first byte in the commit log
    size: int  # of the record, bytes
    tags_code: int
    store_timestamp: int  # ms


class UnitKey(NamedTuple):
    """The message that a unit belongs to."""

    topic: str
    queue_id: int
    queue_offset: int


class OffsetKey(NamedTuple):
    """The queue and the end of it that an offset belongs to."""

    topic: str
    bound: bytes  # MAX or MIN
    queue_id: int


class RocksOffset(NamedTuple):
    """One end of a queue as stored. ``max`` is the last message, so the next one gets ``queue_offset`` + 1."""

    physical_offset: int
    queue_offset: int


def _head(topic: str) -> bytes:
    name = topic.encode("utf-8", "surrogateescape")
    return ROCKS_TOPIC_HEAD.pack(len(name), _MARK) + name


def unit_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    """Return the key of a unit."""
    return _head(topic) + ROCKS_UNIT_KEY_TAIL.pack(_MARK, queue_id, _MARK, queue_offset)


def end_of_units(topic: str, queue_id: int) -> bytes:
    """Return a key that sorts after every unit of a queue and before those of the next queue."""
    return _head(topic) + ROCKS_UNIT_KEY_TAIL.pack(_MARK, queue_id, _BEHIND, 0)


def offset_key(topic: str, queue_id: int, bound: bytes) -> bytes:
    """Return the key of one end of a queue."""
    return _head(topic) + ROCKS_OFFSET_KEY_TAIL.pack(_MARK, bound, _MARK, queue_id)


CHECKPOINT_KEY = offset_key(CHECKPOINT_TOPIC, 0, MAX)  # its value is the end of the log that the queues were built from


def parse_unit_key(key: bytes) -> UnitKey:
    """Parse the key of a unit.

    Raises:
        FormatError: the key has another form.
    """
    topic, at = _topic(key, ROCKS_UNIT_KEY_TAIL.size)
    mark, queue_id, mark_2, queue_offset = ROCKS_UNIT_KEY_TAIL.unpack_from(key, at)
    if mark != _MARK or mark_2 != _MARK:
        raise BadText(at, "no separators where the key of a unit has them")
    return UnitKey(topic, queue_id, queue_offset)


def parse_offset_key(key: bytes) -> OffsetKey:
    """Parse the key of a queue's end.

    Raises:
        FormatError: the key has another form.
    """
    topic, at = _topic(key, ROCKS_OFFSET_KEY_TAIL.size)
    mark, bound, mark_2, queue_id = ROCKS_OFFSET_KEY_TAIL.unpack_from(key, at)
    if mark != _MARK or mark_2 != _MARK or bound not in (MAX, MIN):
        raise BadText(at, "neither max nor min between separators")
    return OffsetKey(topic, bound, queue_id)


def _topic(key: bytes, tail: int) -> tuple[str, int]:
    """Return (topic, end of the topic) of a key that has ``tail`` bytes after the topic."""
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
    """Parse a unit. Like brokers, this ignores trailing bytes.

    Raises:
        BadLength: the value is too short; brokers treat such a unit as missing.
    """
    if len(value) < ROCKS_UNIT.size:
        raise BadLength(0, f"a unit of {len(value)} bytes, not {ROCKS_UNIT.size}")
    return RocksUnit._make(ROCKS_UNIT.unpack_from(value, 0))


def parse_offset(value: bytes) -> RocksOffset:
    """Parse one end of a queue.

    Raises:
        BadLength: the value is not 16 bytes long.
    """
    if len(value) != ROCKS_OFFSET.size:
        raise BadLength(0, f"an offset of {len(value)} bytes, not {ROCKS_OFFSET.size}")
    return RocksOffset._make(ROCKS_OFFSET.unpack_from(value, 0))


def parse_built(value: bytes) -> int:
    """Parse the value of :data:`CHECKPOINT_KEY`: the physical offset up to which the queues were built.

    Raises:
        BadLength: the value is shorter than 8 bytes.
    """
    if len(value) < ROCKS_BUILT.size:
        raise BadLength(0, f"a physical offset of {len(value)} bytes, not {ROCKS_BUILT.size}")
    offset: int = ROCKS_BUILT.unpack_from(value, 0)[0]
    return offset


def build_unit(unit: RocksUnit) -> bytes:
    """Return the stored form of a unit."""
    return ROCKS_UNIT.pack(*unit)
