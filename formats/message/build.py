"""Write commit-log records, the blank that ends a file, and the checksum over a whole record.

Source: org.apache.rocketmq.store.CommitLog (4.9.8), MessageExtEncoder (5.3.3); store-formats 2.1, 2.5, 2.6, 2.8.
"""

import struct

from formats.errors import BadLength, FormatError
from formats.layouts import derived
from formats.layouts.codes import BORN_V6, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, STORE_V6
from formats.message import properties
from formats.message.read import HEADS, End, Record, read
from formats.primitives import crc31

MAX_MESSAGE_SIZE = 4 * 1024 * 1024  # the broker's default for a stored body
BLANK_SIZE = derived.BLANK.size
MAX_TOPIC = {1: 127, 2: 255}  # bytes; version 2 could say more, brokers accept no more
MAX_PROPERTIES = 2**15 - 1
TOPIC_LENGTH_SIZE = {1: 1, 2: 2}  # bytes that tell how long a topic is
PROPERTIES_LENGTH_SIZE = 2
_BYTE, _SHORT = struct.Struct(">b"), struct.Struct(">h")


def compose(
    *,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    body: bytes = b"",
    properties: bytes = b"",
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int,
    born_address: bytes,
    born_port: int,
    store_timestamp: int,
    store_address: bytes,
    store_port: int,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    version: int = 1,
    max_message_size: int = MAX_MESSAGE_SIZE,
) -> Record:
    """A record with its lengths, body CRC and host flags worked out.

    Args:
        topic, body, properties: stored bytes; the body as compressed as ``sys_flag`` says.
        sys_flag: its two host bits are set by the lengths of the addresses, whatever they were.
        born_address, store_address: 4 or 16 bytes, network order.
        version: 1, or 2 for a two-byte topic length (5.1 and later).

    Raises:
        BadLength: a length that the layout cannot say or the broker would refuse.
    """
    if version not in MAX_TOPIC:
        raise BadLength(0, f"record version {version} is not known")
    if not 0 < len(topic) <= MAX_TOPIC[version]:
        raise BadLength(0, f"topic of {len(topic)} bytes, version {version} takes 1 to {MAX_TOPIC[version]}")
    if len(properties) > MAX_PROPERTIES:
        raise BadLength(0, f"properties of {len(properties)} bytes, at most {MAX_PROPERTIES} fit")
    if len(body) > max_message_size:
        raise BadLength(0, f"body of {len(body)} bytes, the broker takes {max_message_size}")
    sys_flag &= ~(BORN_V6 | STORE_V6)
    sys_flag |= BORN_V6 if len(born_address) == 16 else 0
    sys_flag |= STORE_V6 if len(store_address) == 16 else 0
    fixed = HEADS[sys_flag & (BORN_V6 | STORE_V6)].size + TOPIC_LENGTH_SIZE[version] + PROPERTIES_LENGTH_SIZE
    # the broker also refuses records 64 KiB longer than the largest body: with the limits above there are none
    return Record(
        total_size=fixed + len(body) + len(topic) + len(properties),
        magic=MAGIC_V1 if version == 1 else MAGIC_V2,
        body_crc=crc31(body),
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_address=born_address,
        born_port=born_port,
        store_timestamp=store_timestamp,
        store_address=store_address,
        store_port=store_port,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body_length=len(body),
        body=body,
        topic=topic,
        properties=properties,
    )


