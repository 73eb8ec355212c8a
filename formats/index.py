"""Index file: header, hash slots, entries chained from newest to oldest.

Source: org.apache.rocketmq.store.index.IndexFile, IndexHeader; store-formats 5. A file has S slots and room for N
entries, and says neither: S and N come from configuration, or from :func:`infer_geometry`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.errors import BadLength, Truncated
from formats.layouts.derived import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from formats.primitives import java_hash

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

HEADER_SIZE = INDEX_HEADER.size
SLOT_SIZE = INDEX_SLOT.size
ENTRY_SIZE = INDEX_ENTRY.size
DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
_VERIFIED = 64  # newest entries whose chains a guess must explain
_MAX_GUESSES = 10_000
_NOT_ZERO = re.compile(rb"[^\0]")


class Header(NamedTuple):
    """The first 40 bytes."""

    begin_timestamp: int  # store time of the first entry's message, ms
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int  # slots in use
    index_count: int  # number of the next entry

    @property
    def next_number(self) -> int:
        """Number that the next entry will have; the broker reads 0 and less as 1."""
        return max(self.index_count, 1)


class IndexEntry(NamedTuple):
    """One entry, as stored. Entry 0 is never used."""

    key_hash: int
    physical_offset: int
    seconds: int  # from the header's begin timestamp to the message's store time
    previous_entry: int  # in the chain of the same slot; 0 = end


def file_size(slots: int, entries: int) -> int:
    """Bytes of a file with this many slots and this much room for entries."""
    return HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * entries


def key_hash(topic: str, key: str) -> int:
    """Hash of ``topic#key``: never negative; the one hash without a positive counterpart becomes 0."""
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 2**31 else value


def tag_key(tags: str) -> str:
    """The key under which a message is found by its tags; brokers of 5.4 and later write it (``IndexService``)."""
    return f"T#{tags}"


def slot_at(slot: int) -> int:
    """Byte of a slot in the file."""
    return HEADER_SIZE + SLOT_SIZE * slot


def entry_at(slots: int, number: int) -> int:
    """Byte of an entry in a file with this many slots."""
    return HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * number


def read_header(buf: bytes | memoryview) -> Header:
    """The header.

    Raises:
        Truncated: fewer than 40 bytes.
    """
    if len(buf) < HEADER_SIZE:
        raise Truncated(len(buf), "index file ends inside its header")
    return Header._make(INDEX_HEADER.unpack_from(buf))


def read_entry(buf: bytes | memoryview, slots: int, number: int) -> IndexEntry:
    """One entry by number.

    Raises:
        BadLength: the file has no such entry.
    """
    at = entry_at(slots, number)
    if slots < 0 or number < 0 or at + ENTRY_SIZE > len(buf):
        raise BadLength(max(at, 0), f"entry {number} lies outside the file")
    return IndexEntry._make(INDEX_ENTRY.unpack_from(buf, at))


def newest(buf: bytes | memoryview, slots: int, hash_value: int) -> int:
    """What the slot of a hash says: the number of its newest entry, 0 for none; not checked.

    Raises:
        BadLength: the file has no room for this many slots.
    """
    if slots < 1 or slot_at(slots) > len(buf):
        raise BadLength(HEADER_SIZE, f"{slots} slots do not fit a file of {len(buf)} bytes")
    (number,) = INDEX_SLOT.unpack_from(buf, slot_at(hash_value % slots))
    return int(number)


