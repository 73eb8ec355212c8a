"""Brokers that falsify answers: no message is skipped, and nothing is committed that was not written."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import pytest

from formats.remoting.frame import Command
from rmqtool.cli.live import acked
from rmqtool.cli.live.copying import replay as replay_command
from rmqtool.client import ClientOptions, From, MessageQueue, PullConsumer, PushConsumer, PushOptions, Received
from rmqtool.client.cluster import attempts
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consumer import pull as pull_consumer
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.copying import replay as replaying
from rmqtool.remoting.client import connect
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import ConnectionLost, NoAnswer, RemotingError
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns, some
from tests.cli.running import Result, rmqtool
from tests.client.lying import ANY, LIES, SENDS, Liar, Opaques, lied_about
from tests.client.peers import Peer, peer, run, serving
from tests.client.test_consuming import fill
from tests.client.test_replay import bodies, made, messages

COUNT = 400
SEEDS = range(1, some(2, 9))
ALL = {(queue, at) for queue in range(4) for at in range(COUNT // 4)}


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with broker() as running:
        fill(running, "Told", COUNT)
        yield running


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_PAUSES", (0.05,) * 30)
    monkeypatch.setattr(attempts, "PAUSES", (0.05,) * 30)
    monkeypatch.setitem(replaying.ReplayOptions.__init__.__kwdefaults__ or {}, "settle", 0.2)
    monkeypatch.setattr(acked, "_ERROR_PAUSE", 0.05)
    monkeypatch.setattr(pull_consumer, "_PAUSE", 0.05)


def through(served: TestBroker, liar: Liar | Opaques, *topics: str) -> AbstractContextManager[str]:
    return serving(lied_about(served.address, liar, *(topics or ("Told",))))


async def committed(served: TestBroker, group: str, topic: str) -> dict[int, int]:
    async with Cluster(ClientOptions(namesrv=served.namesrv)) as cluster:
        puller = Puller(cluster, group)
        queues = (await cluster.route(topic)).readable
        return {queue.queue_id: await puller.committed(queue) or 0 for queue in queues}


def places(done: Result) -> set[tuple[int, int]]:
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert all(row["topic"] == "Told" for row in rows)
    assert all(int(row["body"]) == 4 * row["queueOffset"] + row["queueId"] for row in rows), "foreign messages"
    return {(row["queueId"], row["queueOffset"]) for row in rows}


def nothing_is_passed(seen: set[tuple[int, int]], kept: dict[int, int]) -> None:
    passed = [(queue, at) for queue, end in kept.items() for at in range(end) if (queue, at) not in seen]
    assert not passed, f"committed, and never written: {passed[:10]} ({len(passed)})"


def liars(seed: int) -> list[Liar | Opaques]:
    return [Opaques(seed, 0.5), Liar(seed, 0.15)]


@by_turns(2)
@pytest.mark.parametrize("lies", ["opaques", "all"])
@pytest.mark.parametrize("orderly", [False, True], ids=["any order", "in order"])
@pytest.mark.parametrize("seed", SEEDS)
def test_consume_commits_what_it_has_written(served: TestBroker, seed: int, orderly: bool, lies: str) -> None:
    group, liar = f"acked-{seed}-{orderly}-{lies}", Opaques(seed, 0.5) if lies == "opaques" else Liar(seed, 0.15)
    args = ["Told", "--group", group, "--ack", "-o", "ndjson", *(["--orderly"] if orderly else [])]
    with through(served, liar, "Told", f"%RETRY%{group}") as namesrv:
        result = rmqtool("consume", "--namesrv", namesrv, *args)
    seen = places(result)
    assert liar.told, "it has not lied"
    nothing_is_passed(seen, asyncio.run(committed(served, group, "Told")))
    assert result.code == 0, result.err
    assert seen == ALL


@by_turns(2)
@pytest.mark.parametrize("kind", LIES)
def test_each_lie_is_seen_through(served: TestBroker, kind: str) -> None:
    """A consumer that continues gets every message once, in order, and no others."""

    async def test() -> None:
        liar = Liar(5, 0.5, (kind,), 12)
        async with lied_about(served.address, liar, "Told") as namesrv:
            client = ClientOptions(namesrv=namesrv, timeout=2)
            async with PullConsumer(client, batch=8, wait=1) as consumer:
                await consumer.assign(dict.fromkeys(await queues_of(consumer), 0))
                await all_once(consumer)
        assert liar.told[kind]

    run(test)


async def queues_of(consumer: PullConsumer) -> tuple[MessageQueue, ...]:
    while True:
        try:
            return await consumer.queues("Told")
        except RemotingError:
            pass


async def all_once(consumer: PullConsumer) -> None:
    result: dict[int, list[int]] = defaultdict(list)
    while sum(map(len, result.values())) < COUNT:
        try:
            for message in await consumer.poll(1):
                assert int(message.body) == 4 * message.queue_offset + message.queue.queue_id
                result[message.queue.queue_id].append(message.queue_offset)
        except (ClientError, RemotingError):
            continue
    assert result == {queue: list(range(COUNT // 4)) for queue in range(4)}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pull_consumer_gets_each_once(served: TestBroker, seed: int) -> None:
    async def test() -> None:
        for liar in liars(seed):
            async with lied_about(served.address, liar, "Told") as namesrv:
                client = ClientOptions(namesrv=namesrv, timeout=2)
                async with PullConsumer(client, batch=8, wait=1) as consumer:
                    await consumer.assign(dict.fromkeys(await queues_of(consumer), 0))
                    await all_once(consumer)
            assert liar.told

    run(test)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tags", ["*", "odd"])
def test_a_push_consumer_passes_nothing(served: TestBroker, seed: int, tags: str) -> None:
    async def test() -> None:
        for number, liar in enumerate(liars(seed)):
            group = f"pushed-{seed}-{number}-{tags.strip('*')}"
            seen: set[tuple[int, int]] = set()

            async def listen(messages: Sequence[Received], seen: set[tuple[int, int]] = seen) -> None:
                for message in messages:
                    assert int(message.body) == 4 * message.queue_offset + message.queue.queue_id
                    seen.add((message.queue.queue_id, message.queue_offset))

            wanted = {place for place in ALL if tags == "*" or place[0] % 2}
            options = PushOptions(start=From.FIRST, error_pause=0.05, persist_interval=0.1, hold=1, pull_batch=8)
            async with lied_about(served.address, liar, "Told", f"%RETRY%{group}") as namesrv:
                client = ClientOptions(namesrv=namesrv, timeout=2)
                async with PushConsumer(client, group, {"Told": tags}, listen, options):
                    while not seen >= wanted:
                        await asyncio.sleep(0.05)
                        kept = await committed(served, group, "Told")
                        nothing_is_passed(seen | (ALL - wanted), kept)
            assert seen == wanted
            nothing_is_passed(seen | (ALL - wanted), await committed(served, group, "Told"))

    run(test)


def check_replay(served: TestBroker, liar: Liar, source: Path, topic: str) -> None:
    """Replay a store through a liar, and without him for as long as that ends early; each message is sent once."""
    with through(served, liar) as namesrv:
        result = rmqtool("replay", source, "--namesrv", namesrv, "--batch", 10, "-o", "ndjson")
    while result.code == 3:
        assert "continues from there" in result.err
        result = rmqtool("replay", source, "--namesrv", served.namesrv, "--batch", 10, "-o", "ndjson")
    assert result.code == 0, result.err
    assert bodies(messages(served.store, topic)) == bodies(messages(str(source), topic))


@pytest.mark.parametrize("seed", SEEDS)
def test_replay_sends_each_once(served: TestBroker, tmp_path: Path, seed: int) -> None:
    topic = f"Replayed{seed}"
    source = made(tmp_path / "origin", topic, 300)
    check_replay(served, Liar(seed, 0.2), source, topic)


@by_turns(7)
@pytest.mark.parametrize("kind", sorted(SENDS.keys() - ANY.keys()))
def test_replay_believes_no_place_that_an_answer_tells(
    served: TestBroker, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next round would be looked for behind it, where an answer to that is lost."""
    monkeypatch.setattr(replay_command, "_ROUND", 20)
    topic = f"Placed{sorted(SENDS).index(kind)}"
    source = made(tmp_path / "origin", topic, 200)
    liar = Liar(3, 0.3, (kind, "cut"), 80)
    check_replay(served, liar, source, topic)
    assert liar.told[kind]


