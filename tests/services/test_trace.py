"""The history of each message of the golden broker, as in its scenario."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE
from rmqtool.services.trace import Trace, trace
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.services import lab
from tests.services.build import HOST, TIME, Builder, log_of, never

pytestmark = pytest.mark.slow

RETRIED = ["stored", "retry-delayed", "retry", "retry-delayed", "retry", "dead-letter"]


def of(store: Path, message_id: str, warn: Any = never, now: int = lab.STOPPED, *, scan: bool = False) -> Trace:
    return trace(log_of(store), message_id, now, warn, scan=scan)


def unique_ids(case: str) -> dict[str, str]:
    """First key → unique id, for every message of a golden case."""
    result = {}
    for row in goldens.messages(case):
        properties = row["message"]["properties"]
        if "UNIQ_KEY" in properties and "KEYS" in properties:
            result[properties["KEYS"].split()[0]] = properties["UNIQ_KEY"]
    return result


def expected(key: str) -> list[str]:
    """Expected events of a message, from the scenario."""
    kind, _, number = key.rpartition("-")
    i = int(number)
    if kind == "order":
        return RETRIED if i in lab.FAILED_THRICE else ["stored", "dead-letter"] if i in lab.DEAD_AT_ONCE else ["stored"]
    if kind == "tx":
        state, checks = lab.TRANSACTIONS[key]
        return ["half", *["check"] * checks, state]
    if kind == "delay":
        return ["delayed", "delivered"]
    return ["delayed"] if kind == "far" else ["stored"]


@by_turns(3)
@pytest.mark.parametrize("case", ["broker", "broker-crash"])
def test_every_message(case: str, golden: Unpacked) -> None:
    ids = unique_ids(case)
    assert len(ids) > 400
    picked = [key for key in ids if not key.startswith("order-") or int(key[6:]) % 10 == 0]
    assert len(picked) > 100
    for key in picked:
        traced = of(golden(case), ids[key])
        assert [event.event for event in traced.events] == expected(key), key
        assert [event.time for event in traced.events] == sorted(event.time for event in traced.events)
        assert (traced.msgId, traced.scanned) == (ids[key], False)
        assert (traced.transaction is not None) == key.startswith("tx-")
        assert all(taken.passed for taken in traced.groups), key


def test_one_that_failed_three_times(golden: Unpacked) -> None:
    traced = of(golden("broker"), unique_ids("broker")["order-40"])
    assert traced.state == "dead-letter"
    assert [event.reconsumeTimes for event in traced.events] == [0, 1, 1, 2, 2, 3]
    assert [event.group for event in traced.events] == [None, *["lab-consumer"] * 5]
    first, second = (event for event in traced.events if event.event == "retry-delayed")
    assert first.deliverTimestamp == first.time + 10_000
    assert second.deliverTimestamp == second.time + 30_000
    assert [(taken.topic, taken.group) for taken in traced.groups] == [
        ("Orders", "lab-consumer"),
        *[(RETRY_PREFIX + "lab-consumer", "lab-consumer")] * 2,
    ]


def test_any_copy_leads_to_all(golden: Unpacked) -> None:
    store = golden("broker")
    whole = of(store, unique_ids("broker")["order-80"])
    for event in whole.events:
        assert of(store, event.offsetMsgId).events == whole.events
        assert of(store, event.offsetMsgId.lower()).events == whole.events


def test_states(golden: Unpacked) -> None:
    store, ids = golden("broker"), unique_ids("broker")
    states = {key: of(store, ids[key]).state for key in ("order-1", "delay-0", "far-0", "tx-0", "tx-1", "tx-5")}
    assert states == {
        "order-1": "stored",
        "delay-0": "delivered",
        "far-0": "waiting for its time",
        "tx-0": "committed",
        "tx-1": "rolled-back",
        "tx-5": "given-up",
    }
    far = of(store, ids["far-0"], now=lab.STOPPED + lab.TWO_HOURS)
    assert far.state == "due, not delivered"
    assert far.events[0].deliverTimestamp == far.events[0].time + lab.TWO_HOURS


@pytest.mark.parametrize("lost", ["index", "damaged index", "asked for"])
def test_by_a_scan(lost: str, golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    if lost == "index":
        shutil.rmtree(store / "index")
    elif lost == "damaged index":
        next((store / "index").iterdir()).write_bytes(b"\xff" * 100)
    for key in ("order-80", "tx-2", "tx-4", "far-3", "delay-5"):
        traced = of(store, unique_ids("broker")[key], lambda _text: None, scan=lost == "asked for")
        assert traced.scanned
        assert [event.event for event in traced.events] == expected(key)


def test_nothing(golden: Unpacked) -> None:
    for message_id in ("nothing", "", "7F000001000078BF0000000000000001", "F" * 32, "F" * 56, "\udcff"):
        traced = of(golden("broker"), message_id)
        assert (traced.state, traced.events, traced.scanned, traced.msgId) == ("not found", [], True, None)


def test_without_unique_ids(tmp_path: Path) -> None:
    """Messages sent back name their origin, but it is not indexed."""
    from formats.message.ids import offset_id

    builder = Builder()
    builder.put("T", properties={"KEYS": "x"})
    origin = offset_id(HOST, 10911, 0)
    own = {"ORIGIN_MESSAGE_ID": origin, "RETRY_TOPIC": "T"}
    builder.put(
        SCHEDULE,
        2,
        properties={**own, "REAL_TOPIC": RETRY_PREFIX + "g", "DELAY": "3"},
        reconsume_times=1,
        code=TIME + 9,
    )
    builder.put(RETRY_PREFIX + "g", properties=own, reconsume_times=1)
    builder.put(DLQ_PREFIX + "g", properties=own, reconsume_times=2)
    builder.put("T", properties={"KEYS": "y"})
    store = builder.write(tmp_path, {"delayOffset.json": '{"offsetTable":{3:1}}'})
    for scan in (False, True):
        traced = of(store, origin, scan=scan)
        assert [event.event for event in traced.events] == ["stored", "retry-delayed", "retry", "dead-letter"]
        assert traced.events[1].deliverTimestamp == TIME + 9
        assert traced.scanned == scan


def test_damage_is_told(golden: Unpacked) -> None:
    warnings: list[str] = []
    traced = of(golden("size-field-negative"), "no such id", warnings.append)
    assert (traced.events, traced.scanned) == ([], True)
    assert len(warnings) == 1
    assert "skipped" in warnings[0]
