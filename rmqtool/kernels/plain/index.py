"""Adding keys to an index file one at a time."""

from formats.index import Header
from formats.layouts.derived import INDEX_ENTRY, INDEX_SLOT
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.tables.collected import Keys

_INT_MAX = 2**31 - 1


def put_keys(slots: Memory, entries: Memory, header: Header, keys: Keys, first: int) -> tuple[int, int, Header]:
    """See :func:`rmqtool.kernels.index.put_keys`."""
    slot_count, room = slots.length // INDEX_SLOT.size, entries.length // INDEX_ENTRY.size
    begin_timestamp, end_timestamp, begin_offset, end_offset, used_slots, number = header
    stop, added, skip = number + room, 0, False
    at, before = first, int(keys.row[first - 1]) if first else -1
    offsets, timestamps = keys.physical_offset.tolist(), keys.store_timestamp.tolist()
    for row, key_hash in zip(keys.row[first:].tolist(), keys.hash[first:].tolist(), strict=True):
        if row != before:
            if number >= stop:
                break
            before, skip = row, offsets[row] < end_offset
        if not skip:
            if number >= stop:
                break
            slot_at = INDEX_SLOT.size * (key_hash % slot_count)
            (previous,) = INDEX_SLOT.unpack_from(slots.view, slot_at)
            if previous <= 0 or previous > number:
                previous, used_slots = 0, used_slots + 1
            seconds = 0
            if begin_timestamp > 0:
                seconds = min(max(timestamps[row] - begin_timestamp, 0) // 1000, _INT_MAX)
            entry = key_hash, offsets[row], seconds, previous
            INDEX_ENTRY.struct.pack_into(entries.view, INDEX_ENTRY.size * added, *entry)
            INDEX_SLOT.struct.pack_into(slots.view, slot_at, number)
            if number <= 1:
                begin_offset, begin_timestamp = offsets[row], timestamps[row]
            end_offset, end_timestamp = offsets[row], timestamps[row]
            number, added = number + 1, added + 1
        at += 1
    return at, added, Header(begin_timestamp, end_timestamp, begin_offset, end_offset, used_slots, number)