def chain(
    buf: bytes | memoryview, slots: int, hash_value: int, count: int | None = None
) -> Iterator[tuple[int, IndexEntry]]:
    """(number, entry) of the chain in the slot of a hash, newest first; other hashes of the same slot included.

    As in the broker, numbers above the header's count end the chain, and the number equal to it (an entry whose count
    was not yet written) does not. Numbers must decrease, so that a loop in the file ends too.

    Args:
        count: the header's, where it has been read before.

    Raises:
        Truncated, BadLength: the file has no room for the header, or for this many slots.
    """
    number = newest(buf, slots, hash_value)
    if count is None:
        count = read_header(buf).next_number
    start = slot_at(slots)
    above = min(count + 1, (len(buf) - start) // ENTRY_SIZE)
    if count <= 1:
        return
    while 0 < number < above:
        entry = IndexEntry._make(INDEX_ENTRY.unpack_from(buf, start + ENTRY_SIZE * number))
        yield number, entry
        number, above = entry.previous_entry, number


def slots_array(buf: bytes | memoryview, slots: int) -> "Array":
    """Newest entry number of every slot: big-endian i4 of shape (slots,), without copying.

    Raises:
        BadLength: the file has no room for this many slots.
    """
    import numpy as np

    if slots < 0 or slot_at(slots) > len(buf):
        raise BadLength(HEADER_SIZE, f"{slots} slots do not fit a file of {len(buf)} bytes")
    return np.frombuffer(buf, ">i4", count=slots, offset=HEADER_SIZE)


def entries_array(buf: bytes | memoryview, slots: int) -> "Array":
    """All entries from number 0 to the end of the file, used or not: record array of shape (n,), without copying.

    Raises:
        BadLength: the file has no room for this many slots.
    """
    import numpy as np

    start = slot_at(slots)
    if slots < 0 or start > len(buf):
        raise BadLength(HEADER_SIZE, f"{slots} slots do not fit a file of {len(buf)} bytes")
    return np.frombuffer(buf, INDEX_ENTRY.dtype, count=(len(buf) - start) // ENTRY_SIZE, offset=start)


def build(header: Header, slots: Sequence[int], entries: Sequence[IndexEntry], capacity: int | None = None) -> bytes:
    """One whole file.

    Args:
        slots: newest entry number of every slot.
        entries: from number 1 on; entry 0 is written as zeros.
        capacity: room for entries, entry 0 included; by default just enough.

    Raises:
        BadLength: more entries than ``capacity`` has room for.
    """
    room = len(entries) + 1 if capacity is None else capacity
    if room < len(entries) + 1:
        raise BadLength(entry_at(len(slots), room), f"{len(entries)} entries and entry 0 in a file of {room}")
    parts = [INDEX_HEADER.pack(*header), *map(INDEX_SLOT.pack, slots), bytes(ENTRY_SIZE)]
    parts += [INDEX_ENTRY.pack(*entry) for entry in entries]
    return b"".join(parts).ljust(file_size(len(slots), room), b"\0")


def geometry_candidates(buf: bytes | memoryview) -> list[tuple[int, int]]:
    """Every (slots, entries) that fits the file's size and content, ascending.

    A file of the default size has the default geometry, whatever it holds. In any other, the newest entry must hold
    the header's end offset, the oldest one its begin offset, and the slots and chains of the newest entries must lead
    to them. An empty file, a torn one and one whose size no geometry has give nothing.
    """
    if len(buf) == file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES):
        return [(DEFAULT_SLOTS, DEFAULT_ENTRIES)]
    if len(buf) < file_size(1, 2) or (len(buf) - HEADER_SIZE) % 4:
        return []
    header = read_header(buf)
    numbers, count = (len(buf) - HEADER_SIZE) // 4, header.next_number
    candidates = set()
    for at in _newest_entry_guesses(buf, header):
        slots, rest = divmod(at - HEADER_SIZE - ENTRY_SIZE * (count - 1), SLOT_SIZE)
        entries, partial = divmod(numbers - slots, ENTRY_SIZE // 4)
        if slots >= 1 and not rest and not partial and count <= entries and _explains(buf, header, slots):
            candidates.add((slots, entries))
    return sorted(candidates)


def infer_geometry(buf: bytes | memoryview) -> tuple[int, int] | None:
    """(slots, entries) of a file, or None where its content does not settle it."""
    candidates = geometry_candidates(buf)
    return candidates[0] if len(candidates) == 1 else None


def _newest_entry_guesses(buf: bytes | memoryview, header: Header) -> Iterator[int]:
    """Bytes where the newest entry may begin: wherever the header's end offset stands, searched at C speed."""
    if header.next_number <= 1:
        return
    # zero is everywhere; then every entry belongs to the message at 0, and hashes are what stands out
    offset_is_zero = header.end_physical_offset == 0
    wanted = _NOT_ZERO if offset_is_zero else re.compile(re.escape(INDEX_HEADER.pack(*header)[24:32]))
    at = HEADER_SIZE
    for _ in range(_MAX_GUESSES):
        hit = wanted.search(buf, at)
        if hit is None:
            return
        yield hit.start() // 4 * 4 if offset_is_zero else hit.start() - 4
        at = (hit.start() // 4 * 4 + 4) if offset_is_zero else hit.start() + 1


def _explains(buf: bytes | memoryview, header: Header, slots: int) -> bool:
    """Whether slots and chains lead to the newest entries, with this many slots."""
    count = header.next_number
    if read_entry(buf, slots, 1).physical_offset != header.begin_physical_offset:
        return False
    expected: dict[int, int] = {}
    for number in range(count - 1, max(count - 1 - _VERIFIED, 0), -1):
        entry = read_entry(buf, slots, number)
        slot = entry.key_hash % slots
        if slot not in expected:
            expected[slot] = newest(buf, slots, slot)
            if expected[slot] == count and entry_at(slots, count + 1) <= len(buf):
                # a put that was cut off before it counted its entry
                expected[slot] = read_entry(buf, slots, count).previous_entry
        if entry.key_hash < 0 or expected[slot] != number or not 0 <= entry.previous_entry < number:
            return False
        expected[slot] = entry.previous_entry
    return True
