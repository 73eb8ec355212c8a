"""Admin requests to our push consumer through a real broker, from mqadmin and directly."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from rmqtool.client import ClientOptions, From, Message, Producer, PushConsumer, PushOptions, Received
from rmqtool.rules.releases import RELEASES
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.test_consuming import _CONF, PATIENT, until
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
_COUNT = 40


@pytest.fixture
def broker(own_broker: Broker) -> Broker:
    return own_broker


@by_turns(23)
def test_admins_see_and_move_our_consumer(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "store", _CONF)
    make(broker, "Asked")
    asyncio.run(ask(broker, orderly=False))
    if broker.engine == "4.9":  # where offsets are reset by clients
        make(broker, "AskedInOrder")
        asyncio.run(ask(broker, orderly=True))
    broker.stop()


async def ask(broker: Broker, *, orderly: bool) -> None:
    options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
    got: Counter[str] = Counter()
    topic, group = ("AskedInOrder", "asked-in-order") if orderly else ("Asked", "asked")

    async def listen(messages: Sequence[Received]) -> None:
        (message,) = messages
        assert message.topic == topic
        got[message.keys[0]] += 1
        if got[message.keys[0]] == 3:
            raise ValueError("a third time")

    async def admin(*arguments: str) -> str:
        answer: dict[str, Any] = await asyncio.to_thread(broker.ask, "admin", arguments=arguments, seconds=60)
        assert answer["ended"], answer
        return str(answer["said"])

    async def moved(*arguments: str) -> None:
        """Retried if mqadmin's own time limits were too short for a busy machine."""
        async with asyncio.timeout(60):
            while "lab-a" not in (output := await admin(*arguments)):
                assert "Exception" in output, output

    async with asyncio.timeout(240), Producer(options, "asked-producer", PATIENT) as producer:
        queues = await producer.queues(topic)
        sent = [await producer.send(Message(topic, b"x", keys=[f"k{n}"]), queue=queues[n % 4]) for n in range(_COUNT)]
        push = PushOptions(orderly=orderly, start=From.FIRST, persist_interval=0.3, suspend_pause=0.05)
        async with PushConsumer(options, group, {topic: "*"}, listen, push) as consumer:
            await until(lambda: len(got) == _COUNT and sum(consumer.positions().values()) == _COUNT)
            client = consumer.cluster.client_id

            # 307, as mqadmin shows it
            output = await admin("consumerStatus", "-g", group, "-i", client)
            text = " ".join(output.split())
            assert "PROP_CONSUMER_START_TIMESTAMP : 1" in text, output
            assert f"PROP_CONSUMEORDERLY : {str(orderly).lower()}" in text, output
            assert len([line for line in output.splitlines() if line.startswith(topic) and "lab-a" in line]) >= 4, (
                output
            )
            summary = await admin("consumerStatus", "-g", group)
            assert client in summary
            assert "Rebalance OK" in summary, summary

            # 221, through 223
            answer = await asyncio.to_thread(
                broker.ask, "request", code=223, fields={"topic": topic, "group": group, "clientAddr": ""}
            )
            assert answer["code"] == 0, answer
            told: Any = loads(answer["body"].encode(), BODY)
            assert sorted(told["consumerTable"][client].values()) == [_COUNT // 4] * 4

            # 309: one message, once more; its second call succeeds, its third fails
            named = [] if broker.engine == "4.9" else ["-t", topic]
            ask_again = ("queryMsgById", *named, "-i", sent[7].offset_message_id, "-g", group, "-d", client)
            output = await admin(*ask_again)
            assert "CR_SUCCESS" in output, output
            assert got["k7"] == 2
            output = await admin(*ask_again)
            assert "CR_THROW_EXCEPTION" in output, output
            assert "a third time" in output, output
            assert got["k7"] == 3

            # 220 of 4.9, and what 5.3 does in its place: all come again, and then none
            got.clear()
            await moved("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
            await until(lambda: len(got) == _COUNT and sum(consumer.positions().values()) == _COUNT)
            assert set(got.values()) == {1}
            consumer.pause()
            await asyncio.sleep(1.2)  # what is on its way comes
            for n in range(8):
                await producer.send(Message(topic, b"x", keys=[f"late{n}"]), queue=queues[n % 4])
            seen = len(got)
            await moved("skipAccumulatedMessage", "-g", group, "-t", topic, "-f", "true")
            consumer.resume()
            await until(lambda: sum(consumer.positions().values()) == _COUNT + 8)
            await producer.send(Message(topic, b"x", keys=["after"]), queue=queues[0])
            await until(lambda: got["after"])
            skipped = len(got) - seen - 1
            assert skipped <= 4  # a pull that the broker held when the consumer was paused brought its own
