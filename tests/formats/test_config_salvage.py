"""Damaged config files: exactly the intact entries are found."""

from typing import Any

import pytest

from formats.config.files import NAMES, ConsumerOffsets, Topics, model_of
from formats.config.files_of_5 import MessageRequestModes
from formats.config.salvage import merge, salvage, tables_of
from formats.fastjson.read import loads, loads_torn
from tests.amounts import some
from tests.goldens import STORES

pytestmark = pytest.mark.slow

CONFIG = STORES.parent / "config"
GOLDEN = sorted(p for p in CONFIG.glob("*-*/*") if p.name in NAMES and p.parent.name != "fastjson-1.2.83")


def is_part(part: Any, whole: Any) -> bool:
    """Whether tables are a subset of the intact file's."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_part(item, whole[key]) for key, item in part.items())
    return bool(part == whole)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_cut_anywhere_leaves_entries_of_the_file(path: Any) -> None:
    model, data = model_of(path.name), path.read_bytes()
    whole = loads(data, cycles=False)
    assert loads_torn(data) is None
    assert salvage(model, data) == {key: item for key, item in whole.items() if key != "groupTopicMap"}
    result = 0
    for cut in range(0, len(data), 1 + len(data) // some(100, 400)):
        part = salvage(model, data[:cut])
        model.read(part)
        assert is_part(part, whole), cut
        entries = sum(len(part.get(name, {})) for name in tables_of(model))
        assert entries >= result, cut  # the longer, the more
        result = entries
    torn = loads_torn(data[:-1])
    assert torn is not None
    assert torn.at == len(data) - 1


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "subscriptionGroup.json"])
def test_entries_behind_damage(name: str) -> None:
    model, data = model_of(name), (CONFIG / "4.9-broker" / name).read_bytes()
    whole = loads(data)
    (table,) = (table for table in tables_of(model) if table in whole)
    for at in range(60, len(data) - 60, 1 + len(data) // 40):
        for noise in (bytes(50), b"\xff" * 20, b'"' * 5, b"}" * 3):
            damaged = data[:at] + noise + data[at + len(noise) :]
            part = salvage(model, damaged)
            # noise takes the entries that it touches, and never makes one up
            assert len(part[table]) >= len(whole[table]) - 3, (at, noise)
            assert is_part(part, whole) or noise[:1] in b'"}', (at, noise)


def test_a_number_that_nothing_ends_is_left_out() -> None:
    data = b'{\n\t"offsetTable":{\n\t\t"T@G":{0:12,1:5678'
    assert salvage(ConsumerOffsets, data) == {"offsetTable": {"T@G": {0: 12}}}
    assert salvage(ConsumerOffsets, data + bytes(100)) == {"offsetTable": {"T@G": {0: 12}}}
    assert salvage(ConsumerOffsets, data + b",")["offsetTable"] == {"T@G": {0: 12, 1: 5678}}


def test_entries_that_do_not_fit_are_left_out() -> None:
    data = b'{"offsetTable":{"A@G":{0:1,"x":2},"B@G":5,"C@G":{0:"7",1:null,2:[]}},"dataVersion":7,"more":{"a":1}}'
    assert salvage(ConsumerOffsets, data) == {"offsetTable": {"A@G": {0: 1}, "C@G": {0: "7"}}}


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"null", b"7", b"[]", b'"x"', b"{", b'{"topicConfigTable":[]}'])
def test_nothing_to_be_saved(data: bytes) -> None:
    assert salvage(Topics, data) == {}


def test_newer_entries_come_over_older_ones() -> None:
    older = {"offsetTable": {"A@G": {0: 1, 1: 2}, "B@G": {0: 3}}, "x": 1}
    newer = {"offsetTable": {"A@G": {1: 5}, "C@G": {0: 4}}, "y": 2}
    expected = {"A@G": {0: 1, 1: 5}, "B@G": {0: 3}, "C@G": {0: 4}}
    assert merge(ConsumerOffsets, older, newer) == {"offsetTable": expected, "x": 1, "y": 2}
    table = {"messageRequestModeMap": {"T": {"g": {"mode": "POP", "topic": "T"}, "h": {"mode": "PULL"}}}}
    other = {"messageRequestModeMap": {"T": {"g": {"mode": "PULL"}}}}
    merged = merge(MessageRequestModes, table, other)
    # a bean is one piece: members of two generations are not mixed
    assert merged["messageRequestModeMap"] == {"T": {"g": {"mode": "PULL"}, "h": {"mode": "PULL"}}}


def test_an_object_within_itself_ends() -> None:
    """In a damaged file, and in parts carved out of it, a reference may refer to its own container."""
    inner = b'"G":{"groupName":"G","more":{"$ref":"$"}}'
    for data in (b'{"subscriptionGroupTable":{' + inner, b'}{"noise' + inner, inner * 3):
        assert salvage(model_of("subscriptionGroup.json"), data) is not None
