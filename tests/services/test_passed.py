"""Why a group's offset is past a message, as far as a store shows."""

import json
from pathlib import Path

from rmqtool.services.trace import topics_with_key, trace
from rmqtool.store.layout.paths import StoreLayout
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services import lab
from tests.services.build import log_of, never
from tests.services.test_trace import unique_ids

CASE = "broker"


def whys(store: Path, key: str = "order-207") -> dict[str, str]:
    """Group → reason why it is past a message of the topic Orders."""
    traced = trace(log_of(store), unique_ids(CASE)[key], lab.STOPPED, never)
    assert (traced.keys[0], traced.bodyEncoding, traced.events[0].topic) == (key, "utf8", "Orders")
    return {taken.group: taken.why for taken in traced.groups if taken.topic == "Orders"}


def test_consumed_or_by_tag(golden: Unpacked) -> None:
    assert whys(golden(CASE)) == {"lab-consumer": "consumed, or filtered by tag"}


def test_given_back(golden: Unpacked) -> None:
    assert whys(golden(CASE), "order-40") == {"lab-consumer": "given back"}


def test_not_yet_and_reset(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    assert rmqtool("group", "reset", store, "lab-consumer", "--topic", "Orders", "--to-earliest", "--yes").code == 0
    assert whys(store) == {"lab-consumer": "not yet"}
    assert rmqtool("group", "reset", store, "lab-consumer", "Orders", "--to-latest", "--yes").code == 0
    assert whys(store) == {"lab-consumer": "reset"}
    offsets = store / "config" / "consumerOffset.json"
    offsets.write_text(offsets.read_text() + " ")  # a broker has written since
    assert whys(store) == {"lab-consumer": "consumed, or filtered by tag"}


def test_filtered(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    filter_data = {
        "topic": "Orders", "consumerGroup": "lab-consumer", "expression": "TAGS = 'no such tag'",
        "expressionType": "SQL92", "bornTime": 2, "deadTime": 1,
    }  # fmt: skip
    table = {"filterDataByTopic": {"Orders": {"topic": "Orders", "groupFilterData": {"lab-consumer": filter_data}}}}
    (store / "config" / "consumerFilter.json").write_text(json.dumps(table))
    assert whys(store) == {"lab-consumer": "filtered: TAGS = 'no such tag'"}
    filter_data |= {"bornTime": 1, "deadTime": 2}  # the group had left before the message came
    (store / "config" / "consumerFilter.json").write_text(json.dumps(table))
    assert whys(store) == {"lab-consumer": "consumed, or filtered by tag"}
    filter_data["deadTime"] = 1 << 42  # it had not
    (store / "config" / "consumerFilter.json").write_text(json.dumps(table))
    assert whys(store) == {"lab-consumer": "filtered: TAGS = 'no such tag'"}
    filter_data["expression"] = "TAGS is not null"
    (store / "config" / "consumerFilter.json").write_text(json.dumps(table))
    assert whys(store) == {"lab-consumer": "consumed, or filtered by tag"}


def test_a_key_is_no_id(golden: Unpacked) -> None:
    assert topics_with_key(StoreLayout(str(golden(CASE))), "order-40") == ["Orders"]
    output = rmqtool("trace", golden(CASE), "order-40")
    assert output.code == 1
    assert f"order-40 is a key in topic Orders: rmqtool query-key {golden(CASE)} Orders order-40" in output.err


def test_an_event_is_one_line(golden: Unpacked) -> None:
    shown = rmqtool("trace", golden(CASE), unique_ids(CASE)["order-40"]).out
    lines = [line for line in shown.splitlines() if line.startswith("2026-")]
    assert [line.split()[2] for line in lines] == [
        "stored", "retry-delayed", "retry", "retry-delayed", "retry", "dead-letter",
    ]  # fmt: skip
    assert shown.splitlines()[1].split() == ["tag", "created"]
    assert max(map(len, lines)) <= 100
