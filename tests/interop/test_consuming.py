"""Our push consumer and Java's in one group, on a real broker."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from formats.config.json import loads
from rmqtool.client import ClientOptions, From, Message, Producer, PushConsumer, PushOptions, Received
from rmqtool.services.consumers import rebalance
from tests.interop.broker import Broker
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
_CONF = {
    "mappedFileSizeCommitLog": 8388608,
    "mappedFileSizeConsumeQueue": 60000,
    "brokerFastFailureEnable": "false",
    "messageDelayLevel": "1s 1s 1s 1s",
}
_OPTIONS = PushOptions(start=From.FIRST, strategy=rebalance.averagely, max_tries=3, persist_interval=0.5)


def test_a_group_of_both_languages_shares_queues_and_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "store", _CONF)
    make(broker, "Mixed")
    asyncio.run(share(broker))
    broker.stop()
    stored: Any = loads((tmp_path / "store/config/consumerOffset.json").read_bytes())
    assert sum(stored["offsetTable"]["Mixed@mixed"].values()) == 120


async def share(broker: Broker) -> None:
    options = ClientOptions(namesrv=broker.namesrv, engine=broker.engine)
    ours: set[str] = set()
    failed: set[str] = set()

    async def listen(messages: Sequence[Received]) -> None:
        (message,) = messages
        assert message.topic == "Mixed"
        key = message.keys[0]
        if key == "k3" and message.reconsume_times == 0:
            failed.add(key)
            raise ValueError("this one comes again")
        ours.add(key)

    async with asyncio.timeout(240), Producer(options, "mixer") as producer:

        async def send(first: int) -> set[str]:
            keys = [f"k{number}" for number in range(first, first + 40)]
            for number, key in enumerate(keys):
                queues = await producer.queues("Mixed")
                await producer.send(Message("Mixed", key.encode(), keys=[key]), queue=queues[number % len(queues)])
            return set(keys)

        def java() -> set[str]:
            return {row["keys"] for row in broker.ask("seen") if row["group"] == "mixed"}

        wanted = await send(0)
        async with PushConsumer(options, "mixed", {"Mixed": "*"}, listen, _OPTIONS) as consumer:
            await until(lambda: len(consumer.queues()) == 4 and ours >= wanted)
            assert failed == {"k3"}
            await asyncio.to_thread(
                broker.ask, "consume", group="mixed", topic="Mixed", failures=0, most=3, level=0, instance="java"
            )

            def shared() -> bool:
                theirs = broker.ask("queues", instance="java", topic="Mixed")
                return sorted([*theirs, *(queue.queue_id for queue in consumer.queues())]) == [0, 1, 2, 3] and bool(
                    theirs
                )

            await until(shared)
            assert len(consumer.queues()) == 2
            before = set(ours)
            wanted |= await send(40)
            await until(lambda: ours | java() >= wanted)
            assert len(ours - before) == 20
        # ours has left: Java's has all of them
        await until(lambda: broker.ask("queues", instance="java", topic="Mixed") == [0, 1, 2, 3])
        wanted |= await send(80)
        await until(lambda: ours | java() >= wanted)
        assert {f"k{number}" for number in range(80, 120)} <= java()
        await asyncio.to_thread(broker.ask, "leave", instance="java")


async def until(so: Callable[[], Any]) -> None:
    while not await asyncio.to_thread(so):
        await asyncio.sleep(0.1)
