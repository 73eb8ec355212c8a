"""What a client does besides sending: requests and replies, namespaces, hooks, traces, signatures."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from formats.message.bodies import decompress
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.topics import TRACE
from rmqtool.client import (
    ClientOptions,
    Credentials,
    Message,
    NoReply,
    NotSent,
    Producer,
    ProducerOptions,
    PullConsumer,
    Replied,
    State,
    Tracer,
    TransactionProducer,
    reply_to,
)
from rmqtool.client.cluster.hooks import RpcHook
from rmqtool.client.cluster.namespaces import with_namespace, without_namespace
from rmqtool.client.consumer.options import Consumption
from rmqtool.client.producing.choice import QueueChoice
from rmqtool.client.producing.hooks import EndHook, EndTransactionContext, SendAttempt, SendHook
from rmqtool.client.sync import Producer as SyncProducer
from rmqtool.remoting.signing import is_signed_by
from rmqtool.testing import broker
from tests.client.peers import Peer, peer, route, run, tells
from tests.client.test_producer import stored


async def until(so: Callable[[], bool]) -> None:
    while not so():
        await asyncio.sleep(0.005)


def test_requests_are_answered_and_late_answers_are_nobodys() -> None:
    async def test() -> None:
        with broker() as served:
            async with Producer(served.namesrv, "askers") as producer, PullConsumer(producer.cluster) as consumer:
                asking = asyncio.create_task(producer.request(Message("Ask", b"?", keys=["k"]), timeout=20))
                await until(lambda: producer.cluster.knows("Ask"))
                await consumer.assign(dict.fromkeys(await producer.queues("Ask"), 0))
                (question,) = await consumer.poll(10)
                reply = reply_to(question.properties, b"!" * 5000)
                sent = await producer.send(reply)
                answer = await asking
                assert isinstance(answer, Replied)
                assert (answer.body, sent.queue.topic) == (b"!" * 5000, answer.topic)
                assert answer.properties["CORRELATION_ID"] == question.properties["CORRELATION_ID"]
                with pytest.raises(NoReply, match="no answer within") as failed:
                    await producer.request(Message("Ask", b"again"), timeout=4)
                assert failed.value.sent.status == "SEND_OK"
                late = [message for message in await consumer.poll(10) if message.body == b"again"]
                await producer.send(reply_to(late[0].properties, b"too late"))
                with pytest.raises(ValueError, match="no request"):
                    reply_to({"CLUSTER": "C"}, b"")

    run(test)


def test_the_synchronous_face_asks_too() -> None:
    with broker() as served, SyncProducer(served.namesrv, "askers") as producer:
        assert producer.send_async(Message("Later", b"1")).result(30).status == "SEND_OK"
        asking = producer.request_async(Message("Later", b"3"), timeout=4)
        with pytest.raises(NoReply):
            producer.request(Message("Later", b"2"), timeout=4)
        assert isinstance(asking.exception(30), NoReply)


def test_what_is_being_sent_is_sent_when_it_is_closed() -> None:
    async def test() -> None:
        with broker() as served:
            async with Producer(served.namesrv) as producer:
                later = [producer.send_async(Message("Later", b"%d" % n)) for n in range(20)]
                refused = producer.send_async(Message("no/topic", b""))
            assert [future.result().status for future in later] == ["SEND_OK"] * 20
            assert isinstance(refused.exception(), ValueError)

    run(test)


def test_answers_that_make_no_sense_are_refused() -> None:
    async def test() -> None:
        async with peer() as namesrv, peer() as fake_broker:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", fake_broker.address))})
            fake_broker.replies[C.SEND_MESSAGE_V2] = stored
            async with Producer(namesrv.address, "askers") as producer:
                with pytest.raises(NoReply):
                    await producer.request(Message("T", b"1"), timeout=2)
                numbers = ("defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag", "storeTimestamp")
                texts = ("producerGroup", "topic", "defaultTopic", "bornHost", "storeHost")
                fields = dict.fromkeys(numbers, "0") | dict.fromkeys(texts, "x")
                asked = C.PUSH_REPLY_MESSAGE_TO_CLIENT
                wrong = [
                    Command(asked),
                    Command(asked, fields={**fields, "sysFlag": "1"}, body=b"no zlib"),
                    Command(asked, fields={**fields, "queueId": "?"}),
                ]
                for command in wrong:
                    answer = await fake_broker.connections[0].call(command)
                    assert answer.code == ResponseCode.SYSTEM_ERROR
                answer = await fake_broker.connections[0].call(Command(asked, fields=fields, body=b"nobody's"))
                assert answer.code == ResponseCode.SUCCESS

    run(test)


def test_names_of_namespaces() -> None:
    cases = [
        ("T", "ns%T"),
        ("%RETRY%G", "%RETRY%ns%G"),
        ("%DLQ%G", "%DLQ%ns%G"),
        ("ns%T", "ns%T"),
        ("%RETRY%ns%G", "%RETRY%ns%G"),
        ("TBW102", "TBW102"),
        ("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("other%T", "ns%other%T"),
    ]
    for plain, wrapped in cases:
        assert with_namespace("ns", plain) == wrapped
        assert with_namespace("", plain) == plain
        assert without_namespace("ns", wrapped) in (plain, plain.replace("ns%", "", 1))
    assert without_namespace("ns", "other%T") == "other%T"


def test_brokers_see_the_namespace_and_applications_do_not() -> None:
    async def test() -> None:
        async with peer() as namesrv, peer() as fake_broker:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"ns%T": route(("a", fake_broker.address))})
            fake_broker.replies[C.SEND_MESSAGE_V2] = fake_broker.replies[C.SEND_BATCH_MESSAGE] = stored
            options = ClientOptions(namesrv=namesrv.address, namespace="ns")
            seen: list[str] = []

            def select(queues: Any) -> Any:
                seen.extend(queue.topic for queue in queues)
                return queues[0]

            async with Producer(options, "senders") as producer:
                sent = await producer.send(Message("T", b"1"), select=select)
                await producer.send_batch([Message("T", b"2")])
                await producer.send_oneway(Message("T", b"3"))
                await until(lambda: len(fake_broker.of(C.SEND_MESSAGE_V2)) == 2)
            assert (sent.queue.topic, set(seen)) == ("T", {"T"})
            for request in [*fake_broker.of(C.SEND_MESSAGE_V2), *fake_broker.of(C.SEND_BATCH_MESSAGE)]:
                fields = request.fields or {}
                assert (fields["a"], fields["b"]) == ("ns%senders", "ns%T")
                assert "INSTANCE_ID\x01ns" in fields["i"]
            assert (fake_broker.of(C.UNREGISTER_CLIENT)[0].fields or {})["producerGroup"] == "ns%senders"

    run(test)


class Watching(SendHook, EndHook, RpcHook):
    def __init__(self, *, fails: bool = False) -> None:
        self.seen: list[Any] = []
        self.fails = fails

    def before(self, *what: Any) -> Any:
        self.seen.append(("before", what[0]))
        if self.fails:
            raise LookupError("of a hook")
        return what[-1]

    def after(self, *what: Any) -> None:
        self.seen.append(("after", what[0]))

    def before_end(self, ending: EndTransactionContext) -> None:
        self.seen.append(("ended", ending))


def test_hooks_see_each_attempt_and_cannot_disturb_it() -> None:
    async def test() -> None:
        async with peer() as namesrv, peer() as bad, peer() as good:
            pairs = ("a", bad.address), ("b", good.address)
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(*pairs)})
            bad.replies[C.SEND_MESSAGE_V2] = lambda request: request.response(ResponseCode.SYSTEM_ERROR, "no")
            good.replies[C.SEND_MESSAGE_V2] = stored
            watching, calls = Watching(fails=True), Watching()
            client = ClientOptions(namesrv=namesrv.address, hooks=[calls])
            async with Producer(client, "senders", ProducerOptions(hooks=[watching])) as producer:
                first = {queue.broker_name: queue for queue in await producer.queues("T")}
                with pytest.raises(NotSent):
                    await producer.send(Message("T", b"1"), queue=first["a"])
                sent = await producer.send(Message("T", b"2", keys=["k"]), queue=first["b"])
            names = [name for name, _ in watching.seen]
            assert names == ["before", "after"] * 2
            failed, done = watching.seen[1][1], watching.seen[3][1]
            assert isinstance(failed, SendAttempt)
            assert "SYSTEM_ERROR" in str(failed.error)
            assert (done.results, done.bodies, done.queue.broker_name) == ([sent], [b"2"], "b")
            assert {address for _, address in calls.seen} == {namesrv.address, bad.address, good.address}

    run(test)


def test_every_request_is_signed() -> None:
    async def test() -> None:
        async with peer() as namesrv, peer() as fake_broker:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", fake_broker.address))})
            fake_broker.replies[C.SEND_MESSAGE_V2] = lambda request: request.response(
                fields={
                    "msgId": "7F0000010000CF130000000000000000",
                    "queueId": (request.fields or {})["e"],
                    "queueOffset": "0",
                }
            )
            fake_broker.replies[C.SEND_BATCH_MESSAGE] = stored
            options = ClientOptions(namesrv=namesrv.address, credentials=Credentials("someone", "a secret", "a token"))
            assert "a secret" not in repr(options)
            assert "a token" not in repr(options)
            async with TransactionProducer(options, "senders", lambda _: State.COMMIT) as producer:
                await producer.send(Message("T", b"z" * 9000))
                await producer.send_oneway(Message("T", b"3"))
                await producer.send_batch([Message("T", b"2")])
                await producer.send_in_transaction(Message("T", b"4"), lambda *_: State.COMMIT)
                await until(lambda: C.END_TRANSACTION in fake_broker.codes() and C.HEART_BEAT in fake_broker.codes())
            wanted = {C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE, C.END_TRANSACTION, C.HEART_BEAT, C.UNREGISTER_CLIENT}
            assert set(fake_broker.codes()) == wanted
            for request in [*namesrv.got, *fake_broker.got]:
                assert is_signed_by(request, "a secret"), request
                assert (request.fields or {})["AccessKey"] == "someone"
                assert (request.fields or {})["SecurityToken"] == "a token"

    run(test)


def test_traces_never_hold_up_and_are_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TIMEOUT", "_CLOSING"):  # as long as a busy machine needs for the messages
        monkeypatch.setattr(f"rmqtool.client.tracing.tracer.{name}", 50.0)

    async def test() -> None:
        async with peer() as namesrv, peer() as fake_broker:
            routes = {name: route(("a", fake_broker.address)) for name in ("T", TRACE)}
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells(routes)
            held: list[Command] = []
            may = asyncio.Event()

            async def slow(request: Command) -> Command:
                if (request.fields or {})["b"] == TRACE:
                    held.append(request)
                    await may.wait()
                return stored(request)

            fake_broker.replies[C.SEND_MESSAGE_V2] = slow
            async with Tracer(namesrv.address) as tracer:
                async with Producer(namesrv.address, "g", ProducerOptions(hooks=[tracer.sends])) as producer:
                    sent = [await producer.send(Message("T", b"%d" % n, "t", [f"k{n}"])) for n in range(1200)]
                    assert tracer.dropped > 0
                may.set()
            texts = [decompress(request.body, int((request.fields or {})["f"])) for request in held]
            records = b"".join(texts).split(b"\x02")[:-1]
            assert len(records) == len(sent) - tracer.dropped
            fields = records[0].decode().split("\x01")
            assert [fields[n] for n in (0, 3, 4, 5, 6, 7, 9, 11, 13)] == [
                "Pub", "g", "T", sent[0].message_id, "t", "k0", "1", "0", "true",
            ]  # fmt: skip
            assert all(len(text) < 128_000 for text in texts)
            assert f"{sent[0].message_id} k0" in (held[0].fields or {})["i"]

    run(test)


def test_traces_of_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer("127.0.0.1:1")
    added: list[tuple[str, str, list[str]]] = []
    monkeypatch.setattr(tracer, "add", lambda topic, text, keys: added.append((topic, text, list(keys))))
    with broker() as served, SyncProducer(served.namesrv) as producer:
        producer.send(Message("T", b"1", keys=["a", "b"]))

        async def received() -> Any:
            async with PullConsumer(served.namesrv) as consumer:
                await consumer.assign(dict.fromkeys(await consumer.queues("T"), 0))
                return await consumer.poll(10)

        messages = asyncio.run(received())
    consumption = Consumption(group="g", queue=messages[0].queue, messages=messages)
    tracer.consumes.before(consumption)
    consumption.success, consumption.outcome = False, "TIME_OUT"
    tracer.consumes.after(consumption)
    before, after = ([*text.rstrip("\x02").split("\x01")] for _, text, _ in added)
    assert (before[0], before[3], before[5:]) == ("SubBefore", "g", [messages[0].message_id, "0", "a b"])
    assert (after[0], after[1], after[2]) == ("SubAfter", before[4], messages[0].message_id)
    assert (after[4:7], after[8]) == (["false", "a b", "1"], "g")
    assert added[0][2] == [messages[0].message_id, "a", "b"]


def test_brokers_that_are_there_again_are_detected() -> None:
    async def test() -> None:
        async with peer() as namesrv, peer() as fake_broker, peer() as other:
            pairs = ("a", fake_broker.address), ("b", other.address)
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(*pairs)})
            fake_broker.replies[C.SEND_MESSAGE_V2] = lambda request: request.response(ResponseCode.SYSTEM_ERROR, "no")
            other.replies[C.SEND_MESSAGE_V2] = stored
            options = ProducerOptions(fault_tolerance=True, detector=True)
            async with Producer(namesrv.address, "g", options) as producer:
                for _ in range(8):
                    await producer.send(Message("T", b"x"))
                assert len(fake_broker.of(C.SEND_MESSAGE_V2)) == 1  # and not asked again
                fake_broker.replies[C.SEND_MESSAGE_V2] = stored
                fake_broker.replies[C.GET_MAX_OFFSET] = lambda request: request.response(fields={"offset": "1"})
                choice: QueueChoice = producer._choice
                assert choice.unreachable == ["a"]
                await until(lambda: not choice.unreachable)
                assert isinstance(fake_broker, Peer)

    run(test)
