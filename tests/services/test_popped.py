"""Messages in flight: of a real 5.3.3 broker, compared with its admin tool and scenario, and of handmade stores."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from formats.errors import BadText
from formats.topics import REVIVE_PREFIX
from formats.variants import pop
from rmqtool.services.lookup.retry_names import RetryNames
from rmqtool.services.popping.in_flight import InFlight, MessagesInFlight, pops_of
from tests import goldens
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services.build import TIME, Builder, log_of, never
from tests.timers import NOW, Timers

CASE = "broker-5.3.3"
FACTS = goldens.STORES_OF_5 / CASE / "facts"
REVIVE = REVIVE_PREFIX + "LabCluster"
RETRY = "%RETRY%pop-group_Popped"


def rows(*args: object) -> list[dict[str, Any]]:
    result = rmqtool(*args, "-o", "ndjson")
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


def without_progress(store: Path) -> Path:
    """The store as if the revive service had processed nothing yet."""
    path = store / "config" / "lmqConsumerOffset.json"
    text = path.read_text()
    changed = re.sub(r'"rmq_sys_REVIVE_LOG_LabCluster@CID_RMQ_SYS_REVIVE_GROUP":\{[^}]*\},', "", text)
    assert changed != text
    path.write_text(changed)
    return store


@pytest.mark.parametrize("case", [CASE, f"{CASE}-crash"])
def test_lag_is_what_the_admin_tool_said(case: str, golden: Unpacked) -> None:
    answer, group = {}, ""
    for line in (FACTS / "consumer-progress.txt").read_text().splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif match := re.match(r"(\S+)\s+lab-a\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", line):
            topic, *numbers = match.groups()
            answer[group, topic, int(numbers[0])] = tuple(map(int, numbers[1:]))
    listed = {
        (row["group"], row["topic"], row["queueId"]): (
            row["brokerOffset"], row["consumerOffset"], row["diff"], row["inFlight"],
        )
        for row in rows("group", "lag", golden(case))
        if not row["group"].startswith("CID_")
    }  # fmt: skip
    assert len(answer) == 20
    assert listed == answer


@pytest.mark.parametrize("case", [CASE, f"{CASE}-crash"])
def test_retries_belong_to_the_group_that_popped(case: str, golden: Unpacked) -> None:
    listed = [row for row in rows("retry", "list", golden(case)) if row["group"].startswith("pop")]
    assert {(row["group"], row["originTopic"], row["topic"]) for row in listed} == {("pop-group", "Popped", RETRY)}
    # the consumer fails on each message whose number ends in 3
    keys = ["pop-3", "pop-13", "pop-23"]
    expected = Counter([(key, 1, "retried") for key in keys] + [(key, 2, "waiting") for key in keys])
    assert Counter((*row["keys"], row["reconsumeTimes"], row["state"]) for row in listed) == expected
    (group,) = [row for row in rows("group", "list", golden(case)) if row["group"] == "pop-group"]
    assert (group["topics"], group["queues"], group["diff"], group["retryDiff"]) == (1, 3, 0, 3)


def test_messages_in_flight_are_those_that_were_not_acked(golden_copy: Unpacked) -> None:
    store = without_progress(golden_copy(CASE))
    listed = rows("group", "inflight", store)
    assert {(row["topic"], row["originTopic"], *row["keys"], row["invisibleTime"]) for row in listed} == {
        (topic, origin, f"pop-{number}", time)
        for topic, origin, time in (("Popped", None, 10_000), (RETRY, "Popped", 30_000))
        for number in (3, 13, 23)
    }
    assert {(row["group"], row["state"], row["kind"], row["brokerName"]) for row in listed} == {
        ("pop-group", "due", "checkpoint", "lab-a")
    }
    lag = {(row["topic"], row["queueId"]): row["inFlight"] for row in rows("group", "lag", store, "-g", "pop-group")}
    assert lag == {("%RETRY%pop-group", 0): 0, (RETRY, 0): 3, **{("Popped", queue_id): 1 for queue_id in range(3)}}
    assert "inFlight" in rmqtool("group", "lag", store).out
    states = Counter(row["state"] for row in rows("retry", "list", store, "-g", "pop-group"))
    assert states == {"in-flight": 3, "waiting": 3}
    assert len(rows("group", "inflight", store, "--topic", "Popped", "--queue", "1")) == 1


def test_the_life_of_a_popped_message(golden: Unpacked) -> None:
    ids = {row["keys"][0]: row["msgId"] for row in rows("retry", "list", golden(CASE))}
    (listed,) = rows("trace", golden(CASE), ids["pop-13"])
    assert listed["state"] == "revived"
    assert [(event["event"], event["topic"], event["group"]) for event in listed["events"]] == [
        ("stored", "Popped", None),
        ("popped", "Popped", "pop-group"),
        ("postponed", "Popped", "pop-group"),
        ("revived", RETRY, "pop-group"),
        ("popped", RETRY, "pop-group"),
        ("postponed", RETRY, "pop-group"),
        ("revived", RETRY, "pop-group"),
    ]
    log = log_of(golden(CASE))
    copies = {("Popped", queue_id, offset) for queue_id in range(3) for offset in range(10)}
    events = Counter(event.event for event in pops_of(MessagesInFlight(log, TIME, never), copies, 0))
    assert events == {"popped": 30, "acked": 27, "postponed": 3}


def checkpoint(**members: Any) -> bytes:
    standard = {"so": 0, "pt": NOW, "it": 60_000, "bm": 0, "n": 4, "q": 0, "t": "T", "c": "G", "bn": "b"}
    return json.dumps({**standard, **members}).encode()


def ack(**members: Any) -> bytes:
    return json.dumps({"so": 0, "pt": NOW, "q": 0, "t": "T", "c": "G", "bn": "b", **members}).encode()


def in_flight(store: Path, warnings: list[str] | None = None, now: int = NOW) -> list[InFlight]:
    warn = never if warnings is None else warnings.append
    return list(MessagesInFlight(log_of(store), now, warn).in_flight())


def test_checkpoints_and_acks_that_wait_in_the_timer(tmp_path: Path) -> None:
    timers = Timers()
    for _number in range(12):
        timers.builder.put("T")
    timers.put(59, topic=REVIVE, body=checkpoint(d=[0, 2, 5, 9], n=4), TAGS="ck")
    timers.put(60, topic=REVIVE, body=ack(ao=2), TAGS="ack")
    timers.put(60, topic=REVIVE, body=ack(aol=[5, 7], ao=0), TAGS="bAck")
    timers.put(59, topic=REVIVE, body=checkpoint(so=40, n=1), TAGS="ck")  # of messages that are gone
    timers.put(60, topic=REVIVE, body=ack(so=11, ao=11), TAGS="ack")  # of another checkpoint
    timers.put(60, topic="Orders", body=checkpoint(so=7, n=1), TAGS="ck")  # no checkpoint, for all its looks
    timers.put(59, topic=REVIVE, body=checkpoint(so=10, n=2, bm=1, rp="3"), TAGS="ck", enqueue=False)
    store = timers.write(tmp_path)
    listed = [(row.queueOffset, row.state, row.putAgain, row.msgId is not None) for row in in_flight(store)]
    assert listed == [
        (0, "invisible", 0, True), (9, "invisible", 0, True), (11, "invisible", 3, True), (40, "invisible", 0, False),
    ]  # fmt: skip
    assert {row.state for row in in_flight(store, now=NOW + 60_000)} == {"due"}


def test_the_revive_offset_is_the_last_that_was_dealt_with(tmp_path: Path) -> None:
    builder = Builder()
    for start in (0, 1, 2):
        builder.put("T")
        builder.put(REVIVE, 3, body=checkpoint(so=start, n=1), properties={"TAGS": "ck"})
    builder.put(REVIVE, 3, body=b"{so:", properties={"TAGS": "ck"})
    builder.put(REVIVE, 3, body=b"?", properties={"TAGS": "of another version"})
    offsets = {"offsetTable": {f"{REVIVE}@{pop.REVIVE_GROUP}": {"3": 1}}}
    warnings: list[str] = []
    store = builder.write(tmp_path, {"consumerOffset.json": json.dumps(offsets)})
    assert [row.queueOffset for row in in_flight(store, warnings)] == [2]
    assert len(warnings) == 1
    assert "no checkpoint and no ack" in warnings[0]


def test_ordered_pops(tmp_path: Path) -> None:
    builder = Builder()
    for _number in range(8):
        builder.put("T", 2)
    info = {"a": "attempt", "cm": 2, "i": 30_000, "o": [1, 2, 4], "ot": {"5": NOW + 90_000}, "popTime": NOW}
    store = builder.write(tmp_path, {"consumerOrderInfo.json": json.dumps({"table": {"T@G": {"2": info}}})})
    waiting = in_flight(store, now=NOW + 50_000)
    assert [(row.queueId, row.queueOffset, row.kind, row.state, row.attemptId) for row in waiting] == [
        (2, 1, "ordered", "due", "attempt"), (2, 5, "ordered", "invisible", "attempt"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("%RETRY%a", ("a", None)),
        ("%RETRY%a_b", ("a_b", None)),  # a group of that name
        ("%RETRY%a_T", ("a", "T")),
        ("%RETRY%a_b_T", ("a_b", "T")),  # group a, topic b_T would do as well, but nobody has an offset there
        ("%RETRY%a_T_x", ("a", "T_x")),  # by the offset in the retry topic itself
        ("%RETRY%new+T_x", ("new", "T_x")),
        ("%RETRY%new_T", ("new_T", None)),
        ("%RETRY%", ("", None)),
        ("%RETRY%_T", ("_T", None)),
        ("%DLQ%a_T", ("a_T", None)),
    ],
)
def test_names_of_retry_topics(topic: str, expected: tuple[str, str | None]) -> None:
    offsets = [("T", "a_b"), ("T", "a"), ("%RETRY%a_T_x", "a")]
    assert tuple(RetryNames({"a", "a_b"}, {"T", "b_T"}, offsets).of(topic)) == expected


def test_bodies_that_are_none() -> None:
    for body in (b"", b"[]", b'{"so":"x"}', b'{"n":300}', b'{"d":[1e99]}'):
        with pytest.raises(BadText):
            pop.read("ck", body)
    assert pop.read(None, b"") is None
    point = pop.read("ck", checkpoint(n=-1))
    assert isinstance(point, pop.CheckPoint)
    assert point.queue_offsets == ()
