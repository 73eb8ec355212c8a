"""Unmodified clients with a served store: the same program has the same results as on a real broker."""

import csv
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.reader import queues_of
from tests.amounts import by_turns, some
from tests.conftest import Unpacked
from tests.interop.broker import Broker
from tests.interop.pairs import SETTINGS, Pairs, Program
from tests.interop.serving import Serving

pytestmark = pytest.mark.interop


def config(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(SETTINGS)
    return path


def make(broker: Broker, topic: str) -> None:
    """Create a topic of four queues in advance, so that consumers need not wait for a route update."""
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    assert broker.ask("request", code=17, fields=fields)["code"] == 0
    time.sleep(0.5)  # until the name server has heard of it


def write_orders(broker: Broker, folder: Path, settings: Mapping[str, Any], count: int) -> Path:
    """A store with so many messages of the topic Orders, keys k0, k1 ..., written by a real broker that then stops."""
    store = folder / "store"
    store.mkdir()
    broker.boot(store, dict(settings))
    make(broker, "Orders")
    broker.ask("sendMany", topic="Orders", count=count, threads=4, how="sync", prefix="k")
    broker.stop()
    return store


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
    """Codes and remarks of failing requests."""
    broker.ask("send", topic="Orders", keys="k", queueId=0)
    fields = {"a": "g", "b": "Orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795000000000", "h": "0",
              "j": "0", "k": "false", "m": "false"}  # fmt: skip
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
        (33, {"offset": "99999999"}),
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
    answers = []
    for code, given in asked:
        answer = broker.ask("request", code=code, fields=given, base64="eHg=" if code == 310 else "")
        answers.append((code, given, answer["code"]))
    return answers


def failures(broker: Broker) -> Any:
    make(broker, "Fails")
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
    make(broker, "Sequenced")
    for number in range(40):
        broker.ask("send", topic="Sequenced", keys=f"{number % 4}-{number:02d}", queueId=number % 4)
    broker.ask("consume", group="orderly", topic="Sequenced", failures=1, most=9, level=0, orderly=True)
    seen = broker.wait_for(lambda rows: len(rows) >= 80, 120)
    per_queue: dict[int, list[str]] = {}
    for row in seen:
        per_queue.setdefault(row["queueId"], []).append(row["keys"])
    return per_queue


def everybody(broker: Broker) -> Any:
    make(broker, "News")
    for name in ("one", "two"):
        broker.ask("consume", group="all", topic="News", failures=0, most=1, level=0, broadcast=True, instance=name)
    broker.ask("send", topic="News", keys="first", queueId=0)
    for number in range(20):
        broker.ask("send", topic="News", keys=f"n{number}", queueId=number % 4)
    return counted(broker.wait_for(lambda rows: len(rows) >= 42, 60))


def tags(broker: Broker) -> Any:
    make(broker, "Tagged")
    for number in range(60):
        broker.ask("send", topic="Tagged", keys=f"t{number}", queueId=number % 4, tag="abc"[number % 3])
    broker.ask("consume", group="some", topic="Tagged", failures=0, most=1, level=0, expression="a || c")
    first = counted(broker.wait_for(lambda rows: len(rows) >= 40, 60))
    for number in range(30):
        broker.ask("send", topic="Tagged", keys=f"u{number}", queueId=number % 4, tag="abc"[number % 3])
    return first, counted(broker.wait_for(lambda rows: len(rows) >= 60, 60))


def selects(broker: Broker) -> Any:
    make(broker, "Selected")
    wanted = "TAGS IN ('a', 'c') AND KEYS <> 's7' AND (KEYS = 's4' OR TAGS = 'a')"
    for number in range(60):
        broker.ask("send", topic="Selected", keys=f"s{number}", queueId=number % 4, tag="abc"[number % 3])
    broker.ask("consume", group="some", topic="Selected", failures=0, most=1, level=0, sql=wanted)
    first = counted(broker.wait_for(lambda rows: len(rows) >= 20, 60))
    for number in range(30):
        broker.ask("send", topic="Selected", keys=f"t{number}", queueId=number % 4, tag="abc"[number % 3])
    then = counted(broker.wait_for(lambda rows: len(rows) >= 30, 60))
    refused = []
    for wrong in ("TAGS = ", "TAGS > 'x'", "a = NULL"):
        try:
            broker.ask("consume", group="wrong", topic="Selected", failures=0, most=1, level=0, sql=wrong)
        except AssertionError as err:
            refused.append(re.findall(r"CODE: \d+", str(err))[:1])
    return first, then, refused


def delays(broker: Broker) -> Any:
    make(broker, "Late")
    broker.ask("consume", group="waiting", topic="Late", failures=0, most=1, level=0)
    for number in range(12):
        broker.ask("send", topic="Late", keys=f"l{number}", queueId=number % 4, level=1 + number % 2)
    return counted(broker.wait_for(lambda rows: len(rows) >= 12, 60))


def transactions(broker: Broker) -> Any:
    make(broker, "Paid")
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
    for _ in range(20):  # on a busy machine the time of one call is over before anything came
        if polled := broker.ask("poll", group="q", topic="Looked", queueId=0, offset=3, count=5):
            break
    viewed = broker.ask("view", topic="Looked", msgId=sent[4]["offsetMsgId"])
    time.sleep(2)  # until the real broker has put all of them into its index
    result = broker.ask("query", topic="Looked", key="all")
    rows = [pulled.pop("messages"), polled, [viewed], result]
    return pulled, [sorted((row["keys"], row["queueOffset"]) for row in part) for part in rows]


def requests(broker: Broker) -> Any:
    make(broker, "Asked")
    broker.ask("heartbeat")
    broker.ask("reply", group="answering", topic="Asked")
    answers = [broker.ask("askLater", topic="Asked", body=f"question {number}")["body"] for number in range(5)]
    assert answers == [f"re: question {number}" for number in range(5)]
    try:
        answers.append(broker.ask("ask", topic="Asked", body="at once")["body"])
    except AssertionError as err:
        # a client of 5.x stops waiting when its request is stored, whoever the broker is, if no answer was faster
        if not broker.engine.startswith("5") or "RequestTimeoutException" not in str(err):
            raise
        answers.append("re: at once")
    return answers


def resets(broker: Broker) -> Any:
    make(broker, "Again")
    for number in range(12):
        broker.ask("send", topic="Again", keys=f"a{number}", queueId=number % 4)
    broker.ask("consume", group="again", topic="Again", failures=0, most=1, level=0)
    broker.wait_for(lambda rows: len(rows) >= 12, 60)
    fields = {"topic": "Again", "group": "again", "timestamp": "0", "isForce": "true"}
    for _ in range(300):  # until the consumer has committed its offsets, 10 s after its start
        if (done := broker.ask("request", code=222, fields=fields)["code"]) == 0:
            break
        time.sleep(0.2)
    assert done == 0
    return counted(broker.wait_for(lambda rows: len(rows) >= 24, 120))


PROGRAMS = (
    sends, errors, failures, in_order, everybody, tags, selects, delays, transactions, looks, requests, resets,
)  # fmt: skip


@by_turns(23)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_same_program_has_the_same_results(broker: Broker, clients: Broker, pairs: Pairs, program: Program) -> None:
    wanted, got = pairs.run(broker, clients, program)
    if isinstance(wanted, list) and len(got) == len(wanted):
        got, wanted = ([first for first, second in zip(*pair, strict=True) if first != second]
                       for pair in ((got, wanted), (wanted, got)))  # fmt: skip
    assert got == wanted


@by_turns(23)
def test_what_was_acknowledged_outlives_a_killed_server(broker: Broker, tmp_path: Path) -> None:
    """Killed under load and restarted, then handed to the real broker: every message is there."""
    conf, store = config(tmp_path), tmp_path / "store"
    options = ["--broker-conf", str(conf)]
    acknowledged: set[str] = set()
    listen, namesrv = "127.0.0.1:0", "127.0.0.1:0"
    for number in range(some(2, 3)):
        more = [] if number else ["--create", "--engine", broker.engine]
        with Serving(store, *options, *more, listen=listen, namesrv=namesrv) as serving:
            listen, namesrv = serving.broker, serving.namesrv
            if not number:
                broker.connect(serving.namesrv, serving.broker)
                make(broker, "Load")
                make(broker, "Later")
                broker.ask("consume", group="reading", topic="Load", failures=0, most=1, level=0)
            killer = threading.Timer(0.3, serving.process.kill)
            killer.start()
            given = {"topic": "Load", "count": 6_000, "threads": 8, "how": "sync", "prefix": f"r{number}-"}
            sent = broker.ask("sendMany", **given)
            acknowledged |= {row["keys"] for row in sent if row.get("status") == "SEND_OK"}
            killer.join()
    assert acknowledged
    with Serving(store, *options, listen=listen, namesrv=namesrv) as serving:
        later = [broker.ask("send", topic="Later", keys=f"l{n}", level=3)["status"] for n in range(5)]
        assert later == ["SEND_OK"] * 5
        seen = broker.wait_for(lambda rows: acknowledged <= {row["keys"] for row in rows}, 90)
        assert acknowledged <= {row["keys"] for row in seen}
        broker.stop()
        assert serving.end(signal.SIGTERM)[0] == 0
    broker.boot(store, dict(line.split("=") for line in conf.read_text().split()))
    for topic in ("Load", "Later"):
        broker.ask("consume", group=f"again-{topic}", topic=topic, failures=0, most=1, level=0)
    wanted = acknowledged | {f"l{n}" for n in range(5)}
    seen = broker.wait_for(lambda rows: wanted <= {row["keys"] for row in rows}, 120)
    assert wanted <= {row["keys"] for row in seen}


@by_turns(23)
def test_queues_are_shared_by_those_who_are_there(broker: Broker, tmp_path: Path) -> None:
    with Serving(tmp_path / "store", "--create") as serving:  # of 5.3, for clients of both releases
        broker.connect(serving.namesrv, serving.broker)
        make(broker, "Shared")

        def queues(*names: str) -> list[list[int]]:
            return [broker.ask("queues", instance=name, topic="Shared") for name in names]

        def join(name: str) -> None:
            broker.ask("consume", group="g", topic="Shared", failures=0, most=1, level=0, instance=name)

        def until(names: tuple[str, ...], wanted: list[list[int]]) -> None:
            for _ in range(300):
                if queues(*names) == wanted:
                    return
                time.sleep(0.1)
            assert queues(*names) == wanted

        join("a")
        until(("a",), [[0, 1, 2, 3]])
        join("b")
        until(("a", "b"), [[0, 1], [2, 3]])
        broker.ask("sendMany", topic="Shared", count=200, threads=2, how="sync", prefix="k")
        broker.ask("leave", instance="a")
        until(("b",), [[0, 1, 2, 3]])
        broker.ask("sendMany", topic="Shared", count=200, threads=2, how="sync", prefix="m")
        wanted = {f"{prefix}{number}" for prefix in "km" for number in range(200)}
        seen = broker.wait_for(lambda rows: wanted <= {row["keys"] for row in rows}, 60)
        assert wanted <= {row["keys"] for row in seen}
        broker.stop()


@by_turns(11)
def test_a_rescued_store_is_drained_by_a_real_consumer(broker: Broker, golden_copy: Unpacked, tmp_path: Path) -> None:
    name = "broker" if broker.engine == "4.9" else "broker-5.3.3"
    store = golden_copy(name)
    queues = [queue for queue in queues_of(StoreLayout(str(store))) if queue.topic == "Orders"]
    wanted = Counter(entry.physical_offset for queue in queues for entry in queue.entries())
    offsets = tmp_path / "offsets.csv"
    with Serving(store, "--read-only", "--offsets", str(offsets)) as serving:
        broker.connect(serving.namesrv, serving.broker)
        broker.ask("consume", group="draining", topic="Orders", failures=0, most=1, level=0)
        seen = broker.wait_for(lambda rows: len(rows) >= wanted.total(), 60)
        assert Counter(row["physicalOffset"] for row in seen) == wanted
        with pytest.raises(AssertionError, match="No route info of this topic"):
            broker.ask("send", topic="Orders", keys="k")
        broker.stop()
        assert serving.end()[0] == 0
    with offsets.open(newline="") as rows:
        assert sum(int(row["consumerOffset"]) for row in csv.DictReader(rows)) == wanted.total()