@by_turns(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_mirror_copies_each_once(served: TestBroker, tmp_path: Path, seed: int) -> None:
    store = tmp_path / "copy"
    for liar in liars(seed):
        with through(served, liar) as namesrv:
            result = rmqtool("mirror", "--namesrv", namesrv, "Told", store, "-o", "ndjson")
        assert result.code in (0, 3), result
        assert "Traceback" not in result.err
    result = rmqtool("mirror", "--namesrv", served.namesrv, "Told", store, "-o", "ndjson")
    assert result.code == 0, result.err
    assert bodies(messages(str(store), "Told")) == bodies(messages(served.store, "Told"))


# -- connections -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def hesitating() -> AsyncIterator[tuple[Peer, Connection]]:
    """A peer that answers requests 1 and not 2, and a connection to it."""
    async with peer() as fake_broker:
        fake_broker.replies[1] = lambda request: request.response()
        fake_broker.replies[2] = lambda request: None
        host, _, port = fake_broker.address.rpartition(":")
        yield fake_broker, await connect(host, int(port))


def test_a_response_that_nobody_waits_for_ends_the_connection() -> None:
    async def test() -> None:
        async with hesitating() as (fake_broker, link):
            waiting = asyncio.create_task(link.call(Command(2)))
            await link.call(Command(1))
            fake_broker.connections[0].send(Command(0, 77, 1))
            with pytest.raises(ConnectionLost, match="nobody waits for"):
                await waiting
            assert link.closed

    run(test)


def test_a_response_that_comes_late_does_not() -> None:
    async def test() -> None:
        async with hesitating() as (fake_broker, link):
            with pytest.raises(NoAnswer):
                await link.call(Command(2), 0.05)
            cancelled = asyncio.create_task(link.call(Command(2)))
            await asyncio.sleep(0.05)
            cancelled.cancel()
            await link.oneway(Command(2))
            await link.call(Command(1))
            for request in [got for got in fake_broker.got if got.code == 2]:
                fake_broker.connections[0].send(request.response())
            await link.call(Command(1))
            fake_broker.connections[0].send(
                next(got for got in fake_broker.got if got.code == 2).response()
            )  # once more
            await link.lost.wait()

    run(test)
