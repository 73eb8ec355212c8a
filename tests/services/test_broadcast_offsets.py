"""A broadcasting client's offsets.json: any content can be read; it is written as the client writes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadText
from rmqtool.rules.broadcast import QueueName, brokers, build, parse

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TABLES = st.dictionaries(
    st.builds(QueueName, NAMES, NAMES, st.integers(-(2**31), 2**31 - 1)), st.integers(-(2**63), 2**63 - 1), max_size=8
)


@given(TABLES)
def test_read_back(table: dict[QueueName, int]) -> None:
    assert parse(build(table)) == table
    assert list(parse(build(table))) == list(table)


def test_bytes_of_a_client() -> None:
    data = (
        b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:12,'
        b'{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":1,\n\t\t\t"topic":"T"\n\t\t}:5\n\t}\n}'
    )
    table = {QueueName("T", "b", 0): 12, QueueName("T", "b", 1): 5}
    assert parse(data) == table
    assert build(table) == data
    assert list(brokers(table)) == ["b"]


@pytest.mark.parametrize(
    "data",
    [b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12}}',
     b'{ "offsetTable" : { { "topic":"T" , "brokerName":"b","queueId":0 } : 12 } }',
     b'{"other":{"a":{"b":1}},"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T","new":{"x":1}}:12}}'],
)  # fmt: skip
def test_other_layouts(data: bytes) -> None:
    assert parse(data) == {QueueName("T", "b", 0): 12}


@pytest.mark.parametrize("data", [b"{}", b'{"offsetTable":{}}', b'{\n\t"offsetTable":{}\n}'])
def test_empty_ones(data: bytes) -> None:
    assert parse(data) == {}


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"offsetTable":5}', b'{"offsetTable":{"T@g":{0:1}}}', b'{"offsetTable":{{"topic":"T"}:1}}',
     b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"x"}}', b'{"offsetTable":{{"brokerName":"b"}}}',
     b'{"offsetTable":{{"brokerName":"b","queueId":true,"topic":"T"}:1}}', b'{"offsetTable":[1]}',
     b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:9223372036854775808}}'],
)  # fmt: skip
def test_anything_else(data: bytes) -> None:
    with pytest.raises(BadText):
        parse(data)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    for content in (data, b'{"offsetTable":{' + data, b'{"offsetTable":{{"brokerName":"b"' + data + b"}}"):
        try:
            parse(content)
        except BadText:
            continue
