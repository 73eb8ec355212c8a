"""Put many keys into an index file at once, as ``IndexFile.putKey`` puts each (store.index; store-formats 5)."""

from typing import Any

import numpy as np

from formats.index import Header
from formats.jit import address_of, expect_write, i32_at, kernel, part, store_i32, store_i64
from formats.kernel import Column
from formats.layouts.derived import INDEX_ENTRY, INDEX_SLOT

_SLOT_SIZE, _ENTRY_SIZE = INDEX_SLOT.size, INDEX_ENTRY.size
_BEGIN_TIME, _END_TIME, _BEGIN_OFFSET, _END_OFFSET, _SLOT_COUNT, _COUNT = range(len(Header._fields))
_AT_OFFSET = INDEX_ENTRY.offsets["physical_offset"]
_AT_SECONDS = INDEX_ENTRY.offsets["seconds"]
_AT_PREVIOUS = INDEX_ENTRY.offsets["previous_entry"]
_INT_MAX = 2**31 - 1
_AHEAD = 32  # slots lie all over the file: they are fetched before their turn


@part
def _slot_of(value: Any, slots: Any) -> Any:
    """Neither has more than 31 bits, and to divide more of them takes longer."""
    return np.int64(np.uint32(value) % np.uint32(slots))


@kernel
def _put(
    first_slot: Any,
    slots: Any,
    entry_0: Any,
    entries: Any,
    header: Any,
    rows: Any,
    hashes: Any,
    offsets: Any,
    times: Any,
    first: Any,
) -> Any:
    # whatever is stored anywhere might be the header's: it stays in registers
    begin_time, end_time = header[_BEGIN_TIME], header[_END_TIME]
    begin_offset, end_offset = header[_BEGIN_OFFSET], header[_END_OFFSET]
    slot_count, number = header[_SLOT_COUNT], header[_COUNT]
    skip = False
    at = first
    while at < len(rows):
        row = rows[at]
        full = number >= entries
        if at == 0 or rows[at - 1] != row:
            if full:
                break
            skip = offsets[row] < end_offset
        if skip:
            at += 1
            continue
        if full:
            break
        if at + _AHEAD < len(rows):
            expect_write(first_slot + _SLOT_SIZE * _slot_of(hashes[at + _AHEAD], slots))
        slot_at = first_slot + _SLOT_SIZE * _slot_of(hashes[at], slots)
        offset, time = offsets[row], times[row]
        previous = i32_at(slot_at)
        if previous <= 0 or previous > number:
            previous = 0
            slot_count += 1
        seconds = 0
        if begin_time > 0 and time > begin_time:
            seconds = min((time - begin_time) // 1000, _INT_MAX)
        entry_at = entry_0 + _ENTRY_SIZE * number
        store_i32(entry_at, hashes[at])
        store_i64(entry_at + _AT_OFFSET, offset)
        store_i32(entry_at + _AT_SECONDS, seconds)
        store_i32(entry_at + _AT_PREVIOUS, previous)
        store_i32(slot_at, number)
        if number <= 1:
            begin_offset, begin_time = offset, time
        end_offset, end_time = offset, time
        number += 1
        at += 1
    added = number - header[_COUNT]
    header[_BEGIN_TIME], header[_END_TIME] = begin_time, end_time
    header[_BEGIN_OFFSET], header[_END_OFFSET] = begin_offset, end_offset
    header[_SLOT_COUNT], header[_COUNT] = slot_count, number
    return at, added


def put_keys(
    slots: Any,
    entries: Any,
    header: Header,
    rows: Column,
    hashes: Column,
    offsets: Column,
    times: Column,
    first: int,
) -> tuple[int, int, Header]:
    """Put keys from number ``first`` on; returns (next key, entries added, header afterwards).

    A record that begins before the end of what the file holds has its keys in it already: they are passed over. It
    stops before a key that does not fit; then the same file goes on with more room, or a new one with a header that
    says where this one ends.

    Args:
        slots: the file's hash slots, writable.
        entries: room for entries from the one with the header's count on, writable.
        header: with the number that the next entry will have, at least 1.
        rows: of each key, its record: position in ``offsets`` and ``times``; ascending. All arrays are of int64.
        hashes: of each key, its hash; none is negative.

    Raises:
        ValueError: there is no slot, or the header is no file's.
    """
    address, keep = address_of(slots, writable=True)
    entries_address, keep_entries = address_of(entries, writable=True)
    slot_count, room = memoryview(slots).nbytes // _SLOT_SIZE, memoryview(entries).nbytes // _ENTRY_SIZE
    if slot_count < 1 or header.index_count < 1:
        raise ValueError(f"no index file: {slot_count} slots, next entry {header.index_count}")
    state = np.array(header, np.int64)
    entry_0, stop = entries_address - _ENTRY_SIZE * header.index_count, header.index_count + room
    rows, hashes, offsets, times = map(np.ascontiguousarray, (rows, hashes, offsets, times))
    following, added = _put(address, slot_count, entry_0, stop, state, rows, hashes, offsets, times, first)
    del keep, keep_entries
    return int(following), int(added), Header._make(state.tolist())
