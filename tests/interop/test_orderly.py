"""Orderly consumption by our client and Java's in one group, on a real broker, through restarts of either."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.read import loads
from rmqtool.client import (
    ClientOptions,
    From,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    PushOptions,
    Received,
    Suspend,
)  # fmt: skip
from rmqtool.rules.releases import RELEASES
from tests.interop.broker import Broker
from tests.interop.test_consuming import _CONF, PATIENT, play, until
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
_OF_JAVA = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")  # what its consumer writes into what it has pulled
_OPTIONS = PushOptions(
    orderly=True, start=From.FIRST, persist_interval=0.5, suspend_pause=0.05, rebalance_interval=2
)  # fmt: skip


@dataclass
class Ours:
    """Calls of our consumers: (nanoseconds, member, queue, offset), and the running members."""

    rows: list[tuple[int, str, int, int]] = field(default_factory=list)
    failed: set[tuple[int, int]] = field(default_factory=set)
    who: str = ""

    async def listen(self, messages: Sequence[Received]) -> Suspend | None:
        (message,) = messages
        place = message.record.queue_id, message.queue_offset
        self.rows.append((time.monotonic_ns(), self.who, *place))
        await asyncio.sleep(0.002)
        if message.queue_offset % 37 == 5 and place not in self.failed:
            self.failed.add(place)
            return Suspend(0.02)
        return None


def test_both_keep_the_order_of_each_queue_through_restarts(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "store", _CONF)
    make(broker, "InOrder")
    rows, sent = asyncio.run(restart(broker))
    broker.stop()
    stored: Any = loads((tmp_path / "store/config/consumerOffset.json").read_bytes())
    assert stored["offsetTable"]["InOrder@in-order"] == dict.fromkeys(range(4), sent)
    takers = set()
    for queue in range(4):
        before, owner = -1, ""
        for _at, who, _queue, offset in sorted(row for row in rows if row[2] == queue):
            takers.add(who.rstrip("0123456789"))
            if who == owner:
                assert offset in {before, before + 1}, f"queue {queue}: {who} has {offset} after {before}"
            else:  # whoever comes may get again what was not committed, but nothing is passed
                assert offset <= before + 1, f"queue {queue}: {who} begins at {offset}, {owner} was at {before}"
            before, owner = offset, who
        assert before == sent - 1
    assert takers == {"java", "ours"}


async def restart(broker: Broker) -> tuple[list[tuple[int, str, int, int]], int]:
    """Send to four queues while consumers join and leave; returns who got what when, and messages per queue."""
    options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
    ours = Ours()
    rows: list[tuple[int, str, int, int]] = []
    sent = 0
    going = True

    async def send(producer: Producer) -> None:
        nonlocal sent
        queues = await producer.queues("InOrder")
        while going:
            for queue in queues:
                await producer.send(Message("InOrder", b"%d" % sent, keys=[f"{queue.queue_id}-{sent}"]), queue=queue)
            sent += 1
            await asyncio.sleep(0.005)

    def java(name: str) -> None:
        broker.ask(
            "consume", group="in-order", topic="InOrder", failures=0, most=-1, level=0, instance=name, orderly=True,
            timed=True,
        )  # fmt: skip

    def take(name: str) -> None:
        """Java's rows since the last call, all of one consumer."""
        rows.extend((row["at"], name, row["queueId"], row["queueOffset"]) for row in broker.ask("take"))

    async def shared(consumer: PushConsumer, name: str, count: int) -> None:
        def so() -> bool:
            theirs = broker.ask("queues", instance=name, topic="InOrder") if name else []
            return sorted([*theirs, *(q.queue_id for q in consumer.queues())]) == [0, 1, 2, 3] and (
                len(consumer.queues()) == count
            )

        await until(so)
        seen = len(ours.rows)
        await until(lambda: len(ours.rows) > seen + 20)

    async with asyncio.timeout(240), Producer(options, "in-order-producer", PATIENT) as producer:
        sending = asyncio.create_task(send(producer))
        for turn in range(2):
            ours.who = f"ours{turn}"
            async with PushConsumer(options, "in-order", {"InOrder": "*"}, ours.listen, _OPTIONS) as consumer:
                await until(lambda: len(ours.rows) > 20)
                await asyncio.to_thread(java, f"java{turn}")
                await shared(consumer, f"java{turn}", 2)
                if not turn:  # Java's leaves, and comes again in the next turn
                    await asyncio.to_thread(broker.ask, "leave", instance="java0")
                    await asyncio.to_thread(take, "java0")
                    await shared(consumer, "", 4)
        # ours has left: Java's has all of them
        await until(lambda: broker.ask("queues", instance="java1", topic="InOrder") == [0, 1, 2, 3])
        going = False
        await sending
        ends = {(queue, sent - 1) for queue in range(4)}

        def done() -> bool:
            take("java1")
            return ends <= {row[2:] for row in [*rows, *ours.rows]}

        await until(done)
        await asyncio.to_thread(broker.ask, "leave", instance="java1")
        take("java1")
    return rows + ours.rows, sent


def test_what_fails_too_often_is_a_dead_letter_as_of_java(broker: Broker, tmp_path: Path) -> None:
    play(broker, tmp_path, "Deadly", die)


async def die(broker: Broker) -> None:
    options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
    calls: list[tuple[str, int]] = []

    async def listen(messages: Sequence[Received]) -> None:
        (message,) = messages
        calls.append((message.keys[0], message.reconsume_times))
        if message.keys == ["bad"]:
            raise ValueError("never")

    async with asyncio.timeout(240), Producer(options, "deadly-producer", PATIENT) as producer:
        (queue, *_others) = await producer.queues("Deadly")
        for key in ("first", "bad", "last"):
            await producer.send(Message("Deadly", key.encode(), "tag", keys=[key]), queue=queue)
        # Java's fails with each message; of the bad one it says the same. It looks for its queues every 20 s
        await asyncio.to_thread(
            broker.ask, "consume", group="java-dead", topic="Deadly", failures=99, most=2, level=0, instance="dying",
            orderly=True,
        )  # fmt: skip
        push = PushOptions(orderly=True, start=From.FIRST, max_tries=2, suspend_pause=0.05, persist_interval=0.5)
        async with PushConsumer(options, "our-dead", {"Deadly": "*"}, listen, push):
            await until(lambda: calls and calls[-1][0] == "last")
        assert calls == [("first", 0), ("bad", 0), ("bad", 1), ("bad", 2), ("last", 0)]
        ours, theirs = [await dead_letter(options, group) for group in ("our-dead", "java-dead")]
        tries = [row["reconsumeTimes"] for row in broker.ask("seen") if row["keys"] == "bad"]
        assert tries == [0, 1, 2]
        await asyncio.to_thread(broker.ask, "leave", instance="dying")
    assert ours.body == theirs.body == b"bad"
    assert ours.reconsume_times == theirs.reconsume_times
    answer, java = [
        {
            name: text.replace("java-dead", "our-dead")
            for name, text in process.properties.items()
            if name not in _OF_JAVA
        }
        for process in (ours, theirs)
    ]
    assert answer == java


async def dead_letter(options: ClientOptions, group: str) -> Received:
    """The dead letter with this key."""
    async with PullConsumer(options) as dead:
        while True:
            try:
                await dead.assign(dict.fromkeys(await dead.queues(f"%DLQ%{group}"), 0))
                while messages := await dead.poll(0.5):
                    for message in messages:
                        if message.keys == ["bad"]:
                            return message
            except Exception:
                pass
            await asyncio.sleep(0.2)
