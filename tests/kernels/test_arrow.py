"""Parts of records laid out for Arrow by either code, compared with Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.message.ids import offset_id
from formats.message.properties import KEYS, TAGS, UNIQ_KEY, parse
from formats.message.properties import split_keys as split_one
from rmqtool.kernels.arrow import ItemParser, gather, offset_ids, split_keys, views_of
from rmqtool.kernels.load.library import Implementation
from rmqtool.kernels.load.memory import Memory
from rmqtool.kernels.tables.messages import ID_SPACE, MOST_NAMES, VIEW_INLINE, Texts
from rmqtool.kernels.tables.shapes import Column
from tests.formats.strategies import many_examples
from tests.kernels.codes import both

EMPTY = Texts(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Laid:
    """Texts in one buffer; None for a missing one."""

    def __init__(self, texts: list[bytes | None], gap: int = 1) -> None:
        self.data = b"".join((text or b"") + b"\xfe" * gap for text in texts) + b"."
        self.memory = Memory(self.data)
        length = np.array([-1 if text is None else len(text) for text in texts], np.int64)
        ends = np.cumsum(np.maximum(length, 0) + gap)
        self.texts = Texts(self.memory.address + ends - gap - np.maximum(length, 0), length)

    def show(self, address: int, length: int) -> bytes:
        at = address - self.memory.address
        return self.data[at : at + length]


TEXTS = st.lists(st.none() | st.binary(max_size=3 * VIEW_INLINE), max_size=12)


@both
@given(TEXTS, st.integers(0, 5))
def test_texts_are_gathered_end_to_end(code: Implementation, texts: list[bytes | None], filled: int) -> None:
    laid = Laid(texts)
    joined = b"".join(text or b"" for text in texts)
    to, offsets = np.full(filled + len(joined) + 3, 7, np.uint8), np.zeros(len(texts), np.int32)
    assert gather(laid.texts, to, offsets, filled, code=code) == filled + len(joined)
    assert to.tobytes() == b"\7" * filled + joined + b"\7" * 3
    assert offsets.tolist() == [filled + sum(len(t or b"") for t in texts[: i + 1]) for i in range(len(texts))]


@both
def test_there_must_be_room(code: Implementation) -> None:
    texts = Texts(np.array([1], np.int64), np.array([5], np.int64))
    for room, count in ((4, 1), (9, 2)):
        with pytest.raises(ValueError, match="do not fit"):
            gather(texts, np.empty(room, np.uint8), np.empty(count, np.int32), 0, code=code)
    with pytest.raises(ValueError, match="do not fit"):
        gather(texts, np.empty(9, np.uint8), np.empty(1, np.int32), 5, code=code)
    for shape, length in (((1, ID_SPACE), 5), ((2, ID_SPACE), 8), ((1, ID_SPACE - 1), 8)):
        hosts = Texts(np.array([1], np.int64), np.array([length], np.int64))
        with pytest.raises(ValueError, match="hosts"):
            offset_ids(hosts, np.array([0]), np.empty(shape, np.uint8), code=code)


@both
@given(st.lists(st.binary(max_size=3 * VIEW_INLINE), max_size=12), st.integers(0, 9))
def test_views_tell_where_texts_lie(code: Implementation, texts: list[bytes], number: int) -> None:
    laid = Laid(list(texts))
    views = views_of(laid.texts, laid.memory.address, number, code=code)
    for view, text, address in zip(views, texts, laid.texts.address.tolist(), strict=True):
        raw = view.tobytes()
        assert view[0] == len(text)
        if len(text) <= VIEW_INLINE:
            assert raw[4:] == text.ljust(VIEW_INLINE, b"\0")
        else:
            assert raw[4:8] == text[:4]
            assert view[2:].tolist() == [number, address - laid.memory.address]


@both
@pytest.mark.parametrize(("address", "length"), [(99, 20), (100 + (1 << 31), 20), (100, -1)])
def test_what_no_view_can_show(code: Implementation, address: int, length: int) -> None:
    with pytest.raises(ValueError, match="do not lie in a buffer at 100"):
        views_of(Texts(np.array([address]), np.array([length])), 100, 0, code=code)


NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAG", b"a", b"\xe9", b"\xff", "名".encode(), b""])
VALUES = st.sampled_from([b"", b"v", b"a b", b"\xff", "标签 二 and more".encode(), b"x\x01y"]) | st.binary(max_size=20)
ITEMS = st.lists(st.tuples(NAMES, st.sampled_from([b"\x01", b""]), VALUES), max_size=8)
PROPERTIES = st.builds(
    lambda items, end: b"\x02".join(b"".join(item) for item in items) + end, ITEMS, st.sampled_from([b"", b"\x02"])
)
MANY = b"\x02".join(b"%d\x01x" % number for number in range(MOST_NAMES))


def is_odd(properties: bytes) -> bool:
    """Whether it needs closer inspection: malformed, or very many names."""
    try:
        properties.decode()
    except UnicodeDecodeError:
        return True
    names = [item.split(b"\x01")[0] for item in properties.split(b"\x02") if _is_item(item)]
    return len(set(names)) > MOST_NAMES


def _is_item(item: bytes) -> bool:
    name, _separator, value = item.partition(b"\x01")
    return bool(name and value)


def parsed(parser: ItemParser, laid: Laid, properties: list[bytes]) -> tuple[list[int], list[Memory]]:
    """Handle odd rows as callers do; returns which ones were odd."""
    odd, keep = [], []
    while (row := parser.odd()) is not None:
        odd.append(row)
        items = parse(properties[row])
        keep.append(Memory("\2".join(f"{name}\1{value}" for name, value in items.items()).encode()))
        parser.rewrite(keep[-1].address, keep[-1].length)
    return odd, keep


@both
@many_examples
@given(st.lists(PROPERTIES, max_size=6))
def test_properties_are_taken_apart(code: Implementation, properties: list[bytes]) -> None:
    again = b"TAGS\x01old\x02a\x01b\x02TAGS\x01new"  # as messages of a batch have: the last value of a name counts
    check(
        code, [*properties, again, MANY, MANY + b"\x020\x01y", MANY + b"\x02one more\x01x", b"\x01\x02\x02a\x01", b""]
    )


@both
def test_properties_that_nobody_has(code: Implementation) -> None:
    check(code, [])
    check(code, [b"", b""])


def check(code: Implementation, properties: list[bytes]) -> None:
    laid = Laid(list(properties))
    parser = ItemParser(laid.texts, code=code)
    odd, keep = parsed(parser, laid, properties)
    assert odd == [row for row, each in enumerate(properties) if is_odd(each)]
    items = parser.items()
    buffers = [laid.memory, *keep]

    def show(address: int, length: int) -> str:
        if not length:
            return ""
        (memory,) = (m for m in buffers if m.address <= address and address + length <= m.address + m.length)
        return bytes(memory.view[address - memory.address :][:length]).decode()

    def shown(texts: Texts) -> list[str]:
        return [show(*place) for place in zip(texts.address.tolist(), texts.length.tolist(), strict=True)]

    names, values = shown(items.names.texts), shown(items.values.texts)
    bounds = items.names.bounds.tolist()
    assert len(bounds) == len(properties) + 1
    for row, each in enumerate(properties):
        result = parse(each)
        part = slice(bounds[row], bounds[row + 1])
        assert list(zip(names[part], values[part], strict=True)) == list(result.items())
        for name, texts in ((TAGS, items.tags), (KEYS, items.keys), (UNIQ_KEY, items.unique)):
            address, length = int(texts.address[row]), int(texts.length[row])
            assert (show(address, length) if length >= 0 else None) == result.get(name)


@both
@given(st.lists(st.none() | st.text("ab 名", max_size=12).map(str.encode), max_size=8))
def test_keys_are_split(code: Implementation, texts: list[bytes | None]) -> None:
    laid = Laid(texts)
    bounds, parts = split_keys(laid.texts, code=code)
    for row, text in enumerate(texts):
        places = zip(parts.address.tolist(), parts.length.tolist(), strict=True)
        result = [laid.show(*place) for place in list(places)[bounds[row] : bounds[row + 1]]]
        assert result == [key.encode() for key in split_one((text or b"").decode())]
    assert bounds[0] == 0
    assert bounds[-1] == len(parts.length)


@both
@given(
    st.lists(
        st.tuples(st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20), st.integers(-1, 2**63 - 1)),
        max_size=8,
    )
)
def test_offset_ids(code: Implementation, messages: list[tuple[bytes, int]]) -> None:
    laid = Laid([host for host, _offset in messages])
    out = np.zeros((len(messages), ID_SPACE), np.uint8)
    offsets: Column = np.array([offset for _host, offset in messages], np.int64)
    result = offset_ids(laid.texts, offsets, out, code=code)
    assert result.address.tolist() == [out.ctypes.data + ID_SPACE * row for row in range(len(messages))]
    for row, (host, offset) in enumerate(messages):
        port = int.from_bytes(host[-4:], "big", signed=True)
        assert out[row].tobytes()[: result.length[row]].decode() == offset_id(host[:-4], port, offset)


@both
def test_nothing(code: Implementation) -> None:
    assert ItemParser(EMPTY, code=code).odd() is None
    assert split_keys(EMPTY, code=code).bounds.tolist() == [0]
    assert views_of(EMPTY, 0, 0, code=code).shape == (0, 4)
