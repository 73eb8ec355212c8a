"""Further functions of our client with real brokers: requests and replies, traces, namespaces, recall."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqtool.client import (
    ClientOptions,
    From,
    Later,
    Message,
    NoReply,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    PushOptions,
    Received,
    State,
    Tracer,
    TransactionProducer,
    reply_to,
)
from rmqtool.rules.releases import RELEASES
from tests.amounts import by_turns
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.test_consuming import PATIENT, until
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
_CONF = {
    **SMALL_FILES,
    "traceTopicEnable": "true",
    "longPollingEnable": "true",
    "messageDelayLevel": "1s 1s 1s 1s",
}


@by_turns(23)
def test_requests_are_answered_across_languages(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "store", _CONF)
    for topic in ("AskJava", "AskUs", "Silent"):
        make(broker, topic)
    broker.ask("heartbeat")
    broker.ask("reply", group="java-replier", topic="AskJava")
    options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])

    async def ask_java() -> None:
        async with Producer(options, "askers", PATIENT) as producer:
            bodies = [b"%d" % n for n in range(5)] + [b"z" * 9000]
            answers = await asyncio.gather(
                *[producer.request(Message("AskJava", body, keys=["q"]), timeout=60) for body in bodies]
            )
            assert [answer.body for answer in answers] == [b"re: " + body for body in bodies]
            assert {answer.topic for answer in answers} == {"LabCluster_REPLY_TOPIC"}
            assert answers[0].properties["REPLY_TO_CLIENT"] == producer.cluster.client_id
            with pytest.raises(NoReply, match="Silent: no answer"):
                await producer.request(Message("Silent", b"?"), timeout=4)

    asyncio.run(ask_java())
    got: list[bytes] = []

    async def answer_java() -> None:
        """Answer requests of a Java client, one after another."""
        async with Producer(options, "repliers", PATIENT) as producer, PullConsumer(producer.cluster) as consumer:
            await consumer.assign(dict.fromkeys(await consumer.queues("AskUs"), 0))

            async def serve() -> None:
                async for message in consumer:
                    got.append(message.body)
                    await producer.send(reply_to(message.properties, b"yes, " + message.body))

            serving = asyncio.create_task(serve())
            answers = [
                await asyncio.to_thread(broker.ask, "askLater", topic="AskUs", keys="k", body=body)
                for body in ("are you there", "really?" * 1000)
            ]
            serving.cancel()
            assert [answer["body"] for answer in answers] == ["yes, are you there", "yes, " + "really?" * 1000]

    asyncio.run(answer_java())
    assert len(got) == 2
    broker.stop()


@by_turns(11)
def test_traces_are_read_by_the_admin_tool(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "store", _CONF)
    make(broker, "Traced")

    async def work() -> list[str]:
        options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
        async with Tracer(options) as tracer:
            hooks = ProducerOptions(timeout=60, hooks=[tracer.sends, tracer.endings])
            got: list[str] = []

            async def listen(messages: Sequence[Received]) -> Later | None:
                got.extend(message.message_id for message in messages)
                return Later() if messages[0].body == b"one" and messages[0].reconsume_times == 0 else None

            push = PushOptions(start=From.FIRST, hooks=[tracer.consumes])
            async with TransactionProducer(options, "traced", lambda _: State.COMMIT, hooks) as producer:
                sent = await producer.send(Message("Traced", b"one", "red", ["a-key", "other"]))
                half, _ = await producer.send_in_transaction(Message("Traced", b"half"), lambda *_: State.COMMIT)
                async with PushConsumer(options, "listeners", {"Traced": "*"}, listen, push):
                    await until(lambda: Counter(got) == {sent.message_id: 2, half.message_id: 1})
            assert tracer.dropped == 0
        assert tracer.dropped == 0
        return [sent.message_id, half.message_id]

    sent, half = asyncio.run(work())

    def wait_for_report(message_id: str, subs: int) -> str:
        text = ""
        for _ in range(100):  # the index is built behind the log
            text = broker.ask("admin", arguments=["queryMsgTraceById", "-i", message_id], seconds=15)["said"]
            if "Pub" in text and text.count("Sub ") >= subs:
                break
            time.sleep(0.2)
        return text

    answer = wait_for_report(sent, 2)
    pub = next(line.split() for line in answer.splitlines() if line.startswith("Pub"))
    assert pub[1:3] == ["traced", "127.0.0.1"] or "traced" in pub
    assert "success" in pub
    consumed = [line.split() for line in answer.splitlines() if line.startswith("Sub")]
    assert [fields[1:3] for fields in consumed] == [["listeners", "127.0.0.1"]] * 2
    assert sorted(fields[-1] for fields in consumed) == ["failed", "success"], answer  # it came twice
    answer = wait_for_report(half, 1)
    assert "Pub" in answer
    assert "listeners" in answer
    broker.stop()


@by_turns(11)
def test_names_in_a_namespace(broker: Broker, tmp_path: Path) -> None:
    """As seen by a Java client without a namespace."""
    broker.boot(tmp_path / "store", _CONF)

    async def work() -> None:
        options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine], namespace="shop")
        async with Producer(options, "senders", PATIENT) as producer:
            sent = await producer.send(Message("Named", b"n", keys=["n"]))
            assert sent.queue.topic == "Named"
            await producer.send_batch([Message("Named", b"b", keys=[f"b{n}"]) for n in range(2)])
            await producer.send(Message("Named", b"q", keys=["q"]), queue=sent.queue)
            assert {queue.topic for queue in await producer.queues("Named")} == {"Named"}

        got: list[tuple[str, str, int]] = []

        async def listen(messages: Sequence[Received]) -> Later | None:
            (message,) = messages
            got.append((message.keys[0], message.topic, message.reconsume_times))
            return Later() if message.keys == ["q"] and message.reconsume_times == 0 else None

        wanted = [(key, "Named", 0) for key in ("b0", "b1", "n", "q")] + [("q", "Named", 1)]
        async with (
            asyncio.timeout(120),
            PushConsumer(options, "ours", {"Named": "*"}, listen, PushOptions(start=From.FIRST)) as consumer,
        ):
            await until(lambda: sorted(got) == wanted)
            assert consumer.group == "shop%ours"

    asyncio.run(work())
    connected = broker.ask("admin", arguments=["consumerProgress", "-g", "shop%ours"], seconds=15)["said"]
    assert "shop%Named" in connected, connected
    assert "%RETRY%shop%ours" in connected, connected
    broker.ask("consume", group="shop%readers", topic="shop%Named", failures=0, most=1, level=0)
    seen = broker.wait_for(lambda rows: len(rows) >= 4)
    assert sorted(row["keys"] for row in seen) == ["b0", "b1", "n", "q"]
    assert {row["topic"] for row in seen} == {"shop%Named"}
    broker.stop()


def calls_back(namesrv: str) -> None:
    """Our client recalls one of two messages waiting for the same time."""

    async def work() -> list[bytes]:
        options = ClientOptions(namesrv=namesrv)
        async with Producer(options, "senders", PATIENT) as producer, PullConsumer(producer.cluster) as consumer:
            at = time.time_ns() // 1_000_000 + 6000
            results = [await producer.send(Message("Waiting", b"%d" % n, deliver_at=at)) for n in range(2)]
            assert all(result.recall_handle for result in results)
            first = results[0]
            recalled = await producer.recall("Waiting", first.recall_handle or "", first.queue.broker_name)
            assert recalled == first.message_id
            await consumer.assign(dict.fromkeys(await consumer.queues("Waiting"), 0))
            got: list[bytes] = []
            async with asyncio.timeout(60):
                while not got:
                    got += [message.body for message in await consumer.poll(1)]
            assert time.time_ns() // 1_000_000 >= at - 1000
            got += [message.body for message in await consumer.poll(1.5)]
            return got

    assert asyncio.run(work()) == [b"1"]


@by_turns(23)
def test_messages_that_wait_are_called_back(broker: Broker, tmp_path: Path) -> None:
    if broker.engine == "4.9":
        pytest.skip("brokers of 5.x do so")
    broker.boot(tmp_path / "store", {**_CONF, "timerWheelEnable": "true", "recallMessageEnable": "true"})
    make(broker, "Waiting")
    calls_back(broker.namesrv)
    broker.stop()
