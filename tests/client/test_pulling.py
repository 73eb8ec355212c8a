"""Reading by offset: the consumer, the command consume, and brokers that send nonsense."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from formats.message.build import compose, pack
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.client import Message, MessageQueue, PullConsumer
from rmqtool.client.cluster.errors import BadAnswer, BrokerError
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.consumer.received import Received
from rmqtool.client.sync import Producer as SyncProducer
from rmqtool.client.sync import PullConsumer as SyncConsumer
from rmqtool.contract import MESSAGE_FIELDS
from rmqtool.remoting.errors import RemotingError
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, process, rmqtool
from tests.client.peers import Peer, peer, raw_peer, route, run, serving, tells, unreadable

TOPIC, COUNT = "Numbers", 100


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with broker() as running, SyncProducer(running.namesrv) as producer:
        queues = producer.queues(TOPIC)
        for queue in queues:
            texts = [b"%d" % n for n in range(queue.queue_id, COUNT, 4)]
            producer.send_batch(
                [Message(TOPIC, text, "odd" if int(text) % 2 else "even") for text in texts], queue=queue
            )
        producer.send(Message("Large", b"x" * 9000))
        with SyncConsumer(running.namesrv) as consumer:  # until all of them are in their queues
            while sum(consumer.offsets(queue)[1] for queue in queues) < COUNT:
                pass
        yield running


def numbers(messages: list[Any]) -> list[int]:
    return [int(message.body) for message in messages]


def test_assigned_queues_are_polled_in_order_and_sought(served: TestBroker) -> None:
    async def test() -> None:
        async with PullConsumer(served.namesrv, "pullers", batch=7) as consumer:
            queues = await consumer.queues(TOPIC)
            assert len(queues) == 4
            await consumer.assign(queues)
            result: list[Any] = []
            async for message in consumer:
                result.append(message)
                if len(result) == COUNT:
                    break
            assert sorted(numbers(result)) == list(range(COUNT))
            for queue in queues:
                mine = [message for message in result if message.queue == queue]
                assert numbers(mine) == list(range(queue.queue_id, COUNT, 4))
                assert [message.queue_offset for message in mine] == list(range(25))
                assert len({message.message_id for message in mine}) == 25
                assert consumer.position(queue) == 25
            consumer.seek(queues[1], 20)
            again: list[Received] = []
            while len(again) < 5:
                again += await consumer.poll()
            assert numbers(again) == [81, 85, 89, 93, 97]
            assert await consumer.poll(0.05) == []
            await consumer.commit()
            assert [await consumer.committed(queue) for queue in queues] == [25] * 4

    run(test)


def test_paused_queues_are_not_read_and_go_on_where_they_were(served: TestBroker) -> None:
    with SyncConsumer(served.namesrv) as consumer:
        queue, *_others = queues = consumer.queues(TOPIC)
        consumer.assign(dict.fromkeys(queues, 0))
        assert consumer.paused() == []
        consumer.pause(queues)
        assert consumer.paused() == sorted(queues)
        assert consumer.poll(0.3) == []
        consumer.seek_to_end(queue)
        end = consumer.position(queue)
        assert end == consumer.offsets(queue)[1] > 0
        consumer.seek_to_begin(queue)
        consumer.resume([queue])
        result: list[int] = []
        while len(result) < end:
            result += [message.queue_offset for message in consumer.poll()]
        assert result == list(range(end))
        assert consumer.paused() == sorted(set(queues) - {queue})
        with pytest.raises(KeyError):
            consumer.pause([MessageQueue("Nowhere", "a", 0)])


def test_a_group_goes_on_where_it_was_with_the_synchronous_face_too(served: TestBroker) -> None:
    with SyncConsumer(served.namesrv, "goes-on", batch=10) as consumer:
        (queue, *_rest) = consumer.queues(TOPIC)
        assert consumer.committed(queue) == 0  # what a broker says of a new group while a queue has its first message
        consumer.assign([queue])
        assert numbers(consumer.poll()) == list(range(0, 40, 4))
        consumer.commit()
    with SyncConsumer(served.namesrv, "goes-on", tags=["even"]) as consumer:
        consumer.assign([queue])
        assert consumer.position(queue) == 10
        assert int(next(iter(consumer)).body) == 40
        consumer.seek(queue, 24)
        assert numbers(consumer.poll()) == [96]
    public = {name for name in vars(PullConsumer) if not name.startswith("_")}
    assert public <= {name for name in dir(SyncConsumer) if not name.startswith("_")}


def test_tags_are_compared_exactly_and_bodies_inflated(served: TestBroker) -> None:
    async def test() -> None:
        async with PullConsumer(served.namesrv, tags=["odd", "none"]) as consumer:
            queues = await consumer.queues(TOPIC)
            await consumer.assign(dict.fromkeys(queues, 0))
            result: list[Any] = []
            while len(result) < COUNT // 2:
                result += await consumer.poll()
            assert sorted(numbers(result)) == list(range(1, COUNT, 2))
        async with PullConsumer(served.namesrv) as consumer:
            await consumer.assign(await consumer.queues("Large"))
            (large,) = await consumer.poll()
            assert (large.body, len(large.record.body) < 100) == (b"x" * 9000, True)

    run(test)


# -- brokers that do not behave ----------------------------------------------------------------------------------------

QUEUE = MessageQueue("T", "a", 0)


def record(offset: int) -> bytes:
    return pack(
        compose(
            topic=b"T", queue_id=0, queue_offset=offset, physical_offset=offset * 100, body=b"x", born_timestamp=1,
            born_address=b"\x7f\0\0\1", born_port=1, store_timestamp=1, store_address=b"\x7f\0\0\1", store_port=1,
        )
    )  # fmt: skip


def answer(code: int, following: int, body: bytes = b"") -> Any:
    fields = {"suggestWhichBrokerId": "7", "nextBeginOffset": str(following), "minOffset": "0", "maxOffset": "9"}
    return lambda request: request.response(code, fields=fields, body=body)


async def with_broker(test: Any) -> None:
    async with peer() as namesrv, peer() as fake_broker:
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", fake_broker.address), queues=1)})
        async with PullConsumer(namesrv.address) as consumer:
            await test(fake_broker, consumer, Puller(consumer.cluster))


@pytest.mark.parametrize(
    "reply",
    [
        answer(0, 1, b"no messages"),
        answer(0, 1, record(0)[:-1]),
        answer(0, 1, record(0) + b"\x7f\xff\xff\xff"),
        answer(0, 0, record(0)),  # goes on where it was: the same messages for ever
        answer(0, -1, record(0)),
        lambda request: request.response(body=record(0)),
        lambda request: request.response(fields={"nextBeginOffset": "1" * 40}, body=record(0)),
        answer(ResponseCode.PULL_OFFSET_MOVED, -3),
    ],
)
def test_answers_that_are_none_are_one_clear_error(reply: Any) -> None:
    async def test(one: Peer, consumer: PullConsumer, puller: Puller) -> None:
        one.replies[C.PULL_MESSAGE] = reply
        with pytest.raises(BadAnswer, match=one.address):
            await puller.pull(QUEUE, 0)
        await consumer.assign({QUEUE: 0})
        with pytest.raises(BadAnswer, match=one.address):
            await consumer.poll()

    run(lambda: with_broker(test))


def test_a_queue_without_an_offset_inside_is_given_up() -> None:
    async def test(one: Peer, consumer: PullConsumer, _puller: Puller) -> None:
        def moves(request: Command) -> Command:
            at = int((request.fields or {})["queueOffset"])
            told = {"suggestWhichBrokerId": "7", "nextBeginOffset": str(1 - at)}
            told |= {"minOffset": str(1 - at), "maxOffset": str(1 - at)}
            return request.response(ResponseCode.PULL_OFFSET_MOVED, fields=told)

        one.replies[C.PULL_MESSAGE] = moves
        await consumer.assign({QUEUE: 0})
        with pytest.raises(BadAnswer, match="no offset is inside"):
            [message async for message in consumer]

    run(lambda: with_broker(test))


def test_refusals_are_told_and_a_slave_that_is_not_there_is_the_master() -> None:
    async def test(one: Peer, consumer: PullConsumer, puller: Puller) -> None:
        one.replies[C.PULL_MESSAGE] = answer(0, 1, record(0))
        for _ in range(2):  # the first answer says: go to broker 7
            assert [message.queue_offset for message in (await puller.pull(QUEUE, 0)).messages] == [0]
        one.replies[C.PULL_MESSAGE] = lambda request: request.response(ResponseCode.NO_PERMISSION, "not you")
        await consumer.assign({QUEUE: 0})
        with pytest.raises(BrokerError, match="not you"):
            await consumer.poll()

    run(lambda: with_broker(test))


def test_a_slave_that_knows_no_offset_of_a_group_proves_nothing() -> None:
    """It may not have received it yet, and the group would start over."""

    async def test() -> None:
        async with peer() as namesrv, peer() as fake_broker:
            data = route(("a", fake_broker.address), queues=1)
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = lambda request: tells({"T": data})(request)
            fake_broker.replies[C.QUERY_CONSUMER_OFFSET] = lambda request: request.response(22, "never")
            async with PullConsumer(namesrv.address) as consumer:
                assert await consumer.committed(QUEUE) is None
                data.broker_datas[0].broker_addrs = {1: fake_broker.address}
                await consumer.cluster.fetch_route("T")
                with pytest.raises(BrokerError, match="never"):
                    await consumer.committed(QUEUE)

    run(test)


def test_a_length_of_1_gb_is_one_clear_error() -> None:
    async def test() -> None:
        async with peer() as namesrv, raw_peer((1 << 30).to_bytes(4, "big") * 2) as address:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", address), queues=1)})
            async with PullConsumer(namesrv.address) as consumer:
                with pytest.raises(RemotingError, match="1073741824"):
                    await Puller(consumer.cluster).pull(QUEUE, 0)

    run(test)


# -- the command -------------------------------------------------------------------------------------------------------


def consume(served: TestBroker, *args: object) -> tuple[int, list[dict[str, Any]], str]:
    result = rmqtool("consume", "--namesrv", served.namesrv, *args, "-o", "ndjson")
    return result.code, [json.loads(line) for line in result.out.splitlines()], result.err


def test_consume_shows_all_and_leaves_no_trace(served: TestBroker) -> None:
    before = {name: Path(served.store, "config", name).read_bytes() for name in ("topics.json",)}
    code, shown, stderr = consume(served, TOPIC)
    assert (code, stderr) == (0, "100 messages\n")
    assert sorted(int(row["body"]) for row in shown) == list(range(COUNT))
    assert all(list(row) == list(MESSAGE_FIELDS) for row in shown)
    dumped = [json.loads(line) for line in rmqtool("commitlog", "dump", served.store, "-o", "ndjson").out.splitlines()]
    by_id = {row["offsetMsgId"]: row for row in dumped}
    assert all(by_id[row["offsetMsgId"]] == row for row in shown)
    assert {name: Path(served.store, "config", name).read_bytes() for name in before} == before


def test_consume_from_a_place(served: TestBroker) -> None:
    assert len(consume(served, TOPIC, "--from", "20")[1]) == 20
    assert len(consume(served, TOPIC, "--limit", "3")[1]) == 3
    assert {row["tags"] for row in consume(served, TOPIC, "--tag", "odd")[1]} == {"odd"}
    assert consume(served, TOPIC, "--from", "latest")[:2] == (1, [])
    assert len(consume(served, TOPIC, "--from", "-1h")[1]) == COUNT
    assert consume(served, TOPIC, "--from", "2199-01-01")[:2] == (1, [])


@pytest.mark.parametrize(
    ("args", "code", "part"),
    [
        (["--namesrv", "nonsense", "T"], 2, "HOST:PORT"),
        (["--namesrv", "127.0.0.1:1", "T"], 3, "Connection refused"),
        (["--namesrv", "127.0.0.1:1", "no topic"], 2, "illegal characters"),
        (["--namesrv", "127.0.0.1:1", "T", "--from", "soon"], 2, "not a time"),
    ],
)
def test_bad_options_are_one_line(args: list[str], code: int, part: str) -> None:
    result = rmqtool("consume", *args)
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert part in result.err


def test_a_topic_that_nobody_knows(served: TestBroker) -> None:
    code, shown, stderr = consume(served, "Nowhere")
    assert (code, shown) == (3, [])
    assert "no name server knows the topic" in stderr


@pytest.mark.parametrize("args", [(), ("--group", "g", "--ack")])
def test_a_topic_that_may_not_be_read_is_not_an_empty_one(args: tuple[str, ...]) -> None:
    with serving(unreadable("T")) as address:
        result = rmqtool("consume", "--namesrv", address, "T", *args)
    assert (result.code, result.out) == (3, "")
    assert "T: cannot be read: its permission on a forbids it" in result.err
    assert "(rmqtool topic perm changes it)" in result.err


@by_turns(7)
def test_idle_is_an_end(served: TestBroker) -> None:
    with SyncProducer(served.namesrv) as producer:
        producer.send(Message("Idle", b"zero"))
    for arguments in ((), ("--group", "idlers", "--ack")):
        follow = ("--follow", "--exit-idle", "2", "--from", "earliest", "-o", "ndjson")
        result = rmqtool("consume", "--namesrv", served.namesrv, "Idle", *follow, *arguments)
        assert (result.code, result.out.count("\n")) == (0, 1), result
        assert result.err.splitlines()[-1] == "1 message"
    assert rmqtool("consume", "--namesrv", served.namesrv, "Idle", "--exit-idle", "2").code == 2


@by_turns(3)
def test_a_long_time_without_a_message_is_an_end_too(served: TestBroker) -> None:
    with SyncProducer(served.namesrv) as producer:
        producer.send(Message("LongIdle", b"zero"))
    args = ("consume", "--namesrv", served.namesrv, "LongIdle", "--follow", "--exit-idle", "6", "--from", "earliest")
    result = process(*args, timeout=30)
    assert (result.code, result.err.splitlines()[-1]) == (0, "1 message")


@by_turns(3)
@pytest.mark.parametrize("args", [(), ("--group", "left", "--ack")])
def test_a_broker_that_has_gone_is_not_idle(args: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        running_broker = stack.enter_context(broker())
        with SyncProducer(running_broker.namesrv) as producer:
            producer.send(Message("Left", b"zero"))
        command = [*RMQTOOL, "consume", "--namesrv", running_broker.namesrv, "Left", *args, "-o", "ndjson"]
        with subprocess.Popen(
            [*command, "--follow", "--exit-idle", "3", "--from", "earliest"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        ) as running:  # fmt: skip
            assert running.stdout
            assert "Left" in running.stdout.readline()
            stack.close()
            _out, stderr = running.communicate(timeout=60)
    assert running.returncode == 3, stderr


def test_follow_shows_what_comes_until_a_signal(served: TestBroker) -> None:
    command = [*RMQTOOL, "consume", "--namesrv", served.namesrv, "Followed", "--follow", "-o", "table"]
    with SyncProducer(served.namesrv) as producer:
        first = producer.send(Message("Followed", b"zero"))
        with subprocess.Popen(
            [*command, "--from", "earliest"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        ) as running:
            assert running.stdout
            assert running.stdout.readline().startswith("topic")
            assert running.stdout.readline().rstrip().endswith("zero")
            producer.send(Message("Followed", b"one"), queue=first.queue)
            assert running.stdout.readline().rstrip().endswith("one")
            running.send_signal(signal.SIGTERM)
            rest, stderr = running.communicate(timeout=60)
    assert (running.returncode, rest, stderr) == (0, "", "2 messages\n")


def test_asyncio_is_not_left_with_tasks(served: TestBroker) -> None:
    async def test() -> None:
        async with PullConsumer(served.namesrv) as consumer:
            await consumer.assign(await consumer.queues(TOPIC))
            await consumer.poll()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(test())
