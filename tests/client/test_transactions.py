"""Transactions: committed messages are delivered, unknown outcomes are checked."""

import asyncio
from typing import Any

import pytest

from formats.remoting import frame
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from rmqtool.client import ClientOptions, Message, PullConsumer
from rmqtool.client.consumer.received import Received
from rmqtool.client.producing.message import SendResult
from rmqtool.client.producing.transactions import State, TransactionProducer
from rmqtool.client.sync import PullConsumer as SyncConsumer
from rmqtool.client.sync import TransactionProducer as SyncProducer
from rmqtool.rules.releases import RELEASES
from rmqtool.testing import broker
from tests import wire
from tests.client.peers import peer, route, run, tells

_EAGER = {"transactionTimeOut": "1000", "transactionCheckInterval": "100"}


def test_what_is_committed_comes_and_what_is_unknown_is_asked_for() -> None:
    asked: list[str] = []

    def check(message: Received) -> State:
        asked.append(message.body.decode())
        if message.body == b"asked twice" and asked.count("asked twice") == 1:
            raise ValueError("not now")
        return State.ROLLBACK if message.body == b"asked, no" else State.COMMIT

    async def late(_message: Message, _sent: SendResult) -> State:
        return State.COMMIT

    async def test() -> None:
        with broker(settings=_EAGER) as served:
            async with TransactionProducer(served.namesrv, "payers", check) as producer:
                ends: list[tuple[bytes, Any]] = [
                    (b"yes", late),
                    (b"no", lambda *_: State.ROLLBACK),
                    (b"asked", lambda *_: State.UNKNOWN),
                    (b"asked, no", lambda *_: State.UNKNOWN),
                    (b"asked twice", lambda *_: State.UNKNOWN),
                ]
                for body, execute in ends:
                    await producer.send_in_transaction(Message("Paid", body, delay_level=3), execute)

                def fails(_message: Message, _sent: SendResult) -> State:
                    raise LookupError("of one's own")

                with pytest.raises(LookupError):
                    await producer.send_in_transaction(Message("Paid", b"failed"), fails)
                result: set[bytes] = set()
                async with PullConsumer(served.namesrv) as consumer:
                    await consumer.assign(dict.fromkeys(await producer.queues("Paid"), 0))
                    async for message in consumer:
                        assert message.queue.topic == "Paid"
                        result.add(message.body)
                        if len(result) == 4 and "asked, no" in asked:
                            break
                assert result == {b"yes", b"asked", b"asked twice", b"failed"}
                assert {"yes", "no"}.isdisjoint(asked)

    run(test)


def test_the_synchronous_face_has_transactions_too() -> None:
    with broker() as served, SyncProducer(served.namesrv, "payers", lambda _: State.UNKNOWN) as producer:
        sent, state = producer.send_in_transaction(Message("Paid", b"1"), lambda *_: State.COMMIT)
        assert (sent.status, state) == ("SEND_OK", State.COMMIT)
        with SyncConsumer(served.namesrv) as consumer:
            consumer.assign(dict.fromkeys(producer.queues("Paid"), 0))
            assert [message.message_id for message in consumer.poll()] == [sent.message_id]


@pytest.mark.parametrize("release", wire.RELEASES)
def test_the_end_is_told_as_the_java_client_does(release: str) -> None:
    java = next(
        command
        for request in wire.frames(release)
        if request.request_code == C.END_TRANSACTION and not request.is_response
        for command, _size in [frame.parse(request.raw) or (Command(0), 0)]
    )
    wanted = dict(java.fields or {})

    async def test() -> None:
        async with peer() as namesrv, peer() as fake_broker:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells(
                {"Payments": route((wanted["bname"], fake_broker.address))}
            )
            fake_broker.replies[C.SEND_MESSAGE_V2] = lambda request: request.response(
                fields={
                    "msgId": "7F0000010000CF13" + f"{int(wanted['commitLogOffset']):016X}",
                    "queueId": (request.fields or {})["e"],
                    "queueOffset": wanted["tranStateTableOffset"],
                    **({"transactionId": wanted["transactionId"]} if "transactionId" in wanted else {}),
                }
            )  # fmt: skip
            client = ClientOptions(namesrv=namesrv.address, release=RELEASES[release[:3]])
            async with TransactionProducer(client, wanted["producerGroup"], lambda _: State.UNKNOWN) as producer:
                message = Message("Payments", b"x", properties={"UNIQ_KEY": wanted["msgId"]})
                await producer.send_in_transaction(message, lambda *_: State(int(wanted["commitOrRollback"])))
                while not fake_broker.of(C.END_TRANSACTION):
                    await asyncio.sleep(0.005)
            ours = fake_broker.of(C.END_TRANSACTION)[0]
            assert (ours.fields, ours.flag, ours.body) == (wanted, java.flag, b"")
            assert (fake_broker.of(C.SEND_MESSAGE_V2)[0].fields or {})["f"] == "4"

    run(test)


def test_questions_that_make_no_sense_are_passed_over() -> None:
    async def test() -> None:
        async with peer() as namesrv, peer() as fake_broker:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", fake_broker.address))})
            async with TransactionProducer(namesrv.address, "payers", lambda _: State.COMMIT) as producer:
                await producer.queues("T")
                while not fake_broker.connections:
                    await asyncio.sleep(0.005)
                fields = {"tranStateTableOffset": "0", "commitLogOffset": "0"}
                for command in (Command(C.CHECK_TRANSACTION_STATE), Command(C.CHECK_TRANSACTION_STATE, fields=fields),
                                Command(C.CHECK_TRANSACTION_STATE, fields=fields, body=b"\0" * 200)):  # fmt: skip
                    fake_broker.connections[0].tell(command)
                fake_broker.replies[C.GET_MAX_OFFSET] = lambda request: request.response(fields={"offset": "1"})
                await producer.cluster.ask(fake_broker.address, producer.cluster.request(C.GET_MAX_OFFSET))
                assert fake_broker.of(C.END_TRANSACTION) == []

    run(test)
