"""Tables of offsets that stay text until they are needed say the same as dicts."""

import pytest

from formats.config.files import ConsumerOffsets
from formats.errors import BadText
from formats.fastjson.read import loads
from formats.fastjson.values import Numbers
from tests.conftest import Unpacked

TABLES = [
    "{0:1,1:2}", "{0:1}", "{}", "{ 0:1 }", "{0:1,}", "{0:1,0:2}", "{1:1,0:2,1:3}", "{-1:-5}", '{"0":1}', "{0:1.0}",
    "{0:999999999999999999}", "{0:9223372036854775807}", "{2147483647:1}", "{0:1, 1:2}", "{0:1\n,1:2}", "{0:-0}",
    "{007:1}", "{0:1\n\t\t}",
]  # fmt: skip
BROKEN = [
    "{0:1-1:2}", "{0:1:2}", "{0:1,,1:2}", "{0:9223372036854775808}", "{2147483648:1}", "{0:1 1:2}", "{0:}", "{:1}",
    "{0:1]", "{0:true}", "{0:-}", "{,0:1}",
]  # fmt: skip


def text_of(table: str) -> bytes:
    """A file whose tables stand in the middle and at the end, where they are read in different ways."""
    return b'{"offsetTable":{"T@a":%b,"T@b":{3:4},"T@c":%b}}' % (table.encode(), table.encode())


@pytest.mark.parametrize("table", TABLES)
def test_a_table_says_what_its_dict_says(table: str) -> None:
    data = text_of(table)
    plain = loads(data)["offsetTable"]  # type: ignore[index, call-overload]
    offsets = ConsumerOffsets.parse(data).offsets
    assert type(offsets["T@b"]) is Numbers
    wanted = {key: {int(k): int(v) for k, v in queues.items()} for key, queues in plain.items()}  # type: ignore
    assert {key: dict(queues) for key, queues in offsets.items()} == wanted
    for key, queues in offsets.items():
        assert [*queues.items()] == [*wanted[key].items()]
        assert (len(queues), [*queues], [*queues.values()]) == (
            len(wanted[key]),
            [*wanted[key]],
            [*wanted[key].values()],
        )
        assert queues == wanted[key]
        assert wanted[key] == queues
        assert all(queues[number] == wanted[key][number] for number in wanted[key])
        assert queues.get(77) is None
    assert ConsumerOffsets.parse(ConsumerOffsets.parse(data).build()) == ConsumerOffsets.parse(data)


@pytest.mark.parametrize("table", BROKEN)
def test_broken_tables_are_named_where_they_break(table: str) -> None:
    data = text_of(table)
    with pytest.raises(BadText) as kept:
        ConsumerOffsets.parse(data)
    assert data.index(b"T@a") < kept.value.at < data.index(b"T@b")


def test_the_tables_of_brokers_stay_text(golden: Unpacked) -> None:
    """A line ends before their closing brace."""
    path = golden("broker") / "config" / "consumerOffset.json"
    kinds = [type(queues) for queues in ConsumerOffsets.parse(path.read_bytes()).offsets.values()]
    assert kinds[:-1] == [Numbers] * 8


def test_nothing_else_stays_text() -> None:
    """Members that this version does not know, and files with references, are read as they always were."""
    data = b'{"offsetTable":{"T@a":{0:1},"T@b":{0:2}},"other":{"x":{0:1},"y":{0:2}}}'
    offsets = ConsumerOffsets.parse(data)
    assert type(offsets.offsets["T@a"]) is Numbers
    assert type(offsets.extra["other"]["x"]) is dict
    referring = b'{"offsetTable":{"T@a":{0:1},"T@b":{"$ref":"$.offsetTable.T@a"}}}'
    assert ConsumerOffsets.parse(referring).offsets == {"T@a": {0: 1}, "T@b": {0: 1}}
