"""Unmodified clients against a served store: the same program against the real broker has the same results."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import examine
from tests.interop.broker import Broker
from tests.interop.serving import Serving

pytestmark = pytest.mark.interop
Program = Callable[[Broker], Any]
_SMALL = "mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=60000\n"


def config(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(_SMALL + "transactionCheckInterval=1000\ntransactionTimeOut=1000\nbrokerFastFailureEnable=false\n")
    return path


def both(broker: Broker, tmp_path: Path, program: Program) -> tuple[Any, Any]:
    """What a program gets from the real broker, and from ours."""
    conf = config(tmp_path)
    real = tmp_path / "real"
    real.mkdir()
    broker.boot(real, dict(line.split("=") for line in conf.read_text().split()))
    wanted = program(broker)
    broker.stop()
    store = tmp_path / "ours"
    with Serving(store, "--create", "--engine", broker.engine, "--broker-conf", str(conf)) as serving:
        broker.connect(serving.namesrv, serving.broker)
        got = program(broker)
        broker.stop()
        code, said = serving.end()
    assert code == 0, said
    assert "Traceback" not in said
    report = examine(StoreLayout(str(store))).report
    assert report.clean, report
    return wanted, got


def places(results: list[dict[str, Any]]) -> list[Any]:
    return sorted((row["status"], row["queueId"], row["queueOffset"]) for row in results)


def counted(seen: list[dict[str, Any]]) -> Counter[tuple[str, str, int]]:
    return Counter((row["group"], row["keys"], row["reconsumeTimes"]) for row in seen)


def sends(broker: Broker) -> Any:
    def send(**more: Any) -> Any:
        return broker.ask("send", topic="Orders", **more)

    singles = [send(keys=f"k{n}", queueId=n % 4, body="x" * (n + 1) * 100) for n in range(60)]
    delayed = [send(keys=f"d{n}", queueId=1, level=18) for n in range(3)]
    batches = [
        broker.ask("sendBatch", messages=[{"topic": "Batches", "keys": f"b{n}-{m}"} for m in range(7)])
        for n in range(4)
    ]
    for how in ("async", "oneway"):
        broker.ask("sendMany", topic="Many", count=50, threads=4, prefix=how, how=how)
    ids = [len(row["offsetMsgId"].split(",")) for row in batches]
    many = sum(broker.ask("pull", group="p", topic="Many", queueId=q, offset=0, count=1)["max"] for q in range(4))
    total = sum(row["queueOffset"] for row in batches)
    return places(singles), places(delayed), ids, many, Counter(row["status"] for row in batches), total % 7


def errors(broker: Broker) -> Any:
    """Codes of requests that cannot be carried out, and what they say."""
    broker.ask("send", topic="Orders", keys="k", queueId=0)
    fields = {"a": "g", "b": "Orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795000000000", "h": "0"}
    pull = {
        "consumerGroup": "g", "topic": "Orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
    }  # fmt: skip
    queue = {"topic": "Orders", "queueId": "0"}
    asked = [
        (310, fields | {"e": "99"}),
        (310, fields | {"b": "a b"}),
        (310, fields | {"b": ""}),
        (310, fields | {"b": "SCHEDULE_TOPIC_XXXX"}),
        (310, fields | {"b": "NoSuch", "c": "NoTemplate"}),
        (310, fields | {"b": "x" * 200}),
        (310, fields | {"i": "DELAY\x01x"}),
        (11, pull | {"topic": "NoSuch"}),
        (11, pull | {"queueId": "99"}),
        (11, pull | {"queueId": "-1"}),
        (11, pull | {"sysFlag": "0"}),
        (11, pull | {"queueOffset": "1"}),
        (11, pull | {"queueOffset": "5"}),
        (11, pull | {"queueOffset": "-1"}),
        (11, pull | {"queueId": "2", "queueOffset": "3"}),
        (11, pull | {"queueId": "2"}),
        (11, pull | {"expressionType": "SQL92", "subscription": "a > 1"}),
        (11, pull | {"subscription": "no || such"}),
        (14, queue | {"consumerGroup": "nobody"}),
        (14, queue | {"consumerGroup": "nobody", "setZeroIfNotFound": "false"}),
        (30, queue), (31, queue), (32, queue), (30, queue | {"topic": "NoSuch"}), (32, queue | {"queueId": "3"}),
        (29, queue | {"timestamp": "0"}), (29, queue | {"timestamp": "9999999999999"}),
        (12, {"topic": "Orders", "key": "no", "maxNum": "8", "beginTimestamp": "0", "endTimestamp": "9999999999999"}),
        (33, {"offset": "77"}),
        (36, {"offset": "0", "group": "nobody", "delayLevel": "0"}),
        (36, {"offset": "12345", "group": "nobody", "delayLevel": "0"}),
        (37, {"producerGroup": "g", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8"}),
        (38, {"consumerGroup": "nobody"}),
        (202, {"topic": "NoSuch"}), (203, {"consumerGroup": "nobody"}), (204, {"producerGroup": "nobody"}),
        (215, {"topic": "TBW102"}),
        (307, {"consumerGroup": "nobody", "clientId": "x"}),
        (222, {"topic": "Orders", "group": "nobody", "timestamp": "0", "isForce": "true"}),
        (9999, {}),
    ]  # fmt: skip
    told = []
    for code, given in asked:
        answer = broker.ask("request", code=code, fields=given)
        told.append((code, given, answer["code"]))
    return told


def failures(broker: Broker) -> Any:
    broker.ask("consume", group="failing", topic="Fails", failures=2, most=5, level=1)
    broker.ask("consume", group="dying", topic="Fails", failures=9, most=1, level=1)
    for number in range(8):
        broker.ask("send", topic="Fails", keys=f"f{number}", queueId=number % 4)
    seen = broker.wait_for(lambda rows: len(rows) >= 8 * 3 + 8 * 2, 120)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        dead = broker.ask("pull", group="p", topic="%DLQ%dying", queueId=0, offset=0, count=32)
        if dead["max"] == 8:
            break
        time.sleep(0.2)
    return counted(seen), sorted(row["keys"] for row in dead["messages"])


def in_order(broker: Broker) -> Any:
    for number in range(40):
        broker.ask("send", topic="Sequenced", keys=f"{number % 4}-{number:02d}", queueId=number % 4)
    broker.ask("consume", group="orderly", topic="Sequenced", failures=1, most=9, level=0, orderly=True)
    seen = broker.wait_for(lambda rows: len(rows) >= 80, 120)
    per_queue: dict[int, list[str]] = {}
    for row in seen:
        per_queue.setdefault(row["queueId"], []).append(row["keys"])
    return per_queue


def everybody(broker: Broker) -> Any:
    for name in ("one", "two"):
        broker.ask("consume", group="all", topic="News", failures=0, most=1, level=0, broadcast=True, instance=name)
    broker.ask("send", topic="News", keys="first", queueId=0)
    for number in range(20):
        broker.ask("send", topic="News", keys=f"n{number}", queueId=number % 4)
    return counted(broker.wait_for(lambda rows: len(rows) >= 42, 60))


def tags(broker: Broker) -> Any:
    for number in range(60):
        broker.ask("send", topic="Tagged", keys=f"t{number}", queueId=number % 4, tag="abc"[number % 3])
    broker.ask("consume", group="some", topic="Tagged", failures=0, most=1, level=0, expression="a || c")
    first = counted(broker.wait_for(lambda rows: len(rows) >= 40, 60))
    for number in range(30):
        broker.ask("send", topic="Tagged", keys=f"u{number}", queueId=number % 4, tag="abc"[number % 3])
    return first, counted(broker.wait_for(lambda rows: len(rows) >= 60, 60))


def delays(broker: Broker) -> Any:
    broker.ask("consume", group="waiting", topic="Late", failures=0, most=1, level=0)
    for number in range(12):
        broker.ask("send", topic="Late", keys=f"l{number}", queueId=number % 4, level=1 + number % 2)
    return counted(broker.wait_for(lambda rows: len(rows) >= 12, 60))


def transactions(broker: Broker) -> Any:
    broker.ask("consume", group="committed", topic="Paid", failures=0, most=1, level=0)
    for answer in ("commit", "rollback", "unknown"):
        for checked in ("commit", "rollback"):
            for number in range(2):
                broker.ask(
                    "sendHalf", group=f"{answer}-{checked}", topic="Paid", keys=f"{answer}-{checked}-{number}",
                    answer=answer, checked=checked,
                )  # fmt: skip
    seen = broker.wait_for(lambda rows: len(rows) >= 6, 120)
    asked = []
    for _ in range(300):
        asked = broker.ask("asked")
        if len(set(asked)) == 4:
            break
        time.sleep(0.2)
    return counted(seen), sorted(set(asked))


def looks(broker: Broker) -> Any:
    sent = [broker.ask("send", topic="Looked", keys=f"key{n} all", queueId=0) for n in range(10)]
    pulled = broker.ask("pull", group="p", topic="Looked", queueId=0, offset=2, count=4)
    polled = broker.ask("poll", group="q", topic="Looked", queueId=0, offset=3, count=5)
    viewed = broker.ask("view", topic="Looked", msgId=sent[4]["offsetMsgId"])
    found = broker.ask("query", topic="Looked", key="all")
    by_id = broker.ask("query", topic="Looked", key=sent[7]["msgId"])
    rows = [pulled.pop("messages"), polled, [viewed], found, by_id]
    return pulled, [sorted((row["keys"], row["queueOffset"]) for row in part) for part in rows]


def requests(broker: Broker) -> Any:
    broker.ask("send", topic="Asked", keys="first")
    broker.ask("reply", group="answering", topic="Asked")
    return [broker.ask("ask", topic="Asked", body=f"question {n}")["body"] for n in range(5)]


def resets(broker: Broker) -> Any:
    for number in range(12):
        broker.ask("send", topic="Again", keys=f"a{number}", queueId=number % 4)
    broker.ask("consume", group="again", topic="Again", failures=0, most=1, level=0)
    broker.wait_for(lambda rows: len(rows) >= 12, 60)
    time.sleep(6)  # the offsets are committed every 5 s
    broker.ask("reset", group="again", topic="Again", timestamp=0)
    return counted(broker.wait_for(lambda rows: len(rows) >= 24, 120))


@pytest.mark.parametrize(
    "program",
    [sends, errors, failures, in_order, everybody, tags, delays, transactions, looks, requests, resets],
    ids=lambda program: program.__name__,
)
def test_the_same_program_has_the_same_results(broker: Broker, tmp_path: Path, program: Program) -> None:
    wanted, got = both(broker, tmp_path, program)
    if isinstance(wanted, list) and len(got) == len(wanted):
        got, wanted = ([one for one, other in zip(*pair, strict=True) if one != other]
                       for pair in ((got, wanted), (wanted, got)))  # fmt: skip
    assert got == wanted
