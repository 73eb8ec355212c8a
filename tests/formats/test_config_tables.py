"""Large tables of numbers are read like any other value, in bounded memory."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.config.files import ConsumerOffsets
from formats.errors import BadText
from formats.fastjson.dialects import FILE
from formats.fastjson.read import loads

# each is read again with a comment behind every comma, which the tables of brokers do not have
ODD = [
    b'{"a":{0:1,0:2,1:3},"b":{1:1},"c":0}',  # of equal keys the last counts, at its own place
    b'{"a":{0:1},"b":{1:1},"a":{3:4},"c":5,"b":6,"d":0}',
    b'{"a":{007:-0,-1:1},"b":01,"c":0}',
    b'{"a":{1:1,},"b":2,}',
    b'{"a":{1:1 ,2:2},"b":{ 1:1},"c":{1 :1},"d":{}}',
    b'{"a":{1:99999999999999999999},"b":99999999999999999999,"c":9999999999999999999,"d":0}',
    b'{"a":{1:1.0},"b":1.0,"c":1e3,"d":true,"e":{"1":1},"f":0}',
    b'{"a":{1:1},"b":{"$ref":"$.a"},"c":{"$ref":"$.a"},"d":0}',
    b'{"$ref":1,"b":{"$ref":2},"c":0}',
    b'{"a":{1:1},\n\t"\\u0041\xe8\xae\xa2":{1:1},\r\n"\xff":{1:1\n\t},"c\n":0}',
    b'{"a":{1:{2:3}},"b":{1:[1]},"c":[{1:1},{2:2}],"d":0}',
]
REFUSED = [
    b'{"a":{1:1,,2:2},"b":2}', b'{"a":{,},"b":1}', b'{"a":{1:1}"b":2}', b'{"a":{-:1},"b":2}', b'{"a":{1:1 2:2},"b":0}',
    b'{"a":{1:},"b":2}', b'{"a":1,,"b":2}', b'{"a":{1:1},"b', b'{"a":1,"b":{1:1,',
]  # fmt: skip


def shape(value: Any) -> Any:
    """A value with the order of its keys, and their types."""
    if isinstance(value, dict):
        return [(repr(key), shape(item)) for key, item in value.items()]
    return [shape(item) for item in value] if isinstance(value, list) else repr(value)


@pytest.mark.parametrize("raw", ODD)
def test_a_table_of_numbers_reads_as_any_other(raw: bytes) -> None:
    commented = b"{/**/" + raw[1:].replace(b',"', b',/**/"').replace(b',\n\t"', b',/**/"').replace(b',\r\n"', b',/**/"')
    assert commented.count(b"/**/") > 1
    assert shape(loads(raw)) == shape(loads(commented))


@pytest.mark.parametrize("raw", REFUSED)
def test_what_only_looks_like_a_table_of_numbers_is_refused(raw: bytes) -> None:
    with pytest.raises(BadText):
        loads(raw)


NUMBERS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(st.sampled_from("abcd"), NUMBERS | st.lists(st.tuples(st.integers(-2, 2), NUMBERS)))))
def test_any_table_of_numbers_reads_as_its_entries(entries: list[tuple[str, Any]]) -> None:
    written, expected = [], {}
    for key, item in entries:
        expected.pop(key, None)
        expected[key] = dict(item) if isinstance(item, list) else item
        numbers = ",".join(f"{number}:{value}" for number, value in item) if isinstance(item, list) else ""
        written.append(f'"{key}":{{{numbers}}}' if isinstance(item, list) else f'"{key}":{item}')
    result = loads(("{" + ",\n".join(written) + "}").encode())
    assert result == expected
    assert list(result) == list(expected)  # type: ignore[arg-type]


def test_a_table_of_numbers_is_a_level_too() -> None:
    deep = b'{"a":' * (FILE.depth - 1)
    loads(deep + b'{"b":1,"c":2}' + b"}" * (FILE.depth - 1))
    with pytest.raises(BadText, match="deeper"):
        loads(deep + b'{"b":{1:2},"c":2}' + b"}" * (FILE.depth - 1))


@pytest.mark.parametrize("queues", [1, 16])
def test_offsets_take_ten_times_their_file_at_most(queues: int) -> None:
    numbers = ",".join(f"{number}:{1000 + number}" for number in range(queues))
    rows = (f'"topic-{n % 500:06}@consumer-group-{n:06}":{{{numbers}\n\t\t}}' for n in range(5_000))
    data = ('{\n\t"offsetTable":{\n\t\t' + ",\n\t\t".join(rows) + "\n\t}\n}").encode()
    tracemalloc.start()
    try:
        table = ConsumerOffsets.parse(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(table.offsets) == 5_000
    assert peak + len(data) <= 10 * len(data)
