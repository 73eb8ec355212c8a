"""Our push consumer and Java's pop in one group, with a real broker and with ours."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import read_body
from formats.remoting.bodies import HeartbeatData
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.client import ClientOptions, From, Later, Message, Producer, PushConsumer, PushOptions, Received
from rmqtool.client.cluster.hooks import RpcHook
from rmqtool.rules.releases import V5_3
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.serving import Serving
from tests.interop.test_consuming import PATIENT, until
from tests.interop.test_popping import conf_of
from tests.interop.test_serve import make

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]
_COUNT = 200
_POPPING = PushOptions(
    start=From.FIRST, client_rebalance=False, pop_invisible=30, pop_delays=(1,), pop_batch=4, rebalance_interval=1,
    hold=2,
)  # fmt: skip


class Beats(RpcHook):
    """Counts heartbeats: long ones and short ones."""

    def __init__(self) -> None:
        self.counts: Counter[bool] = Counter()

    def before(self, address: str, request: Command) -> Command:
        if request.code == RequestCode.HEART_BEAT:
            self.counts[bool(read_body(HeartbeatData, request.body).without_sub)] += 1
        return request


@by_turns(23)
@pytest.mark.parametrize("served", [False, True], ids=["real", "served"])
def test_members_of_both_languages_pop_each_message_once(broker_5: Broker, tmp_path: Path, served: bool) -> None:
    conf, settings = conf_of(tmp_path)
    store = tmp_path / "store"
    if not served:
        store.mkdir()
        broker_5.boot(store, settings)
        make(broker_5, "Together")
        asyncio.run(together(broker_5))
        broker_5.stop()
        return
    with Serving(store, "--create", "--engine", "5.3", "--broker-conf", str(conf)) as serving:
        broker_5.connect(serving.namesrv, serving.broker)
        make(broker_5, "Together")
        asyncio.run(together(broker_5))
        broker_5.stop()
        code, stderr = serving.end()
    assert code == 0, stderr


async def together(broker: Broker) -> None:
    where = broker.ask("addresses")
    beats = Beats()
    client = ClientOptions(
        namesrv=where["namesrv"], release=V5_3, heartbeat_v2=True, heartbeat_interval=0.5, hooks=[beats]
    )
    got: list[tuple[str, int]] = []

    async def listen(messages: Sequence[Received]) -> Any:
        (message,) = messages
        got.append((message.keys[0], message.reconsume_times))
        await asyncio.sleep(0.02)  # the other one has its turns too
        return Later() if message.keys[0].startswith("again") and message.reconsume_times == 0 else None

    def java() -> list[str]:
        return [row["keys"] for row in broker.ask("seen") if row["group"] == "together"]

    async def admin(*arguments: str) -> str:
        answer: dict[str, Any] = await asyncio.to_thread(broker.ask, "admin", arguments=arguments, seconds=60)
        assert answer["ended"], answer
        return str(answer["said"])

    async with asyncio.timeout(240), Producer(client, "together-producer", PATIENT) as producer:
        address = where["broker"]
        await admin("setConsumeMode", "-b", address, "-t", "Together", "-g", "together", "-m", "POP", "-q", "0")
        queues = await producer.queues("Together")

        async def send(prefix: str, count: int) -> set[str]:
            keys = [f"{prefix}{n}" for n in range(count)]
            for n, key in enumerate(keys):
                await producer.send(Message("Together", key.encode(), keys=[key]), queue=queues[n % 4])
            return set(keys)

        async with PushConsumer(client, "together", {"Together": "*"}, listen, _POPPING) as consumer:
            await until(lambda: [queue.queue_id for queue in consumer.popped_queues()] == [-1])
            again = await send("again", 8)
            await until(lambda: {key for key, times in got if times == 1} == again)
            await asyncio.to_thread(
                broker.ask, "consume", group="together", topic="Together", failures=0, most=5, level=0, pop=30_000,
                instance="java",
            )  # fmt: skip
            wanted: set[str] = set()
            while len(wanted) < _COUNT or not await asyncio.to_thread(java):  # until both have had their turns
                wanted |= await send(f"k{len(wanted)}-", 20)
            await until(lambda: {key for key, _times in got} | set(java()) >= wanted | again)
            output = await admin("consumerConnection", "-g", "together")
            assert "Together" in output, output  # heartbeats that say little have told it before
            assert "CLUSTERING" in output, output
        theirs = java()
        await asyncio.to_thread(broker.ask, "leave", instance="java")
    assert Counter([key for key, times in got if times == 0] + theirs) == Counter(wanted | again)
    assert theirs
    assert wanted & {key for key, _times in got}
    assert beats.counts[True] > beats.counts[False] > 0
