"""Adding keys to an index file in bulk, by either code, compared with one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import index
from formats.layouts.derived import INDEX_HEADER
from rmqtool.kernels.index import put_keys
from rmqtool.kernels.load.library import Implementation
from rmqtool.store.index.builder import IndexFile
from tests.formats.strategies import many_examples
from tests.kernels.codes import both

_MOST = (2**31 - 1) * 1000  # the largest time difference that an entry says, in ms
times_of_messages = st.one_of(st.integers(-1, 2**42), st.sampled_from([1, _MOST, _MOST + 1000, _MOST + 1001, 2**42]))


@both
@many_examples
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 2**40), times_of_messages, st.integers(0, 3)), max_size=40),
    st.sampled_from([1, 2, 5, 13]),
    st.sampled_from([2, 3, 7, 100]),
    st.integers(0, 2**32 - 1),
)
def test_index_files_get_the_same_bytes(
    code: Implementation, messages: list[tuple[int, int, int, int]], slots: int, entries: int, seed: int
) -> None:
    """Each message has keys, a physical offset, a store time, and keys with one of few hashes."""
    random = np.random.default_rng(seed)
    words = index.file_size(slots, entries) // 4
    garbage = (random.integers(-2, 8, words) * (seed % 2)).astype(">i4")  # many look like the number of an entry
    rows, hashes = [], []
    for row, (keys, _offset, _time, first) in enumerate(messages):
        for i in range(keys):
            rows.append(row)
            hashes.append((first + i) * (2**31 - 1) // 7)
    offsets = [offset for _keys, offset, _time, _first in messages]
    times = [time for _keys, _offset, time, _first in messages]
    start = index.Header(times[0] if times and seed % 3 else 0, 5, 0, offsets[0] if offsets and seed % 5 else 0, 1, 1)

    plain_file, at, skip, before, added = a_file(slots, entries, start, garbage), 0, False, -1, 0
    while at < len(rows):
        row = rows[at]
        if row != before:
            if plain_file.full:
                break
            skip, before = offsets[row] < plain_file.end_physical_offset, row
        if not skip:
            if plain_file.full:
                break
            plain_file.put(hashes[at], offsets[row], times[row])
            added += 1
        at += 1
    plain_file.write_header()

    other = a_file(slots, entries, start, garbage)
    columns = (np.array(column, np.int64) for column in (rows, hashes, offsets, times))
    key_row, key_hash, physical, stored = columns
    view = memoryview(other.map)  # type: ignore[arg-type]
    split = index.file_size(slots, start.index_count)
    room = view[split : index.file_size(slots, entries)] if entries > start.index_count else view[:0]
    table = view[INDEX_HEADER.size : index.file_size(slots, 0)]
    following, put, header = put_keys(table, room, start, key_row, key_hash, physical, stored, 0, code=code)
    assert (following, put) == (at, added)
    other.begin_timestamp, other.end_timestamp = header.begin_timestamp, header.end_timestamp
    other.begin_physical_offset, other.end_physical_offset = header.begin_physical_offset, header.end_physical_offset
    other.hash_slot_count, other.index_count = header.hash_slot_count, header.index_count
    other.write_header()
    assert other.map == plain_file.map


def a_file(slots: int, entries: int, header: index.Header, content: Any) -> IndexFile:
    """An index file in memory."""
    file = IndexFile(None, slots, entries)
    file.map = bytearray(content.tobytes())  # type: ignore[assignment]
    file.begin_timestamp, file.end_timestamp = header.begin_timestamp, header.end_timestamp
    file.begin_physical_offset, file.end_physical_offset = header.begin_physical_offset, header.end_physical_offset
    file.hash_slot_count, file.index_count = header.hash_slot_count, header.index_count
    return file


@both
def test_keys_are_not_put_where_they_have_no_room(code: Implementation) -> None:
    none = np.zeros(0, np.int64)
    header = index.Header(0, 0, 0, 0, 0, 1)
    slots, entries = bytearray(20), bytearray(100)
    with pytest.raises(ValueError, match="no index file"):
        put_keys(bytearray(3), entries, header, none, none, none, none, 0, code=code)
    with pytest.raises(ValueError, match="no index file"):
        put_keys(slots, entries, header._replace(index_count=0), none, none, none, none, 0, code=code)
    for given_slots, given_entries in ((bytes(20), entries), (slots, bytes(100))):
        with pytest.raises(ValueError, match="read-only"):
            put_keys(given_slots, given_entries, header, none, none, none, none, 0, code=code)


@both
def test_keys_of_records_that_are_not_there_are_refused(code: Implementation) -> None:
    column, header = np.zeros(1, np.int64), index.Header(0, 0, 0, 0, 0, 1)
    for row in (-1, 1):
        with pytest.raises(ValueError, match="of which there are 1"):
            put_keys(bytearray(20), bytearray(100), header, column + row, column, column, column, 0, code=code)
