"""A push consumer with misbehaving brokers: it neither hangs nor ends nor polls without a pause."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from formats.fastjson.declare import body_of
from formats.message.build import compose, pack
from formats.remoting.bodies import ConsumerIds
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.client import ClientOptions, From, MessageQueue, PushConsumer, PushOptions, Received
from tests.client.peers import Peer, ok, peer, route, run, tells

QUEUE = MessageQueue("T", "a", 0)
OPTIONS = PushOptions(start=From.FIRST, error_pause=0.02, retry_pause=0.02, persist_interval=0.05, hold=1)


def record(offset: int, times: int = 0) -> bytes:
    return pack(
        compose(
            topic=b"T", queue_id=0, queue_offset=offset, physical_offset=offset * 100, body=b"%d" % offset,
            born_timestamp=1, born_address=b"\x7f\0\0\1", born_port=1, store_timestamp=1, store_address=b"\x7f\0\0\1",
            store_port=1, reconsume_times=times,
        )
    )  # fmt: skip


def fields_of(request: Command) -> dict[str, str]:
    return dict(request.fields or {})


class Store:
    """Messages of a broker's only queue by offset, and the committed offset."""

    def __init__(self, broker: Peer, count: int, first: int = 0) -> None:
        self.one, self.first, self.end = broker, first, count
        self.committed: int | None = None
        self.members: list[str] | None = None  # by default whoever says hello
        self.back: list[int] = []
        broker.replies |= {
            C.PULL_MESSAGE: self.pull,
            C.GET_CONSUMER_LIST_BY_GROUP: self.list_members,
            C.QUERY_CONSUMER_OFFSET: self.query,
            C.UPDATE_CONSUMER_OFFSET: self.update,
            C.GET_MIN_OFFSET: lambda request: request.response(fields={"offset": str(self.first)}),
            C.GET_MAX_OFFSET: lambda request: request.response(fields={"offset": str(self.end)}),
            C.CONSUMER_SEND_MSG_BACK: self.send_back,
        }
        self.client_id = ""

    def list_members(self, request: Command) -> Command:
        return request.response(body=body_of(ConsumerIds([self.client_id] if self.members is None else self.members)))

    def query(self, request: Command) -> Command:
        if self.committed is None:
            return request.response(ResponseCode.QUERY_NOT_FOUND, "never")
        return request.response(fields={"offset": str(self.committed)})

    def update(self, request: Command) -> Command:
        self.committed = int(fields_of(request)["commitOffset"])
        return request.response()

    def send_back(self, request: Command) -> Command:
        self.back.append(int(fields_of(request)["offset"]) // 100)
        return request.response()

    def pull(self, request: Command) -> Command:
        at = int(fields_of(request)["queueOffset"])
        if at < self.first or at > self.end:
            return self.answer(request, ResponseCode.PULL_OFFSET_MOVED, self.first if at < self.first else self.end)
        if at == self.end:
            return self.answer(request, ResponseCode.PULL_NOT_FOUND, at)
        end = min(at + int(fields_of(request)["maxMsgNums"]), self.end)
        return self.answer(request, 0, end, b"".join(record(offset) for offset in range(at, end)))

    def answer(self, request: Command, code: int, following: int, body: bytes = b"") -> Command:
        told = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(following)}
        told |= {"minOffset": str(self.first), "maxOffset": str(self.end)}
        return request.response(code, fields=told, body=body)


@asynccontextmanager
async def consuming(
    count: int, listener: Any = None, options: PushOptions = OPTIONS, prepare: Callable[[Store], None] | None = None
) -> AsyncIterator[tuple[Store, PushConsumer, list[int]]]:
    got: list[int] = []

    async def collect(messages: Sequence[Received]) -> None:
        got.extend(message.queue_offset for message in messages)

    async with peer() as namesrv, peer() as broker:
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells(
            dict.fromkeys(("T", "TBW102"), route(("a", broker.address), queues=1))
        )
        store = Store(broker, count)
        client = ClientOptions(namesrv=namesrv.address, client_id="me", timeout=1.0)
        store.client_id = "me"
        if prepare is not None:
            prepare(store)
        async with PushConsumer(client, "g", {"T": "*"}, listener or collect, options) as consumer:
            yield store, consumer, got


async def until(so: Callable[[], bool]) -> None:
    while not so():
        await asyncio.sleep(0.005)


def test_it_consumes_and_keeps_its_offset_by_itself() -> None:
    async def test() -> None:
        async with consuming(50) as (store, consumer, got):
            await until(lambda: store.committed == 50)
            assert sorted(got) == list(range(50))
            assert consumer.queues() == [QUEUE]
            store.end = 60
            await until(lambda: len(got) == 60)
        assert store.committed == 60
        codes = store.one.codes()
        assert codes.index(C.HEART_BEAT) < codes.index(C.GET_CONSUMER_LIST_BY_GROUP) < codes.index(C.PULL_MESSAGE)
        assert codes[-1] == C.UNREGISTER_CLIENT
        first, *_, last = store.one.of(C.PULL_MESSAGE)
        assert (fields_of(first)["sysFlag"], fields_of(first)["commitOffset"]) == ("6", "0")
        assert fields_of(last)["sysFlag"] == "7"  # with the offset on the way

    run(test)


