"""Timer wheel, timer log, and recall handles."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.endings import Ending, UnitEnd
from formats.errors import BadLength, BadText, Truncated
from formats.layouts import timer as layouts
from formats.layouts.codes import MAGIC_BLANK
from formats.layouts.derived import TIMER_LOG_UNIT, TIMER_SLOT
from formats.variants import timer
from formats.variants.recall_handle import RecallHandle
from tests.formats.strategies import examples, signed, values_of
from tests.timers import slot_for

UNIT = timer.LogUnit(52, -1, 1, 1700000000000, 30000, 0x40001000, 176, 99)
RAW = timer.build_unit(UNIT)


@examples
@given(rows=st.lists(values_of(TIMER_SLOT), min_size=1, max_size=8), tail=st.binary(max_size=31))
def test_slots_read_as_they_were_written(rows: list[tuple[int, ...]], tail: bytes) -> None:
    slots = [timer.Slot._make(row) for row in rows]
    raw = b"".join(map(timer.build_slot, slots)) + tail

    assert [timer.read_slot(raw, i) for i in range(len(slots))] == slots
    assert list(timer.slots(raw)) == [(i, slot) for i, slot in enumerate(slots) if any(slot)]
    parsed = layouts.SLOT[len(slots)].parse(raw)
    assert [tuple(row[name] for name in timer.Slot._fields) for row in parsed] == slots


def test_a_slot_belongs_to_one_round_of_the_wheel() -> None:
    time = 1_700_000_000_000
    wheel = bytearray(timer.WHEEL_SIZE)
    at = timer.slot_index(time) * 32
    wheel[at : at + 32] = timer.build_slot(timer.Slot(time // 1000, 52, 104, 2))

    assert len(wheel) == 38_707_200
    assert slot_for(bytes(wheel), time + 999) == (time // 1000, 52, 104, 2, 0)
    assert slot_for(bytes(wheel), time + timer.SLOTS * 1000) is None
    assert slot_for(bytes(wheel), time + 1000) is None
    assert slot_for(bytes(wheel), 0) is None  # an unused slot says time 0 as well


def test_a_wheel_that_ends_early() -> None:
    with pytest.raises(Truncated):
        timer.read_slot(bytes(63), 1)
    with pytest.raises(Truncated):
        timer.read_slot(bytes(64), -1)


@examples
@given(
    rows=st.lists(
        st.tuples(
            st.just(52),
            signed(64),
            st.integers(0, 15),
            signed(64),
            signed(32),
            signed(64),
            signed(32),
            signed(32),
            signed(64),
        ),
        max_size=6,
    ),
    spare=st.integers(16, 67),
)
def test_units_read_as_they_were_written_up_to_the_blank(rows: list[tuple[int, ...]], spare: int) -> None:
    units = [timer.LogUnit._make(row) for row in rows]
    raw = b"".join(map(timer.build_unit, units)) + timer.build_blank(spare) + bytes(spare - 16)
    *units_read, (at, end) = timer.units(raw)

    assert [unit for _, unit in units_read] == units
    assert isinstance(end, UnitEnd)
    assert (end.ending, end.at, at) == (Ending.FILLER, len(raw) - spare, len(raw) - spare)
    parsed = layouts.LOG_UNIT[len(units)].parse(raw)
    assert [tuple(row[name] for name in timer.LogUnit._fields) for row in parsed] == units
    assert layouts.LOG_BLANK.parse(raw[at:]).magic == MAGIC_BLANK


@pytest.mark.parametrize(
    ("raw", "ending"),
    [
        (b"", Ending.CLEAN),
        (bytes(15), Ending.UNWRITTEN),
        (bytes(52), Ending.UNWRITTEN),
        (RAW[:15], Ending.CUT),
        (RAW[:51], Ending.CUT),
        (b"\x00\x00\x00\x33" + RAW[4:], Ending.DAMAGED),
        (RAW[:12] + b"\x00\x00\x00\x10" + RAW[16:], Ending.DAMAGED),
        (RAW[:12] + b"\xff\xff\xff\xff" + RAW[16:], Ending.DAMAGED),
        (RAW[:12] + MAGIC_BLANK.to_bytes(4, "big", signed=True) + RAW[16:], Ending.FILLER),
        (bytes(15) + b"\x01" + bytes(36), Ending.DAMAGED),
    ],
)
def test_what_is_no_unit_is_named(raw: bytes, ending: Ending) -> None:
    end = timer.read_unit(raw, 0, len(raw))

    assert isinstance(end, UnitEnd)
    assert end.ending is ending


def test_the_blank_and_the_kinds_of_units_have_the_values_of_the_reference() -> None:
    assert timer.build_blank(20) == bytes.fromhex("00000014 0000000000000000 cbd43194")
    assert (timer.MAGIC_DEFAULT, timer.MAGIC_ROLL, timer.MAGIC_DELETE) == (1, 2, 4)


@pytest.mark.parametrize("room", [15, 68])
def test_a_blank_stands_only_where_no_unit_fits(room: int) -> None:
    with pytest.raises(BadLength):
        timer.build_blank(room)


def test_the_default_log_file_holds_whole_units_and_one_blank() -> None:
    assert timer.LOG_FILE_SIZE - 2_016_492 * timer.UNIT_SIZE == timer.BLANK_SIZE
    assert TIMER_LOG_UNIT.size == timer.UNIT_SIZE == 52


@examples
@given(topic=st.text("ab%-_", min_size=1, max_size=9), key=st.text("0F", min_size=1, max_size=32), time=signed(64))
def test_a_recall_handle_reads_as_it_was_written(topic: str, key: str, time: int) -> None:
    handle = RecallHandle(topic=topic, broker_name="lab-a", deliver_ms=time, message_id=key)

    assert RecallHandle.parse(handle.text) == handle
    assert RecallHandle.parse(handle.text.rstrip("=")) == handle


def test_a_recall_handle_has_the_form_of_a_broker() -> None:
    text = "djEgVGltZXJzIGxhYi1hIDE3OTUyMDY4ODQ0ODkgQUI="
    handle = RecallHandle(topic="Timers", broker_name="lab-a", deliver_ms=1_795_206_884_489, message_id="AB")

    assert RecallHandle.parse(text) == handle
    assert handle.text == text


@given(text=st.one_of(st.text(max_size=40), st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode())))
def test_what_is_no_recall_handle_is_refused(text: str) -> None:
    try:
        handle = RecallHandle.parse(text)
    except BadText:
        return
    fields = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "replace").split(" ")
    assert fields[0] == "v1"
    assert fields[1:3] == [handle.topic, handle.broker_name]
