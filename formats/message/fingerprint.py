"""Fingerprint of a message, used to recognize a saved queue position; equal for a message and its copies."""

import zlib

from formats.message.properties import UNIQ_KEY, parse
from formats.message.read import Record


def fingerprint(record: Record) -> int:
    """Return the CRC-32 of a record's body, born timestamp, flag and unique id."""
    unique = parse(record.properties).get(UNIQ_KEY, "")
    return zlib.crc32(f"{record.born_timestamp}:{record.flag}:{unique}".encode(), zlib.crc32(record.body))
