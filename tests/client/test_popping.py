"""A push consumer whose group pops: served stores, and misbehaving brokers."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from formats.fastjson.declare import body_of, read_body
from formats.remoting.bodies import AssignmentRequest, AssignmentResponse, SetRequestMode
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue, QueueAssignment
from formats.variants.pop_handle import Handle
from rmqtool.client import From, Later, Message, Producer, PullConsumer, PushConsumer, PushOptions, Received
from rmqtool.rules.rebalance import consistent_hash
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns
from tests.client.peers import Peer, run
from tests.client.test_consuming import committed, until
from tests.client.test_consuming_hostile import QUEUE, Store, consuming, fields_of, record

ASKING = PushOptions(
    start=From.FIRST, client_rebalance=False, pop_invisible=5, pop_delays=(1,), hold=2, persist_interval=0.1,
    rebalance_interval=0.2, error_pause=0.05, shutdown_wait=5,
)  # fmt: skip
ANY = -1


async def set_mode(producer: Producer, served: TestBroker, topic: str, group: str, mode: str, share: int = 0) -> None:
    body = body_of(SetRequestMode(topic, group, mode, share))
    request = producer.cluster.request(C.SET_MESSAGE_REQUEST_MODE, body=body)
    await producer.cluster.ask(served.address, request)


async def fill(producer: Producer, topic: str, first: int, count: int) -> set[int]:
    for queue in await producer.queues(topic):
        numbers = [n for n in range(first, first + count) if n % 4 == queue.queue_id]
        await producer.send_batch([Message(topic, b"%d" % n, "odd" if n % 2 else "even") for n in numbers], queue=queue)
    return set(range(first, first + count))


@by_turns(3)
def test_members_pop_side_by_side_what_fails_comes_again_and_dies_at_last() -> None:
    async def test() -> None:
        with broker() as served:
            tries: Counter[int] = Counter()
            by: dict[str, set[int]] = {"one": set(), "two": set()}
            seen: list[tuple[int, str, int]] = []

            def taken(name: str, messages: Sequence[Received]) -> Any:
                (message,) = messages
                number = int(message.body)
                tries[number] += 1
                by[name].add(number)
                seen.append((number, message.topic, message.reconsume_times))
                if number == 1 and tries[1] == 1:
                    raise ValueError("once")
                if number == 3:
                    return Later()
                return Later(level=-1) if number == 5 else None

            async def first(messages: Sequence[Received]) -> Any:
                return taken("one", messages)

            slow = threading.Semaphore(20)

            def second(messages: Sequence[Received]) -> Any:
                with slow:
                    return taken("two", messages)

            async with Producer(served.namesrv) as producer:
                await fill(producer, "Popped", 0, 20)
                await set_mode(producer, served, "Popped", "poppers", "POP")
                options = replace(ASKING, max_tries=1, pop_batch=2, batch=1)
                async with (
                    PushConsumer(served.namesrv, "poppers", {"Popped": "odd || even"}, first, options) as consumer,
                    PushConsumer(served.namesrv, "poppers", {"Popped": "odd || even"}, second, options) as other,
                ):
                    await until(lambda: bool(consumer.popped_queues() and other.popped_queues()))
                    assert consumer.popped_queues() == [MessageQueue("Popped", "broker-a", ANY)]
                    assert consumer.queues() == []
                    wanted = await fill(producer, "Popped", 20, 200)
                    await until(lambda: set(tries) >= wanted and tries[1] == tries[3] == 2)
                    assert all(by.values())
                    async with PullConsumer(producer.cluster) as dead:
                        collected: set[bytes] = set()
                        while collected != {b"3", b"5"}:
                            try:
                                queues = await dead.queues("%DLQ%poppers")
                            except Exception:
                                await asyncio.sleep(0.05)
                                continue
                            await dead.assign(dict.fromkeys(queues, 0))
                            while messages := await dead.poll(0.2):
                                collected |= {message.body for message in messages}
                assert Counter(number for number, _topic, _times in seen if number not in (1, 3)) == Counter(
                    number for number in range(220) if number not in (1, 3)
                )
                assert {topic for _number, topic, _times in seen} == {"Popped"}
                assert sorted(row for row in seen if row[0] == 3) == [(3, "Popped", 0), (3, "Popped", 1)]

    run(test)


@by_turns(3)
def test_a_group_goes_over_to_popping_and_back_and_nothing_is_left() -> None:
    async def test() -> None:
        with broker() as served:
            got: list[tuple[int, int]] = []
            failing = {7, 107}

            async def listen(messages: Sequence[Received]) -> Any:
                (message,) = messages
                assert message.topic == "Changing"
                number = int(message.body)
                got.append((number, message.reconsume_times))
                return Later(level=1) if number in failing and message.reconsume_times == 0 else None

            def numbers() -> set[int]:
                return {number for number, _times in got}

            async with Producer(served.namesrv) as producer:
                wanted = await fill(producer, "Changing", 0, 40)
                options = replace(ASKING, pop_delays=(1, 2))
                async with PushConsumer(served.namesrv, "changers", {"Changing": "*"}, listen, options) as consumer:
                    await until(lambda: numbers() >= wanted)
                    assert len(consumer.queues()) == 4
                    assert consumer.popped_queues() == []
                    await until(lambda: (7, 1) in got)
                    await set_mode(producer, served, "Changing", "changers", "POP")
                    await until(lambda: bool(consumer.popped_queues()))
                    await until(lambda: consumer.queues() == [])
                    wanted |= await fill(producer, "Changing", 100, 40)
                    await until(lambda: numbers() >= wanted)
                    # what fails now comes again when the group pulls
                    await set_mode(producer, served, "Changing", "changers", "PULL")
                    await until(lambda: len(consumer.queues()) == 4)
                    assert consumer.popped_queues() == []
                    wanted |= await fill(producer, "Changing", 200, 8)
                    await until(lambda: numbers() >= wanted and (107, 1) in got)
                assert await committed(served, "changers", "Changing") == 88
            # the last pop, which the broker still held, may have brought messages that were pulled as well
            once = {number for number in wanted - failing if number < 200}
            assert Counter(number for number, _times in got if number in once) == Counter(once)

    run(test)


@by_turns(3)
def test_what_a_closed_consumer_has_not_begun_comes_to_others_soon() -> None:
    async def test() -> None:
        with broker() as served:
            first: list[int] = []
            begun = asyncio.Event()
            rest: set[int] = set()

            async def slow(messages: Sequence[Received]) -> None:
                first.append(int(messages[0].body))
                begun.set()
                await asyncio.sleep(0.5)

            async def quick(messages: Sequence[Received]) -> None:
                rest.update(int(message.body) for message in messages)

            async with Producer(served.namesrv) as producer:
                wanted = await fill(producer, "Left", 0, 12)
                await set_mode(producer, served, "Left", "leavers", "POP", share=1)
                options = replace(ASKING, pop_invisible=300, concurrency=1)
                async with PushConsumer(served.namesrv, "leavers", {"Left": "*"}, slow, options):
                    await begun.wait()
                async with PushConsumer(served.namesrv, "leavers", {"Left": "*"}, quick, options):
                    await until(lambda: rest | set(first) == wanted)  # long before the 300 s are over
            assert rest.isdisjoint(first)

    run(test)


# -- brokers that do not behave ---------------------------------------------------------------------------------------


def assigns(fake_broker: Peer, *mode_and_queue: tuple[str, int]) -> None:
    def answer(request: Command) -> Command:
        topic = read_body(AssignmentRequest, request.body).topic
        rows = mode_and_queue if topic == "T" else ()
        result = [QueueAssignment(MessageQueue(topic, "a", queue_id), mode) for mode, queue_id in rows]
        return request.response(body=body_of(AssignmentResponse(result)))

    fake_broker.replies[C.QUERY_ASSIGNMENT] = answer


def test_a_broker_that_shares_nothing_out_leaves_it_to_the_members() -> None:
    async def test() -> None:
        async with consuming(10, options=ASKING) as (store, consumer, got):
            await until(lambda: store.committed == 10)
            assert consumer.queues() == [QUEUE]
            assert sorted(got) == list(range(10))
        asked = [read_body(AssignmentRequest, request.body) for request in store.one.of(C.QUERY_ASSIGNMENT)]
        assert asked[0] == AssignmentRequest("T", "g", "me", "AVG", "CLUSTERING")
        assert [request.topic for request in asked].count("T") == 1  # it is not asked again

    run(test)


@by_turns(3)
@pytest.mark.parametrize(
    "reply",
    [
        lambda request: request.response(body=b"{}"),
        lambda request: request.response(body=b"no JSON"),
        lambda request: request.response(ResponseCode.SYSTEM_ERROR, "no"),
        lambda request: request.response(
            body=body_of(AssignmentResponse([QueueAssignment(MessageQueue("Another", "a", 0), "POP")]))
        ),
        lambda request: None,
    ],
    ids=["nothing", "no-json", "error", "another-topic", "silence"],
)
def test_where_no_broker_says_whose_queues_are_whose_they_stay(reply: Any) -> None:
    async def test() -> None:
        def prepare(store: Store) -> None:
            assigns(store.one, ("PULL", 0))

        async with consuming(10, options=ASKING, prepare=prepare) as (store, consumer, got):
            await until(lambda: len(got) == 10)
            before = len(store.one.of(C.QUERY_ASSIGNMENT))
            store.one.replies[C.QUERY_ASSIGNMENT] = reply
            await until(lambda: len(store.one.of(C.QUERY_ASSIGNMENT)) > before + 1)
            assert consumer.queues() == [QUEUE]
            store.end = 20
            await until(lambda: len(got) == 20)

    run(test)


def popped(request: Command, offsets: Sequence[int], starts: str = "0 0 0") -> Command:
    fields = {"popTime": "1000", "invisibleTime": "5000", "reviveQid": "3", "restNum": "0"}
    listed = ",".join(map(str, offsets))
    body = b"".join(record(offset) for offset in offsets)
    return request.response(fields={**fields, "startOffsetInfo": starts, "msgOffsetInfo": f"0 0 {listed}"}, body=body)


@pytest.mark.parametrize(
    "reply",
    [
        lambda request: request.response(ResponseCode.SYSTEM_ERROR, "the timer is off"),
        lambda request: request.response(ResponseCode.FLOW_CONTROL, "busy"),
        lambda request: request.response(ResponseCode.POLLING_FULL, "full"),
        lambda request: request.response(ResponseCode.POLLING_TIMEOUT, "nothing"),
        lambda request: request.response(body=record(0)),
        lambda request: popped(request, [0], starts="0 0"),
        lambda request: popped(request, [0], starts="0 zero 0"),
        lambda request: popped(request, [0]).response(body=b"no messages"),
    ],
    ids=["error", "busy", "full", "at-once", "no-fields", "short-list", "no-number", "no-messages"],
)
def test_it_pops_on_whatever_the_broker_answers_and_not_without_a_pause(reply: Any) -> None:
    async def test() -> None:
        acks: list[dict[str, str]] = []
        well = False

        def pop(request: Command) -> Command:
            if not well:
                answer: Command = reply(request)
                return answer
            return popped(request, [4, 5]) if not acks else request.response(ResponseCode.POLLING_TIMEOUT)

        def ack(request: Command) -> Command:
            acks.append(fields_of(request))
            return request.response()

        def prepare(store: Store) -> None:
            assigns(store.one, ("POP", ANY))
            store.one.replies |= {C.POP_MESSAGE: pop, C.ACK_MESSAGE: ack}

        async with consuming(0, options=ASKING, prepare=prepare) as (store, _consumer, got):
            await until(lambda: len(store.one.of(C.POP_MESSAGE)) >= 3)
            begin = len(store.one.of(C.POP_MESSAGE))
            await asyncio.sleep(0.2)
            assert len(store.one.of(C.POP_MESSAGE)) - begin <= 15
            well = True
            await until(lambda: len(acks) >= 2)
            assert set(got) == {4, 5}
        asked = fields_of(store.one.of(C.POP_MESSAGE)[0])
        wanted = {
            "queueId": "-1", "invisibleTime": "5000", "pollTime": "2000", "bornTime": "0", "initMode": "0", "exp": "*",
        }  # fmt: skip
        assert wanted.items() <= asked.items()
        handles = {Handle.parse(row["extraInfo"]) for row in acks}
        assert handles == {
            Handle(
                start_offset=0, pop_time=1000, invisible_time=5000, revive_queue=3, origin="0", broker_name="a",
                queue_id=0, queue_offset=offset,
            )
            for offset in (4, 5)
        }  # fmt: skip

    run(test)


def test_options_that_mean_nothing_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"pop_invisible": 4}, {"pop_invisible": 301}, {"pop_batch": 33}, {"pop_delays": ()}, {"pop_delays": (0,)},
        {"client_rebalance": False, "strategy": consistent_hash()},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(ValueError, match=r"pop_|strategy"):
            PushOptions(**options)
