"""Keys and values of consume queues in RocksDB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadLength, FormatError
from formats.queues import rocks as codec
from tests.rocks import build_offset

TOPICS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
QUEUES, OFFSETS = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)


def test_a_real_unit() -> None:
    # from the store of a 5.3.3 broker
    key = b"\x00\x00\x00\x06\x01Orders\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02"
    value = bytes.fromhex("0000000000000b8b 0000012c 000000003d4e7ee8 000001a205b734f4")
    assert codec.parse_unit_key(key) == codec.UnitKey("Orders", 0, 2)
    assert codec.parse_unit(value) == codec.RocksUnit(2955, 300, 1028554472, 1795392222452)
    assert (codec.unit_key("Orders", 0, 2), codec.build_unit(codec.parse_unit(value))) == (key, value)


def test_a_real_end() -> None:
    key = b"\x00\x00\x00\x08\x01Payments\x01max\x01\x00\x00\x00\x02"
    value = bytes.fromhex("000000000001c979 0000000000000004")
    assert codec.parse_offset_key(key) == codec.OffsetKey("Payments", codec.MAX, 2)
    assert codec.parse_offset(value) == codec.RocksOffset(117113, 4)
    assert (codec.offset_key("Payments", 2, codec.MAX), build_offset(codec.parse_offset(value))) == (key, value)


def test_the_checkpoint() -> None:
    assert codec.CHECKPOINT_KEY == b"\x00\x00\x00\x10\x01CHECKPOINT_TOPIC\x01max\x01\x00\x00\x00\x00"
    assert codec.parse_built(bytes.fromhex("00000000000242f1")) == 148209
    with pytest.raises(BadLength):
        codec.parse_built(b"\0" * 7)


@given(TOPICS, QUEUES, OFFSETS)
def test_keys_round_trip(topic: str, queue_id: int, offset: int) -> None:
    assert codec.parse_unit_key(codec.unit_key(topic, queue_id, offset)) == (topic, queue_id, offset)
    assert codec.parse_offset_key(codec.offset_key(topic, queue_id, codec.MIN)) == (topic, codec.MIN, queue_id)


@given(TOPICS, QUEUES, OFFSETS, TOPICS, QUEUES, OFFSETS)
def test_keys_sort_by_queue_and_offset(t1: str, q1: int, o1: int, t2: str, q2: int, o2: int) -> None:
    first, second = codec.unit_key(t1, q1, o1), codec.unit_key(t2, q2, o2)
    assert (first < second) == ((len(t1.encode()), t1.encode(), q1, o1) < (len(t2.encode()), t2.encode(), q2, o2))
    assert first < codec.end_of_units(t1, q1)
    if (t1, q1) != (t2, q2):
        assert (second < codec.end_of_units(t1, q1)) == (second < first)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_key_or_an_error(data: bytes) -> None:
    for parse, build in ((codec.parse_unit_key, codec.unit_key), (codec.parse_offset_key, None)):
        try:
            key = parse(data)
        except FormatError:
            continue
        if build is not None:
            assert build(*key) == data
        else:
            assert isinstance(key, codec.OffsetKey)
            assert codec.offset_key(key.topic, key.queue_id, key.bound) == data


@pytest.mark.parametrize("length", [0, 1, 27])
def test_short_units_are_none(length: int) -> None:
    with pytest.raises(BadLength):
        codec.parse_unit(bytes(length))


@pytest.mark.parametrize("length", [0, 8, 15, 17])
def test_ends_have_one_length(length: int) -> None:
    with pytest.raises(BadLength):
        codec.parse_offset(bytes(length))
