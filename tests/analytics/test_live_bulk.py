"""Pulls that are verified as a whole give the messages, and the errors, of pulls that are read one by one."""

import asyncio
from dataclasses import replace

import pytest

from formats.remoting.shapes import MessageQueue
from rmqtool.analytics.live import bulk
from rmqtool.analytics.live.bulk import BulkMessages, BulkPuller, _whole_answer
from rmqtool.client import ClientOptions, Message
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.readable import ordinary_topics
from rmqtool.client.consumer.puller import Pulled, Puller
from rmqtool.client.consumer.received import Received
from rmqtool.client.sync import Producer
from rmqtool.testing import broker
from tests.conftest import Unpacked


@pytest.mark.parametrize("case", ["broker", "broker-5.3.3"])
def test_answers_are_the_same(case: str, golden_copy: Unpacked) -> None:
    async def compare(namesrv: str) -> int:
        bulk = 0
        async with Cluster(ClientOptions(namesrv=namesrv)) as cluster:
            for topic in await ordinary_topics(cluster):
                for queue in (await cluster.route(topic)).readable:
                    plain, whole = Puller(cluster), BulkPuller(cluster)
                    low, high = await plain.offsets(queue)
                    for offset in range(low, high, 5):
                        for _attempt in range(5):
                            one, other = await plain.pull(queue, offset), await whole.pull(queue, offset)
                            if one.max_offset == other.max_offset:  # else the broker has just delivered a timer
                                break
                        bulk += isinstance(other.messages, BulkMessages)
                        assert replace(one, messages=[]) == replace(other, messages=[])
                        assert [*one.messages] == [*other.messages] == other.messages[:]
                        assert one.messages[-1] == other.messages[-1]
        return bulk

    with broker(golden_copy(case)) as served:
        assert asyncio.run(compare(served.namesrv)) > 20


def test_other_answers_are_read_one_by_one(golden_copy: Unpacked) -> None:
    """Of another topic or queue, with a gap, before the offset, cut off, or with a body that is not the one sent."""

    async def pulled(namesrv: str) -> Pulled:
        async with Cluster(ClientOptions(namesrv=namesrv)) as cluster:
            queue = next(queue for queue in (await cluster.route("Orders")).readable if queue.queue_id == 1)
            return await Puller(cluster).pull(queue, 3)

    with broker(golden_copy("broker")) as served:
        answer = asyncio.run(pulled(served.namesrv))
    body, queue = answer.body, answer.messages[0].queue
    assert body is not None
    found = _whole_answer(queue, 3, body)
    assert found is not None
    assert [*found] == [*answer.messages]
    sizes = [message.record.total_size for message in answer.messages]
    without_second = body[: sizes[0]] + body[sum(sizes[:2]) :]
    spoilt = bytearray(body)
    spoilt[body.index(answer.messages[0].record.body)] ^= 1
    others: list[tuple[MessageQueue, int, bytes]] = [
        (replace(queue, topic="Others"), 3, body), (replace(queue, queue_id=2), 3, body), (queue, 2, body),
        (queue, 4, body), (queue, 3, without_second), (queue, 3, body[:-1]), (queue, 3, body + b"\0"), (queue, 3, b""),
        (queue, 3, bytes(spoilt)),
    ]  # fmt: skip
    for place, offset, data in others:
        assert _whole_answer(place, offset, data) is None


@pytest.mark.parametrize(
    ("lane", "run_bytes"), [(1, 1 << 20), (3, 1 << 20), (64, 1 << 20), (64, 1)], ids=["1", "3", "64", "lanes end early"]
)
def test_runs_are_what_single_pulls_give(lane: int, run_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several requests at a time: no message is lost or doubled where lanes meet, and none is behind the end."""
    monkeypatch.setattr(bulk, "_FIRST", lane)
    monkeypatch.setattr(bulk, "_MOST", lane)
    monkeypatch.setattr(bulk, "_RUN_BYTES", run_bytes)
    monkeypatch.setattr(BulkPuller, "_lane", lane)

    async def compare(namesrv: str) -> None:
        async with Cluster(ClientOptions(namesrv=namesrv)) as cluster:
            await cluster.route("Run")
            puller, at, found, runs = BulkPuller(cluster), 2, list[Received](), 0
            while at < 297:
                pulled = await puller.pull_run(queue, at, 297)
                assert pulled is not None
                found += pulled.messages
                at, runs = pulled.next_offset, runs + 1
            assert [int(message.body) for message in found] == list(range(2, 297))
            assert runs >= -(-295 // (8 * lane))
            assert await BulkPuller(cluster, tags=["a"]).pull_run(queue, 2, 297) is None
            assert await puller.pull_run(queue, 300, 310) is None  # behind the end: nothing is there

    with broker() as served, Producer(served.namesrv) as producer:
        queue = producer.queues("Run")[0]
        producer.send_batch([Message("Run", b"%d" % number) for number in range(300)], queue=queue)
        asyncio.run(compare(served.namesrv))
