"""``report ... --plot``: the drawn numbers are those of the report."""

import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqtool.cli.render.text import width_of
from rmqtool.cli.tables.plot import PLOTS, draw, spark
from tests.cli.running import rmqtool
from tests.cli.terminal import at_terminal
from tests.conftest import Unpacked

NAMED = {"traffic": ["topic"], "sizes": ["topic"], "producers": ["host"], "lag": ["group", "topic"]}
HOUR = 3600


@pytest.mark.parametrize("name", NAMED)
def test_sums_are_those_of_the_report(name: str, golden: Unpacked) -> None:
    store = golden("broker")
    value = PLOTS[name].value
    sums = Counter[str]()
    for row in json.loads(rmqtool("report", name, store, "-o", "json").out):
        sums[" ".join(row[each] for each in NAMED[name])] += row[value]
    lines = rmqtool("report", name, store, "--plot").out.splitlines()[1:]
    shown = {}
    for line in lines:
        match = re.fullmatch(r"(.+?)  +([\d,]+)(?:  (.*))?", line)
        assert match is not None, line
        shown[match[1]] = int(match[2].replace(",", ""))
        assert bool(match[3]) == (shown[match[1]] > 0)
    assert shown == sums
    assert [*shown.values()] == sorted(shown.values(), reverse=True)


def rows_of(values: dict[str, dict[int, int]], broker: str = "b") -> list[dict[str, Any]]:
    return [
        {"broker": broker, "topic": topic, "hour": f"2026-11-{1 + hour // 24:02d}T{hour % 24:02d}:00:00.000Z",
         "messages": count}
        for topic, hours in values.items() for hour, count in hours.items()
    ]  # fmt: skip


def test_hours_without_messages_have_their_place() -> None:
    lines = [*draw(PLOTS["traffic"], rows_of({"A": {0: 8, 3: 4, 9: 1}, "B": {2: 1}}), 80, None)]
    assert lines == [
        "messages by hour, from 2026-11-01 00:00Z to 2026-11-01 09:00Z; a column is an hour",
        "A  13  █  ▄     ▁",
        "B   1    █",
    ]


@pytest.mark.parametrize("width", [30, 80, 120])
def test_hours_are_added_up_where_there_is_no_room(width: int) -> None:
    rng = Random(width)
    values = {f"长主题-{n}": {rng.randrange(600): rng.randrange(1, 9) for _ in range(200)} for n in range(5)}
    head, *lines = draw(PLOTS["traffic"], rows_of(values), width, None)
    match = re.search(r"a column is (?:(\d+) times )?an hour", head)
    assert match is not None
    assert int(match[1]) > 1
    assert all(width_of(line) <= width for line in lines)
    assert len(lines) == 5
    # a column is empty if no hour of it has a message
    first = min(min(hours) for hours in values.values())
    for line in lines:
        name = line.split()[0]
        drawn = line.split("  ", 2)[2]
        filled = {at for at, char in enumerate(drawn) if char != " "}
        assert filled == {(hour - first) // int(match[1]) for hour in values[name]}


def test_brokers_have_lines_of_their_own() -> None:
    rows = rows_of({"A": {0: 1}}, "one") + rows_of({"A": {0: 2}}, "two")
    assert [line.split("  ")[0] for line in draw(PLOTS["traffic"], rows, 80, None)][1:] == ["two A", "one A"]


def test_the_largest_on_demand(golden: Unpacked) -> None:
    result = rmqtool("report", "traffic", golden("broker"), "--plot", "--limit", "2")
    assert [line.split()[0] for line in result.out.splitlines()[1:]] == ["Orders", "SCHEDULE_TOPIC_XXXX"]


def test_a_spark_of_each_height() -> None:
    assert spark([0, 1, 2, 3, 4, 5, 6, 7, 8]) == " ▁▂▃▄▅▆▇█"
    assert spark([1, 10**9]) == "▁█"
    assert spark([0, 0]) == "  "
    assert spark([]) == ""


def test_nothing_to_draw(golden: Unpacked) -> None:
    result = rmqtool("report", "traffic", golden("broker"), "--plot", "--topic", "nothing")
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[-1].startswith("nothing matches")


@pytest.mark.parametrize("form", ["table", "json", "ndjson", "csv"])
def test_it_is_for_people(form: str, golden: Unpacked) -> None:
    result = rmqtool("report", "lag", golden("broker"), "--plot", "-o", form)
    assert (result.code, result.out) == (2, "")
    assert "--plot" in result.err


def test_at_a_terminal(golden: Unpacked, tmp_path: Path) -> None:
    code, shown = at_terminal("report", "producers", golden("broker"), "--plot")
    assert code == 0
    bars = [line for line in shown.splitlines() if "█" in line]
    assert bars
    assert max(map(len, bars)) <= 80
