"""Index file: header, hash slots, entries chained from newest to oldest.

Source: org.apache.rocketmq.store.index.IndexFile, IndexHeader; store-formats 5. A file has S slots and space for N
entries but records neither number: S and N come from the configuration or from :func:`infer_geometry`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from formats.errors import BadLength, Truncated
from formats.layouts.derived import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from formats.primitives import java_hash

if TYPE_CHECKING:
    from formats.arrays import Array


HEADER_SIZE = INDEX_HEADER.size
SLOT_SIZE = INDEX_SLOT.size
ENTRY_SIZE = INDEX_ENTRY.size
DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
_VERIFIED = 64  # number of newest entries whose chains a candidate geometry must explain
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
        """Number of the next entry to be written; like the broker, counts below 1 read as 1."""
        return max(self.index_count, 1)


class IndexEntry(NamedTuple):
    """One entry as stored. Entry 0 is never used."""

    key_hash: int
    physical_offset: int
    seconds: int  # from the header's begin timestamp to the message's store time
    previous_entry: int  # next older entry of the same slot; 0 = end of the chain


def file_size(slots: int, entries: int) -> int:
    """Return the size in bytes of a file with the given number of slots and entries."""
    return HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * entries


def key_hash(topic: str, key: str) -> int:
    """Return the hash of ``topic#key``, never negative: the minimum int, which has no absolute value, becomes 0."""
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 2**31 else value


def tag_key(tags: str) -> str:
    """Return the key under which a message is indexed by its tags; written by 5.4 and later (``IndexService``)."""
    return f"T#{tags}"


def slot_at(slot: int) -> int:
    """Return the byte offset of a slot in the file."""
    return HEADER_SIZE + SLOT_SIZE * slot


def entry_at(slots: int, number: int) -> int:
    """Return the byte offset of an entry in a file with the given number of slots."""
    return HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * number


def read_header(buf: bytes | memoryview) -> Header:
    """Read the header.

    Raises:
        Truncated: the buffer is shorter than 40 bytes.
    """
    if len(buf) < HEADER_SIZE:
        raise Truncated(len(buf), "index file ends inside its header")
    return Header._make(INDEX_HEADER.unpack_from(buf))


def read_entry(buf: bytes | memoryview, slots: int, number: int) -> IndexEntry:
    """Read one entry by number.

    Raises:
        BadLength: the file has no such entry.
    """
    at = entry_at(slots, number)
    if slots < 0 or number < 0 or at + ENTRY_SIZE > len(buf):
        raise BadLength(max(at, 0), f"entry {number} lies outside the file")
    return IndexEntry._make(INDEX_ENTRY.unpack_from(buf, at))


def newest(buf: bytes | memoryview, slots: int, hash_value: int) -> int:
    """Read the slot of a hash: the number of its newest entry, unchecked, or 0 if the slot is empty.

    Raises:
        BadLength: the file is too small for this many slots.
    """
    if slots < 1 or slot_at(slots) > len(buf):
        raise BadLength(HEADER_SIZE, f"{slots} slots do not fit a file of {len(buf)} bytes")
    (number,) = INDEX_SLOT.unpack_from(buf, slot_at(hash_value % slots))
    return int(number)


def chain(
    buf: bytes | memoryview, slots: int, hash_value: int, count: int | None = None
) -> Iterator[tuple[int, IndexEntry]]:
    """Yield (number, entry) for the chain of a hash's slot, newest first, including entries with other hashes.

    As in the broker, a number above the header's count ends the chain, and the number equal to it (an entry whose count
    had not been written yet) does not. Numbers must decrease, so a loop in the file terminates too.

    Args:
        count: the header's count, if the caller has already read it.

    Raises:
        Truncated, BadLength: the file is too small for the header or for this many slots.
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
    """Return the newest entry number of every slot: a big-endian i4 array of shape (slots,), without copying.

    Raises:
        BadLength: the file is too small for this many slots.
    """
    import numpy as np

    if slots < 0 or slot_at(slots) > len(buf):
        raise BadLength(HEADER_SIZE, f"{slots} slots do not fit a file of {len(buf)} bytes")
    return np.frombuffer(buf, ">i4", count=slots, offset=HEADER_SIZE)


def entries_array(buf: bytes | memoryview, slots: int) -> "Array":
    """Return all entries from number 0 on, used or not, as a record array of shape (n,), without copying.

    Raises:
        BadLength: the file is too small for this many slots.
    """
    import numpy as np

    start = slot_at(slots)
    if slots < 0 or start > len(buf):
        raise BadLength(HEADER_SIZE, f"{slots} slots do not fit a file of {len(buf)} bytes")
    return np.frombuffer(buf, INDEX_ENTRY.dtype, count=(len(buf) - start) // ENTRY_SIZE, offset=start)


def build(header: Header, slots: Sequence[int], entries: Sequence[IndexEntry], capacity: int | None = None) -> bytes:
    """Build a complete file.

    Args:
        slots: the newest entry number of every slot.
        entries: the entries from number 1 on; entry 0 is written as zeros.
        capacity: entries that the file can hold, entry 0 included; by default just enough.

    Raises:
        BadLength: there are more entries than ``capacity``.
    """
    room = len(entries) + 1 if capacity is None else capacity
    if room < len(entries) + 1:
        raise BadLength(entry_at(len(slots), room), f"{len(entries)} entries and entry 0 in a file of {room}")
    parts = [INDEX_HEADER.pack(*header), *map(INDEX_SLOT.pack, slots), bytes(ENTRY_SIZE)]
    parts += [INDEX_ENTRY.pack(*entry) for entry in entries]
    return b"".join(parts).ljust(file_size(len(slots), room), b"\0")


def geometry_candidates(buf: bytes | memoryview) -> list[tuple[int, int]]:
    """Return every (slots, entries) consistent with the file's size and content, ascending.

    A file of the default size has the default geometry, whatever it contains. In any other file, the newest entry must
    hold the header's end offset and the oldest its begin offset, and the slots and chains of the newest entries must
    lead to them. Empty and torn files, and files with an impossible size, give an empty list.
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
    """Return the (slots, entries) of a file, or None if its content is ambiguous."""
    candidates = geometry_candidates(buf)
    return candidates[0] if len(candidates) == 1 else None


def _newest_entry_guesses(buf: bytes | memoryview, header: Header) -> Iterator[int]:
    """Yield byte offsets where the newest entry may begin: wherever the header's end offset occurs."""
    if header.next_number <= 1:
        return
    # zeros are everywhere; in this case every entry belongs to the message at offset 0, so search for hashes instead
    offset_is_zero = header.end_physical_offset == 0
    pattern = _NOT_ZERO if offset_is_zero else re.compile(re.escape(INDEX_HEADER.pack(*header)[24:32]))
    at = HEADER_SIZE
    for _ in range(_MAX_GUESSES):
        hit = pattern.search(buf, at)
        if hit is None:
            return
        yield hit.start() // 4 * 4 if offset_is_zero else hit.start() - 4
        at = (hit.start() // 4 * 4 + 4) if offset_is_zero else hit.start() + 1


def _explains(buf: bytes | memoryview, header: Header, slots: int) -> bool:
    """Return whether the slots and chains lead to the newest entries under this number of slots."""
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
                # an entry was written but not counted yet
                expected[slot] = read_entry(buf, slots, count).previous_entry
        if entry.key_hash < 0 or expected[slot] != number or not 0 <= entry.previous_entry < number:
            return False
        expected[slot] = entry.previous_entry
    return True
