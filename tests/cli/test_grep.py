"""``grep`` and the conditions that it shares with the other commands that select messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import rmqtool
from tests.conftest import Unpacked


@pytest.fixture(scope="module")
def store(golden: Unpacked) -> Path:
    return golden("broker")


def rows(*args: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqtool(*args, "--output", "ndjson").out.splitlines()]


def test_it_says_where_it_matched(store: Path) -> None:
    result = rmqtool("grep", store, r"order-1\b", "--topic", "Orders")
    assert result.code == 0
    assert "order-1" in result.out
    matched = rows("grep", store, r"^order-1$", "--topic", "Orders")
    assert matched
    assert all("key" in row["matchedIn"] and "order-1" in row["match"] and "order-1" in row["keys"] for row in matched)
    assert {row["neighbourOf"] for row in matched} == {None}


def test_nothing_is_an_answer_with_a_code(store: Path) -> None:
    result = rmqtool("grep", store, "nowhere at all")
    assert (result.code, result.out, result.err) == (1, "", "nothing matches the pattern\n")
    assert rmqtool("grep", store, "", "--invert").code == 1


def test_a_count_is_a_number(store: Path) -> None:
    number = len(rows("grep", store, "order-"))
    assert number > 10
    assert rmqtool("grep", store, "order-", "--count").out == f"{number}\n"
    assert rows("grep", store, "order-", "--count") == [{"messages": number}]
    none = rmqtool("grep", store, "nowhere at all", "--count")
    assert (none.code, none.out) == (1, "0\n")
    for more in (("--limit", 3), ("--neighbours", 1)):
        assert rmqtool("grep", store, "order-", "--count", *more).code == 2


def test_a_limit_ends_it(store: Path) -> None:
    result = rmqtool("grep", store, "order-", "--limit", 2, "--output", "ndjson")
    assert len(result.out.splitlines()) == 2
    assert result.err == "stopped after 2 rows (--limit)\n"


def test_neighbours_are_those_of_the_queue(store: Path) -> None:
    [match] = rows("grep", store, "", "--topic", "Orders", "--queue", 1, "--queue-offset", "5:6")
    around = rows("grep", store, "", "--topic", "Orders", "--queue", 1, "--queue-offset", "5:6", "--neighbours", 2)
    assert [row["queueOffset"] for row in around] == [3, 4, 5, 6, 7]
    assert [row["neighbourOf"] for row in around] == [5, 5, None, 5, 5]
    assert around[2] == match
    queue = rows("query-offset", store, "Orders", 1, 3, "--max-msgs", 5)
    assert [row["physicalOffset"] for row in around] == [row["physicalOffset"] for row in queue]
    first = rows("grep", store, "", "--topic", "Orders", "--queue", 1, "--queue-offset", "0:1", "-C", 1)
    assert [row["queueOffset"] for row in first] == [0, 1]


@pytest.mark.parametrize("pattern", ["(", "[a", "*"])
def test_what_is_no_pattern_is_said_in_a_line(store: Path, pattern: str) -> None:
    result = rmqtool("grep", store, pattern)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert rmqtool("grep", store, pattern, "--fixed").code in (0, 1)


def test_damage_is_named(golden: Unpacked) -> None:
    result = rmqtool("grep", golden("size-field-negative"), "", "--output", "ndjson")
    assert result.code == 1
    assert "damage: " in result.err
    assert result.out


@pytest.mark.parametrize("args", [("commitlog", "dump"), ("consumequeue", "dump"), ("grep",)])
def test_conditions_select_the_same_everywhere(store: Path, args: tuple[str, ...]) -> None:
    pattern = ("",) if args == ("grep",) else ()
    every = rows(*args, store, *pattern, "--topic", "Orders")
    messages = rows("commitlog", "dump", store, "--topic", "Orders")
    low = [row for row in messages if row["queueId"] == 1 and row["queueOffset"] < 5]
    paid = [row for row in messages if row["tags"] == "paid"]
    for more, meant in ((("--where", "queueId = 1 AND queueOffset < 5"), low), (("--property", "TAGS=paid"), paid)):
        chosen = rows(*args, store, *pattern, "--topic", "Orders", *more)
        wanted = {row["physicalOffset"] for row in meant}
        assert {row["physicalOffset"] for row in chosen} == wanted
        assert 0 < len(chosen) < len(every)


@pytest.mark.parametrize(
    ("option", "text", "reason"),
    [
        ("--where", "bodyLength >", "--where: character 13"),
        ("--where", "'a", "--where: character 1"),
        ("--property", "region", "give NAME=VALUE"),
        ("--property", "=eu", "give NAME=VALUE"),
    ],
)
def test_what_is_no_condition_is_said_in_a_line(store: Path, option: str, text: str, reason: str) -> None:
    result = rmqtool("commitlog", "dump", store, option, text)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert reason in result.err


@pytest.mark.parametrize("args", [("commitlog", "dump"), ("grep",)])
def test_a_name_that_no_message_has_is_named(store: Path, args: tuple[str, ...]) -> None:
    result = rmqtool(*args, store, *([""] if args == ("grep",) else []), "--where", "bodyLenth > 1")
    assert result.code == 1
    assert "no message that was looked at has bodyLenth" in result.err


def test_dead_letters_are_selected_by_fields_and_properties(golden: Unpacked) -> None:
    store = golden("broker")
    whole = [json.loads(line) for line in rmqtool("dlq", "export", store).out.splitlines()]
    result = rmqtool("dlq", "export", store, "--where", "queueOffset >= 3 AND TAGS = 'created'")
    chosen = [row for row in whole if row["queueOffset"] >= 3 and row["tags"] == "created"]
    assert 0 < len(chosen) < len(whole)
    assert [json.loads(line) for line in result.out.splitlines()] == chosen
    name, value = next((name, value) for name, value in chosen[0]["properties"].items() if name == "KEYS")
    result = rmqtool("dlq", "export", store, "--property", f"{name}={value}")
    assert [json.loads(line) for line in result.out.splitlines()] == [
        row for row in whole if row["properties"].get(name) == value
    ]
    assert rmqtool("dlq", "export", store, "--where", "queueOffset < 0").code == 1
