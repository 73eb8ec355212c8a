"""Put many keys into an index file at once, as ``IndexFile.putKey`` puts each (store.index; store-formats 5)."""

from typing import Any

import numpy as np

from formats.derived import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from formats.index import Header, file_size
from formats.jit import address_of, expect_write, i32_at, kernel, store_i32, store_i64
from formats.kernel import Column

_HEADER_SIZE, _SLOT_SIZE, _ENTRY_SIZE = INDEX_HEADER.size, INDEX_SLOT.size, INDEX_ENTRY.size
_BEGIN_TIME, _END_TIME, _BEGIN_OFFSET, _END_OFFSET, _SLOT_COUNT, _COUNT = range(len(Header._fields))
_AT_OFFSET = INDEX_ENTRY.offsets["physical_offset"]
_AT_SECONDS = INDEX_ENTRY.offsets["seconds"]
_AT_PREVIOUS = INDEX_ENTRY.offsets["previous_entry"]
_INT_MAX = 2**31 - 1
_AHEAD = 16  # slots lie all over the file: they are fetched before their turn


@kernel
def _put(
    base: Any, slots: Any, entries: Any, header: Any, rows: Any, hashes: Any, offsets: Any, times: Any, first: Any
) -> Any:
    skip = False
    added = 0
    first_slot = base + _HEADER_SIZE
    for i in range(first, len(rows)):
        row = rows[i]
        full = header[_COUNT] >= entries
        if i == 0 or rows[i - 1] != row:
            if full:
                return i, added
            skip = offsets[row] < header[_END_OFFSET]
        if skip:
            continue
        if full:
            return i, added
        if i + _AHEAD < len(rows):
            expect_write(first_slot + _SLOT_SIZE * (hashes[i + _AHEAD] % slots))
        slot_at = first_slot + _SLOT_SIZE * (hashes[i] % slots)
        number = header[_COUNT]
        previous = i32_at(slot_at)
        if previous <= 0 or previous > number:
            previous = 0
        seconds = 0
        if header[_BEGIN_TIME] > 0 and times[row] > header[_BEGIN_TIME]:
            seconds = min((times[row] - header[_BEGIN_TIME]) // 1000, _INT_MAX)
        entry_at = base + _HEADER_SIZE + _SLOT_SIZE * slots + _ENTRY_SIZE * number
        store_i32(entry_at, hashes[i])
        store_i64(entry_at + _AT_OFFSET, offsets[row])
        store_i32(entry_at + _AT_SECONDS, seconds)
        store_i32(entry_at + _AT_PREVIOUS, previous)
        store_i32(slot_at, number)
        if number <= 1:
            header[_BEGIN_OFFSET], header[_BEGIN_TIME] = offsets[row], times[row]
        if previous == 0:
            header[_SLOT_COUNT] += 1
        header[_COUNT] = number + 1
        header[_END_OFFSET], header[_END_TIME] = offsets[row], times[row]
        added += 1
    return len(rows), added


def put_keys(
    file: Any,
    slots: int,
    entries: int,
    header: Header,
    rows: Column,
    hashes: Column,
    offsets: Column,
    times: Column,
    first: int,
) -> tuple[int, int, Header]:
    """Put keys from number ``first`` on; returns (next key, entries added, header afterwards).

    A record that begins before the end of what the file holds has its keys in it already: they are passed over. It
    stops before a key that does not fit; then a new file goes on, with a header that says where this one ends.

    Args:
        file: the whole file, writable. The header in it is not touched.
        header: with the number that the next entry will have, at least 1.
        rows: of each key, its record: position in ``offsets`` and ``times``; ascending. All arrays are of int64.
        hashes: of each key, its hash; none is negative.

    Raises:
        ValueError: the file is too short for these slots and entries, or the header is no file's.
    """
    address, keep = address_of(file, writable=True)
    if memoryview(file).nbytes < file_size(slots, entries) or slots < 1 or header.index_count < 1:
        raise ValueError(f"no index file of {slots} slots and {entries} entries")
    state = np.array(header, np.int64)
    rows, hashes, offsets, times = map(np.ascontiguousarray, (rows, hashes, offsets, times))
    following, added = _put(address, slots, entries, state, rows, hashes, offsets, times, first)
    del keep
    return int(following), int(added), Header._make(state.tolist())
