"""Helpers to copy one record to another store."""

from formats.message.build import append_crc, pack, verify_crc
from formats.message.properties import CRC32_NAME, CRC32_SIZE, INNER_NUM, parse
from formats.message.read import Record
from formats.primitives import INNER_BATCH

_PORTS = 1 << 16
WRONG_PORT = "an impossible port: the message is copied with port 0"


def span_of(record: Record) -> int:
    """Number of queue offsets of a record: one, or for an inner batch of 5.x the number of its messages."""
    if not record.sys_flag & INNER_BATCH:
        return 1
    number = parse(record.properties).get(INNER_NUM, "1")
    return max(int(number), 1) if number.isdecimal() and len(number) < 6 else 1


def pack_moved(old: Record, new: Record) -> bytes:
    """The bytes of a moved record, with its whole-record checksum updated if the old one was correct."""
    data = pack(new)
    if CRC32_NAME in old.properties and verify_crc(pack(old)):
        bare = new._replace(total_size=new.total_size - CRC32_SIZE, properties=new.properties[:-CRC32_SIZE])
        again = append_crc(pack(bare))
        return again if len(again) == len(data) else data
    return data


def mend_ports(record: Record) -> Record:
    """Replace impossible ports by 0, because Java clients fail on messages with such ports."""
    if all(0 <= port < _PORTS for port in (record.born_port, record.store_port)):
        return record
    born, store = (port if 0 <= port < _PORTS else 0 for port in (record.born_port, record.store_port))
    return record._replace(born_port=born, store_port=store)


def torn_properties(record: Record) -> str | None:
    """A sentence if the end of a message's properties was never written; else None.

    The length of the properties precedes them, so a record whose last bytes are zeros counts as intact; a slave that is
    killed in the middle of a transfer leaves such a record. Properties written by brokers end with 0x02 or text. The
    zeros are copied: a value may end with one, and a later salvage with another copy knows by them what is missing.
    """
    data = record.properties
    if not data.endswith(b"\0"):
        return None
    return f"torn properties: the last {len(data) - len(data.rstrip(bytes(1)))} bytes are zeros; the message is taken"
