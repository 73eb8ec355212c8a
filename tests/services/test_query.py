"""Which messages a look-up accepts as having a key."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from formats.message.properties import KEYS, UNIQ_KEY, parse, split_keys
from formats.message.read import Record
from rmqtool import NewMessage, Store
from rmqtool.services.lookup.query import Search, has_key, query_key
from rmqtool.store.layout.paths import StoreLayout
from tests.formats.strategies import examples
from tests.services.build import never

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


def test_a_time_finds_the_message_that_was_stored_at_it(tmp_path: Path) -> None:
    """The index has whole seconds since a file's first message, but --since is in milliseconds."""
    times = [1_767_225_600_123 + 777 * number for number in range(14)]
    with Store.create(tmp_path / "store") as store:
        for time in times:
            store.append(NewMessage(topic="T", keys="k", body=str(time).encode(), store_timestamp=time))
    layout = StoreLayout(str(tmp_path / "store"))

    def found(begin: int, end: int, *, scan: bool = False) -> list[int]:
        rows = query_key(layout, "T", "k", Search(scan, begin=begin, end=end), never)
        return [row.record.store_timestamp for row in rows]

    for first, time in enumerate(times):
        assert found(time, 2**62) == times[first:]
        assert found(time + 1, 2**62) == times[first + 1 :]
        assert found(0, time) == times[: first + 1]
        assert found(0, time - 1) == times[:first]
        assert found(time, time) == [time]
