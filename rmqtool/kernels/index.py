"""Adding many keys to an index file at once; equivalent to ``IndexFile.putKey`` (store.index; store-formats 5)."""

import ctypes
from typing import Protocol

import numpy as np

from formats.index import Header
from formats.layouts.derived import INDEX_ENTRY, INDEX_SLOT
from rmqtool.kernels.load.library import INT64, POINTER, Function, Implementation, is_compiled
from rmqtool.kernels.load.memory import Buffer, Memory, array_address
from rmqtool.kernels.plain import index as plain
from rmqtool.kernels.tables.collected import Keys
from rmqtool.kernels.tables.shapes import Column

HEADER_FIELDS = Header._fields


class Index(Protocol):
    """Entry points. Callers have checked that there is a slot and that the records of all keys exist."""

    def put_keys(
        self, slots: Memory, entries: Memory, header: Header, keys: Keys, first: int
    ) -> tuple[int, int, Header]:
        """See :func:`put_keys`."""


class _CKeys(ctypes.Structure):
    _fields_ = (
        ("row", POINTER),
        ("hash", POINTER),
        ("count", INT64),
        ("physical_offset", POINTER),
        ("store_timestamp", POINTER),
    )


_put_keys = Function("rmq_put_keys", INT64, POINTER, INT64, POINTER, INT64, POINTER, POINTER, INT64, POINTER)


class _Compiled:
    def put_keys(
        self, slots: Memory, entries: Memory, header: Header, keys: Keys, first: int
    ) -> tuple[int, int, Header]:
        row, hashes, offsets, timestamps = map(array_address, keys)
        arguments = _CKeys(row, hashes, len(keys.row), offsets, timestamps)
        state = (ctypes.c_int64 * len(header))(*header)
        added = ctypes.c_int64()
        following = _put_keys(
            slots.address,
            slots.length // INDEX_SLOT.size,
            entries.address,
            entries.length // INDEX_ENTRY.size,
            state,
            ctypes.byref(arguments),
            first,
            ctypes.byref(added),
        )
        return following, added.value, Header._make(state)


def choose_code(code: Implementation | None) -> Index:
    """Return the compiled or the plain entry points."""
    if is_compiled(code):
        return _Compiled()
    return plain


def put_keys(
    slots: Buffer,
    entries: Buffer,
    header: Header,
    rows: Column,
    hashes: Column,
    offsets: Column,
    times: Column,
    first: int,
    *,
    code: Implementation | None = None,
) -> tuple[int, int, Header]:
    """Add keys from number ``first`` on; return (next key, entries added, new header).

    Keys of records before the file's end offset are already present and are skipped. It stops at a key that does not
    fit; continue with a larger ``entries``, or with a new file whose header starts where this one ends.

    Args:
        slots: hash slots of the file, writable.
        entries: space for entries from the header's count on, writable.
        header: header with the number of the next entry, at least 1.
        rows: for each key, its record as an index into ``offsets`` and ``times``; ascending. All arrays are int64.
        hashes: hash of each key, not negative.
        code: implementation to use.

    Raises:
        ValueError: there is no slot, the header is invalid, or a key refers to a missing record.
    """
    slot_memory, entry_memory = Memory(slots, writable=True), Memory(entries, writable=True)
    slot_count = slot_memory.length // INDEX_SLOT.size
    if slot_count < 1 or header.index_count < 1:
        raise ValueError(f"no index file: {slot_count} slots, next entry {header.index_count}")
    keys = Keys(*(np.ascontiguousarray(column, np.int64) for column in (rows, hashes, offsets, times)))
    if len(keys.row) and not 0 <= keys.row[0] <= keys.row[-1] < min(len(keys.physical_offset), len(times)):
        raise ValueError(f"keys of records {keys.row[0]} to {keys.row[-1]}, of which there are {len(offsets)}")
    return choose_code(code).put_keys(slot_memory, entry_memory, header, keys, first)
