"""POP by unmodified 5.3.3 clients: the same program on the real broker and on ours, and each takes over the other's
messages in flight.
"""

import base64
import json
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from formats.remoting.codes import RequestCode
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.pairs import Pairs, Program
from tests.interop.serving import Serving
from tests.interop.test_serve import config, counted, make

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]
CONF = "timerWheelEnable=true\nmappedFileSizeTimerLog=520000\n"


@pytest.fixture(params=["5.3.3"])
def broker(broker_5: Broker) -> Broker:
    return broker_5


def send(broker: Broker, topic: str, count: int) -> set[str]:
    keys = [f"k{number}" for number in range(count)]
    for number, key in enumerate(keys):
        broker.ask("send", topic=topic, keys=key, queueId=number % 4)
    for queue in range(min(count, 4)):  # a real broker dispatches what it has acknowledged a little later
        asked = {"topic": topic, "queueId": str(queue)}
        sent = len(range(queue, count, 4))
        for _ in range(600):
            if int(broker.ask("request", code=RequestCode.GET_MAX_OFFSET, fields=asked)["fields"]["offset"]) >= sent:
                break
            time.sleep(0.1)
    return set(keys)


def pops(broker: Broker, topic: str, least: int, *, seconds: float = 60, **more: Any) -> list[dict[str, Any]]:
    """Pop until the group has at least ``count`` messages."""
    given = {"group": "g", "topic": topic, "invisible": 60_000, "poll": 1_000, **more}
    result: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    while len(result) < least and time.monotonic() < end:
        result += broker.ask("pop", **given)["messages"]
    return result


def ack(broker: Broker, topic: str, row: dict[str, Any]) -> str:
    return broker.ask("ack", group="g", topic=topic, handle=row["handle"])["status"]


def came_back(rows: list[dict[str, Any]]) -> list[Any]:
    """The reproducible part of messages from retry topics, whose order is random."""
    return sorted(
        (row["keys"], row["topic"], row["queueId"], row["reconsumeTimes"], row["body"], row["handle"].split(" ")[4])
        for row in rows
    )


def summary(rows: list[dict[str, Any]]) -> list[Any]:
    """The reproducible part: a handle without times and other offsets."""
    return sorted(
        (row["keys"], row["topic"], row["queueId"], row["queueOffset"], row["reconsumeTimes"], row["body"],
         [part for at, part in enumerate(row["handle"].split(" ")) if at in (2, 4, 5, 6, 7)])
        for row in rows
    )  # fmt: skip


def offsets(broker: Broker, topic: str) -> list[Any]:
    fields = {"consumerGroup": "g", "topic": topic}
    return [broker.ask("request", code=14, fields=fields | {"queueId": str(n)})["fields"] for n in range(4)]


def acks(broker: Broker) -> Any:
    make(broker, "Popped")
    keys = send(broker, "Popped", 40)
    rows = pops(broker, "Popped", 40)
    assert {row["keys"] for row in rows} == keys
    single = [ack(broker, "Popped", row) for row in rows[:20]]
    handles = [row["handle"] for row in rows[20:]]
    batch = broker.ask("batchAck", group="g", topic="Popped", handles=handles)["status"]
    again = broker.ask("pop", group="g", topic="Popped", invisible=1000)
    time.sleep(1)  # until the real broker has moved the offsets
    return summary(rows), single, batch, again, offsets(broker, "Popped")


def revivals(broker: Broker) -> Any:
    """Unacked messages come back; later with a longer time; never if acked by their new handle."""
    make(broker, "Back")
    send(broker, "Back", 12)
    rows = pops(broker, "Back", 12, invisible=3_000)
    by_key = {row["keys"]: row for row in rows}
    for number in range(0, 12, 2):
        ack(broker, "Back", by_key[f"k{number}"])
    later = broker.ask("invisible", group="g", topic="Back", handle=by_key["k1"]["handle"], ms=9_000)
    kept = broker.ask("invisible", group="g", topic="Back", handle=by_key["k3"]["handle"], ms=5_000)
    assert ack(broker, "Back", {"handle": kept["handle"]}) == "OK"
    again = pops(broker, "Back", 4)
    last = pops(broker, "Back", 1)
    wrong = [broker.ask("ack", group="g", topic="Back", handle=row["handle"]) for row in again]
    more = pops(broker, "Back", 1, seconds=3)
    return (
        summary(rows),
        later["status"],
        came_back(again),
        came_back(last),
        [row["status"] for row in wrong],
        more,
    )


