"""Frames, headers and bodies of the remoting protocol, with all recorded frames and arbitrary ones."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadLength, BadText, FormatError
from formats.fastjson.declare import body_of, read_body, to_json
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads, loads_plain
from formats.fastjson.values import ObjectKey
from formats.fastjson.write import dumps
from formats.layouts import remoting as layouts
from formats.remoting import bodies, frame, headers, shapes
from formats.remoting.codes import MAX_FRAME, Language, RequestCode, ResponseCode, Serializer
from formats.remoting.fields import from_fields
from formats.versions import VERSIONS
from tests import wire


def test_there_are_all_frames() -> None:
    assert [len(wire.frames(release)) for release in wire.RELEASES] == [1285, 1461]
    assert {exchange.request_code for exchange in wire.all_frames()} <= set(RequestCode)
    assert {wire.parsed(exchange.raw).code for exchange in wire.all_frames() if exchange.is_response} <= set(
        ResponseCode
    )


def test_real_frames_are_built_again_byte_for_byte() -> None:
    for exchange in wire.all_frames():
        assert frame.build(wire.parsed(exchange.raw)) == exchange.raw


def test_real_frames_keep_all_in_the_binary_form() -> None:
    for exchange in wire.all_frames():
        command = replace(wire.parsed(exchange.raw), serializer=Serializer.ROCKETMQ, names_serializer=True)
        if command.code < 1 << 15:
            again = wire.parsed(frame.build(command))
            assert again == replace(command, fields=command.fields or None)
        else:
            with pytest.raises(BadLength, match="does not fit a binary header"):
                frame.build(command)


def test_a_frame_cut_at_any_byte_asks_for_more() -> None:
    for exchange in wire.all_frames():
        step = 1 if len(exchange.raw) < 2000 else 97
        for end in range(0, len(exchange.raw), step):
            assert frame.parse(exchange.raw[:end]) is None
        assert frame.parse(exchange.raw + b"\0\0") is not None


def test_a_header_cut_at_any_byte_is_one_clear_error() -> None:
    # the lengths fit, the header ends too early: what a broken sender would do
    seen = {exchange.raw[:4096] for exchange in wire.all_frames() if len(exchange.raw) < 700}
    for raw in sorted(seen)[::40]:
        for form in Serializer:
            command = wire.parsed(raw)
            if command.code >= 1 << 15:
                continue
            whole = frame.build(replace(command, serializer=form, body=b""))
            header = whole[8:]
            for end in range(len(header)):
                cut = (4 + end).to_bytes(4, "big") + bytes([form]) + end.to_bytes(3, "big") + header[:end]
                with pytest.raises(FormatError) as caught:
                    frame.parse(cut)
                assert 0 <= caught.value.at <= len(cut)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\0\0\0\x03", "a frame of 3 bytes"),
        (MAX_FRAME.to_bytes(4, "big")[:3] + b"\x01", f"a frame of {MAX_FRAME + 1} bytes"),
        (b"\0\0\0\x04\x02\0\0\0", "unknown form 2"),
        (b"\0\0\0\x10\0\0\0\x0d", "a header of 13 bytes in a frame of 20"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
    ],
)
def test_what_is_no_frame_is_refused_before_it_is_there(raw: bytes, reason: str) -> None:
    with pytest.raises(BadLength, match=reason):
        frame.parse(raw)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"[]", "not a JSON object"),
        (b'{"code":"x"}', "code is no 32-bit number"),
        (b'{"opaque":2147483648}', "opaque is no 32-bit number"),
        (b'{"extFields":{"a":{}}}', "extFields that are not text"),
        (b'{"extFields":[]}', "extFields that are not a JSON object"),
        (b'{"remark":1}', "a remark that is not text"),
        (b'{"code":' + b"[" * 5000 + b"}", "nested deeper"),
        (b'{"code":' + b"9" * 5000 + b"}", "a number of 5000 characters"),
        (b'{"remark":"\xff"}', "not UTF-8"),
    ],
)
def test_a_header_that_is_none(header: bytes, reason: str) -> None:
    raw = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    with pytest.raises(BadText, match=reason):
        frame.parse(raw)


def test_the_examples_of_the_reference() -> None:
    text = (
        b'{"code":105,"extFields":{"topic":"TBW102"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    command = wire.parsed(bytes.fromhex("0000008400000080") + text)
    assert (command.code, command.opaque, command.version, command.fields) == (105, 7, 409, {"topic": "TBW102"})
    binary = bytes.fromhex(
        "0000002a010000260069000199000000070000000000000000000000110005746f70696300000006544257313032"
    )
    assert frame.build(replace(command, serializer=Serializer.ROCKETMQ)) == binary
    assert wire.parsed(binary) == replace(command, serializer=Serializer.ROCKETMQ)


def test_the_layout_is_what_is_parsed() -> None:
    head = layouts.FRAME_HEAD.parse(bytes.fromhex("0000002a01000026"))
    assert (head.length, head.header_info) == (42, 1 << 24 | 38)


def test_a_larger_frame_is_not_built() -> None:
    with pytest.raises(BadLength, match="are allowed"):
        frame.build(frame.Command(10, body=bytes(MAX_FRAME)))


def read_or_refused(reads: Callable[[bytes], Any], data: bytes) -> Any:
    """The parsed value, or None if it is refused at one of its bytes."""
    try:
        return reads(data)
    except FormatError as err:
        caught = err
    assert 0 <= caught.at <= len(data)
    return None


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
commands = st.builds(
    frame.Command,
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, 3),
    st.none() | st.dictionaries(texts, texts, min_size=1, max_size=8),
    st.binary(max_size=60),
    st.none() | texts.filter(bool),
    st.sampled_from(Language),
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.sampled_from(Serializer),
)


@given(commands)
def test_any_command_comes_back(command: frame.Command) -> None:
    assert wire.parsed(frame.build(command)) == command


@given(commands, st.data())
def test_any_damaged_frame_is_read_or_refused(command: frame.Command, data: st.DataObject) -> None:
    raw = bytearray(frame.build(command))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    parsed = read_or_refused(frame.parse, bytes(raw))
    if parsed:
        frame.build(parsed[0])


values = st.recursive(
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts | st.integers(0, 99) | st.just(ObjectKey([("a", 1)])), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_any_value_of_the_dialect_comes_back(value: Any) -> None:
    assert loads(dumps(value, BODY), BODY) == value


@given(st.binary(max_size=40) | st.text("{}[]:,\"'\\u0d8a1-.etrufalsn ", max_size=40).map(str.encode))
def test_any_text_is_read_or_refused(data: bytes) -> None:
    for reads in (partial(loads, dialect=BODY), loads_plain):
        dumps(read_or_refused(reads, data), BODY)


def test_half_of_a_pair_reads_the_same_both_ways() -> None:
    for text in (rb'{"a":"\ud83d"}', rb'{"a":"\uDE00x"}', rb'{"a":"\ud83d\ude00"}'):
        assert loads_plain(text) == loads(text, BODY)


def test_a_body_has_the_text_of_its_json_value() -> None:
    odd = 'a "quote", \\ and \u2028 \ud83d'
    queue = shapes.MessageQueue(odd, "b", -1)
    items = [
        bodies.TopicStats({queue: shapes.TopicOffset(0, 1 << 62, -1)}, 1.5e-9),
        bodies.ConsumeStats({queue: shapes.OffsetWrapper(1, 2, 3)}),
        shapes.BrokerData("c", "b", {0: odd, -1: ""}),
        bodies.GroupList([odd, ""]),
        bodies.ConsumerConnection(),
        bodies.KVTable({odd: odd}),
        bodies.KVTable(),
    ]
    for item in items:
        for version in VERSIONS:
            assert body_of(item, version) == dumps(to_json(item, version), BODY), item


def test_many_objects_are_read_as_few_are() -> None:
    for inner in ('{"a":[1,{}]}', '"{"', '"}"', '{"a":"]["}', "[]"):
        for count in (2, 1000):
            text = f"[{','.join([inner] * count)}]".encode()
            assert loads_plain(text) == loads(text, BODY)
    for deep in (BODY.depth, BODY.depth + 1, 5000):
        text = b"[" * deep + b"]" * deep
        assert read_or_refused(loads_plain, text) == read_or_refused(partial(loads, dialect=BODY), text)


def test_keys_that_are_objects() -> None:
    text = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12}}'
    body = read_body(bodies.ResetOffsets, text, strict=True)
    assert body.offset_table == {shapes.MessageQueue("T", "b", 0): 12}
    assert body_of(body) == text


def test_a_table_with_bare_and_quoted_numbers_as_keys() -> None:
    for text in (b"{0:'x'}", b'{"0":"x"}'):
        data = b'{"brokerAddrs":' + text + b',"brokerName":"b","cluster":"c"}'
        assert read_body(shapes.BrokerData, data).broker_addrs == {0: "x"}


def test_what_is_not_declared_is_passed_over_or_named() -> None:
    assert from_fields(headers.Topic, {"topic": "T", "new": "1"}).topic == "T"
    with pytest.raises(BadText, match="not declared: new"):
        from_fields(headers.Topic, {"topic": "T", "new": "1"}, strict=True)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": "T"}, "Queue without queueId"),
        ({"topic": "T", "queueId": "x"}, "Queue.queueId: text where an integer must be"),
        ({"topic": "T", "queueId": "2147483648"}, "does not fit into 32 bits"),
        ({"topic": "T", "queueId": "9" * 5000}, "text where an integer must be"),
    ],
)
def test_fields_that_do_not_fit(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(BadText, match=reason):
        from_fields(headers.Queue, fields)
