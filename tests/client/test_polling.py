"""Polling consumers: members of a group, or with assigned queues."""

import asyncio
import inspect
from pathlib import Path

import pytest

from formats.fastjson.declare import read_body
from formats.remoting import admin as a
from formats.remoting.codes import RequestCode, ResponseCode
from rmqtool.client import From, LitePullConsumer, MessageQueue, PollOptions, PushConsumer, PushOptions, Received
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consumer.assignment import Rebalancing
from rmqtool.client.sync import LitePullConsumer as SyncLitePullConsumer
from rmqtool.testing import TestBroker
from tests.client.peers import run
from tests.client.test_consuming import committed, fill, numbers, until

FIRST = PollOptions(start=From.FIRST, rebalance_interval=1)


async def some(consumer: LitePullConsumer, count: int) -> list[Received]:
    result: list[Received] = []
    while len(result) < count:
        result += await consumer.poll(1)
    return result


def test_a_group_that_polls_shares_queues_and_commits_what_polls_are_behind(served: TestBroker) -> None:
    fill(served, "Polled", 80)

    async def test() -> None:
        async with LitePullConsumer(served.namesrv, "pollers", FIRST) as consumer:
            await consumer.subscribe("Polled")
            await until(lambda: len(consumer.assignment()) == 4)
            asked = a.RunningInfo(consumer_group="pollers", client_id=consumer.cluster.client_id)
            answer = await consumer.cluster.ask(
                served.address, consumer.cluster.request(RequestCode.GET_CONSUMER_RUNNING_INFO, asked)
            )
            told = read_body(a.ConsumerRunningInfo, answer.body)
            assert {queue.queue_id: state.commit_offset for queue, state in told.mq_table.items()} == dict.fromkeys(
                range(4), 0
            )
            asked = a.RunningInfo(consumer_group="others", client_id=consumer.cluster.client_id)
            request = consumer.cluster.request(RequestCode.GET_CONSUMER_RUNNING_INFO, asked)
            assert consumer._running_info(None, request).code == ResponseCode.SYSTEM_ERROR  # type: ignore[arg-type]
            async with LitePullConsumer(served.namesrv, "pollers", FIRST) as other:
                await other.subscribe("Polled")
                await until(lambda: (len(consumer.assignment()), len(other.assignment())) == (2, 2))
                assert not set(consumer.assignment()) & set(other.assignment())
                got = [await some(consumer, 40), await some(other, 40)]
                assert sorted(numbers([*got[0], *got[1]])) == list(range(80))
                await consumer.poll(0.1)  # it has done with what it got before
                with pytest.raises(ValueError, match="subscribed"):
                    await consumer.assign([])
            await until(lambda: len(consumer.assignment()) == 4)
            # the other's last messages come again: nobody polled behind them
            again = await some(consumer, 10)
            assert {message.queue for message in again} <= {message.queue for message in got[1]}
            await consumer.poll(0.1)
        assert await committed(served, "pollers", "Polled") == 80

    run(test)


def test_it_shares_with_a_push_consumer(served: TestBroker) -> None:
    fill(served, "BothWays", 40)

    async def test() -> None:
        got: list[int] = []

        async def listen(messages: object) -> None:
            got.extend(numbers(messages))  # type: ignore[arg-type]

        push = PushOptions(start=From.FIRST, rebalance_interval=1)
        async with PushConsumer(served.namesrv, "both", {"BothWays": "*"}, listen, push) as consumer:
            await until(lambda: sorted(got) == list(range(40)))
            async with LitePullConsumer(served.namesrv, "both", FIRST) as other:
                await other.subscribe("BothWays")
                await until(lambda: (len(consumer.queues()), len(other.assignment())) == (2, 2))

    run(test)


def test_assigned_queues_with_seek_pause_and_commit(served: TestBroker) -> None:
    fill(served, "Assigned", 80)

    async def test() -> None:
        options = PollOptions(start=From.FIRST, auto_commit=False, batch=5)
        async with LitePullConsumer(served.namesrv, "assigners", options) as consumer:
            queues = await consumer.queues("Assigned")
            await consumer.assign(queues[:2])
            assert consumer.assignment() == list(queues[:2])
            with pytest.raises(ValueError, match="assigned"):
                await consumer.subscribe("Assigned")
            assert len(await some(consumer, 40)) == 40
            assert await consumer.committed(queues[0]) == 0
            await consumer.commit()
            assert [await consumer.committed(queue) for queue in queues] == [20, 20, 0, 0]
            await consumer.seek(queues[1], 15)
            assert [message.queue_offset for message in await some(consumer, 5)] == list(range(15, 20))
            with pytest.raises(ValueError, match="offset 21: 0 to 20"):
                await consumer.seek(queues[1], 21)
            consumer.pause(queues[:1])
            assert consumer.paused() == [queues[0]]
            await consumer.seek_to_begin(queues[0])
            await consumer.seek_to_begin(queues[1])
            assert {message.queue for message in await some(consumer, 20)} == {queues[1]}
            consumer.resume(queues[:1])
            assert {message.queue for message in await some(consumer, 20)} == {queues[0]}
            await consumer.seek_to_end(queues[0])
            assert await consumer.poll(0.2) == []
            await consumer.commit({queues[0]: 7})
            assert await consumer.committed(queues[0]) == 7
            assert consumer.position(queues[0]) == 20
            assert await consumer.offset_at(queues[0], 0) == 0

    run(test)