@pytest.mark.parametrize(
    "reply",
    [
        lambda request: request.response(ResponseCode.SYSTEM_ERROR, "no"),
        lambda request: request.response(ResponseCode.FLOW_CONTROL, "busy"),
        lambda request: request.response(body=b"no messages"),
        lambda request: request.response(fields={"nextBeginOffset": "-5"}, body=record(0)),
        lambda request: None,
    ],
)
def test_pulls_that_fail_are_tried_again_after_a_pause(reply: Any) -> None:
    async def test() -> None:
        async with consuming(9, prepare=lambda store: store.one.replies.update({C.PULL_MESSAGE: reply})) as (
            store, _consumer, got,
        ):  # fmt: skip
            await until(lambda: len(store.one.of(C.PULL_MESSAGE)) == 1)
            loop = asyncio.get_running_loop()
            began = loop.time()
            await asyncio.sleep(0.1)
            assert len(store.one.of(C.PULL_MESSAGE)) <= (loop.time() - began) / 0.02 + 2
            for connection in store.one.connections:
                connection.abort()  # whoever has not answered never will
            store.one.replies[C.PULL_MESSAGE] = store.pull
            await until(lambda: sorted(got) == list(range(9)))

    run(test)


def test_an_offset_that_is_gone_is_left_for_the_one_that_is_there() -> None:
    async def test() -> None:
        def prepare(store: Store) -> None:
            store.committed, store.first = 2, 20

        async with consuming(30, prepare=prepare) as (store, _consumer, got):
            await until(lambda: sorted(got) == list(range(20, 30)))
            await until(lambda: store.committed == 30)
            store.first = store.end = 5  # the queue was begun anew, and is shorter
            await until(lambda: store.committed == 5)
            store.end = 7
            await until(lambda: got[-2:] == [5, 6] or got[-2:] == [6, 5])

    run(test)


def test_messages_that_cannot_be_sent_back_are_tried_again_and_never_passed() -> None:
    async def test() -> None:
        tries = 0

        async def listen(messages: Sequence[Received]) -> None:
            nonlocal tries
            if messages[0].queue_offset == 3:
                tries += 1
                raise ValueError("no")

        def prepare(store: Store) -> None:
            store.one.replies[C.CONSUMER_SEND_MSG_BACK] = lambda request: request.response(1, "disk full")

        async with consuming(9, listen, prepare=prepare) as (store, _consumer, _got):
            await until(lambda: tries >= 3)
            assert store.committed in {None, 3}
            store.one.replies[C.CONSUMER_SEND_MSG_BACK] = store.send_back
            await until(lambda: store.committed == 9)
            assert store.back == [3]
        back = fields_of(store.one.of(C.CONSUMER_SEND_MSG_BACK)[-1])
        assert (back["group"], back["delayLevel"], back["maxReconsumeTimes"], back["offset"]) == ("g", "0", "16", "300")

    run(test)


@pytest.mark.parametrize("body", [b"", b"no JSON", b'{"consumerIdList":7}', b'{"consumerIdList":[]}'])
def test_without_members_that_can_be_read_queues_stay_as_they_are(body: bytes) -> None:
    async def test() -> None:
        async with consuming(5) as (store, consumer, got):
            await until(lambda: len(got) == 5)
            asked = len(store.one.of(C.GET_CONSUMER_LIST_BY_GROUP))
            store.one.replies[C.GET_CONSUMER_LIST_BY_GROUP] = lambda request: request.response(body=body)
            for _ in range(3):
                store.one.connections[0].tell(Command(C.NOTIFY_CONSUMER_IDS_CHANGED, fields={"consumerGroup": "g"}))
            await until(lambda: len(store.one.of(C.GET_CONSUMER_LIST_BY_GROUP)) > asked)
            store.end = 8
            await until(lambda: len(got) == 8)
            assert consumer.queues() == [QUEUE]

    run(test)


def test_a_queue_that_is_anothers_is_given_up_with_its_offset() -> None:
    async def test() -> None:
        gate, began = asyncio.Event(), asyncio.Event()

        async def listen(messages: Sequence[Received]) -> None:
            if messages[0].queue_offset >= 4:
                began.set()
                await gate.wait()

        async with consuming(6, listen) as (store, consumer, _got):
            await began.wait()
            await until(lambda: store.committed == 4)
            store.members = ["another"]
            store.one.connections[0].tell(Command(C.NOTIFY_CONSUMER_IDS_CHANGED, fields={"consumerGroup": "g"}))
            await until(lambda: consumer.queues() == [])
            store.committed = 6  # the other one has gone on
            gate.set()
            await asyncio.sleep(0.2)
        assert store.committed == 6  # what was worked on here counts no more

    run(test)


def test_a_broker_that_takes_no_offsets_holds_up_neither_work_nor_the_end() -> None:
    async def test() -> None:
        def prepare(store: Store) -> None:
            store.one.replies[C.UPDATE_CONSUMER_OFFSET] = lambda request: request.response(1, "no")
            store.one.replies[C.UNREGISTER_CLIENT] = lambda request: None
            store.one.replies[C.HEART_BEAT] = ok

        async with consuming(5, prepare=prepare) as (_store, _consumer, got):
            await until(lambda: len(got) == 5)

    run(test)
