"""Index files: geometry from content, chains, writing."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import index
from formats.errors import BadLength, Truncated
from formats.layouts import index as layouts
from tests import goldens
from tests.conftest import Unpacked
from tests.formats.strategies import examples, signed


def index_files(store: Path) -> list[Path]:
    return sorted((store / "index").iterdir())


class Put(NamedTuple):
    """One key of one message."""

    key_hash: int
    physical_offset: int
    timestamp: int


def written(puts: list[Put], slots: int, capacity: int) -> bytes:
    """A file filled by the broker's algorithm, for files that begin a run."""
    newest, entries, begin, used = [0] * slots, [], 0, 0
    for number, put in enumerate(puts, start=1):
        slot = put.key_hash % slots
        begin = begin or put.timestamp
        entries.append(
            index.IndexEntry(put.key_hash, put.physical_offset, (put.timestamp - begin) // 1000, newest[slot])
        )
        used += not newest[slot]
        newest[slot] = number
    first, last = (puts[0], puts[-1]) if puts else (Put(0, 0, 0), Put(0, 0, 0))
    header = index.Header(
        first.timestamp, last.timestamp, first.physical_offset, last.physical_offset, used, len(puts) + 1
    )
    return index.build(header, newest, entries, capacity)


def random_file(seed: int, messages: int, slots: int, capacity: int, *, start: int = 0) -> bytes:
    chance = np.random.default_rng(seed)
    puts, offset, now = [], start, 1_700_000_000_000
    for _ in range(messages):
        hashes = chance.integers(0, 2**31, size=chance.integers(1, 4)).tolist()
        puts += [Put(key_hash, offset, now) for key_hash in hashes]
        offset += int(chance.integers(100, 1000))
        now += int(chance.integers(0, 3000))
    return written(puts[: capacity - 1], slots, capacity)


@pytest.mark.parametrize("case", goldens.cases())
def test_every_index_file_tells_its_geometry_and_rebuilds(golden: Unpacked, case: str) -> None:
    config = goldens.about(case)["config"]
    slots, capacity = config["maxHashSlotNum"], config["maxIndexNum"]
    for path in index_files(golden(case)):
        raw = path.read_bytes()
        header = index.read_header(raw)
        newest = index.slots_array(raw, slots).tolist()
        entries = [index.read_entry(raw, slots, n) for n in range(1, header.next_number)]

        assert len(raw) == index.file_size(slots, capacity)
        assert index.geometry_candidates(raw) == [(slots, capacity)]
        assert index.infer_geometry(raw) == (slots, capacity)
        assert index.build(header, newest, entries, capacity) == raw
        assert header.hash_slot_count == sum(map(bool, newest))
        assert [row.item() for row in index.entries_array(raw, slots)[1 : header.next_number]] == entries


@pytest.mark.parametrize("case", ["broker", "clean", "ipv6"])
def test_chains_hold_every_entry_once(golden: Unpacked, case: str) -> None:
    slots = goldens.about(case)["config"]["maxHashSlotNum"]
    for path in index_files(golden(case)):
        raw = path.read_bytes()
        seen = []
        for slot in range(slots):
            numbers = [number for number, _ in index.chain(raw, slots, slot)]
            assert numbers == sorted(numbers, reverse=True)
            seen += numbers
        assert sorted(seen) == list(range(1, index.read_header(raw).next_number))


@pytest.mark.parametrize(
    ("messages", "slots", "capacity"),
    [
        (1, 1, 2),
        (1, 7, 10),
        (2, 7, 10),
        (50, 3, 60),
        (300, 1000, 800),
        (300, 112, 711),
        (40, 500_000, 2_000_000),
        (1, 50_000, 9),
        (8000, 50_000, 20_000),
    ],
)
@pytest.mark.parametrize("start", [0, 300])
def test_geometry_of_written_files(messages: int, slots: int, capacity: int, start: int) -> None:
    for seed in range(2 if capacity > 1000 else 20):
        raw = random_file(seed, messages, slots, capacity, start=start)
        assert (slots, capacity) in index.geometry_candidates(raw)
        geometry = index.infer_geometry(raw)
        # a handful of entries may leave a doubt; it must never be settled wrongly
        assert geometry == (slots, capacity) or (geometry is None and messages <= 2)


def test_an_empty_file_has_no_known_geometry() -> None:
    assert index.infer_geometry(written([], 112, 711)) is None


def test_a_file_of_the_default_size_has_the_default_geometry() -> None:
    class Sized(bytes):
        def __len__(self) -> int:
            return 420_000_040

    assert index.infer_geometry(Sized()) == (index.DEFAULT_SLOTS, index.DEFAULT_ENTRIES)


@pytest.mark.parametrize("count", [-5, 0, 1])
def test_an_uncounted_file_has_no_known_geometry(count: int) -> None:
    raw = random_file(1, 50, 112, 711)
    header = index.read_header(raw)._replace(index_count=count)

    assert index.infer_geometry(index.INDEX_HEADER.pack(*header) + raw[40:]) is None


def test_a_size_that_no_geometry_has() -> None:
    raw = random_file(1, 50, 112, 711)

    assert index.infer_geometry(raw + b"\0") is None
    assert index.infer_geometry(raw[:-3]) is None


def test_a_put_that_was_not_counted_does_not_hide_the_geometry() -> None:
    raw = random_file(3, 100, 50, 400)
    header = index.read_header(raw)
    # the broker writes entry, slot, then the header: take the header of one entry before
    end = index.read_entry(raw, 50, header.index_count - 2).physical_offset
    before = header._replace(index_count=header.index_count - 1, end_physical_offset=end)
    torn = index.INDEX_HEADER.pack(*before) + raw[index.HEADER_SIZE :]

    assert index.infer_geometry(torn) == (50, 400)


def test_a_broken_newest_chain_leaves_the_geometry_unknown() -> None:
    raw = bytearray(random_file(5, 100, 50, 400))
    newest = index.read_header(raw).index_count - 1
    at = index.entry_at(50, newest)
    raw[at : at + 4] = (int.from_bytes(raw[at : at + 4], "big") ^ 1).to_bytes(4, "big")

    assert index.infer_geometry(bytes(raw)) is None


def test_a_file_that_is_one_byte_over_and_over_is_given_up_in_time() -> None:
    raw = b"\x01" * (2 << 20)

    assert index.geometry_candidates(raw[: len(raw) // 4 * 4]) == []


def test_a_loop_in_a_chain_ends() -> None:
    header = index.Header(1, 1, 0, 0, 1, 4)
    looped = index.build(header, [3], [index.IndexEntry(0, 0, 0, n) for n in (2, 3, 2)])

    assert [number for number, _ in index.chain(looped, 1, 0)] == [3, 2]


@pytest.mark.parametrize(("slot", "numbers"), [(0, []), (-1, []), (2, [2, 1]), (3, [3]), (4, []), (2**31 - 1, [])])
def test_a_chain_stays_inside_the_count(slot: int, numbers: list[int]) -> None:
    # count 3: entries 1 and 2 are counted, 3 is one whose count was not written, 4 is beyond
    rows = [index.IndexEntry(0, 0, 0, n) for n in (0, 1, 0, 0)]
    raw = index.build(index.Header(1, 1, 0, 0, 1, 3), [slot], rows)

    assert [number for number, _ in index.chain(raw, 1, 0)] == numbers


def test_a_file_of_one_entry_has_a_chain() -> None:
    raw = index.build(index.Header(1, 1, 0, 0, 1, 2), [1], [index.IndexEntry(0, 7, 0, 0)])

    assert list(index.chain(raw, 1, 0)) == [(1, (0, 7, 0, 0))]


def test_a_file_may_end_with_its_header_or_its_slots() -> None:
    raw = index.build(index.Header(1, 2, 3, 4, 5, 6), [7, 8, 9], [])[:52]

    assert index.read_header(raw[:40]) == (1, 2, 3, 4, 5, 6)
    assert index.newest(raw, 3, 4) == 8
    assert index.slots_array(raw, 3).tolist() == [7, 8, 9]
    assert index.slots_array(raw[:40], 0).tolist() == []
    assert len(index.entries_array(raw, 3)) == 0
    assert len(index.entries_array(raw, 0)) == 0
    assert list(index.chain(raw, 3, 4)) == []


def test_entry_0_can_be_looked_at() -> None:
    raw = index.build(index.Header(1, 1, 0, 0, 1, 2), [1], [index.IndexEntry(5, 7, 0, 0)])

    assert index.read_entry(raw, 1, 0) == (0, 0, 0, 0)
    assert index.read_entry(raw, 1, 1) == (5, 7, 0, 0)


def test_an_uncounted_file_has_no_chains() -> None:
    raw = index.build(index.Header(0, 0, 0, 0, 0, 0), [1], [index.IndexEntry(0, 0, 0, 0)])

    assert index.read_header(raw).next_number == 1
    assert list(index.chain(raw, 1, 0)) == []


def test_a_chain_stays_inside_the_file() -> None:
    raw = index.build(index.Header(1, 1, 0, 0, 1, 100), [5], [index.IndexEntry(0, 0, 0, 0)] * 3)

    assert list(index.chain(raw, 1, 0)) == []


@pytest.mark.parametrize("slots", [0, -1, 12, 2**40])
def test_slots_that_do_not_fit_are_refused(slots: int) -> None:
    raw = index.build(index.Header(1, 1, 0, 0, 1, 2), [1], [index.IndexEntry(0, 0, 0, 0)])  # room for 11 slots, no more
    with pytest.raises(BadLength):
        list(index.chain(raw, slots, 0))


def test_short_files_are_refused() -> None:
    with pytest.raises(Truncated):
        index.read_header(bytes(39))
    with pytest.raises(BadLength):
        index.read_entry(bytes(60), 0, 1)
    with pytest.raises(BadLength):
        index.read_entry(bytes(60), 0, -1)
    with pytest.raises(BadLength):
        index.slots_array(bytes(60), 6)
    with pytest.raises(BadLength):
        index.entries_array(bytes(60), 6)


def test_more_entries_than_room_are_refused() -> None:
    rows = [index.IndexEntry(0, 0, 0, 0)] * 3
    header = index.Header(0, 0, 0, 0, 0, 4)

    assert len(index.build(header, [0], rows, 4)) == index.file_size(1, 4)
    with pytest.raises(BadLength):
        index.build(header, [0], rows, 3)


@examples
@given(
    header=st.tuples(*[signed(64)] * 4, signed(32), signed(32)),
    slots=st.lists(signed(32), min_size=1, max_size=5),
    rows=st.lists(st.tuples(signed(32), signed(64), signed(32), signed(32)), max_size=5),
    more=st.integers(0, 3),
)
def test_files_read_as_they_were_built(
    header: tuple[int, ...], slots: list[int], rows: list[tuple[int, ...]], more: int
) -> None:
    entries = [index.IndexEntry._make(row) for row in rows]
    raw = index.build(index.Header._make(header), slots, entries, len(rows) + 1 + more)

    assert index.read_header(raw) == header
    assert index.slots_array(raw, len(slots)).tolist() == slots
    assert [index.read_entry(raw, len(slots), n) for n in range(1, len(rows) + 1)] == entries
    assert layouts.HEADER.parse(raw).index_count == header[5]
    assert layouts.SLOT[len(slots)].parse(raw[40:])[-1].newest_entry == slots[-1]
    assert not any(raw[index.entry_at(len(slots), len(rows) + 1) :])


@examples
@given(key=st.text(max_size=20), topic=st.text(max_size=20))
def test_key_hashes_are_not_negative(topic: str, key: str) -> None:
    assert 0 <= index.key_hash(topic, key) < 2**31