def pack(record: Record) -> bytes:
    """Stored form of a record, exactly as its fields say: sizes and CRC are not worked out again.

    What :func:`formats.message.read` gave becomes the same bytes, except where a properties length below 0 was stored:
    that reads as none and becomes 0.

    Raises:
        BadLength: a field has no place in the layout that magic and sys_flag choose.
    """
    layout = HEADS[record.sys_flag & (BORN_V6 | STORE_V6)]
    sizes = (16 if record.sys_flag & BORN_V6 else 4, 16 if record.sys_flag & STORE_V6 else 4)
    if (len(record.born_address), len(record.store_address)) != sizes:
        raise BadLength(layout.offsets["born_address"], "host addresses disagree with the system flag")
    if len(record.body) != max(record.body_length, 0):
        raise BadLength(layout.offsets["body_length"], f"body of {len(record.body)} bytes, not {record.body_length}")
    lengths = _BYTE if record.magic == MAGIC_V1 else _SHORT
    try:
        head = layout.pack(*record[: len(layout.names)])
        topic_length = lengths.pack(len(record.topic))
        properties_length = _SHORT.pack(len(record.properties))
    except struct.error as err:
        raise BadLength(0, f"record field out of range: {err}") from None
    return b"".join((head, record.body, topic_length, record.topic, properties_length, record.properties))


def fits(record_size: int, room: int) -> bool:
    """Whether the broker puts a record where ``room`` bytes of a file are left, or ends the file there."""
    return record_size + BLANK_SIZE <= room


def build_blank(room: int) -> bytes:
    """The 8 bytes that end a file where ``room`` bytes are left; what follows them means nothing.

    Raises:
        BadLength: no room for them.
    """
    if not BLANK_SIZE <= room < 2**31:
        raise BadLength(0, f"no blank says {room} bytes")
    return derived.BLANK.pack(room, MAGIC_BLANK)


def append_crc(packed: bytes) -> bytes:
    """A record with the property ``__CRC32#`` at its end, as 5.2 and later write it where that is switched on.

    Raises:
        FormatError: not one whole record. BadLength: the properties become too long.
    """
    record = _whole(packed)
    crc_size = properties.CRC32_SIZE
    items = record.properties
    if items and not items.endswith(b"\x02"):
        items += b"\x02"
    if len(items) + crc_size > MAX_PROPERTIES:
        raise BadLength(0, f"properties of {len(items) + crc_size} bytes, at most {MAX_PROPERTIES} fit")
    grown = record._replace(
        total_size=record.total_size + len(items) - len(record.properties) + crc_size,
        properties=items + bytes(crc_size),
    )
    covered = pack(grown)[:-crc_size]
    return covered + properties.crc_property(crc31(covered))


def verify_crc(packed: bytes) -> bool | None:
    """Whether the property ``__CRC32#`` agrees with the record; None without one.

    It is looked for by position first: in a batch it may be glued to the value before it, where its name is lost.

    Raises:
        FormatError: not one whole record.
    """
    record = _whole(packed)
    covered = packed[: len(packed) - properties.CRC32_SIZE]
    tail = record.properties[-properties.CRC32_SIZE :]
    if len(tail) == properties.CRC32_SIZE and tail.startswith(properties.CRC32_NAME + b"\x01") and tail[-1] == 2:
        digits = tail[len(properties.CRC32_NAME) + 1 : -1]
    else:
        named = properties.parse_raw(record.properties).get(properties.CRC32_NAME)
        if named is None:
            return None
        digits = named
    return len(digits) <= 20 and digits.isdigit() and int(digits[::-1]) == crc31(covered)


def _whole(packed: bytes) -> Record:
    record = read(packed, 0, len(packed), crc=False)
    if isinstance(record, End):
        raise FormatError(record.at, record.reason)
    if record.total_size != len(packed):
        raise BadLength(0, f"record of {record.total_size} bytes in {len(packed)}")
    return record


def rebuild(record: Record, *, topic: bytes | None = None, properties: bytes | None = None) -> bytes:
    """The bytes of a stored message with another topic or other properties.

    Raises:
        BadLength: a length that the layout cannot say.
    """
    return pack(
        compose(
            topic=record.topic if topic is None else topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            body=record.body,
            properties=record.properties if properties is None else properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_address=record.born_address,
            born_port=record.born_port,
            store_timestamp=record.store_timestamp,
            store_address=record.store_address,
            store_port=record.store_port,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
            version=record.version,
            max_message_size=max(len(record.body), 1),
        )
    )
