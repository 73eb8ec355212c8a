"""Consume queue, its extension and the batch consume queue."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.endings import Ending, UnitEnd
from formats.errors import BadLength, Truncated
from formats.layouts import queues
from formats.layouts.derived import BATCH_CQ_ENTRY, CQ_ENTRY
from formats.queues import batch
from formats.queues import consume as cq
from formats.queues import extension as ext
from tests import goldens
from tests.conftest import Unpacked
from tests.formats.building import extension_file
from tests.formats.strategies import examples, signed, values_of


def files_below(store: Path, folder: str) -> list[Path]:
    return [path for path in sorted((store / folder).rglob("*")) if path.is_file()]


# --- consume queue ---


@pytest.mark.parametrize("case", goldens.cases())
def test_every_queue_file_rebuilds(golden: Unpacked, case: str) -> None:
    for path in files_below(golden(case), "consumequeue"):
        raw = path.read_bytes()

        assert cq.build(cq.entries(raw)) == raw
        assert cq.as_array(raw).tobytes() == raw
        assert queues.ENTRY[len(raw) // cq.SIZE].build(queues.ENTRY[len(raw) // cq.SIZE].parse(raw)) == raw


@examples
@given(rows=st.lists(values_of(CQ_ENTRY), max_size=20), tail=st.binary(max_size=19))
def test_entries_read_as_they_were_written(rows: list[tuple[int, int, int]], tail: bytes) -> None:
    raw = cq.build(rows) + tail
    array = cq.as_array(raw)

    assert [tuple(entry) for entry in cq.entries(raw)] == rows
    assert [row.item() for row in array] == rows
    assert [cq.read(raw, i * cq.SIZE) for i in range(len(rows))] == rows
    valid = [cq.is_valid(*row[:2]) for row in rows]
    assert cq.valid_prefix(array) == (valid.index(False) if False in valid else len(rows))


def test_the_array_is_a_view() -> None:
    raw = bytearray(cq.build([(1, 2, 3)] * 3))
    array = cq.as_array(memoryview(raw))
    raw[0:20] = cq.build([(7, 8, 9)])

    assert array[0].item() == (7, 8, 9)
    del array  # lets go of the buffer


@pytest.mark.parametrize("count", [0, 1, 65536, 65537, 140000])
def test_the_valid_prefix_of_long_files(count: int) -> None:
    array = np.zeros(140000, CQ_ENTRY.dtype)
    array["size"][:count] = 100

    assert cq.valid_prefix(array) == count


@pytest.mark.parametrize(
    ("offset", "size", "valid"), [(0, 1, True), (0, 0, False), (-1, 1, False), (7, -1, False), (2**62, 2**31 - 1, True)]
)
def test_what_the_broker_takes_for_an_entry(offset: int, size: int, valid: bool) -> None:
    assert cq.is_valid(offset, size) is valid
    assert cq.valid_prefix(cq.as_array(cq.build([(offset, size, 0)]))) == valid


@pytest.mark.parametrize("at", [-1, -20, 1, 20, 2**40])
def test_an_entry_outside_the_file_is_truncated(at: int) -> None:
    with pytest.raises(Truncated):
        cq.read(bytes(20), at)


@given(offset=st.integers(0, 2**63 - 2**31 - 1))
def test_extension_addresses_go_both_ways_and_are_no_hashes(offset: int) -> None:
    address = cq.ext_address(offset)

    assert cq.real_offset(address) == offset
    assert cq.is_ext_address(address)
    assert address < -(2**31)


@given(code=st.integers(-(2**31), 2**63 - 1))
def test_hashes_and_times_are_no_addresses(code: int) -> None:
    assert not cq.is_ext_address(code)
    with pytest.raises(BadLength):
        cq.real_offset(code)


@pytest.mark.parametrize("offset", [-1, 2**63 - 2**31, 2**63])
def test_offsets_without_an_address(offset: int) -> None:
    with pytest.raises(BadLength):
        cq.ext_address(offset)


# --- extension ---


def test_every_extension_file_rebuilds(golden: Unpacked) -> None:
    paths = files_below(golden("queue-ext"), "consumequeue_ext")
    assert len(paths) == 12
    for path in paths:
        raw = path.read_bytes()
        result = [unit for _, unit in ext.units(raw)]
        end = result.pop()
        packed = [ext.build_unit(unit.tags_code, unit.store_timestamp, unit.bit_map) for unit in result]

        assert isinstance(end, UnitEnd)
        assert end.ending is Ending.UNWRITTEN
        assert result
        assert extension_file(packed, len(raw)) == raw


@examples
@given(
    fields=st.lists(st.tuples(signed(64), signed(64), st.binary(max_size=40)), max_size=8),
    ended=st.booleans(),
)
def test_units_read_as_they_were_written(fields: list[tuple[int, int, bytes]], ended: bool) -> None:
    packed = [ext.build_unit(*row) for row in fields]
    raw = extension_file(packed, 1024, ended=ended)
    *units_read, (_, end) = ext.units(raw)

    assert [(unit.tags_code, unit.store_timestamp, unit.bit_map) for _, unit in units_read] == fields
    assert end.ending is (Ending.FILLER if ended else Ending.UNWRITTEN)
    assert end.at == sum(map(len, packed))
    for at, unit in units_read:
        parsed = queues.EXT_UNIT.parse(raw[at:])
        assert {name: parsed[name] for name in ext.ExtensionUnit._fields} == unit._asdict()


UNIT = ext.build_unit(5, 6, b"\x01\x02")


@pytest.mark.parametrize(
    ("raw", "ending"),
    [
        (b"", Ending.CLEAN),
        (b"\0", Ending.UNWRITTEN),
        (b"\x01", Ending.CUT),
        (bytes(50), Ending.UNWRITTEN),
        (bytes(2), Ending.UNWRITTEN),
        (b"\xff\xff", Ending.FILLER),
        (b"\xff\xff" + UNIT, Ending.FILLER),
        (b"\x00\x14", Ending.CUT),
        (b"\xff\xfe" + UNIT, Ending.DAMAGED),
        (b"\x00\x13" + UNIT, Ending.DAMAGED),
        (UNIT[:-1], Ending.CUT),
        (b"\x7f\xff" + UNIT[2:], Ending.CUT),
        (b"\x00\x15" + UNIT[2:], Ending.DAMAGED),
        (UNIT[:18] + b"\x00\x01" + UNIT[20:], Ending.DAMAGED),
        (UNIT[:18] + b"\xff\xff" + UNIT[20:], Ending.DAMAGED),
    ],
)
def test_what_is_no_unit_is_named(raw: bytes, ending: Ending) -> None:
    end = ext.read(raw, 0, len(raw))

    assert isinstance(end, UnitEnd)
    assert (end.ending, end.at) == (ending, 0)


def test_a_unit_without_a_map_may_say_less_than_none() -> None:
    raw = b"\x00\x14" + bytes(16) + b"\xff\xff"
    unit = ext.read(raw, 0, len(raw))

    assert isinstance(unit, ext.ExtensionUnit)
    assert (unit.bit_map_size, unit.bit_map) == (-1, b"")


def test_four_bytes_stay_free_behind_a_unit() -> None:
    assert ext.fits(0, 22, 26)
    assert not ext.fits(0, 22, 25)
    assert ext.fits(10, 22, 36)
    assert not ext.fits(10, 22, 35)
    assert extension_file([], 2, ended=True) == b"\xff\xff"
    assert len(extension_file([UNIT], 26, ended=True)) == 26
    with pytest.raises(BadLength):
        extension_file([UNIT], 25)
    with pytest.raises(BadLength):
        extension_file([], 1, ended=True)


def test_the_largest_bit_map() -> None:
    size = 32767 - 20

    assert ext.read(ext.build_unit(0, 0, bytes(size)), 0, 2**15)
    with pytest.raises(BadLength):
        ext.build_unit(0, 0, bytes(size + 1))


# --- batch consume queue ---


@examples
@given(rows=st.lists(values_of(BATCH_CQ_ENTRY), max_size=10), tail=st.binary(max_size=45))
def test_batch_entries_read_as_they_were_written(rows: list[tuple[int, ...]], tail: bytes) -> None:
    raw = batch.build(rows) + tail  # type: ignore[arg-type]
    array = batch.as_array(raw)

    assert [row.item() for row in array] == rows
    valid = [batch.is_valid(batch.BatchEntry._make(row)) for row in rows]
    assert batch.valid_prefix(array) == (valid.index(False) if False in valid else len(rows))
    parsed = queues.BATCH_ENTRY[len(rows)].parse(raw)
    assert [tuple(row[name] for name in batch.BatchEntry._fields) for row in parsed] == rows


@examples
@given(rows=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 9)), max_size=20))
def test_valid_batches_are_found_up_to_the_end_unit(rows: list[tuple[int, int]]) -> None:
    entries, base = [], 0
    for size, count in rows:
        entries.append(batch.BatchEntry(base * 1000, size, 7, 8, base, count))
        base = entries[-1].next_queue_offset
    raw = batch.build([*entries, batch.END_UNIT]) + bytes(46)
    *units_read, (at, end) = batch.entries(raw)

    assert [entry for _, entry in units_read] == entries
    assert isinstance(end, UnitEnd)
    assert (end.ending, at) == (Ending.FILLER, 46 * len(entries))


@pytest.mark.parametrize(
    ("raw", "ending"),
    [
        (b"", Ending.CLEAN),
        (bytes(45), Ending.UNWRITTEN),
        (bytes(46), Ending.UNWRITTEN),
        (b"\x01" + bytes(44), Ending.CUT),
        (batch.build([batch.BatchEntry(5, 5, 0, 0, -1, 1)]), Ending.DAMAGED),
        (batch.build([batch.BatchEntry(5, 5, 0, 0, 0, 0)]), Ending.DAMAGED),
        (batch.build([batch.BatchEntry(5, 0, 0, 0, 0, 1)]), Ending.DAMAGED),
        (batch.build([batch.BatchEntry(-1, 0, 0, 0, 0, 1)]), Ending.DAMAGED),
    ],
)
def test_what_is_no_batch_entry_is_named(raw: bytes, ending: Ending) -> None:
    end = batch.read(raw, 0, len(raw))

    assert isinstance(end, UnitEnd)
    assert end.ending is ending


@pytest.mark.parametrize("count", [0, 1, 65536, 65537, 140000])
def test_the_valid_prefix_of_long_batch_files(count: int) -> None:
    array = np.zeros(140000, BATCH_CQ_ENTRY.dtype)
    array["size"] = 100
    array["batch_size"][:count] = 1

    assert batch.valid_prefix(array) == count


def test_the_end_unit_has_the_bytes_of_the_reference() -> None:
    raw = batch.build([batch.END_UNIT])

    assert raw == b"\xff" * 8 + bytes(30) + b"\xff" * 4 + bytes(4)
