"""The compressed form of a broker's registration."""

import zlib
from base64 import b64decode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.model.topics import DataVersion, TopicConfig
from formats.remoting.bodies import RegisterBrokerBody, TopicTable
from formats.remoting.registration import MAX_INFLATED, build, read
from formats.remoting.shapes import MappingInfo

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NAME = st.text(st.characters(exclude_categories=("Cs",), exclude_characters=" "), min_size=1, max_size=20)
TOPIC = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=3, perm=6)
VERSION = DataVersion(timestamp=5, counter=6, state_version=None)


@st.composite
def bodies(draw: st.DrawFn, mappings: bool) -> RegisterBrokerBody:
    topics = {
        name: TopicConfig(
            topic_name=name, read_queue_nums=draw(INT32), write_queue_nums=draw(INT32), perm=draw(INT32),
            topic_filter_type=draw(st.sampled_from(["SINGLE_TAG", "MULTI_TAG"])),
            attributes=draw(st.dictionaries(TEXT, TEXT, max_size=3)) if mappings else {},
        )
        for name in draw(st.lists(NAME, max_size=5))
    }  # fmt: skip
    version = DataVersion(timestamp=draw(INT64), counter=draw(INT64), state_version=draw(st.none() | INT64))
    infos = None
    if mappings:
        keys = st.dictionaries(INT32, INT32, max_size=3)
        infos = {name: MappingInfo(name, draw(TEXT), draw(INT32), curr_id_map=draw(keys)) for name in topics}
    filters = draw(st.lists(TEXT, max_size=3))
    return RegisterBrokerBody(TopicTable(topics, version, topic_queue_mapping_info_map=infos), filters)


@given(st.data(), st.booleans())
def test_what_is_built_is_read(data: st.DataObject, mappings: bool) -> None:
    body = data.draw(bodies(mappings))
    assert read(build(body, mappings=mappings), mappings=mappings) == body


def test_the_form_itself() -> None:
    table = TopicTable({"T": TOPIC}, VERSION)
    version, line, filters = b'{"counter":6,"timestamp":5}', b"T 4 3 6 SINGLE_TAG", b'["h:1"]'
    parts = (len(version).to_bytes(4, "big"), version, b"\0\0\0\1", len(line).to_bytes(4, "big"), line)
    raw = b"".join((*parts, len(filters).to_bytes(4, "big"), filters))
    assert zlib.decompress(build(RegisterBrokerBody(table, ["h:1"]), mappings=False)) == raw
    with_mappings = raw.replace(
        len(line).to_bytes(4, "big") + line, (len(line) + 3).to_bytes(4, "big") + line + b" {}"
    ) + bytes(4)
    assert zlib.decompress(build(RegisterBrokerBody(table, ["h:1"]), mappings=True)) == with_mappings
    # a broker of 5.x without attributes ends the line with its blank
    blank = with_mappings.replace((len(line) + 3).to_bytes(4, "big") + line + b" {}", b"\0\0\0\x13" + line + b" ")
    assert read(zlib.compress(blank), mappings=True).topic_config_serialize_wrapper.topic_config_table["T"] == (TOPIC)


# body of the first request of a broker of 5.3.3 with compressedRegister
REAL = (
    "eNqFUW1LwzAQDn73B+inUEFRJi6ubt2+rd3tBfsym1gtIkc3Ahuum7YdIsP/bjIZU+pm7nKBe3nunhwhxFoZ48VyXsjMaFUrRl4k"
    "hYxklk8X87WjmKZSOdNXo8UazRvTNJtmg9Vqn4SQQ3UroXeHPOYowrbPsd92uyiC4cChTEmd8oHfcwFFu0dXuubMlvPxJE2yF6Fw"
    "Katem9+mnHos7AcVopaSRil6wkG3Ai729jvnTh8699qls/BRHcosrX8Ml6VvmH/k+D6Rcoaae7YD9+o372D4P3Vzg85j30E7DG4h"
    "RA88Wz2zZHSZrOtYqe7CTUbObJmrHWEIQzfe2+U06HY5CPSCCDoIEfhiRybd4lJW11r+ZbaZOYRoEAG6QQ9/lOnVlIGPtmzKiAdP"
    "z8qSL3MhrCo="
)


def test_a_real_one() -> None:
    body = b64decode(REAL)
    record = read(body, mappings=True)
    table = record.topic_config_serialize_wrapper
    assert table.data_version == DataVersion(timestamp=1795444947133)
    assert len(table.topic_config_table) == 13
    assert table.topic_config_table["TBW102"] == TopicConfig(
        topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7
    )
    assert table.topic_queue_mapping_info_map == {}
    assert zlib.decompress(build(record, mappings=True)) == zlib.decompress(body)


BODY = RegisterBrokerBody(TopicTable({"T": TOPIC}, VERSION), ["h:1"])


@pytest.mark.parametrize("mappings", [False, True])
def test_it_is_cut_anywhere(mappings: bool) -> None:
    packed = build(BODY, mappings=mappings)
    loose = zlib.decompress(packed)
    for cut in range(len(packed)):
        with pytest.raises(FormatError):
            read(packed[:cut] or b"\0", mappings=mappings)
    for cut in range(len(loose)):
        with pytest.raises(FormatError):
            read(zlib.compress(loose[:cut]), mappings=mappings)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_refused(data: bytes, mappings: bool) -> None:
    for body in (data, zlib.compress(data)):
        with suppress(FormatError):
            read(body, mappings=mappings)


@given(st.integers(0, 80), st.integers(0, 255))
def test_any_changed_byte_is_read_or_refused(at: int, byte: int) -> None:
    loose = bytearray(zlib.decompress(build(BODY, mappings=False)))
    loose[at % len(loose)] = byte
    with suppress(FormatError):
        read(zlib.compress(bytes(loose)), mappings=False)


def test_what_inflates_too_far_is_refused() -> None:
    with pytest.raises(FormatError, match="inflates"):
        read(zlib.compress(bytes(MAX_INFLATED + 1)), mappings=False)
