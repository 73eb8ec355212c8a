"""Message ids: the broker's offset id and the client's unique id.

Sources: common.message.MessageDecoder (offset id), common.message.MessageClientIDSetter (classic unique id),
MessageIdCodec of apache/rocketmq-clients (gRPC clients' id); store-formats 2.9. Both kinds may have the same length, so
the form of an id does not determine its kind.
"""

import struct
from typing import NamedTuple

from formats.errors import BadText
from formats.primitives import address_text

_HOST_AND_OFFSET = struct.Struct(">iq")
_EPOCH_2021 = 1_609_459_200
_HOUR = 3_600_000
_YEAR_9000 = 221_845_392_000_000  # times after it or before 1970 are treated as damage


class OffsetId(NamedTuple):
    """Location of a message: broker address and physical offset."""

    address: str
    port: int
    physical_offset: int


class UniqueId(NamedTuple):
    """Contents of a client's unique id."""

    kind: str  # "classic" or "grpc"
    address: str  # producer's IP, or its MAC address for gRPC clients
    process_id: int  # low 16 bits
    loader_hash: int | None  # random per process; classic only
    millis_of_month: int | None  # since 00:00 of the 1st in the producer's time zone; classic only
    timestamp: int | None  # ms since the epoch; None without a reference time
    counter: int


def offset_id(address: bytes, port: int, physical_offset: int) -> str:
    """Return the upper-case hex of address (4 or 16 bytes), port (4) and physical offset (8): 32 or 56 digits."""
    return (address + _HOST_AND_OFFSET.pack(port, physical_offset)).hex().upper()


def is_id(text: str) -> bool:
    """Return whether the text has the form of an offset id or a classic unique id."""
    return len(text) in (32, 56) and _unhex(text) is not None


def parse_offset_id(text: str) -> OffsetId:
    """Decode an offset id.

    Raises:
        BadText: the text is not 32 or 56 hexadecimal digits.
    """
    raw = _unhex(text)
    if raw is None or len(raw) not in (16, 28):
        raise BadText(0, f"{text!r} is not 32 or 56 hexadecimal digits")
    port, physical_offset = _HOST_AND_OFFSET.unpack_from(raw, len(raw) - 12)
    return OffsetId(address_text(raw[:-12]), port, physical_offset)


def parse_unique_id(text: str, near: int | None = None) -> UniqueId:
    """Decode a client's unique id.

    Args:
        near: a time close to the id's creation (the message's born timestamp, ms). A classic id does not include the
            month, so without it the timestamp is None.

    Raises:
        BadText: the text has none of the forms written by RocketMQ's own clients.
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
    """Return the instant closest to ``near`` that is ``millis`` after a month's start in some zone (-12 to +14 h)."""
    from datetime import UTC, datetime, timedelta

    month = datetime.fromtimestamp(near / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    best = None
    for first in ((month - timedelta(days=1)).replace(day=1), month, (month + timedelta(days=32)).replace(day=1)):
        utc = int(first.timestamp()) * 1000 + millis
        # the month begins earlier in zones east of Greenwich; zone offsets are multiples of a quarter hour
        shift = min(max(-round((near - utc) / (_HOUR // 4)) * (_HOUR // 4), -12 * _HOUR), 14 * _HOUR)
        if best is None or abs(utc - shift - near) < abs(best - near):
            best = utc - shift
    return best if best is not None else near


def _unhex(text: str) -> bytes | None:
    try:
        # fromhex skips blanks, which are not valid in an id
        return bytes.fromhex(text) if text.isalnum() else None
    except ValueError:
        return None
