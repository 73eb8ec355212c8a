"""Our push consumers and Java's in one group, on a real broker."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.read import loads
from formats.remoting.shapes import MessageQueue
from rmqtool.client import (
    ClientOptions,
    From,
    LitePullConsumer,
    Message,
    PollOptions,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    PushOptions,
    Received,
)
from rmqtool.rules import rebalance
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.releases import RELEASES
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
_CONF = {
    **SMALL_FILES,
    "brokerFastFailureEnable": "false",
    "messageDelayLevel": "1s 1s 1s 1s",
}


def play(broker: Broker, folder: Path, topic: str, scene: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    """Boot a broker on a new store below a directory, make the topic, run the scene, and stop the broker."""
    broker.boot(folder / "store", _CONF)
    make(broker, topic)
    asyncio.run(scene(broker))
    broker.stop()


PATIENT = ProducerOptions(timeout=60)  # the machine may be busy
_OPTIONS = PushOptions(start=From.FIRST, strategy=rebalance.averagely, max_tries=3, persist_interval=0.5)


@by_turns(11)
def test_a_group_of_both_languages_shares_queues_and_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    play(broker, tmp_path, "Mixed", share)
    stored: Any = loads((tmp_path / "store/config/consumerOffset.json").read_bytes())
    assert sum(stored["offsetTable"]["Mixed@mixed"].values()) == 120


_ROOM = "r1@lab"


def _room(name: str) -> str:
    return name.split("@")[0]


def _room_of_client(client_id: str) -> str:
    return client_id.split("@")[1].split("-")[0]


STRATEGIES: dict[str, rebalance.Strategy] = {
    "average": rebalance.averagely,
    "circle": rebalance.averagely_by_circle,
    "hash": rebalance.consistent_hash(),
    "config": rebalance.by_config([QueueName("Divided", _ROOM, n) for n in (1, 3)]),
    "room": rebalance.by_machine_room(["r1"]),
    "near": rebalance.near_machine_room(rebalance.averagely, _room, _room_of_client),
}


@by_turns(11)
def test_both_languages_divide_queues_by_each_strategy(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "store", {**_CONF, "brokerName": _ROOM})
    make(broker, "Divided")
    asyncio.run(divide(broker))
    broker.stop()


async def divide(broker: Broker) -> None:
    """For each strategy, one Java consumer and two of ours in a group, all in parallel; one of ours polls."""

    async def listen(_messages: Sequence[Received]) -> None:
        return None

    def java(name: str) -> None:
        broker.ask(
            "consume", group=f"by-{name}", topic="Divided", failures=0, most=3, level=0, instance=f"r1-{name}",
            strategy=name, queues=[0, 2],
        )  # fmt: skip

    async with asyncio.timeout(240), AsyncExitStack() as stack:
        ours: dict[str, list[Callable[[], list[MessageQueue]]]] = {}
        for name, strategy in STRATEGIES.items():
            group, first, second = f"by-{name}", *[
                ClientOptions(
                    namesrv=broker.namesrv, release=RELEASES[broker.engine], client_id=f"127.0.0.1@r1-ours{n}-{name}"
                )
                for n in range(2)
            ]  # fmt: skip
            push = PushOptions(strategy=strategy, rebalance_interval=5)
            pushed = await stack.enter_async_context(PushConsumer(first, group, {"Divided": "*"}, listen, push))
            ours[name] = [pushed.queues]
            if name != "config":
                poll = PollOptions(strategy=strategy, rebalance_interval=5)
                polled = await stack.enter_async_context(LitePullConsumer(second, group, poll))
                await polled.subscribe("Divided")
                ours[name].append(polled.assignment)
            await asyncio.to_thread(java, name)

        def divided() -> bool:
            for name, members in ours.items():
                theirs = broker.ask("queues", instance=f"r1-{name}", topic="Divided")
                taken = [queue.queue_id for held in members for queue in held()]
                if sorted([*theirs, *taken]) != [0, 1, 2, 3] or not (theirs or name == "hash"):
                    return False
            return True

        await until(divided)
        for name in STRATEGIES:
            await asyncio.to_thread(broker.ask, "leave", instance=f"r1-{name}")


@by_turns(23)
def test_a_broadcasting_consumer_goes_on_where_javas_was_and_the_other_way(broker: Broker, tmp_path: Path) -> None:
    play(broker, tmp_path, "Cast", broadcast)


async def broadcast(broker: Broker) -> None:
    got: list[str] = []

    async def listen(messages: Sequence[Received]) -> None:
        got.extend(message.keys[0] for message in messages)

    options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
    async with asyncio.timeout(240), Producer(options, "caster", PATIENT) as producer:
        queues = await producer.queues("Cast")

        async def send(prefix: str) -> set[str]:
            for queue in queues:
                for number in range(3):
                    key = f"{prefix}{queue.queue_id}{number}"
                    await producer.send(Message("Cast", b"x", keys=[key]), queue=queue)
            return {f"{prefix}{queue.queue_id}{number}" for queue in queues for number in range(3)}

        async def java(wanted: set[str]) -> None:
            await asyncio.to_thread(
                broker.ask, "consume", group="cast", topic="Cast", failures=0, most=3, level=0, instance="cast",
                broadcast=True,
            )  # fmt: skip
            rows: list[str] = []

            def enough() -> bool:
                rows.extend(row["keys"] for row in broker.ask("take"))
                return len(rows) >= len(wanted)

            await until(enough)
            await asyncio.to_thread(broker.ask, "leave", instance="cast")
            assert sorted(rows) == sorted(wanted)

        await java(await send("a"))
        (client_id,) = [path.parent.parent.name for path in broker.offsets.glob("*/cast/offsets.json")]
        ours = PushOptions(broadcasting=True, start=From.FIRST, persist_interval=0.5, local_offsets=broker.offsets)
        client = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine], client_id=client_id)
        wanted = await send("b")
        async with PushConsumer(client, "cast", {"Cast": "*"}, listen, ours):
            await until(lambda: len(got) >= len(wanted))
        assert sorted(got) == sorted(wanted)
        await java(await send("c"))


@by_turns(11)
def test_new_groups_begin_where_those_of_java_do(broker: Broker, golden_copy: Unpacked) -> None:
    """In queues without their first messages: for others, brokers report offset 0 for the group."""
    config = goldens.about("head-file-deleted")["config"]
    broker.boot(golden_copy("head-file-deleted"), {**_CONF, **config, "fileReservedTime": 1_000_000})
    make(broker, "TopicA")
    asyncio.run(begin(broker))
    broker.stop()


async def begin(broker: Broker) -> None:
    options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
    async with asyncio.timeout(240), Producer(options, "beginner", PATIENT) as producer, AsyncExitStack() as stack:
        queues = await producer.queues("TopicA")

        async def send() -> dict[int, int]:
            sent = [await producer.send(Message("TopicA", b"x", keys=["new"]), queue=queue) for queue in queues]
            return {result.queue.queue_id: result.queue_offset for result in sent}

        before = await send()
        since = int(time.time()) + 3  # Java tells times in seconds; brokers of 4.9 take the message that is nearest
        while time.time() < since:
            await asyncio.sleep(0.05)
        after = await send()
        asking = PullConsumer(producer.cluster)
        for queue in queues:  # a broker that has not dispatched them yet knows of no message that late
            while (await asking.offsets(queue))[1] <= after[queue.queue_id]:
                await asyncio.sleep(0.05)
        starts = {
            "first": (From.FIRST, None), "last": (From.LAST, None), "since": (From.TIMESTAMP, since),
            "ever": (From.TIMESTAMP, 1_000_000_000),
        }  # fmt: skip
        got: dict[str, set[tuple[int, int]]] = {name: set() for name in starts}
        pushes: dict[str, PushConsumer] = {}
        polls: dict[str, LitePullConsumer] = {}

        def listener(name: str) -> Callable[[Sequence[Received]], Any]:
            async def listen(messages: Sequence[Received]) -> None:
                got[name].update((message.record.queue_id, message.queue_offset) for message in messages)

            return listen

        for name, (start, at) in starts.items():
            places = {"start": start, "start_time": None if at is None else at * 1000}
            push = PushOptions(**places, error_pause=0.1)  # type: ignore[arg-type]
            pushes[name] = PushConsumer(options, f"ours-{name}", {"TopicA": "*"}, listener(name), push)
            await stack.enter_async_context(pushes[name])
            polls[name] = LitePullConsumer(options, f"polls-{name}", PollOptions(**places))  # type: ignore[arg-type]
            await stack.enter_async_context(polls[name])
            await polls[name].subscribe("TopicA")
            if start != From.FIRST:  # with which Java's waits for ten seconds when the broker has no message at 0
                text = {} if at is None else {"time": time.strftime("%Y%m%d%H%M%S", time.localtime(at))}
                await asyncio.to_thread(
                    broker.ask, "consume", group=f"java-{name}", topic="TopicA", failures=0, most=1, level=0,
                    instance=f"begin-{name}", **{"from": start.value}, **text,
                )  # fmt: skip

        def java(name: str) -> set[tuple[int, int]]:
            rows = [row for row in broker.ask("seen") if row["group"] == f"java-{name}"]
            return {(row["queueId"], row["queueOffset"]) for row in rows}

        def all_have_begun() -> bool:
            theirs = [
                broker.ask("queues", instance=f"begin-{name}", topic="TopicA") for name in ("last", "since", "ever")
            ]
            return all(len(held) == 4 for held in [*theirs, *[poll.assignment() for poll in polls.values()]])

        await until(all_have_begun)
        await until(
            lambda: java("since") >= set(after.items())
        )  # it has asked where to begin, and so has the other one
        latest = await send()
        ends = set(latest.items())
        await until(lambda: all(result >= ends for result in [*got.values(), *map(java, ("last", "since", "ever"))]))
        assert got["last"] == java("last") == ends
        assert got["since"] == java("since") == ends | set(after.items())
        firsts = {queue.queue_id: 0 for queue in queues}
        async with PullConsumer(options) as looks:
            for queue in queues:
                firsts[queue.queue_id] = (await looks.offsets(queue))[0]
        assert min(firsts.values()) > 0
        everything = {(queue, offset) for queue, first in firsts.items() for offset in range(first, latest[queue] + 1)}
        assert got["ever"] == got["first"] == everything
        assert java("ever") >= everything  # what comes again has offsets of another queue
        assert before.items() <= everything
        for name, poll in polls.items():
            polled: set[tuple[int, int]] = set()
            while not polled >= ends:
                polled |= {(message.record.queue_id, message.queue_offset) for message in await poll.poll()}
            assert polled == got[name], name
        for name in ("last", "since", "ever"):
            await asyncio.to_thread(broker.ask, "leave", instance=f"begin-{name}")


async def share(broker: Broker) -> None:
    options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
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

    async with asyncio.timeout(240), Producer(options, "mixer", PATIENT) as producer:

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
