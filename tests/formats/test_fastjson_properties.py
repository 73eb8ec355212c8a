"""Anything written in the brokers' JSON dialect reads back the same; any bytes are read or refused."""

from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from formats.errors import BadText
from formats.fastjson.dialects import BROWSER
from formats.fastjson.read import loads
from formats.fastjson.values import Inline
from formats.fastjson.write import dumps
from tests.formats.fastjson_samples import PRETTY

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS = TEXT.filter(lambda key: key != "$ref") | st.integers(-(2**63), 2**63)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(Inline) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)
TOKENS = st.sampled_from(
    [
        *(bytes([char]) for char in b"{}[]:,0c\n\\\"'\xff"),
        *(b"-1", b"1.5", b"9" * 30, b'"a"', b"'b'", b"null", b"true", b"/*", b"*/", b"//", b"\xe8\xae\xa2", b'"a":{'),
        *(b'{"$ref":"$"}', b'{"$ref":"$.a"}', b'{"$ref":"@"}', b'{"$ref":".."}'),
    ]
)


@given(VALUES)
def test_what_is_written_reads_as_it_was(value: Any) -> None:
    raw = dumps(value)
    assert repr(loads(raw)) == repr(value)
    assert dumps(loads(raw)) == raw


@given(VALUES)
def test_compact_writing_keeps_everything_but_the_kind_of_number(value: Any) -> None:
    raw = dumps(value, BROWSER)
    assert raw.isascii()
    assert b"\n" not in raw
    assert dumps(loads(raw), BROWSER) == raw


def reads_or_is_refused(raw: bytes) -> None:
    try:
        value = loads(raw)
    except BadText as err:
        refused_at: int | None = err.at
    else:
        refused_at = None
        again = dumps(value)
        assert dumps(loads(again)) == again
    assert refused_at is None or 0 <= refused_at <= len(raw)


@given(st.binary())
@example(b'{"a":{"x":{}},"a":{"$ref":"$.a.x"}}')
def test_random_bytes_read_or_are_refused(raw: bytes) -> None:
    reads_or_is_refused(raw)


@given(st.lists(TOKENS, max_size=30).map(b"".join))
def test_random_tokens_read_or_are_refused(raw: bytes) -> None:
    reads_or_is_refused(raw)


@given(st.sampled_from(PRETTY), st.data())
def test_a_damaged_file_reads_or_is_refused(path: Path, data: st.DataObject) -> None:
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3) | TOKENS)
    reads_or_is_refused(bytes(raw))
