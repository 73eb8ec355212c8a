"""Keys and values of consume queues in RocksDB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadLength, FormatError
from formats.queues.rocks import (
    CHECKPOINT_KEY,
    MAX,
    MIN,
    OffsetKey,
    RocksOffset,
    RocksUnit,
    UnitKey,
    build_unit,
    end_of_units,
    offset_key,
    parse_built,
    parse_offset,
    parse_offset_key,
    parse_unit,
    parse_unit_key,
    unit_key,
)
from tests.rocks import build_offset

TOPICS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
QUEUES, OFFSETS = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)


def test_a_real_unit() -> None:
    # from the store of a 5.3.3 broker
    key = b"\x00\x00\x00\x06\x01Orders\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02"
    value = bytes.fromhex("0000000000000b8b 0000012c 000000003d4e7ee8 000001a205b734f4")
    assert parse_unit_key(key) == UnitKey("Orders", 0, 2)
    assert parse_unit(value) == RocksUnit(2955, 300, 1028554472, 1795392222452)
    assert (unit_key("Orders", 0, 2), build_unit(parse_unit(value))) == (key, value)


def test_a_real_end() -> None:
    key = b"\x00\x00\x00\x08\x01Payments\x01max\x01\x00\x00\x00\x02"
    value = bytes.fromhex("000000000001c979 0000000000000004")
    assert parse_offset_key(key) == OffsetKey("Payments", MAX, 2)
    assert parse_offset(value) == RocksOffset(117113, 4)
    assert (offset_key("Payments", 2, MAX), build_offset(parse_offset(value))) == (key, value)


def test_the_checkpoint() -> None:
    assert CHECKPOINT_KEY == b"\x00\x00\x00\x10\x01CHECKPOINT_TOPIC\x01max\x01\x00\x00\x00\x00"
    assert parse_built(bytes.fromhex("00000000000242f1")) == 148209
    with pytest.raises(BadLength):
        parse_built(b"\0" * 7)


@given(TOPICS, QUEUES, OFFSETS)
def test_keys_round_trip(topic: str, queue_id: int, offset: int) -> None:
    assert parse_unit_key(unit_key(topic, queue_id, offset)) == (topic, queue_id, offset)
    assert parse_offset_key(offset_key(topic, queue_id, MIN)) == (topic, MIN, queue_id)


@given(TOPICS, QUEUES, OFFSETS, TOPICS, QUEUES, OFFSETS)
def test_keys_sort_by_queue_and_offset(t1: str, q1: int, o1: int, t2: str, q2: int, o2: int) -> None:
    first, second = unit_key(t1, q1, o1), unit_key(t2, q2, o2)
    assert (first < second) == ((len(t1.encode()), t1.encode(), q1, o1) < (len(t2.encode()), t2.encode(), q2, o2))
    assert first < end_of_units(t1, q1)
    if (t1, q1) != (t2, q2):
        assert (second < end_of_units(t1, q1)) == (second < first)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_key_or_an_error(data: bytes) -> None:
    for parse, build in ((parse_unit_key, unit_key), (parse_offset_key, None)):
        try:
            key = parse(data)
        except FormatError:
            continue
        if build is not None:
            assert build(*key) == data
        else:
            assert isinstance(key, OffsetKey)
            assert offset_key(key.topic, key.queue_id, key.bound) == data


@pytest.mark.parametrize("length", [0, 1, 27])
def test_short_units_are_none(length: int) -> None:
    with pytest.raises(BadLength):
        parse_unit(bytes(length))


@pytest.mark.parametrize("length", [0, 8, 15, 17])
def test_ends_have_one_length(length: int) -> None:
    with pytest.raises(BadLength):
        parse_offset(bytes(length))
