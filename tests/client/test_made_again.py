"""Positions in queues of a broker that has another store meanwhile are verified before anything continues."""

import asyncio
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from formats.remoting.shapes import MessageQueue
from rmqtool import Store
from rmqtool.client.cluster import attempts
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.consumer.proof import MadeAgain, ProvingPuller
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.copying import replay as replaying
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.store.append.outgoing import NewMessage
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, rmqtool
from tests.client.test_replay import CONF, bodies, made, messages
from tests.model.neighbours import Neighbour

TOPIC, GROUP = "Again", "group"


def fill(path: Path, first: int, count: int, topic: str = TOPIC) -> None:
    """A store with a registered topic of four queues."""
    new = not path.exists()
    with Store.create(path, broker_conf=CONF) if new else Store(path, write=True, broker_conf=CONF) as store:
        state = BrokerState(store, lambda _text: None)
        state.ensure_topic(topic, 4)
        state.ensure_group(GROUP)
        state.persist()
        numbers = range(first, first + count)
        store.append_many([NewMessage(topic=topic, queue_id=n % 4, body=b"%d" % n) for n in numbers])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Neighbour]:
    """A broker on a store with the messages 0 to 39."""
    fill(tmp_path / "store", 0, 40)
    with Neighbour(tmp_path / "store", {**CONF, "brokerName": "a"}) as neighbour:
        yield neighbour


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_PAUSES", (0.05, 0.05))
    monkeypatch.setattr(attempts, "PAUSES", (0.05, 0.05))
    monkeypatch.setitem(replaying.ReplayOptions.__init__.__kwdefaults__ or {}, "settle", 0.2)


def another_store(broker: Neighbour, path: Path, count: int, topic: str = TOPIC) -> None:
    broker.end(signal.SIGKILL)
    shutil.rmtree(path)
    fill(path, 1000, count, topic)
    broker.start()


async def committed(namesrv: str) -> list[int | None]:
    async with Cluster(ClientOptions(namesrv=namesrv)) as cluster:
        puller = Puller(cluster, GROUP)
        return [await puller.committed(queue) for queue in (await cluster.route(TOPIC)).readable]


def until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def numbers(text: str) -> set[int]:
    return {int(json.loads(line)["body"]) for line in text.splitlines()}


@by_turns(13)
@pytest.mark.parametrize("count", [20, 40, 400], ids=["shorter", "as long", "longer"])
def test_what_is_consumed(broker: Neighbour, tmp_path: Path, count: int) -> None:
    """A group's position in the old store is not committed to the new one, whose messages nobody has seen."""
    consume = ["consume", "--namesrv", broker.namesrv, TOPIC, "--group", GROUP, "--ack", "--from", "earliest"]
    args = [*RMQTOOL, *consume, "-o", "ndjson", "--follow"]
    with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        until(lambda: asyncio.run(committed(broker.namesrv)) == [10] * 4)
        another_store(broker, tmp_path / "store", count)
        out, stderr = running.communicate(timeout=90)
    assert running.returncode == 3, stderr
    assert "made again" in stderr
    assert numbers(out) == set(range(40))
    assert asyncio.run(committed(broker.namesrv)) in ([0] * 4, [None] * 4)
    result = rmqtool(*consume, "-o", "ndjson")
    assert (result.code, numbers(result.out)) == (0, set(range(1000, 1000 + count)))


def test_a_group_that_is_behind_the_end(broker: Neighbour) -> None:
    """Beginning at the end would skip an unknown number of unseen messages."""

    async def commit() -> None:
        async with Cluster(ClientOptions(namesrv=broker.namesrv)) as cluster:
            await cluster.route(TOPIC)
            await Puller(cluster, GROUP).commit(MessageQueue(TOPIC, "a", 2), 50)

    asyncio.run(commit())
    result = rmqtool("consume", "--namesrv", broker.namesrv, TOPIC, "--group", GROUP, "--ack", "-o", "ndjson")
    assert result.code == 3
    assert "queue 2 of a: was read up to offset 50, and ends at 10" in result.err
    assert "rmqtool group reset" in result.err
    assert asyncio.run(committed(broker.namesrv))[2] == 50


def test_nothing_is_committed_over_another_connection(broker: Neighbour, tmp_path: Path) -> None:
    queue = MessageQueue(TOPIC, "a", 0)

    async def test() -> None:
        async with Cluster(ClientOptions(namesrv=broker.namesrv)) as cluster:
            puller = ProvingPuller(cluster, GROUP)
            pulled = await puller.pull(queue, 0)
            assert pulled.next_offset == 10
            await puller.commit(queue, 10)
            prove = puller._prove

            async def proved_too_early(queue: MessageQueue) -> None:
                await prove(queue)
                another_store(broker, tmp_path / "store", 100)

            puller._prove = proved_too_early  # type: ignore[method-assign]
            with pytest.raises(Exception, match="connection"):
                await puller.commit(queue, 10)
            puller._prove = prove  # type: ignore[method-assign]
            with pytest.raises(MadeAgain, match="another message at offset 9"):
                await puller.commit(queue, 10)

    asyncio.run(test())
    assert asyncio.run(committed(broker.namesrv))[0] in (0, None)


