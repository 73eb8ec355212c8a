"""Which messages a look-up takes for those that carry a key."""

from hypothesis import given
from hypothesis import strategies as st

from formats.message.properties import KEYS, UNIQ_KEY, parse, split_keys
from formats.message.read import Record
from rmqtool.services.lookup.query import has_key
from tests.formats.strategies import examples

PIECES = [b"KEYS\x01", b"UNIQ_KEY\x01", b"\x02", b" ", b"a", b"k-1", "键".encode(), b"\xff", b"\xed\xa0\x80"]
WORDS = ["a", "k-1", "键", "\ufffd", "a k-1", "", "\ud800", "\udcff"]


def record(properties: bytes) -> Record:
    return Record._make([0] * 17 + [b"", b"T", properties])


@examples
@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.sampled_from(WORDS))
def test_a_key_is_compared_as_text(properties: bytes, key: str) -> None:
    named = parse(properties)
    same = named.get(UNIQ_KEY) == key or key in split_keys(named.get(KEYS, ""))
    if key == "\udcff":  # a byte of the command line that is no UTF-8: no text is equal to it, but those bytes are
        same = b"\xff" in properties and has_key(record(properties), b"T", key)
    assert has_key(record(properties), b"T", key) is same
    assert not has_key(record(properties), b"U", key)
