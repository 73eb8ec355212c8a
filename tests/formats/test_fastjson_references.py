"""References in the brokers' JSON dialect: targets, expansion, and which are refused."""

from typing import Any

import pytest

from formats.config.files import ConsumerFilters, Topics
from formats.errors import BadText, FormatError
from formats.fastjson.dialects import BROWSER
from formats.fastjson.read import loads
from formats.fastjson.values import Key
from formats.fastjson.write import dumps


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (b"$.a", "a"),
        (rb"$.\\%RETRY\\%x\\-1\\.y", "%RETRY%x-1.y"),
        (rb"$.\\\\\\\"\\'", "\\\"'"),
        (b"$.\xe8\xae\xa2", "订"),
        (b"$.", ""),
        (b"$[3]", 3),
        (b"$[-3]", -3),
        (b"$[7]", "7"),
    ],
)
def test_a_reference_becomes_the_object_it_names(path: bytes, key: Key) -> None:
    first = dumps({key: {"x": 1}})[:-2]
    value: Any = loads(first + b',"ref":{"$ref":"' + path + b'"}}')
    assert value["ref"] is value[key]
    assert value["ref"] == {"x": 1}


def test_a_reference_can_lead_through_lists_and_integer_keys() -> None:
    value: Any = loads(b'{"l":[{},{3:{"deep":{"x":1}}}],"a":{"$ref":"$.l[1][3].deep"},"b":[{"$ref":"$.l[1]"}]}')
    assert value["a"] is value["l"][1][3]["deep"]
    assert value["b"][0] is value["l"][1]
    first: Any = loads(b'[{},{"$ref":"$[0]"}]')
    assert first[1] is first[0]


def test_references_to_what_contains_them_make_cycles_and_are_written_again() -> None:
    raw = b'{"n":{"self":{"$ref":"@"},"c":{"up":{"$ref":".."},"l":[{"$ref":"$.n"},{"$ref":"$"}]}}}'
    value: Any = loads(raw)
    node = value["n"]
    assert node["self"] is node
    assert node["c"]["up"] is node
    assert node["c"]["l"][0] is node
    assert node["c"]["l"][1] is value
    assert dumps(value, BROWSER) == raw


def test_in_a_list_the_container_of_a_reference_is_the_list() -> None:
    value: Any = loads(b'{"a":[{"$ref":".."}]}')
    assert value["a"][0] is value
    with pytest.raises(BadText):
        loads(b'[{"$ref":"@"}]')


@pytest.mark.parametrize("path", ["@", "..", "$", "$.a", "$.a.b"])
def test_cycles_can_be_refused(path: str) -> None:
    raw = b'{"a":{"b":{"c":{"$ref":"%b"}}}}' % path.encode()
    assert dumps(loads(raw))
    with pytest.raises(BadText, match="contains it") as caught:
        loads(raw, cycles=False)
    assert caught.value.at == raw.index(b"}")


def test_sharing_without_a_cycle_is_never_refused() -> None:
    assert loads(b'{"a":{"x":1},"b":{"$ref":"$.a"}}', cycles=False) == {"a": {"x": 1}, "b": {"x": 1}}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":{"$ref":"$.b"},"b":{}}',  # what comes later
        b'{"a":{"$ref":"$.a"}}',  # itself
        b'{"a":1,"b":{"$ref":"$.a"}}',  # a number
        b'{"a":[],"b":{"$ref":"$.a"}}',  # a list
        b'{"a":[{}],"b":{"$ref":"$.a[1]"}}',
        b'{"a":[{}],"b":{"$ref":"$.a[-1]"}}',
        b'{"a":{},"b":{"$ref":"$.a.x.y"}}',
        b'{"$ref":"$"}',
        b'{"$ref":"@"}',
        b'{"$ref":".."}',
    ],
)
def test_a_reference_to_nothing_before_it_is_refused(raw: bytes) -> None:
    with pytest.raises(BadText, match="no object before it") as caught:
        loads(raw)
    assert caught.value.at == raw.index(b'"}') + 1  # where the reference ends


def test_an_object_that_occurs_twice_is_written_once() -> None:
    shared: Any = {"k": {"d": 1}}
    assert dumps({"a": shared, "b": [shared, shared["k"]], 3: shared}, BROWSER) == (
        b'{"a":{"k":{"d":1}},"b":[{"$ref":"$.a"},{"$ref":"$.a.k"}],"3":{"$ref":"$.a"}}'
    )
    assert dumps({"a": {"d": 1}, "b": {"d": 1}}, BROWSER) == b'{"a":{"d":1},"b":{"d":1}}'  # equal is not the same


def test_a_reference_to_references_does_not_multiply() -> None:
    steps = b"".join(b',"k%d":{"l":{"$ref":"$.k%d"},"r":{"$ref":"$.k%d"}}' % (n, n - 1, n - 1) for n in range(1, 60))
    raw = b'{"k0":{"l":0}' + steps + b"}"
    assert dumps(loads(raw), BROWSER) == raw  # unfolded it has 2**60 objects


def test_what_carries_references_out_takes_no_more_than_a_few_times_the_file() -> None:
    """1,185 bytes took gigabytes and minutes."""
    steps = b"".join(b',"k%d":{"l":{"$ref":"$.k%d"},"r":{"$ref":"$.k%d"}}' % (n, n - 1, n - 1) for n in range(1, 24))
    hostile = b'{"k0":{"l":0}' + steps + b"}"
    with pytest.raises(BadText, match="stand for more than"):
        loads(hostile, cycles=False)
    for model in (Topics, ConsumerFilters):
        with pytest.raises(FormatError, match="stand for more than"):
            model.parse(hostile)
    long = b'{"a":{"text":"' + b"x" * 100_000 + b'"}' + b',"b":{"$ref":"$.a"}' * 20 + b"}"
    with pytest.raises(BadText, match="stand for more than"):
        loads(long, cycles=False)


def test_references_as_brokers_write_them_are_carried_out() -> None:
    shared = b'{"a":{"+message.type":"NORMAL"}' + b"".join(b',"t%d":{"$ref":"$.a"}' % n for n in range(20_000)) + b"}"
    assert len(loads(shared, cycles=False)) == 20_001  # type: ignore[arg-type]
