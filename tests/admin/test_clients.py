"""Clients of a live cluster: producers, who holds which queue and why it stands still, stacks, one message for one."""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from formats.remoting import admin as a
from formats.remoting.shapes import MessageQueue, OffsetWrapper
from rmqtool.admin.live import clients
from rmqtool.client import ClientOptions, From, Message, Producer, PushConsumer, PushOptions, Received
from tests.cli.running import ROOT, Result, rmqtool
from tests.interop.serving import CLUSTER, Serving

GROUP, TOPIC = "at-work", "Orders"


class Clients:
    """Two consumers of a group and a producer, on an event loop of their own.

    Attributes:
        seen: keys of consumed messages.
        block: consumers wait while it is set.
    """

    def __init__(self, namesrv: str) -> None:
        self.seen: list[str] = []
        self.block = threading.Event()
        self._stop, self.ready = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._work(namesrv)))
        self.thread.start()
        assert self.ready.wait(30)

    async def _listen(self, messages: Sequence[Received]) -> None:
        while self.block.is_set():
            await asyncio.sleep(0.05)
        self.seen += [key for message in messages for key in message.keys]

    async def _work(self, namesrv: str) -> None:
        first, second = (ClientOptions(namesrv=namesrv, client_id=f"here@{name}") for name in ("one", "two"))
        options = PushOptions(start=From.FIRST)
        async with (
            Producer(first, "makers") as producer,
            PushConsumer(first, GROUP, {TOPIC: "*"}, self._listen, options),
            PushConsumer(second, GROUP, {TOPIC: "*"}, self._listen, options),
        ):
            await producer.send(Message(TOPIC, b"x", keys=("first",)))
            self.ready.set()
            while not self._stop.is_set():
                await asyncio.sleep(0.05)

    def end(self) -> None:
        self.block.clear()
        self._stop.set()
        self.thread.join(30)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("clients") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    with Serving(folder, "--engine", "5.3") as running:
        yield running


@pytest.fixture(scope="module")
def target(served: Serving) -> str:
    return f"rocketmq://{served.namesrv}/{CLUSTER}"


@pytest.fixture(scope="module")
def online(served: Serving) -> Iterator[Clients]:
    result = Clients(served.namesrv)
    yield result
    result.end()


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.splitlines()]


def test_producers(target: str, online: Clients) -> None:
    listed = rows(rmqtool("client", "producers", target, "-o", "ndjson"))
    (maker,) = [row for row in listed if row["group"] == "makers"]
    assert maker["clientId"].endswith("one")
    assert maker["brokers"] == ["lab-a"]
    assert abs(maker["lastUpdateTimestamp"] - time.time() * 1000) < 60_000
    assert rmqtool("client", "producers", target, "-g", "nobody").code == 1


def test_each_queue_has_its_client(target: str, online: Clients) -> None:
    for _ in range(100):  # until both have their share, and nothing is left
        listed = [
            row for row in rows(rmqtool("client", "show", target, GROUP, "-o", "ndjson")) if row["topic"] == TOPIC
        ]
        if all(row["state"] == "ok" and not row["diff"] for row in listed) and len(listed) == 4:
            break
        time.sleep(0.3)
    assert [(row["queueId"], row["state"]) for row in listed] == [(number, "ok") for number in range(4)]
    held = [row["clientId"] for row in listed]
    assert len({*held}) == 2
    assert all(held.count(client) == 2 for client in held)
    shown = rmqtool("client", "show", target, GROUP)
    assert shown.code == 0, shown.out
    assert held[0] in shown.out


def test_a_group_without_clients(target: str) -> None:
    done = rmqtool("client", "show", target, "lab-orderly", "-o", "ndjson")
    assert done.code == 1
    assert {(row["clientId"], row["state"]) for row in rows(done)} == {(None, "no-client")}
    assert rmqtool("client", "show", target, "nobody").code == 1


