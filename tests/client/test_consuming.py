"""A push consumer against a served store: a group shares queues; nothing is lost when members join, leave and fail."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from formats.remoting.codes import RequestCode as C
from rmqtool.client import (
    ClientOptions,
    FlowLimits,
    From,
    Later,
    Message,
    NotSent,
    Producer,
    PullConsumer,
    PushConsumer,
    PushOptions,
    Received,
)
from rmqtool.client.cluster.errors import NoRoute
from rmqtool.client.sync import Producer as SyncProducer
from rmqtool.client.sync import PullConsumer as SyncPullConsumer
from rmqtool.client.sync import PushConsumer as SyncPushConsumer
from rmqtool.remoting.errors import NotReached
from rmqtool.testing import TestBroker, broker
from tests.client.peers import peer, route, run, tells

QUICK = PushOptions(start=From.FIRST, persist_interval=0.1, retry_pause=0.05, error_pause=0.05, shutdown_wait=5)


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with broker() as running:
        yield running


def fill(served: TestBroker, topic: str, count: int, first: int = 0) -> None:
    """Send numbers, each to the queue with its remainder modulo four, tagged odd or even, to a registered topic."""
    with SyncProducer(served.namesrv) as producer:
        for queue in producer.queues(topic):
            numbers = [n for n in range(first, first + count) if n % 4 == queue.queue_id]
            messages = [Message(topic, b"%d" % n, "odd" if n % 2 else "even") for n in numbers]
            producer.send_batch(messages, queue=queue)
    with SyncPullConsumer(served.namesrv) as consumer:
        while True:
            try:
                consumer.queues(topic)
                return
            except NoRoute:
                time.sleep(0.01)


async def until(so: Callable[[], bool]) -> None:
    while not so():
        await asyncio.sleep(0.01)


async def committed(served: TestBroker, group: str, topic: str) -> int:
    async with PullConsumer(served.namesrv, group) as consumer:
        return sum([await consumer.committed(queue) or 0 for queue in await consumer.queues(topic)])


def numbers(messages: Sequence[Received]) -> list[int]:
    return [int(message.body) for message in messages]


def test_a_group_shares_the_queues_and_goes_on_where_it_was(served: TestBroker) -> None:
    fill(served, "Shared", 200)

    async def test() -> None:
        got: list[list[int]] = [[], []]

        async def first(messages: Sequence[Received]) -> None:
            got[0] += numbers(messages)

        def second(messages: Sequence[Received]) -> None:
            got[1] += numbers(messages)

        async with PushConsumer(served.namesrv, "sharers", {"Shared": "*"}, first, QUICK) as consumer:
            async with PushConsumer(served.namesrv, "sharers", {"Shared": "*"}, second, QUICK) as other:
                await until(lambda: (len(consumer.queues()), len(other.queues())) == (2, 2))
                assert not set(consumer.queues()) & set(other.queues())
                await until(lambda: set(got[0]) | set(got[1]) == set(range(200)))
                fill(served, "Shared", 40, 200)
                await until(lambda: set(got[0]) | set(got[1]) == set(range(240)))
                assert [n for n in got[0] if n >= 200]
                assert [n for n in got[1] if n >= 200]
            await until(lambda: len(consumer.queues()) == 4)  # the other has left
            before = len(got[0])
            fill(served, "Shared", 40, 240)
            await until(lambda: set(got[0][before:]) >= set(range(240, 280)))
        assert await committed(served, "sharers", "Shared") == 280
        again: list[int] = []

        async def third(messages: Sequence[Received]) -> None:
            again.extend(numbers(messages))

        async with PushConsumer(served.namesrv, "sharers", {"Shared": "*"}, third, QUICK):
            fill(served, "Shared", 4, 280)
            await until(lambda: len(again) >= 4)
        assert sorted(again) == [280, 281, 282, 283]

    run(test)


def test_what_fails_comes_again_and_ends_as_a_dead_letter(served: TestBroker) -> None:
    fill(served, "Failing", 8)

    async def test() -> None:
        tries: Counter[int] = Counter()
        seen: list[tuple[int, str, int]] = []

        async def listen(messages: Sequence[Received]) -> Any:
            (message,) = messages
            number = int(message.body)
            tries[number] += 1
            seen.append((number, message.topic, message.reconsume_times))
            if number == 1:
                return Later(level=1)
            if number == 2:
                return Later(level=-1)
            if number == 3 and message.reconsume_times == 0:
                return "done"  # a mistake: it counts as failed
            return None

        options = PushOptions(start=From.FIRST, max_tries=1, persist_interval=0.1)
        async with PushConsumer(served.namesrv, "failers", {"Failing": "*"}, listen, options):
            await until(lambda: tries[1] == 2 and len(tries) == 8)
            async with PullConsumer(served.namesrv) as dead:
                result: list[int] = []
                async with asyncio.timeout(20):
                    while sorted(result) != [1, 2]:
                        try:
                            await dead.assign(dict.fromkeys(await dead.queues("%DLQ%failers"), 0))
                            result = []
                            while messages := await dead.poll(0.2):
                                result += numbers(messages)
                        except Exception:
                            await asyncio.sleep(0.1)
        assert (1, "Failing", 1) in seen
        assert all(topic == "Failing" for _, topic, _ in seen)
        assert await committed(served, "failers", "Failing") == 8

    run(test)


def test_tags_batches_and_a_place_to_start(served: TestBroker) -> None:
    fill(served, "Tagged", 64)

    async def test() -> None:
        got: list[list[int]] = []

        async def listen(messages: Sequence[Received]) -> None:
            got.append(numbers(messages))

        options = PushOptions(start=From.TIMESTAMP, start_time=0, batch=5)
        async with PushConsumer(served.namesrv, "taggers", {"Tagged": "odd || none"}, listen, options):
            await until(lambda: sum(map(len, got)) >= 32)
        assert sorted(n for batch in got for n in batch) == list(range(1, 64, 2))
        assert {len(batch) for batch in got} == {5, 1}
        assert all(len({n % 4 for n in batch}) == 1 for batch in got)

    run(test)


def test_a_slow_listener_stops_the_pulls_and_a_listener_that_hangs_does_not_hold_its_queue(served: TestBroker) -> None:
    fill(served, "Slow", 120)

    async def test() -> None:
        gate, hung = asyncio.Event(), asyncio.Event()
        got: list[int] = []

        async def listen(messages: Sequence[Received]) -> None:
            if messages[0].body == b"0" and messages[0].reconsume_times == 0:
                hung.set()
                await asyncio.sleep(3600)
            await gate.wait()
            got.extend(numbers(messages))

        options = PushOptions(
            start=From.FIRST, pull_batch=4, limits=FlowLimits(messages=6), consume_timeout=1.0, persist_interval=0.1,
            shutdown_wait=0.1,
        )  # fmt: skip
        async with PushConsumer(served.namesrv, "slow", {"Slow": "*"}, listen, options) as consumer:
            await hung.wait()
            held = consumer._subscriptions.queues
            await until(lambda: sum(len(messages) for messages in held.values()) >= 4 * 7)
            assert max(len(messages) for messages in held.values()) <= 6 + 4
            gate.set()
            await until(lambda: set(got) >= set(range(1, 120)))
            # its queue's offset is behind it once it has been sent back
            while await committed(served, "slow", "Slow") < 120:
                await asyncio.sleep(0.05)

    run(test)


def test_without_a_name_server_work_goes_on(served: TestBroker) -> None:
    fill(served, "Lasting", 8)

    async def test() -> None:
        got: set[int] = set()

        async def listen(messages: Sequence[Received]) -> Later | None:
            got.update(numbers(messages))
            return Later(level=1) if messages[0].body == b"100" and messages[0].reconsume_times == 0 else None

        async with AsyncExitStack() as names:
            namesrv = await names.enter_async_context(peer())
            result = route(("broker-a", served.address))
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Lasting": result, "%RETRY%lasting": result})
            client = ClientOptions(namesrv=namesrv.address, route_interval=0.05, heartbeat_interval=0.05, timeout=1)
            quick = replace(QUICK, rebalance_interval=0.05)
            async with (
                Producer(client, "lasting-senders") as producer,
                PushConsumer(client, "lasting", {"Lasting": "*"}, listen, quick) as consumer,
            ):
                await producer.queues("Lasting")
                await until(lambda: got == set(range(8)))
                await names.aclose()
                with suppress(NotReached):
                    await consumer.cluster.fetch_route("Lasting")  # may share an answer that was on its way
                with pytest.raises(NotReached):
                    await consumer.cluster.fetch_route("Lasting")
                for number in range(100, 140):
                    if number == 120:  # to brokers that are known it connects again, too
                        for cluster in (producer.cluster, consumer.cluster):
                            for connection in list(cluster._links._open.values()):
                                connection.abort()
                    await producer.send(Message("Lasting", b"%d" % number), timeout=20)
                    await asyncio.sleep(0.02)  # looks at routes and heartbeats have their turns
                await until(lambda: got == {*range(8), *range(100, 140)})
                assert len(consumer.queues()) == 4
                with pytest.raises(NotSent, match="no name server answers"):
                    await producer.send(Message("Unheard", b"x"))
        assert await committed(served, "lasting", "Lasting") == 48

    run(test)


def test_what_has_not_been_consumed_at_the_end_comes_to_the_next(served: TestBroker) -> None:
    fill(served, "Cut", 40)
    begun = threading.Event()

    def hang(messages: Sequence[Received]) -> None:
        begun.set()
        time.sleep(0.5)
        raise ValueError("not consumed")

    options = PushOptions(start=From.FIRST, concurrency=2, shutdown_wait=0)
    with SyncPushConsumer(served.namesrv, "cut", {"Cut": "*"}, hang, options) as consumer:
        assert begun.wait(30)
        while len(consumer.queues()) < 4:
            time.sleep(0.01)
    got: set[int] = set()
    enough = threading.Event()

    def take(messages: Sequence[Received]) -> None:
        got.update(numbers(messages))
        if got == set(range(40)):
            enough.set()

    with SyncPushConsumer(ClientOptions(namesrv=served.namesrv), "cut", {"Cut": "*"}, take, QUICK):
        assert enough.wait(30)
    public = {name for name in vars(PushConsumer) if not name.startswith("_")}
    assert public <= {name for name in dir(SyncPushConsumer) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("group", "topics", "text"),
    [
        ("DEFAULT_CONSUMER", {}, "no topic"),
        ("a b", {"T": "*"}, "illegal"),
        ("g", {"T": "||"}, "no tag"),
    ],
)
def test_what_means_nothing_is_refused(group: str, topics: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PushConsumer("127.0.0.1:1", group, topics, print)


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"concurrency": 0}, {"max_tries": -2}, {"consume_timeout": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PushOptions(**wrong)
