"""Reading one commit-log record, with every length checked before use.

Implements ``CommitLog.checkMessageAndReturnSize`` (4.9.8 and 5.3.3; store-formats 9.1), with a separate name for each
outcome.
"""

import zlib
from typing import NamedTuple

from formats.endings import Ending
from formats.layouts import derived
from formats.layouts.codes import BORN_V6, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, STORE_V6
from formats.topics import SCHEDULE

MIN_SIZE = 91  # V1, IPv4, no body, no topic, no properties
SCHEDULE_TOPIC = SCHEDULE.encode()
HEADS = {
    0: derived.HEAD_V4_V4,
    BORN_V6: derived.HEAD_V6_V4,
    STORE_V6: derived.HEAD_V4_V6,
    BORN_V6 | STORE_V6: derived.HEAD_V6_V6,
}
_LENGTH_AND_MAGIC = derived.BLANK.unpack_from
HOSTS_V6 = BORN_V6 | STORE_V6  # bits of sys_flag that select the head
_SYS_FLAG = derived.HEAD_V4_V4.field("sys_flag")  # at the same offset in all heads, as are the next two
_BODY_CRC, _BODY_LENGTH = map(derived.HEAD_V4_V4.names.index, ("body_crc", "body_length"))
_ADDRESS_V4, _PORT, _ADDRESS_V6 = 4, 4, 16  # bytes


