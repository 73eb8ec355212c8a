"""Records of kvStore, as written by brokers of 5.3.3 and later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.variants.pop_store import PopStoreKey, PopStoreRecord, parse_key
from tests.rocks import build_key

NAME = st.text(st.characters(codec="ascii", exclude_characters="@\0"), min_size=1, max_size=20)


@given(
    st.builds(PopStoreKey, st.integers(-(2**63), 2**63 - 1), NAME, NAME, st.integers(-(2**31), 2**31 - 1),
              st.integers(-(2**63), 2**63 - 1))
)  # fmt: skip
def test_keys(key: PopStoreKey) -> None:
    assert parse_key(build_key(key)) == key


def test_keys_sort_by_time() -> None:
    keys = [PopStoreKey(time, "g", "t", 0, 0) for time in (0, 1, 255, 256, 1 << 40)]
    assert sorted(map(build_key, keys)) == list(map(build_key, keys))


@pytest.mark.parametrize("key", [b"", bytes(21), bytes(40), build_key(PopStoreKey(1, "g", "t", 2, 3))[:-1]])
def test_other_keys(key: bytes) -> None:
    with pytest.raises(FormatError):
        parse_key(key)


def test_values() -> None:
    value = (
        b'{"popTime":1700000000000,"groupId":"g","topicId":"%RETRY%g_t","queueId":1,"retryFlag":1,"invisibleTime":60000,'
        b'"offset":7,"attemptTimes":2,"attemptId":"a","suspend":true,"later":[1]}'
    )
    record = PopStoreRecord.parse(value)
    assert record.key == PopStoreKey(1700000060000, "g", "%RETRY%g_t", 1, 7)
    assert (record.attempts, record.attempt_id, record.suspended, record.retry_flag) == (2, "a", True, 1)
    assert PopStoreRecord.parse(record.value()) == record
    assert PopStoreRecord.parse(b'{"groupId":"g","topicId":"t"}').key == PopStoreKey(0, "g", "t", 0, 0)


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    for read in (parse_key, PopStoreRecord.parse):
        try:
            read(data)
        except FormatError:
            continue