def test_clients_without_stacks(target: str, online: Clients) -> None:
    done = rmqtool("client", "stack", target, GROUP, "-o", "ndjson")
    assert [row["stack"] for row in rows(done)] == [None, None]
    assert (done.code, done.err.count("reports no stack")) == (1, 2)
    assert len(rows(rmqtool("client", "stack", target, GROUP, "--client", "*one", "-o", "ndjson"))) == 1
    assert rmqtool("client", "stack", target, GROUP, "--client", "three").code == 1


def test_one_message_for_one_client(target: str, online: Clients) -> None:
    message = rows(rmqtool("query-key", target, TOPIC, "order-65", "-o", "ndjson"))[0]
    args = ("message", "consume-directly", target, message["offsetMsgId"], GROUP)
    several = rmqtool(*args, "--dry-run")
    assert (several.code, "give --client" in several.err) == (3, True), several.err
    client_id = next(row["clientId"] for row in rows(rmqtool("client", "list", target, "-g", GROUP, "-o", "ndjson")))
    before = online.seen.count("order-65")
    refused = rmqtool(*args, "--client", client_id)
    assert refused.code == 4
    planned = rmqtool(*args, "--client", client_id, "--dry-run", "-o", "json")
    assert (planned.code, json.loads(planned.out)[0]["consumeResult"]) == (1, None)
    assert online.seen.count("order-65") == before
    offsets = rmqtool("group", "offsets", target, "--group", GROUP).out
    done = rmqtool(*args, "--client", client_id, "--yes", "-o", "json")
    (result,) = json.loads(done.out)
    assert (done.code, result["consumeResult"], result["clientId"]) == (0, "CR_SUCCESS", client_id), done.err
    assert online.seen.count("order-65") == before + 1
    assert rmqtool("group", "offsets", target, "--group", GROUP).out == offsets
    assert rmqtool(*args, "--client", "nobody", "--yes").code == 3
    assert rmqtool("message", "consume-directly", target, "0" * 32, GROUP, "--yes").code == 3


QUEUE = MessageQueue("T", "b", 0)
NOW = 1_000_000_000


@pytest.mark.parametrize(
    ("state", "properties", "state_word"),
    [
        ({}, {}, "ok"),
        ({"droped": True}, {}, "dropped"),
        ({}, {"PROP_CONSUMEORDERLY": "true"}, "unlocked"),
        ({"locked": True}, {"PROP_CONSUMEORDERLY": "true"}, "ok"),
        ({"cached_msg_count": 1000}, {}, "full"),
        ({"cached_msg_count": 10}, {"pullThresholdForQueue": "10"}, "full"),
        ({"cached_msg_count": 3, "last_consume_timestamp": NOW - 61_000}, {}, "busy"),
        ({"cached_msg_count": 3}, {}, "ok"),
        ({"last_pull_timestamp": NOW - 121_000}, {}, "not-pulled"),
    ],
)
def test_why_a_queue_stands_still(state: dict[str, Any], properties: dict[str, str], state_word: str) -> None:
    times = {"last_consume_timestamp": NOW, "last_pull_timestamp": NOW}
    info = a.ConsumerRunningInfo(
        properties=properties, mq_table={QUEUE: a.QueueState(**{"commit_offset": 0, **times, **state})}
    )
    offsets = OffsetWrapper(9, 5, 0)
    row = clients._describe_queue("g", QUEUE, offsets, "c", info, NOW, shared=False, unreported=False)
    assert (row.state, row.diff) == (state_word, 4)
    assert clients._describe_queue("g", QUEUE, offsets, "c", info, NOW, shared=True, unreported=False).state == "shared"


def test_a_client_that_does_not_report_may_hold_a_queue() -> None:
    for unreported, state in ((True, "unknown"), (False, "no-client")):
        row = clients._describe_queue(
            "g", QUEUE, OffsetWrapper(9, 5, 0), None, None, NOW, shared=False, unreported=unreported
        )
        assert row.state == state
