"""Sending, to correct and misbehaving brokers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from formats.message import properties
from formats.message.bodies import batch_items, compression, decompress
from formats.message.ids import parse_offset_id
from formats.remoting import frame
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.client import ClientOptions, Message, MessageQueue, NotSent, Producer, ProducerOptions, SendResult, by_hash
from rmqtool.client.cluster.routes import Route
from rmqtool.client.producing.choice import QueueChoice
from rmqtool.client.sync import Producer as SyncProducer
from rmqtool.contract import message_row
from rmqtool.rules.releases import RELEASES, V5_3
from rmqtool.rules.sending import Rejected
from rmqtool.services.open_store.store import Store
from rmqtool.testing import TestBroker
from tests import wire
from tests.client.peers import Peer, Reply, peer, raw_peer, route, run, tells


def stored(request: Command, queue_offset: int = 0) -> Command:
    fields = request.fields or {}
    return request.response(fields={"msgId": "00", "queueId": fields["e"], "queueOffset": str(queue_offset)})


@asynccontextmanager
async def sending(
    *names: str, queues: int = 4, engine: str = "5.3", **options: Any
) -> AsyncIterator[tuple[Producer, list[Peer]]]:
    """A producer, and brokers that accept its messages for the topic T."""
    async with peer() as namesrv, peer() as fake_broker, peer() as other:
        brokers = [fake_broker, other][: len(names)]
        for each in brokers:
            each.replies[C.SEND_MESSAGE_V2] = each.replies[C.SEND_BATCH_MESSAGE] = stored
        pairs = [(name, each.address) for name, each in zip(names, brokers, strict=True)]
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(*pairs, queues=queues)})
        client = ClientOptions(namesrv=namesrv.address, release=RELEASES[engine])
        async with Producer(client, "senders", ProducerOptions(**options)) as producer:
            yield producer, brokers


def sends(of: Peer) -> list[Command]:
    return of.of(C.SEND_MESSAGE_V2)


# -- the frames of the Java client -------------------------------------------------------------------------------------


def recorded(release: str) -> list[Command]:
    result = []
    for request, _answer in wire.requests(release, "broker"):
        command, _size = frame.parse(request.raw) or (Command(0), 0)
        fields = command.fields or {}
        if command.code in (C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE) and "l" not in fields:
            result.append(command)
    return result


def again(properties_text: str, topic: str, body: bytes) -> Message:
    return Message(topic, body, properties=properties.parse(properties_text.encode()))


@pytest.mark.parametrize("release", wire.RELEASES)
def test_requests_are_those_of_the_java_client(release: str) -> None:
    wanted = recorded(release)
    assert {command.code for command in wanted} == {C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE}
    assert any(int((command.fields or {})["f"]) & 1 for command in wanted)  # compressed ones too

    async def test() -> None:
        async with peer() as namesrv, peer() as broker:
            broker.replies[C.SEND_MESSAGE_V2] = broker.replies[C.SEND_BATCH_MESSAGE] = stored
            data = route(("lab-a", broker.address))
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = lambda request: tells({(request.fields or {})["topic"]: data})(
                request
            )
            for java in wanted:
                fields = java.fields or {}
                client = ClientOptions(namesrv=namesrv.address, release=RELEASES[release[:3]])
                kind = compression(int(fields["f"])) or "zlib"
                settings = ProducerOptions(compression=kind, batch_unique_id=release == "5.3.3")
                async with Producer(client, fields["a"], settings) as producer:
                    await send_again(producer, java, fields)
                    while not (ours := broker.of(C(java.code))):  # nobody waits for a one-way request
                        await asyncio.sleep(0.005)
                same(ours[-1], java)
                broker.got.clear()

    run(test)


async def send_again(producer: Producer, java: Command, fields: dict[str, str]) -> None:
    queue = MessageQueue(fields["b"], fields["n"], int(fields["e"]))
    if java.code == C.SEND_BATCH_MESSAGE:
        items = [again(item.properties.decode(), fields["b"], item.body) for item in batch_items(java.body)]
        assert len(await producer.send_batch(items, queue=queue)) == len(items)
        return
    message = again(fields["i"], fields["b"], decompress(java.body, int(fields["f"])))
    if java.is_oneway:
        assert await producer.send_oneway(message, queue=queue) == message.properties["UNIQ_KEY"]
    else:
        assert (await producer.send(message, queue=queue)).message_id == message.properties["UNIQ_KEY"]


def same(ours: Command, java: Command) -> None:
    """Compare, except for times, numbers, the id of a batch, and the order of properties (a HashMap's)."""
    first, second = dict(ours.fields or {}), dict(java.fields or {})
    texts = [fields.pop("i") for fields in (first, second)]
    assert first.pop("g").isdecimal()
    second.pop("g")
    assert first == second
    assert texts[0].endswith("\x02") == texts[1].endswith("\x02")
    named = [properties.parse(text.encode()) for text in texts]
    if ours.code == C.SEND_BATCH_MESSAGE and "UNIQ_KEY" in named[0]:
        named[0]["UNIQ_KEY"] = named[1]["UNIQ_KEY"]
    assert named[0] == named[1]
    assert (ours.code, ours.flag, ours.version) == (java.code, java.flag, java.version)
    if ours.code != C.SEND_BATCH_MESSAGE:
        flags = int(first["f"])
        assert decompress(ours.body, flags) == decompress(java.body, flags)
        assert ours.body == java.body or compression(flags) in ("lz4", "zstd")  # whose frames may be cut differently
        return
    for mine, theirs in zip(batch_items(ours.body), batch_items(java.body), strict=True):
        assert (mine.flag, mine.body) == (theirs.flag, theirs.body)
        assert sorted(mine.properties.split(b"\x02")) == sorted(theirs.properties.split(b"\x02"))


# -- against our own broker --------------------------------------------------------------------------------------------


def test_what_is_sent_is_stored_as_it_was(served: TestBroker) -> None:
    async def test() -> list[SendResult]:
        async with Producer(served.namesrv) as producer:
            sent = await producer.send(Message("Kept", b"hello", "red", ["k1", "k2"], {"p": "v"}, flag=7))
            large = await producer.send(Message("Kept", b"x" * 5000), queue=sent.queue)
            parts = await producer.send_batch(
                [Message("Kept", b"%d" % n * 1000) for n in range(10)], queue=sent.queue, limit=3000
            )
            assert len({result.queue_offset for result in parts}) == 10
            return [sent, large, *parts]

    results = asyncio.run(test())
    assert {result.status for result in results} == {"SEND_OK"}
    assert [result.queue_offset for result in results] == list(range(12))
    with Store(served.store) as store:
        outcome = [store.message_at(parse_offset_id(result.offset_message_id).physical_offset) for result in results]
    rows = [message_row(located.record, located.physical_offset) for located in outcome if located is not None]
    assert [row["msgId"] for row in rows] == [result.message_id for result in results]
    assert [row["offsetMsgId"] for row in rows] == [result.offset_message_id for result in results]
    first = rows[0]
    assert (first["body"], first["tags"], first["keys"], first["flag"]) == ("hello", "red", ["k1", "k2"], 7)
    assert first["properties"]["p"] == "v"
    assert (rows[1]["body"], rows[1]["sysFlag"] & 1) == ("x" * 5000, 1)
    assert [row["body"] for row in rows[2:]] == [str(n) * 1000 for n in range(10)]


def test_the_synchronous_face_has_the_same_names(served: TestBroker) -> None:
    with SyncProducer(served.namesrv) as producer:
        queues = producer.queues("Sync")
        assert len(queues) == 4
        assert producer.send(Message("Sync", b"1"), queue=queues[2]).queue == queues[2]
        results = producer.send_batch([Message("Sync", b"2"), Message("Sync", b"3")], queue=queues[2])
        assert [result.queue_offset for result in results] == [1, 2]
        assert len(producer.send_oneway(Message("Sync", b"4"))) == 32
    public = {name for name in vars(Producer) if not name.startswith("_")}
    assert public <= {name for name in dir(SyncProducer) if not name.startswith("_")}
    with pytest.raises(Rejected, match="blank"):
        SyncProducer(served.namesrv, " ")


# -- attempts ----------------------------------------------------------------------------------------------------------


def test_another_broker_is_tried_when_one_fails() -> None:
    async def test() -> None:
        async with sending("a", "b") as (producer, (a, b)):
            a.replies[C.SEND_MESSAGE_V2] = lambda request: request.response(ResponseCode.SYSTEM_BUSY, "busy")
            results = [await producer.send(Message("T", b"1")) for _ in range(8)]
            assert {result.queue.broker_name for result in results} == {"b"}
            assert 0 < len(sends(a)) < 8
            ids = [
                properties.parse((command.fields or {})["i"].encode())["UNIQ_KEY"] for command in sends(a) + sends(b)
            ]
            assert len(set(ids)) == 8  # an attempt again has the same id

    run(test)


@pytest.mark.parametrize(
    ("engine", "code", "attempts"),
    [
        ("4.9", ResponseCode.SYSTEM_ERROR, 3),
        ("4.9", ResponseCode.SYSTEM_BUSY, 1),
        ("5.3", ResponseCode.SYSTEM_BUSY, 3),
        ("5.3", ResponseCode.TOPIC_NOT_EXIST, 3),
        ("5.3", ResponseCode.MESSAGE_ILLEGAL, 1),
    ],
)
def test_codes_are_tried_again_by_the_rules_of_the_java_client(engine: str, code: ResponseCode, attempts: int) -> None:
    async def test() -> None:
        async with sending("a", engine=engine) as (producer, (a,)):
            a.replies[C.SEND_MESSAGE_V2] = lambda request: request.response(code, "no")
            with pytest.raises(NotSent, match=code.name) as caught:
                await producer.send(Message("T", b"1"))
            assert len(sends(a)) == attempts
            assert caught.value.code == code
            assert not caught.value.maybe_stored
            # with a queue of one's own choice there is one attempt
            with pytest.raises(NotSent):
                await producer.send(Message("T", b"1"), select=by_hash("k"))
            assert len(sends(a)) == attempts + 1

    run(test)


def lose(peers: Sequence[Peer], *codes: C, times: int = 1) -> list[tuple[str, int]]:
    """Make brokers lose their first answers; yields the queues (broker address, number) of these requests."""
    lost: list[tuple[str, int]] = []

    def reply_of(fake_broker: Peer) -> Reply:
        def reply(request: Command) -> Command | None:
            if len(lost) == times:
                return stored(request)
            lost.append((fake_broker.address, int((request.fields or {})["e"])))
            fake_broker.connections[-1].abort()
            return None

        return reply

    for peer_broker in peers:
        peer_broker.replies.update(dict.fromkeys(codes, reply_of(peer_broker)))
    return lost


def test_a_result_names_the_queues_of_attempts_that_were_not_answered() -> None:
    async def test() -> None:
        async with sending("a", "b") as (producer, brokers):
            names = {pair.address: name for name, pair in zip("ab", brokers, strict=True)}

            def maybe(lost: list[tuple[str, int]]) -> tuple[MessageQueue, ...]:
                return tuple(MessageQueue("T", names[address], number) for address, number in lost)

            for times in (1, 2):
                lost = lose(brokers, C.SEND_MESSAGE_V2, times=times)
                sent = await producer.send(Message("T", b"1"))
                assert (sent.status, sent.maybe_in) == ("SEND_OK", maybe(lost))
                assert len(lost) == times
                assert (await producer.send(Message("T", b"2"))).maybe_in == ()
            lost = lose(brokers, C.SEND_MESSAGE_V2)
            assert (await producer.send_async(Message("T", b"3"))).maybe_in == maybe(lost)
            lost = lose(brokers, C.SEND_BATCH_MESSAGE)
            batch = await producer.send_batch([Message("T", b"x" * 1000)] * 6, limit=4000)
            assert [result.maybe_in for result in batch] == [maybe(lost)] * 3 + [()] * 3
            lost = lose(brokers, C.SEND_MESSAGE_V2, times=3)
            with pytest.raises(NotSent) as caught:
                await producer.send(Message("T", b"4"))
            assert (caught.value.maybe_in, len(lost)) == (maybe(lost), 3)
            queue = MessageQueue("T", "a", 1)
            assert (await producer.send(Message("T", b"5"), queue=queue)).maybe_in == ()

    run(test)


def test_silence_ends_with_the_time_and_says_that_the_message_may_be_there() -> None:
    async def test() -> None:
        async with sending("a", timeout=0.2) as (producer, (a,)):
            a.replies[C.SEND_MESSAGE_V2] = lambda _: None
            with pytest.raises(NotSent, match="no answer") as caught:
                await producer.send(Message("T", b"1"))
            assert caught.value.maybe_stored

    run(test)


@pytest.mark.parametrize(
    "fields",
    [{}, {"msgId": "x"}, {"msgId": "x", "queueId": "one", "queueOffset": "2"},
     {"msgId": "x", "queueId": "-1", "queueOffset": "2"}],
)  # fmt: skip
def test_an_answer_that_does_not_say_where_is_no_acknowledgement(fields: dict[str, str]) -> None:
    async def test() -> None:
        async with sending("a") as (producer, (a,)):
            a.replies[C.SEND_MESSAGE_V2] = lambda request: request.response(fields=fields)
            with pytest.raises(NotSent) as caught:
                await producer.send(Message("T", b"1"))
            assert caught.value.maybe_stored

    run(test)


def test_a_broker_that_sends_nonsense_is_one_clear_error() -> None:
    async def test() -> None:
        for answer in ((1 << 30).to_bytes(4, "big") * 9, b"GET / HTTP/1.1\r\n\r\n"):
            async with peer() as namesrv, raw_peer(answer) as address:
                namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", address))})
                async with Producer(namesrv.address) as producer:
                    with pytest.raises(NotSent, match="not sent"):
                        await producer.send(Message("T", b"1"), timeout=1)

    run(test)


def test_statuses_below_the_best_are_stored_all_the_same() -> None:
    async def test() -> None:
        async with sending("a", "b", retry_not_stored=True) as (producer, brokers):
            for each in brokers:
                each.replies[C.SEND_MESSAGE_V2] = lambda request: Command(
                    ResponseCode.FLUSH_DISK_TIMEOUT, request.opaque, 1, stored(request).fields
                )
            assert (await producer.send(Message("T", b"1"))).status == "FLUSH_DISK_TIMEOUT"
            assert sum(len(sends(each)) for each in brokers) == 3
            assert len(sends(brokers[0])) in (1, 2)

    run(test)


def test_of_a_batch_that_fails_midway_the_first_parts_are_told() -> None:
    async def test() -> None:
        async with sending("a") as (producer, (a,)):
            taken = iter([stored])

            def once(request: Command) -> Command:
                reply = next(taken, None)
                return reply(request) if reply else request.response(ResponseCode.MESSAGE_ILLEGAL, "no more")

            a.replies[C.SEND_BATCH_MESSAGE] = once
            messages = [Message("T", b"x" * 1000, keys=[str(n)]) for n in range(9)]
            with pytest.raises(NotSent) as caught:
                await producer.send_batch(messages, limit=4000)
            assert [result.queue_offset for result in caught.value.sent] == [0, 1, 2]

    run(test)


def test_messages_that_no_broker_takes_are_not_sent() -> None:
    async def test() -> None:
        async with sending("a") as (producer, (a,)):
            for message in (Message("T", b""), Message("bad topic", b"1"), Message("T", b"x" * (4 << 20) + b"y"),
                            Message("T", b"1", properties={"a\x01": "b"}),
                            Message("T", b"1", properties={"a": "b" * 40_000})):  # fmt: skip
                with pytest.raises(ValueError, match=r"."):
                    await producer.send(message)
            with pytest.raises(Rejected, match="same"):
                await producer.send_batch([Message("T", b"1"), Message("U", b"1")])
            assert sends(a) == []

    run(test)


def test_keys_choose_their_queue_as_in_java() -> None:
    queues = [MessageQueue("T", "a", n) for n in range(5)]
    assert by_hash("polygenelubricants")(queues).queue_id == 2147483648 % 5  # the hash is the smallest int
    assert by_hash("a")(queues).queue_id == 97 % 5


# -- fault tolerance ---------------------------------------------------------------------------------------------------


def chosen(choice: QueueChoice, topic_route: Route, times: int = 12, last: str | None = None) -> set[str]:
    return {choice.select(topic_route, last).broker_name for _ in range(times)}


@pytest.mark.parametrize(("engine", "out"), [("4.9", 600_000), ("5.3", 10_000)])
def test_brokers_that_fail_are_left_out_for_a_while(engine: str, out: int) -> None:
    now = [0]
    choice = QueueChoice(RELEASES[engine], tolerant=True, clock=lambda: now[0])
    topic_route = Route.of("T", route(("a", "h:1"), ("b", "h:2"), ("c", "h:3")))
    assert chosen(choice, topic_route) == {"a", "b", "c"}
    choice.note_failure("a", 20)
    assert chosen(choice, topic_route) == {"b", "c"}
    now[0] = out - 1
    assert chosen(choice, topic_route) == {"b", "c"}
    now[0] = out
    assert chosen(choice, topic_route) == {"a", "b", "c"}
    choice.note_answer("b", 20_000)
    assert chosen(choice, topic_route) == {"a", "c"}


def test_in_5_3_a_broker_that_refused_comes_after_one_that_was_not_reached() -> None:
    now = [0]
    choice = QueueChoice(V5_3, tolerant=True, clock=lambda: now[0])
    topic_route = Route.of("T", route(("a", "h:1"), ("b", "h:2")))
    choice.note_failure("a", 20, refused=True)
    choice.note_failure("b", 20)
    assert chosen(choice, topic_route) == {"b"}
    assert chosen(choice, topic_route, last="b") == {"a", "b"}  # neither will do: round robin
    choice.note_answer("a", 1)
    assert chosen(choice, topic_route) == {"a", "b"}  # it can be reached, and is left out as long as before
    now[0] = 10_000
    choice.note_failure("b", 20)
    assert chosen(choice, topic_route) == {"a"}
