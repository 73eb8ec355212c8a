"""DLedger store: entries that wrap commit-log records, index units, and two small properties files.

Source: io.openmessaging.storage.dledger (0.3.x), org.apache.rocketmq.store.dledger.DLedgerCommitLog; store-formats 8.8.
The record inside an entry has ``position + 48`` as its physical offset, as do queue and index entries.
"""

from typing import NamedTuple

from formats.endings import Ending, UnitEnd, short_tail
from formats.errors import BadLength, BadText
from formats.layouts.codes import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from formats.layouts.derived import BLANK, DLEDGER_BLANK, DLEDGER_ENTRY_HEAD

HEAD_SIZE = DLEDGER_ENTRY_HEAD.size
MAGIC_ENTRY = 1
MAGIC_END = -1


class DLedgerEntry(NamedTuple):
    """Header of an entry as stored; the body follows it."""

    magic: int
    size: int  # header and body, bytes
    index: int  # type: ignore[assignment]
    term: int
    position: int  # absolute, of the entry
    channel: int
    chain_crc: int
    body_crc: int
    body_size: int


def kind_at(buf: bytes | memoryview, at: int, limit: int) -> str:
    """Return what begins at ``at``: ``record``, ``record-blank``, ``entry``, ``blank``, ``unwritten`` or ``unknown``.

    A store converted to DLedger keeps its older plain files, so readers must tell them apart. The magic of a record is
    tested first, because a 1 at byte 0 could also be the size of a record.
    """
    if limit - at < BLANK.size:
        return "unknown" if bytes(buf[max(at, 0) : max(limit, 0)]).strip(b"\0") else "unwritten"
    first, second = BLANK.unpack_from(buf, at)
    if second in (MAGIC_V1, MAGIC_V2):
        return "record"
    if second == MAGIC_BLANK:
        return "record-blank"
    if first == MAGIC_ENTRY:
        return "entry"
    if first == MAGIC_END:
        return "blank"
    return "unwritten" if first == 0 and second == 0 else "unknown"


def read_entry(buf: bytes | memoryview, at: int, limit: int) -> DLedgerEntry | UnitEnd:
    """Read the entry at ``at`` of a data file whose readable part ends at ``limit``; the body must be complete too."""
    room = limit - at
    if room < BLANK.size:
        return short_tail(buf, at, limit, "DLedger entry")
    magic, size = BLANK.unpack_from(buf, at)
    if magic == MAGIC_END:
        return UnitEnd(Ending.FILLER, at, f"end-of-file blank of {size} bytes")
    if magic == 0 and size == 0:
        return UnitEnd(Ending.UNWRITTEN, at, "not written")
    if magic != MAGIC_ENTRY:
        return UnitEnd(Ending.DAMAGED, at, f"magic {magic} is not that of a DLedger entry")
    if size < HEAD_SIZE:
        return UnitEnd(Ending.DAMAGED, at, f"entry size {size} is below {HEAD_SIZE}")
    if size > room:
        return UnitEnd(Ending.CUT, at, f"entry of {size} bytes, {room} left")
    entry = DLedgerEntry._make(DLEDGER_ENTRY_HEAD.unpack_from(buf, at))
    if entry.body_size != size - HEAD_SIZE:
        return UnitEnd(Ending.DAMAGED, at, f"entry of {size} bytes with a body of {entry.body_size}")
    return entry


def record_start(buf: bytes | memoryview, at: int, limit: int) -> int:
    """Return the start of the record in the entry at ``at``, or ``at`` itself if no entry begins there.

    Entries without a body, which a new leader may write, are skipped.
    """
    while limit - at >= HEAD_SIZE:
        entry = DLedgerEntry._make(DLEDGER_ENTRY_HEAD.unpack_from(buf, at))
        if entry.magic != MAGIC_ENTRY or entry.body_size < 0 or entry.size != HEAD_SIZE + entry.body_size:
            break
        at += HEAD_SIZE
        if entry.body_size:
            break
    return at


def blank_size(buf: bytes | memoryview, at: int, limit: int) -> int | None:
    """Return the size of the blank at ``at``, up to the end of the file; None if there is no blank."""
    if limit - at < BLANK.size:
        return None
    magic, size = DLEDGER_BLANK.unpack_from(buf, at)
    return size if magic == MAGIC_END and size >= BLANK.size else None


def build_blank(room: int) -> bytes:
    """Return the 8 bytes that end a data file with ``room`` bytes left; zeros follow.

    Raises:
        BadLength: fewer than 8 bytes are left.
    """
    if room < DLEDGER_BLANK.size:
        raise BadLength(0, f"no room for a blank in {room} bytes")
    return DLEDGER_BLANK.pack(MAGIC_END, room)


def parse_properties(data: bytes) -> dict[str, str]:
    """Parse ``checkpoint`` or ``currterm``, properties files that the library writes without escapes.

    Raises:
        BadText: not UTF-8.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as err:
        raise BadText(err.start, "property file is not UTF-8") from None
    properties = {}
    for line in text.replace("\r", "\n").split("\n"):
        name, equals, value = line.strip().partition("=")
        if equals and name[0:1] not in ("#", "!"):
            properties[name.strip()] = value.strip()
    return properties


def parse_checkpoint(data: bytes) -> tuple[int, int]:
    """Return (end index, committed index) of ``checkpoint``; -1 for a missing value.

    Raises:
        BadText: not UTF-8, or a value is not a number.
    """
    values = parse_properties(data)
    return _number(values.get("endIndex", "-1")), _number(values.get("committedIndex", "-1"))


def parse_current_term(data: bytes) -> tuple[int, str]:
    """Return (term, leader voted for) of ``currterm``; -1 and an empty string for missing values.

    Raises:
        BadText: not UTF-8, or the term is not a number.
    """
    values = parse_properties(data)
    return _number(values.get("currTerm", "-1")), values.get("voteLeader", "")


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if len(digits) > 20 or not (digits.isascii() and digits.isdigit()):
        raise BadText(0, f"{text[:40]!r} is not a number")
    return int(text)
