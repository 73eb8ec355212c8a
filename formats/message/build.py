"""Writing commit-log records, end-of-file blanks, and the whole-record checksum.

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
MAX_TOPIC = {1: 127, 2: 255}  # bytes; the length field of version 2 allows more, brokers do not
MAX_PROPERTIES = 2**15 - 1
TOPIC_LENGTH_SIZE = {1: 1, 2: 2}  # width of the topic length field, bytes
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
    """Build a record, computing its lengths, body CRC and host flags.

    Args:
        topic, body, properties: stored bytes; the body is compressed already if ``sys_flag`` says so.
        sys_flag: its two host bits are replaced according to the lengths of the addresses.
        born_address, store_address: 4 or 16 bytes, network order.
        version: 1, or 2 for a two-byte topic length (5.1 and later).

    Raises:
        BadLength: a length does not fit the layout or exceeds the broker's limit.
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
    # the broker also rejects records 64 KiB longer than the largest body, which the limits above rule out
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
    """Return the stored form of a record exactly as its fields say; sizes and CRC are not recomputed.

    A record from :func:`formats.message.read` is reproduced byte for byte, except that a negative properties length is
    written as 0.

    Raises:
        BadLength: a field does not fit the layout selected by magic and sys_flag.
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
    """Return whether the broker would append a record to a file with ``room`` bytes left; if not, it ends the file."""
    return record_size + BLANK_SIZE <= room


def build_blank(room: int) -> bytes:
    """Return the 8 bytes that end a file with ``room`` bytes left; the bytes after them are ignored.

    Raises:
        BadLength: fewer than 8 bytes, or too many for the size field.
    """
    if not BLANK_SIZE <= room < 2**31:
        raise BadLength(0, f"no blank says {room} bytes")
    return derived.BLANK.pack(room, MAGIC_BLANK)


def append_crc(packed: bytes) -> bytes:
    """Return a record with the property ``__CRC32#`` appended, as 5.2 and later write it if enabled.

    Raises:
        FormatError: the input is not exactly one record. BadLength: the properties become too long.
    """
    record = _read_single(packed)
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
    """Return whether the property ``__CRC32#`` matches the record, or None if it has none.

    It is looked for by position first: in a batch it may follow the previous value without a separator.

    Raises:
        FormatError: the input is not exactly one record.
    """
    record = _read_single(packed)
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


def _read_single(packed: bytes) -> Record:
    record = read(packed, 0, len(packed), crc=False)
    if isinstance(record, End):
        raise FormatError(record.at, record.reason)
    if record.total_size != len(packed):
        raise BadLength(0, f"record of {record.total_size} bytes in {len(packed)}")
    return record


def rebuild(record: Record, *, topic: bytes | None = None, properties: bytes | None = None) -> bytes:
    """Return the bytes of a stored message with a different topic or different properties.

    Raises:
        BadLength: a length does not fit the layout.
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
