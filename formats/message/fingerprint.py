"""What stands for a message when a position in its queue is kept: the same of it and of its copies."""

import zlib

from formats.message.properties import UNIQ_KEY, parse
from formats.message.read import Record


def fingerprint(record: Record) -> int:
    """CRC-32 of a record's body, time of birth, flag and unique id."""
    unique = parse(record.properties).get(UNIQ_KEY, "")
    return zlib.crc32(f"{record.born_timestamp}:{record.flag}:{unique}".encode(), zlib.crc32(record.body))
