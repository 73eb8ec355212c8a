"""Offset ids and clients' unique ids."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadText
from formats.message.ids import is_id, offset_id, parse_offset_id, parse_unique_id
from formats.primitives import address_text
from tests import goldens
from tests.formats.strategies import addresses, examples, signed


@examples
@given(address=addresses, port=signed(32), offset=signed(64))
def test_an_offset_id_goes_both_ways(address: bytes, port: int, offset: int) -> None:
    text = offset_id(address, port, offset)

    assert len(text) == (32 if len(address) == 4 else 56)
    assert text == text.upper()
    assert is_id(text)
    assert parse_offset_id(text) == parse_offset_id(text.lower()) == (address_text(address), port, offset)


YEARS = (datetime.fromisoformat("2015-01-01"), datetime.fromisoformat("2040-01-01"))  # without a zone, as wanted


def classic(address: bytes, millis: int) -> str:
    return (address + bytes.fromhex("1a2b18b4aac2") + millis.to_bytes(4, "big") + b"\x00\x07").hex().upper()


@examples
@given(
    address=addresses,
    when=st.datetimes(timezones=st.just(UTC), min_value=YEARS[0], max_value=YEARS[1]),
    quarter=st.integers(-48, 56),
    late=st.integers(0, 60_000),
)
def test_a_classic_id_tells_its_time_in_any_zone(address: bytes, when: datetime, quarter: int, late: int) -> None:
    local = when.replace(tzinfo=timezone(timedelta(minutes=15 * quarter)), microsecond=when.microsecond // 1000 * 1000)
    start = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    created = round((local - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))
    unique_id = parse_unique_id(classic(address, round((local - start) / timedelta(milliseconds=1))), created + late)

    assert unique_id.kind == "classic"
    assert (unique_id.address, unique_id.process_id, unique_id.loader_hash, unique_id.counter) == (
        address_text(address),
        0x1A2B,
        0x18B4AAC2,
        7,
    )
    # exact although the message was born up to a minute later: zones differ by quarter hours
    assert unique_id.timestamp == created


def test_a_classic_id_without_a_time_near_it_has_none() -> None:
    assert parse_unique_id(classic(bytes(4), 5)).timestamp is None


@pytest.mark.parametrize("near", [-1, -(2**63), 2**63 - 1, 10**15])
def test_a_time_that_is_damage_gives_none(near: int) -> None:
    unique_id = parse_unique_id(classic(bytes(4), 5), near)

    assert unique_id.timestamp is None
    assert unique_id.millis_of_month == 5


@given(near=st.integers(0, 221_845_391_999_999), millis=st.integers(0, 2**32 - 1))
def test_any_time_and_any_id_give_a_time(near: int, millis: int) -> None:
    assert isinstance(parse_unique_id(classic(bytes(16), millis), near).timestamp, int)


@pytest.mark.parametrize("case", ["broker", "clean"])
def test_ids_of_real_clients_were_made_when_the_message_was_born(case: str) -> None:
    count = 0
    for row in goldens.messages(case):
        message = row["message"]
        if text := message["properties"].get("UNIQ_KEY"):
            unique_id = parse_unique_id(text, message["bornTimestamp"])
            assert unique_id.timestamp is not None
            assert abs(unique_id.timestamp - message["bornTimestamp"]) < 1000
            assert unique_id.address == "fd00:0:0:0:0:0:0:2"
            count += 1
    assert count > 400


def test_a_grpc_id() -> None:
    unique_id = parse_unique_id("01" + "0242AC110002" + "1F90" + "00015180" + "0000002A")

    assert unique_id.kind == "grpc"
    assert unique_id.address == "02:42:ac:11:00:02"
    assert (unique_id.process_id, unique_id.counter) == (0x1F90, 42)
    assert unique_id.timestamp == datetime(2021, 1, 2, tzinfo=UTC).timestamp() * 1000
    assert unique_id.loader_hash is None
    assert unique_id.millis_of_month is None


@pytest.mark.parametrize(
    "text", ["", "00", "0" * 31, "0" * 33, "02" + "0" * 32, "G" * 32, " " * 32, "0" * 31 + " ", "²" * 32]
)
def test_other_texts_are_no_ids(text: str) -> None:
    assert not is_id(text)
    with pytest.raises(BadText):
        parse_offset_id(text)
    with pytest.raises(BadText):
        parse_unique_id(text)


@given(text=st.text(max_size=60))
def test_any_text_is_an_id_or_a_bad_text(text: str) -> None:
    for parse in (parse_offset_id, parse_unique_id):
        try:
            parse(text)
        except BadText:
            continue
        assert len(text) in (32, 34, 56)