class Record(NamedTuple):
    """One stored record. ``body``, ``topic`` and ``properties`` are the raw stored bytes."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_address: bytes
    born_port: int
    store_timestamp: int
    store_address: bytes
    store_port: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int
    body: bytes
    topic: bytes
    properties: bytes

    @property
    def version(self) -> int:
        """1, or 2 for records with a two-byte topic length (5.1 and later)."""
        return 2 if self.magic == MAGIC_V2 else 1


class End(NamedTuple):
    """There is no record at this position.

    Attributes:
        at: byte offset in the buffer.
        size: result of the broker's check: 0 for a filler, > 0 if the lengths are inconsistent with this size, else -1.
        consumed: bytes read by that check if it returns a size > 0.
        expected, actual: stored and computed body checksum in hex; None unless they are the reason.
    """

    ending: Ending
    at: int
    reason: str
    size: int = -1
    consumed: int = 0
    expected: str | None = None
    actual: str | None = None


def read(buf: bytes | memoryview, at: int, limit: int, *, crc: bool = True) -> Record | End:
    """Read the record at ``at`` of a buffer whose readable part ends at ``limit``.

    Args:
        crc: verify the body checksum too; the broker's dispatch does not.
    """
    room = limit - at
    if room < 8:
        if room <= 0:
            return End(Ending.CLEAN, at, "end of the file")
        rest = bytes(buf[at:limit])
        if rest.strip(b"\0"):
            return End(Ending.CUT, at, f"{room} bytes left, too few for a record")
        return End(Ending.UNWRITTEN, at, "not written")
    size, magic = _LENGTH_AND_MAGIC(buf, at)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        if magic == MAGIC_BLANK:
            return End(Ending.FILLER, at, f"end-of-file blank of {size} bytes", 0)
        if size == 0 and magic == 0:
            return End(Ending.UNWRITTEN, at, "not written")
        return End(Ending.DAMAGED, at, f"magic 0x{magic & 0xFFFFFFFF:08X} is not that of a record")
    if size > room:
        # 4.9.8 keeps reading and usually finds inconsistent lengths; only the name of the ending differs here
        return End(Ending.CUT, at, f"record of {size} bytes, {room} left", *_claim(buf, at, limit, size))
    if size < MIN_SIZE:
        return End(Ending.DAMAGED, at, f"record size {size} is below {MIN_SIZE}", *_claim(buf, at, limit, size))
    (sys_flag,) = _SYS_FLAG.unpack_from(buf, at)
    layout = HEADS[sys_flag & HOSTS_V6]
    body_at = at + layout.size
    if body_at + 3 > limit:
        return End(Ending.DAMAGED, at, "record ends inside its fixed fields")
    head = layout.unpack_from(buf, at)
    body_length = head[_BODY_LENGTH]
    topic_at = body_at + (body_length if body_length > 0 else 0)
    if topic_at + 3 > limit:
        return End(Ending.DAMAGED, at, f"body length {body_length} does not fit a record of {size} bytes")
    if magic == MAGIC_V1:
        topic_length = buf[topic_at]
        if topic_length > 127:
            return End(Ending.DAMAGED, at, f"topic length {topic_length - 256}")
        topic_at += 1
    else:
        topic_length = buf[topic_at] << 8 | buf[topic_at + 1]
        if topic_length > 0x7FFF:
            return End(Ending.DAMAGED, at, f"topic length {topic_length - 0x10000}")
        topic_at += 2
    topic_end = topic_at + topic_length
    if topic_end + 2 > limit:
        return End(Ending.DAMAGED, at, f"topic length {topic_length} does not fit a record of {size} bytes")
    properties_length = buf[topic_end] << 8 | buf[topic_end + 1]
    if properties_length > 0x7FFF:
        properties_length = 0
    end = topic_end + 2 + properties_length
    if end != at + size:
        claim = size if end <= limit and size >= max(topic_length, properties_length) else -1
        return End(Ending.DAMAGED, at, f"lengths add up to {end - at}, the record says {size}", claim, end - at)
    body = bytes(buf[body_at : body_at + body_length]) if body_length > 0 else b""
    if crc and body and (checksum := zlib.crc32(body) & 0x7FFFFFFF) != head[_BODY_CRC]:
        expected, actual = f"0x{head[_BODY_CRC] & 0xFFFFFFFF:08X}", f"0x{checksum:08X}"
        reason = f"body CRC is {actual}, the record says {expected}"
        return End(Ending.DAMAGED, at, reason, expected=expected, actual=actual)
    topic = bytes(buf[topic_at:topic_end])
    properties = bytes(buf[topic_end + 2 : end])
    if topic == SCHEDULE_TOPIC and (level := delay_property(properties)) is not None and not is_java_int(level):
        return End(Ending.DAMAGED, at, f"delay level {level.decode('utf-8', 'replace')!r} is not a number")
    return Record._make((*head, body, topic, properties))


def _claim(buf: bytes | memoryview, at: int, limit: int, size: int) -> tuple[int, int]:
    """Return how dispatch of 4.9.8 sees a record whose size is out of bounds: (size, bytes read) or (-1, 0).

    It reads field by field into an array of the claimed size, and compares the sum at the end.
    """
    if at + 40 > limit or size <= 0:
        return -1, 0
    (sys_flag,) = _SYS_FLAG.unpack_from(buf, at)
    layout = HEADS[sys_flag & HOSTS_V6]
    if at + layout.size > limit:
        return -1, 0
    topic_at = at + layout.size + max(layout.unpack_from(buf, at)[_BODY_LENGTH], 0)
    if topic_at >= limit:
        return -1, 0
    if _LENGTH_AND_MAGIC(buf, at)[1] == MAGIC_V1:
        topic_length, topic_at = buf[topic_at], topic_at + 1
        topic_length -= (topic_length & 0x80) << 1
    else:
        topic_length, topic_at = int.from_bytes(buf[topic_at : topic_at + 2], "big", signed=True), topic_at + 2
    end = topic_at + topic_length + 2
    if topic_length < 0 or end > limit:
        return -1, 0
    properties_length = max(int.from_bytes(buf[end - 2 : end], "big", signed=True), 0)
    end += properties_length
    host = (_ADDRESS_V6 if sys_flag & HOSTS_V6 else _ADDRESS_V4) + _PORT
    if end > limit or size < max(topic_length, properties_length, host):
        return -1, 0
    return size, end - at


def delay_property(properties: bytes) -> bytes | None:
    """Return the value of DELAY, parsed as in :mod:`formats.message.properties` (the last of duplicate names wins)."""
    if b"DELAY\x01" not in properties:
        return None
    from formats.message.properties import parse_raw

    return parse_raw(properties).get(b"DELAY")


def is_java_int(text: bytes, bits: int = 32) -> bool:
    """Return whether ``Integer.parseInt``, or its like for another width, accepts the text (ASCII digits only)."""
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    return digits.isdigit() and -(1 << bits - 1) <= int(text) < 1 << bits - 1 if len(text) < 64 else False


def java_int(text: str, bits: int = 32) -> int | None:
    """Parse a text like ``Integer.parseInt``, or its equivalent for another width; return None if it is rejected."""
    return int(text) if text.isascii() and is_java_int(text.encode(), bits) else None
