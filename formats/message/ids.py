"""Message ids: the broker's offset id and the client's unique id.

Sources: common.message.MessageDecoder (offset id), common.message.MessageClientIDSetter (classic unique id),
MessageIdCodec of apache/rocketmq-clients (gRPC clients' id); store-formats 2.9. Both kinds of id may have the same
length: form alone does not tell which one an id is.
"""

import struct
from typing import NamedTuple

from formats.errors import BadText
from formats.primitives import address_text

_HOST_AND_OFFSET = struct.Struct(">iq")
_EPOCH_2021 = 1_609_459_200
_HOUR = 3_600_000
_YEAR_9000 = 221_845_392_000_000  # what lies behind it, or before 1970, is damage and no calendar's business


class OffsetId(NamedTuple):
    """Where a message lies: broker address and physical offset."""

    address: str
    port: int
    physical_offset: int


class UniqueId(NamedTuple):
    """What a client's unique id says of its producer."""

    kind: str  # "classic" or "grpc"
    address: str  # producer's IP, or its MAC address for gRPC clients
    process_id: int  # low 16 bits
    loader_hash: int | None  # random per process; classic only
    millis_of_month: int | None  # since 00:00 of the 1st, producer's local zone; classic only
    timestamp: int | None  # ms since the epoch; None where no reference time is given
    counter: int


def offset_id(address: bytes, port: int, physical_offset: int) -> str:
    """Upper-case hex of address (4 or 16), port (4) and physical offset (8): 32 or 56 digits."""
    return (address + _HOST_AND_OFFSET.pack(port, physical_offset)).hex().upper()


def is_id(text: str) -> bool:
    """Whether the text has the form of an offset id or a classic unique id."""
    return len(text) in (32, 56) and _unhex(text) is not None


def parse_offset_id(text: str) -> OffsetId:
    """Decode an offset id.

    Raises:
        BadText: not 32 or 56 hexadecimal digits.
    """
    raw = _unhex(text)
    if raw is None or len(raw) not in (16, 28):
        raise BadText(0, f"{text!r} is not 32 or 56 hexadecimal digits")
    port, physical_offset = _HOST_AND_OFFSET.unpack_from(raw, len(raw) - 12)
    return OffsetId(address_text(raw[:-12]), port, physical_offset)


def parse_unique_id(text: str, near: int | None = None) -> UniqueId:
    """Decode a client's unique id.

    Args:
        near: a time close to the id's creation (the message's born timestamp, ms); a classic id carries no month, so
            without it the time stays unknown.

    Raises:
        BadText: not one of the forms that RocketMQ's own clients write.
    """
    raw = _unhex(text)
    if raw is not None and len(raw) in (16, 28):
        pid, loader, millis, counter = struct.unpack_from(">HIIH", raw, len(raw) - 12)
        timestamp = None if near is None or not 0 <= near < _YEAR_9000 else _classic_time(millis, near)
        return UniqueId("classic", address_text(raw[:-12]), pid, loader, millis, timestamp, counter)
    if raw is not None and len(raw) == 17 and raw[0] == 1:
        pid, seconds, counter = struct.unpack_from(">HII", raw, 7)
        return UniqueId("grpc", raw[1:7].hex(":"), pid, None, None, (_EPOCH_2021 + seconds) * 1000, counter)
    raise BadText(0, f"{text!r} is not a unique id of RocketMQ's own clients")


def _classic_time(millis: int, near: int) -> int:
    """The instant closest to ``near`` that lies ``millis`` after a month's start in some zone (-12 to +14 h)."""
    from datetime import UTC, datetime, timedelta

    month = datetime.fromtimestamp(near / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    best = None
    for first in ((month - timedelta(days=1)).replace(day=1), month, (month + timedelta(days=32)).replace(day=1)):
        utc = int(first.timestamp()) * 1000 + millis
        # the producer's month began earlier in zones east of Greenwich; zones step by quarter hours
        shift = min(max(-round((near - utc) / (_HOUR // 4)) * (_HOUR // 4), -12 * _HOUR), 14 * _HOUR)
        if best is None or abs(utc - shift - near) < abs(best - near):
            best = utc - shift
    return best if best is not None else near


def _unhex(text: str) -> bytes | None:
    try:
        # fromhex passes over blanks, which no id has
        return bytes.fromhex(text) if text.isalnum() else None
    except ValueError:
        return None