def in_order(broker: Broker) -> Any:
    make(broker, "Ordered")
    for number in range(6):
        broker.ask("send", topic="Ordered", keys=f"o{number}", queueId=0)

    def pop(attempt: str, count: int = 2, **more: Any) -> list[dict[str, Any]]:
        given = {"group": "g", "topic": "Ordered", "queueId": 0, "order": True, "invisible": 4_000, "count": count}
        return broker.ask("pop", attempt=attempt, **{**given, **more})["messages"]

    first, blocked, repeated = pop("a"), pop("b"), pop("a")
    acked = [ack(broker, "Ordered", repeated[1]), len(pop("c")), ack(broker, "Ordered", repeated[0])]
    second = pop("d")
    stale = ack(broker, "Ordered", first[0])
    ack(broker, "Ordered", second[0])
    changed = broker.ask("invisible", group="g", topic="Ordered", handle=second[1]["handle"], ms=6_000)
    began = time.monotonic()
    third = pops(broker, "Ordered", 1, queueId=0, order=True, attempt="e", count=9, poll=10_000)
    slow = time.monotonic() - began > 5
    done = [ack(broker, "Ordered", row) for row in third]
    where = broker.ask("request", code=14, fields={"consumerGroup": "g", "topic": "Ordered", "queueId": "0"})["fields"]
    rows = [first, blocked, repeated, second, third]
    return [summary(part) for part in rows], acked, stale, changed["status"], slow, done, where


def refusals(broker: Broker) -> Any:
    """Codes of refused requests."""
    make(broker, "Refused")
    send(broker, "Refused", 4)
    now = str(int(time.time() * 1000))
    pop = {
        "consumerGroup": "g", "topic": "Refused", "queueId": "-1", "maxMsgNums": "8", "invisibleTime": "60000",
        "pollTime": "0", "bornTime": "0", "initMode": "0", "order": "false", "expType": "TAG", "exp": "none",
    }  # fmt: skip
    ask = {"consumerGroup": "g", "topic": "Refused", "queueId": "0", "pollTime": "0", "bornTime": "0"}
    done = {"consumerGroup": "g", "topic": "Refused", "queueId": "0", "offset": "0",
            "extraInfo": f"0 {now} 60000 0 0 lab-a 0 0"}  # fmt: skip
    asked = [
        (200050, pop), (200050, pop | {"topic": "NoSuch"}), (200050, pop | {"queueId": "9"}),
        (200050, pop | {"maxMsgNums": "33"}), (200050, pop | {"expType": "SQL92", "exp": "a >"}),
        (200050, pop | {"topic": "Refused", "exp": ""}), (200050, pop),
        (200054, ask), (200054, ask | {"topic": "NoSuch"}), (200054, ask | {"queueId": "9"}),
        (200055, ask), (200055, ask | {"topic": "NoSuch"}), (200055, ask | {"queueId": "9"}),
        (200052, ask | {"maxMsgNums": "4"}),
        (200051, done), (200051, done | {"topic": "NoSuch"}), (200051, done | {"queueId": "9"}),
        (200051, done | {"offset": "99"}), (200051, done | {"offset": "-1"}),
        (200053, done | {"invisibleTime": "60000"}), (200053, done | {"invisibleTime": "60000", "offset": "1"}),
        (200053, done | {"invisibleTime": "60000", "queueId": "-1"}),
        (200053, done | {"invisibleTime": "60000", "topic": "NoSuch"}),
    ]  # fmt: skip
    rows = []
    for code, fields in asked:
        answer = broker.ask("request", code=code, fields=fields)
        known = {name: value for name, value in (answer.get("fields") or {}).items()
                 if name in ("restNum", "hasMsg", "pollingNum", "invisibleTime")}  # fmt: skip
        times = {"bornTime", "extraInfo"}
        what = {name: value for name, value in fields.items() if name not in times}
        # beside a refusal a broker tells of nothing too
        rows.append((code, what, answer["code"], known if answer["code"] in (0, 19, 210) else {}))
    bodies = [
        (401, {"topic": "Refused", "consumerGroup": "h", "mode": "POP", "popShareQueueNum": 0}),
        (401, {"topic": "%RETRY%h", "consumerGroup": "h", "mode": "POP", "popShareQueueNum": 0}),
        (400, {"topic": "Refused", "consumerGroup": "nobody", "clientId": "x", "strategyName": "AVG",
               "messageModel": "CLUSTERING"}),
        (400, {"topic": "Refused", "consumerGroup": "nobody", "clientId": "x", "strategyName": "AVG",
               "messageModel": "BROADCASTING"}),
        (400, {"topic": "NoSuch", "consumerGroup": "nobody", "clientId": "x", "strategyName": "AVG",
               "messageModel": "CLUSTERING"}),
        (200151, {"brokerName": "lab-a", "acks": []}),
    ]  # fmt: skip
    for code, body in bodies:
        text = base64.b64encode(json.dumps(body).encode()).decode()
        answer = broker.ask("request", code=code, fields={}, base64=text)
        shown = json.loads(answer.get("body") or "{}").get("messageQueueAssignments")
        queues = None if shown is None else sorted((row["mode"], row["messageQueue"]["queueId"]) for row in shown)
        rows.append((code, body, answer["code"], queues))
    return rows


