"""Two real brokers with name servers; one of each is killed while we send and consume."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rmqtool.client import (
    ClientOptions,
    From,
    Message,
    NotSent,
    Producer,
    ProducerOptions,
    PushConsumer,
    PushOptions,
    Received,
    SendResult,
)
from rmqtool.rules.releases import RELEASES
from tests.amounts import by_turns
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
_CONF = {
    **SMALL_FILES,
    "flushDiskType": "SYNC_FLUSH",
    "transferMsgByHeap": "true",
}
_VERSION = {"4.9": "4.9.8", "5.3": "5.3.3"}


async def until(so: Callable[[], bool], what: str) -> None:
    for _ in range(600):
        if so():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(what)


@by_turns(23)
def test_one_of_two_brokers_is_killed(broker: Broker, tmp_path: Path) -> None:
    """Sends go to the other one, and acknowledged messages are in one of the two; a name server is killed too."""
    tolerant = broker.engine == "5.3"  # once with latency fault tolerance and its detector, and once without
    broker.boot(tmp_path / "a", _CONF)
    make(broker, "Both")
    with Broker(_VERSION[broker.engine]) as other:
        other.boot(tmp_path / "b", {**_CONF, "brokerName": "lab-b"}, namesrv=broker.namesrv)
        make(other, "Both")
        broker.boot(tmp_path / "a", _CONF, namesrv=other.namesrv)  # each name server knows both
        acknowledged, got = asyncio.run(_work(broker, other, tolerant))
        before = {key for key, result in acknowledged.items() if result.queue.broker_name == "lab-b"}
        assert before
        assert len(before) < len(acknowledged)
    # those of the dead broker that nobody had got yet are there when it is
    with Broker(_VERSION[broker.engine]) as again:
        again.boot(tmp_path / "b", {**_CONF, "brokerName": "lab-b"}, namesrv=broker.namesrv)
        left = set(acknowledged) - set(got)
        if left:
            again.ask("consume", group="left", topic="Both", failures=0, most=1, level=0)
            seen = again.wait_for(lambda rows: left <= {row["keys"] for row in rows})
            assert left <= {row["keys"] for row in seen}
    broker.stop()


async def _work(broker: Broker, other: Broker, tolerant: bool) -> tuple[dict[str, SendResult], Counter[str]]:
    acknowledged: dict[str, SendResult] = {}
    unknown: set[str] = set()
    got: Counter[str] = Counter()
    number = 0
    stop = False
    options = ClientOptions(
        namesrv=f"{other.namesrv};{broker.namesrv}",
        release=RELEASES[broker.engine],
        route_interval=2,
        heartbeat_interval=5,
    )

    def take(messages: Sequence[Received]) -> None:
        got.update(key for message in messages for key in message.keys)

    def sent_to(name: str) -> int:
        return sum(result.queue.broker_name == name for result in acknowledged.values())

    async def send(producer: Producer) -> None:
        nonlocal number
        while not stop:
            number += 1
            key = f"k{number}"
            try:
                acknowledged[key] = await producer.send(Message("Both", key.encode() * 20, keys=[key]), timeout=10)
            except NotSent:
                unknown.add(key)

    sends = ProducerOptions(fault_tolerance=tolerant, detector=tolerant)
    consumes = PushOptions(start=From.FIRST, rebalance_interval=2)
    async with (
        Producer(options, "senders", sends) as producer,
        PushConsumer(options, "readers", {"Both": "*"}, take, consumes),
    ):
        async with asyncio.timeout(60):  # a name server may not have heard of one of them yet
            while len((await producer.cluster.fetch_route("Both")).brokers) < 2:
                await asyncio.sleep(0.1)
        assert {queue.broker_name for queue in await producer.queues("Both")} == {"lab-a", "lab-b"}
        senders = [asyncio.create_task(send(producer)) for _ in range(8)]
        await until(lambda: min(sent_to("lab-a"), sent_to("lab-b"), len(got)) > 50, "both brokers have work")
        await asyncio.to_thread(other.kill)
        dead = len(acknowledged)
        await until(lambda: len(acknowledged) > dead + 500, "sends go on")
        stop = True
        await asyncio.gather(*senders)
        later = list(acknowledged.values())[dead + 8 :]  # eight were on their way
        assert {result.queue.broker_name for result in later} == {"lab-a"}
        alive = {key for key, result in acknowledged.items() if result.queue.broker_name == "lab-a"}
        await until(lambda: alive <= set(got), "what the living broker has is consumed")
        assert not unknown, "another broker was there for each of them"
    # a message comes twice only where its offset could not be kept: in the queues of the dead broker, or where an
    # attempt that was not answered had stored it after all
    twice = {key for key, count in got.items() if count > 1}
    assert len(twice) <= 8 + 50, len(twice)
    assert set(got) <= set(acknowledged) | unknown
    return acknowledged, got