@pytest.mark.parametrize("count", [20, 100], ids=["shorter", "longer"])
@pytest.mark.parametrize("position", ["committed", "end", "offset_at"])
def test_a_position_is_of_the_store_that_reported_it(
    broker: Neighbour, tmp_path: Path, position: str, count: int
) -> None:
    """Between the answer and the first pull from there, the broker comes back with another store."""
    queue = MessageQueue(TOPIC, "a", 0)

    async def test() -> None:
        async with Cluster(ClientOptions(namesrv=broker.namesrv)) as cluster:
            await cluster.route(TOPIC)
            await Puller(cluster, GROUP).commit(queue, 8)
            puller = ProvingPuller(cluster, GROUP)
            offset = await (
                puller.offset_at(queue, time.time_ns() // 1_000_000 + 60_000)
                if position == "offset_at"
                else getattr(puller, position)(queue)
            )
            assert offset in (8, 9, 10)
            another_store(broker, tmp_path / "store", count)
            if count == 20:  # it grows past the position before the next pull
                broker.end(signal.SIGKILL)
                fill(tmp_path / "store", 2000, 80)
                broker.start()
            with pytest.raises(MadeAgain, match="another message at offset"):
                await attempts.try_often(lambda: puller.pull(queue, offset), asyncio.Event(), lambda _text: None)

    asyncio.run(test())


@by_turns(2)
@pytest.mark.parametrize("count", [0, 20, 400], ids=["empty", "shorter", "longer"])
def test_what_is_replayed(broker: Neighbour, tmp_path: Path, count: int) -> None:
    """The sent messages are gone, and a continued replay would be incomplete."""
    source = made(tmp_path / "origin", TOPIC, 60)
    args = ["replay", source, "--namesrv", broker.namesrv, "-o", "ndjson"]
    assert rmqtool(*args, "--limit", 30).code == 0
    another_store(broker, tmp_path / "store", count)
    result = rmqtool(*args)
    assert result.code == 3
    assert "what was sent to it before is gone" in result.err
    assert "another --journal" in result.err
    result = rmqtool(*args, "--journal", tmp_path / "second")
    assert result.code == 0, result.err
    got = bodies(messages(str(tmp_path / "store"), TOPIC))
    assert {queue: outcome[count // 4 :] for queue, outcome in got.items()} == bodies(messages(str(source), TOPIC))


@pytest.mark.parametrize("count", [20, 400], ids=["shorter", "longer"])
def test_what_may_have_been_sent(broker: Neighbour, tmp_path: Path, count: int) -> None:
    """They may be below the offset from which they would be searched."""
    source, journal = made(tmp_path / "origin", TOPIC, 60), tmp_path / "origin.replay"
    args = ["replay", source, "--namesrv", broker.namesrv, "-o", "ndjson"]
    assert rmqtool(*args).code == 0
    lines = [line for line in journal.read_text().splitlines() if '"done"' not in line]
    journal.write_text("\n".join(lines) + "\n")
    result = rmqtool(*args)
    assert (result.code, len(messages(str(tmp_path / "store"), TOPIC))) == (0, 100)
    journal.write_text("\n".join(lines) + "\n")
    another_store(broker, tmp_path / "store", count)
    result = rmqtool(*args)
    assert result.code == 3
    assert "it is not known which of them arrived" in result.err
    assert len(messages(str(tmp_path / "store"), TOPIC)) == count


@pytest.mark.parametrize("count", [None, 0, 80], ids=["without the topic", "empty", "with others"])
@pytest.mark.parametrize("sent", [1, 30])
def test_what_is_replayed_into_a_new_topic(broker: Neighbour, tmp_path: Path, sent: int, count: int | None) -> None:
    """There is no message before those of the first round: they prove themselves that the queues are the same.

    After one message, what comes next goes to other queues, of which nothing is known.
    """
    source = made(tmp_path / "origin", "Fresh", 60)
    args = ["replay", source, "--namesrv", broker.namesrv, "-o", "ndjson"]
    assert rmqtool(*args, "--limit", sent).code == 0
    another_store(broker, tmp_path / "store", count or 0, TOPIC if count is None else "Fresh")
    result = rmqtool(*args)
    assert result.code == 3, "the rest alone is not all of it"
    assert count is None or "what was sent to it before is gone" in result.err
    assert len(messages(str(tmp_path / "store"), "Fresh")) == (count or 0)


def test_a_replay_goes_on_in_the_same_store(broker: Neighbour, tmp_path: Path) -> None:
    source, journal = made(tmp_path / "origin", "Fresh", 60), tmp_path / "origin.replay"
    args = ["replay", source, "--namesrv", broker.namesrv, "-o", "ndjson"]
    for limit in (1, 1, 7, 30, 60):
        assert rmqtool(*args, "--limit", limit).code == 0
        broker.end(signal.SIGKILL)
        broker.start()
    assert '"last":[["Fresh","a",' in journal.read_text()
    assert bodies(messages(str(tmp_path / "store"), "Fresh")) == bodies(messages(str(source), "Fresh"))
