"""Keys and values of ``rocksdbstore`` (since 5.4): index, timeline of timer messages, and open half messages.

A broker creates this database at every start; a column family is only filled if its setting is on
(``indexRocksDBEnable``, ``timerRocksDBEnable``, ``transRocksDBEnable`` with ``transWriteOriginTransHalfEnable=false``).

Source: store.rocksdb.MessageRocksDBStorage, store.index.rocksdb.IndexRocksDBRecord, store.timer.rocksdb.Timeline,
TimerRocksDBRecord, store.transaction.TransRocksDBRecord (5.5.0); releases-5.4-5.5 5.
"""

from typing import NamedTuple

from formats.errors import BadLength, BadText
from formats.layouts.derived import (
    HALF_KEY_HEAD,
    HALF_VALUE,
    KEY_HOUR,
    KEY_TAIL,
    POSITION,
    TIMELINE_KEY_HEAD,
    TIMELINE_VALUE,
)

PLACE = "rocksdbstore"  # directory below the store
INDEX, TIMELINE, HALVES = "default", "timer", "trans"  # column families
END = b"lastOffsetPy"  # index and half messages: physical offset of their last record
LAST_STORED = b"lastStoreTimeStamp"  # index only
SCANNED = b"sys_topic_scan_offset_checkpoint"  # timeline: next offset of the timer topic's queue
DELIVERED = b"timeline_checkpoint"  # messages due before this time have been delivered
HOUR = 3_600_000

_SEPARATOR = b"@"


class TimelineUnit(NamedTuple):
    """One timer message."""

    deliver_time: int  # ms since the epoch
    unique_key: str
    size: int
    physical_offset: int


class OpenHalf(NamedTuple):
    """One half message without an op message so far."""

    physical_offset: int
    topic: str
    unique_key: str
    check_times: int
    size: int


class IndexUnit(NamedTuple):
    """One index entry: a key (K), tags (T) or unique key (U) of a message."""

    hour: int  # ms since the epoch
    text: str
    physical_offset: int
    store_timestamp: int


def parse_position(value: bytes) -> int:
    """Parse the value of a key that stores the progress of the database.

    Raises:
        BadLength: the value is not 8 bytes long.
    """
    if len(value) != POSITION.size:
        raise BadLength(0, f"{len(value)} bytes, not {POSITION.size}")
    number: int = POSITION.unpack_from(value, 0)[0]
    return number


def parse_timeline(key: bytes, value: bytes) -> TimelineUnit:
    """Parse one entry of the timeline.

    Raises:
        BadLength: the key or the value is too short, or the value too long.
    """
    if len(key) < TIMELINE_KEY_HEAD.size or len(value) != TIMELINE_VALUE.size:
        raise BadLength(0, f"key {key.hex()}: {len(value)} bytes: not a time with a unique key, a size and an offset")
    (deliver_time,) = TIMELINE_KEY_HEAD.unpack_from(key, 0)
    size, physical_offset = TIMELINE_VALUE.unpack_from(value, 0)
    return TimelineUnit(deliver_time, _text(key[TIMELINE_KEY_HEAD.size :]), size, physical_offset)


def parse_half(key: bytes, value: bytes) -> OpenHalf:
    """Parse one open half message.

    Raises:
        BadLength: the key or the value is too short, or the value too long.
        BadText: the key contains no topic and unique key.
    """
    if len(key) < HALF_KEY_HEAD.size or len(value) != HALF_VALUE.size:
        raise BadLength(0, f"key {key.hex()}: {len(value)} bytes: not an offset with a topic, checks and a size")
    (physical_offset,) = HALF_KEY_HEAD.unpack_from(key, 0)
    blank, *names = key[HALF_KEY_HEAD.size :].split(_SEPARATOR)
    if blank or len(names) < 2:
        raise BadText(HALF_KEY_HEAD.size, f"key {key.hex()}: no topic and unique key")
    topic, unique_key = names[0], _SEPARATOR.join(names[1:])
    return OpenHalf(physical_offset, _text(topic), _text(unique_key), *HALF_VALUE.unpack_from(value, 0))


def parse_index(key: bytes, value: bytes) -> IndexUnit:
    """Parse one index entry.

    Raises:
        BadLength: the key or the value is too short, or the value too long.
    """
    if len(key) < KEY_HOUR.size + KEY_TAIL.size or len(value) != POSITION.size:
        raise BadLength(0, f"key {key.hex()}: {len(value)} bytes: not an hour, a word, an offset and a time")
    (hour,) = KEY_HOUR.unpack_from(key, 0)
    (physical_offset,) = KEY_TAIL.unpack_from(key, len(key) - KEY_TAIL.size)
    return IndexUnit(hour, _text(key[KEY_HOUR.size : -KEY_TAIL.size]), physical_offset, parse_position(value))


def index_prefix(hour: int, topic: bytes, kind: str, word: bytes) -> bytes:
    """Return the prefix of all index keys for a word in one hour.

    Args:
        hour: ms since the epoch, a multiple of an hour.
        kind: K for keys, T for tags, U for unique keys.
    """
    return KEY_HOUR.pack(hour) + _SEPARATOR + topic + f"@{kind}@".encode() + word + _SEPARATOR


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")  # as Java reads it