def test_messages_one_by_one_and_queues_that_change(served: TestBroker) -> None:
    fill(served, "OneByOne", 20)

    async def test() -> None:
        changes: list[tuple[str, tuple[MessageQueue, ...]]] = []
        options = PollOptions(start=From.FIRST, commit_interval=1)
        async with LitePullConsumer(served.namesrv, "iterators", options) as consumer:
            await consumer.on_queues_changed("OneByOne", lambda topic, queues: changes.append((topic, queues)))
            await consumer.subscribe("OneByOne", "odd")
            result = []
            async for message in consumer:
                result.append(int(message.body))
                if len(result) == 10:
                    break
            assert sorted(result) == list(range(1, 20, 2))
            while sum(map(consumer.position, consumer.assignment())) < 20:  # nothing matches in two of the queues
                assert await consumer.poll(1) == []
            assert await consumer.poll(0.1) == []  # it has done with what it got before
            route = await consumer.cluster.route("OneByOne")
            less = Route(route.topic, route.writable, route.readable[:3], route.brokers, route.write_queues)
            for watcher in consumer.cluster._route_watchers:
                watcher(less)
            assert changes == [("OneByOne", route.readable[:3])]
            await consumer.unsubscribe("OneByOne")
            assert consumer.assignment() == []
        assert await committed(served, "iterators", "OneByOne") == 20

    run(test)


def test_queues_that_are_shared_while_their_topic_is_left_stay_with_others(
    served: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(served, "Left", 4)

    async def test() -> None:
        asked, answered = asyncio.Event(), asyncio.Event()
        ask = Rebalancing._members

        async def ask_slowly(self: Rebalancing, route: Route) -> list[str]:
            members = await ask(self, route)
            asked.set()
            await answered.wait()
            return members

        monkeypatch.setattr(Rebalancing, "_members", ask_slowly)
        async with LitePullConsumer(served.namesrv, "leavers", FIRST) as consumer:
            await consumer.subscribe("Left")
            await asked.wait()
            await consumer.unsubscribe("Left")
            answered.set()
            assert await consumer.poll(0.3) == []
            assert consumer.assignment() == []

    run(test)


def test_broadcasting(served: TestBroker, tmp_path: Path) -> None:
    fill(served, "PolledAll", 40)

    async def test() -> None:
        options = PollOptions(start=From.FIRST, broadcasting=True, local_offsets=tmp_path)
        async with LitePullConsumer(served.namesrv, "polled-all", options) as consumer:
            assert consumer.cluster.client_id.endswith("@DEFAULT")
            await consumer.subscribe("PolledAll")
            assert sorted(numbers(await some(consumer, 40))) == list(range(40))
            await consumer.commit()
        async with LitePullConsumer(served.namesrv, "polled-all", options) as consumer:
            await consumer.subscribe("PolledAll")
            await until(lambda: len(consumer.assignment()) == 4)
            assert await consumer.poll(0.3) == []
            assert [await consumer.committed(queue) for queue in consumer.assignment()] == [10] * 4
        assert await committed(served, "polled-all", "PolledAll") == 0

    run(test)


def test_without_asyncio(served: TestBroker) -> None:
    fill(served, "PolledPlainly", 8)
    with SyncLitePullConsumer(served.namesrv, "plain", FIRST) as consumer:
        consumer.subscribe("PolledPlainly")
        result = []
        for message in consumer:
            result.append(message)
            if len(result) == 8:
                break
        assert sorted(numbers(result)) == list(range(8))
        consumer.commit()
        assert [consumer.committed(queue) for queue in consumer.assignment()] == [2] * 4
    names = [set(dict(inspect.getmembers(kind))) for kind in (LitePullConsumer, SyncLitePullConsumer)]
    assert {name for name in names[0] if not name.startswith("_")} <= names[1]


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"ahead": 0}, {"commit_interval": 0.5}, {"rebalance_interval": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PollOptions(**wrong)  # type: ignore[arg-type]