def pushed(broker: Broker) -> Any:
    """A push consumer whose group was set to POP: each message fails once and comes back."""
    make(broker, "Pushed")
    mode = {"topic": "Pushed", "consumerGroup": "pushing", "mode": "POP", "popShareQueueNum": 0}
    body = base64.b64encode(json.dumps(mode).encode()).decode()
    assert broker.ask("request", code=401, fields={}, base64=body)["code"] == 0
    broker.ask("consume", group="pushing", topic="Pushed", failures=1, most=5, level=0, pop=30_000)
    keys = send(broker, "Pushed", 12)
    seen = broker.wait_for(lambda rows: len(rows) >= 24, 120)
    assert {row["keys"] for row in seen} == keys
    return counted(seen)


@by_turns(23)
@pytest.mark.parametrize("program", [acks, revivals, in_order, refusals, pushed], ids=lambda program: program.__name__)
def test_the_same_program_has_the_same_results(broker: Broker, clients: Broker, pairs: Pairs, program: Program) -> None:
    wanted, got = pairs.run(broker, clients, program, CONF)
    if isinstance(wanted, list) and len(got) == len(wanted):
        got, wanted = ([first for first, second in zip(*pair, strict=True) if first != second]
                       for pair in ((got, wanted), (wanted, got)))  # fmt: skip
    assert got == wanted, (got, wanted)


# -- one goes on with what the other has in flight --------------------------------------------------------------------


def half_acked(broker: Broker, topic: str) -> tuple[set[str], set[str]]:
    """Pop 24 messages and ack every second one; returns (acked keys, keys that come back)."""
    make(broker, topic)
    send(broker, topic, 24)
    rows = pops(broker, topic, 24, invisible=15_000)
    handles = [row["handle"] for row in rows if int(row["keys"][1:]) % 2]
    assert ack(broker, topic, {"handle": handles[0]}) == "OK"
    assert broker.ask("batchAck", group="g", topic=topic, handles=handles[1:])["status"] == "OK"
    acked = {row["keys"] for row in rows if int(row["keys"][1:]) % 2}
    return acked, {row["keys"] for row in rows} - acked


def conf_of(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    path = config(tmp_path)
    path.write_text(path.read_text() + CONF)
    return path, dict(line.split("=") for line in path.read_text().split())


@by_turns(23)
def test_a_real_broker_brings_back_what_a_killed_one_of_ours_had_in_flight(broker: Broker, tmp_path: Path) -> None:
    conf, settings = conf_of(tmp_path)
    store = tmp_path / "store"
    with Serving(store, "--create", "--engine", "5.3", "--broker-conf", str(conf)) as serving:
        broker.connect(serving.namesrv, serving.broker)
        acked, open_ones = half_acked(broker, "Taken")
        time.sleep(7)  # until the offsets are written
        broker.stop()
        serving.end(signal.SIGKILL)
    broker.boot(store, settings)
    rows = pops(broker, "Taken", len(open_ones), seconds=120)
    more = pops(broker, "Taken", 1, seconds=3)
    broker.stop()
    assert Counter(row["keys"] for row in rows + more) == Counter(open_ones)
    assert {row["reconsumeTimes"] for row in rows} == {1}
    assert acked.isdisjoint(row["keys"] for row in rows)


@by_turns(23)
def test_ours_brings_back_what_a_real_broker_has_in_flight(broker: Broker, tmp_path: Path) -> None:
    conf, settings = conf_of(tmp_path)
    store = tmp_path / "store"
    store.mkdir()
    broker.boot(store, settings)
    _acked, open_ones = half_acked(broker, "Given")
    time.sleep(1)
    broker.stop()
    with Serving(store, "--broker-conf", str(conf)) as serving:
        broker.connect(serving.namesrv, serving.broker)
        rows = pops(broker, "Given", len(open_ones), seconds=120)
        more = pops(broker, "Given", 1, seconds=3)
        broker.stop()
        code, stderr = serving.end()
    assert code == 0, stderr
    assert Counter(row["keys"] for row in rows + more) == Counter(open_ones)
    assert {row["reconsumeTimes"] for row in rows} == {1}
