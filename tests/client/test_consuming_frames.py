"""Our consumers send the frames that recorded Java consumers sent: send back, lock, query assignments, pop and ack.

All frames are compared, not only the first of each kind; what a test needs besides (the messages of a pop) comes from
the recorded answers.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from formats.message.build import compose, pack
from formats.message.properties import build
from formats.message.read import End, read
from formats.remoting import frame
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from formats.variants.pop_handle import Handle
from rmqtool.client import ClientOptions, Cluster, Received
from rmqtool.client.consumer.assignment import BrokerAssignments
from rmqtool.client.consumer.pop import Popped, Popper
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.consumer.queues import Locks
from rmqtool.client.consumer.sending_back import SendBack
from rmqtool.rules.releases import RELEASES
from tests import wire
from tests.client.peers import Peer, peer, route, run, tells

BROKER = "lab-a"


def recorded(release: str, *codes: C, link: str = "broker") -> Iterator[tuple[Command, Command | None]]:
    """Recorded requests of these kinds, in order, with their answers."""
    for asked, told in wire.requests(release, link):
        if asked.request_code in codes:
            command, _size = frame.parse(asked.raw) or (Command(0), 0)
            answer, _size = frame.parse(told.raw) or (None, 0) if told is not None else (None, 0)
            yield command, answer


def fields_of(command: Command) -> dict[str, str]:
    return dict(command.fields or {})


def same(ours: Command, java: Command, *fleeting: str) -> None:
    """Compare field by field, except times."""
    first, second = fields_of(ours), fields_of(java)
    for name in fleeting:
        assert first.pop(name).lstrip("-").isdecimal()
        second.pop(name)
    assert first == second
    assert (ours.fields is None) == (java.fields is None)
    assert (ours.code, ours.flag, ours.version) == (java.code, java.flag, java.version)
    if ours.body or java.body:
        mine, theirs = json.loads(ours.body), json.loads(java.body)
        assert list(mine) == list(theirs)
        for body in (mine, theirs):  # a HashSet has no order
            if "mqSet" in body:
                body["mqSet"].sort(key=lambda queue: (queue["topic"], queue["queueId"]))
        assert mine == theirs


def repeat(release: str, client_id: str, test: Callable[[Cluster, Peer], Awaitable[None]], *topics: str) -> None:
    """Run a test with a client with this id, whose topics are all on one broker."""

    async def limited() -> None:
        async with peer() as namesrv, peer() as broker:
            routes = dict.fromkeys(topics, route((BROKER, broker.address)))
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells(routes)
            options = ClientOptions(namesrv=namesrv.address, release=RELEASES[release[:3]], client_id=client_id)
            async with Cluster(options) as cluster:
                for topic in topics:
                    await cluster.route(topic)
                await test(cluster, broker)
            for ours in namesrv.of(C.GET_ROUTEINFO_BY_TOPIC):
                java, _answer = next(recorded(release, C.GET_ROUTEINFO_BY_TOPIC, link="namesrv"))
                assert set(fields_of(ours)) == set(fields_of(java))
                assert (ours.flag, ours.version, ours.body) == (java.flag, java.version, java.body)

    run(limited)


@pytest.mark.parametrize("release", wire.RELEASES)
def test_messages_are_sent_back_as_by_the_java_client(release: str) -> None:
    wanted = [java for java, _answer in recorded(release, C.CONSUMER_SEND_MSG_BACK)]
    assert {fields_of(java)["delayLevel"] for java in wanted} >= {"1"}

    async def test(cluster: Cluster, one: Peer) -> None:
        one.replies[C.CONSUMER_SEND_MSG_BACK] = lambda request: request.response()
        for java in wanted:
            java_fields = fields_of(java)
            stored = read(
                pack(
                    compose(
                        topic=java_fields["originTopic"].encode(), queue_id=0, queue_offset=0,
                        physical_offset=int(java_fields["offset"]), body=b"x",
                        properties=build({"UNIQ_KEY": java_fields["originMsgId"]}), born_timestamp=1,
                        born_address=b"\x7f\0\0\1", born_port=1, store_timestamp=1, store_address=b"\x7f\0\0\1",
                        store_port=1,
                    )
                ), 0, 1 << 20,
            )  # fmt: skip
            assert not isinstance(stored, End)
            message = Received(MessageQueue(java_fields["originTopic"], BROKER, 0), stored)
            back = SendBack(cluster, java_fields["group"], int(java_fields["maxReconsumeTimes"]))
            await back.back(message, int(java_fields["delayLevel"]))
            same(one.of(C.CONSUMER_SEND_MSG_BACK)[-1], java)

    topics = {fields_of(java)["originTopic"] for java in wanted}
    repeat(release, "any", test, *topics)


@pytest.mark.parametrize("release", wire.RELEASES)
def test_queues_are_locked_and_given_back_as_by_the_java_client(release: str) -> None:
    wanted = list(recorded(release, C.LOCK_BATCH_MQ, C.UNLOCK_BATCH_MQ))
    assert {java.code for java, _answer in wanted} == {C.LOCK_BATCH_MQ, C.UNLOCK_BATCH_MQ}
    shown = [json.loads(java.body) for java, _answer in wanted]
    (client_id,) = {body["clientId"] for body in shown}
    topics = {queue["topic"] for body in shown for queue in body["mqSet"]}

    async def test(cluster: Cluster, one: Peer) -> None:
        for (java, answer), body in zip(wanted, shown, strict=True):
            assert answer is not None
            one.replies[C(java.code)] = lambda request, told=answer: request.response(body=told.body)  # type: ignore[misc]
            locks = Locks(cluster, body["consumerGroup"])
            queues = {MessageQueue(queue["topic"], BROKER, queue["queueId"]) for queue in body["mqSet"]}
            if java.code == C.LOCK_BATCH_MQ:
                assert await locks.lock(queues) == queues
            else:
                await locks.unlock(queues)
            same(one.got[-1], java)

    repeat(release, client_id, test, *topics)


@pytest.mark.parametrize("release", wire.RELEASES)
def test_offsets_are_asked_for_and_kept_as_by_the_java_client(release: str) -> None:
    """Committed by an acknowledged request, as in Java's admin; Java's consumers do not wait for an answer."""
    wanted = list(recorded(release, C.QUERY_CONSUMER_OFFSET, C.UPDATE_CONSUMER_OFFSET, C.GET_MAX_OFFSET))
    topics = {fields_of(java)["topic"] for java, _answer in wanted}

    async def test(cluster: Cluster, one: Peer) -> None:
        one.replies[C.GET_MIN_OFFSET] = lambda request: request.response(fields={"offset": "0"})
        for java, answer in wanted:
            java_fields = fields_of(java)
            queue = MessageQueue(java_fields["topic"], java_fields["bname"], int(java_fields["queueId"]))
            puller = Puller(cluster, java_fields.get("consumerGroup", "g"))
            one.replies[C(java.code)] = lambda request, told=answer: request.response(  # type: ignore[misc]
                told.code if told else 0, fields=told.fields if told else None
            )
            if java.code == C.UPDATE_CONSUMER_OFFSET:
                await puller.commit(queue, int(java_fields["commitOffset"]))
            elif java.code == C.QUERY_CONSUMER_OFFSET:
                committed = await puller.committed(queue)
                assert answer is not None
                assert (committed is None) == (answer.code == ResponseCode.QUERY_NOT_FOUND)
            else:
                await puller.offsets(queue)
            ours = one.of(C(java.code))[-1]
            assert ours.flag == 0
            ours.flag = java.flag  # one-way or not
            same(ours, java)

    repeat(release, "any", test, *topics)


def test_queues_of_groups_that_pop_are_asked_for_as_by_the_java_client() -> None:
    wanted = list(recorded("5.3.3", C.QUERY_ASSIGNMENT))
    shown = [json.loads(java.body) for java, _answer in wanted]
    (client_id,) = {body["clientId"] for body in shown}

    async def test(cluster: Cluster, one: Peer) -> None:
        for (java, answer), body in zip(wanted, shown, strict=True):
            assert answer is not None
            one.replies[C.QUERY_ASSIGNMENT] = lambda request, told=answer: request.response(body=told.body)  # type: ignore[misc]
            asking = BrokerAssignments(cluster, body["consumerGroup"], body["strategyName"])
            assigned = await asking.of(await cluster.route(body["topic"]))
            assert assigned is not None
            theirs = [
                (entry["mode"] == "POP", entry["messageQueue"]["queueId"])
                for entry in json.loads(answer.body)["messageQueueAssignments"]
            ]
            ours = [(False, queue.queue_id) for queue in assigned.pulled]
            ours += [(True, queue.queue_id) for queue in assigned.popped]
            assert sorted(ours) == sorted(theirs)
            same(one.got[-1], java)

    repeat("5.3.3", client_id, test, *{body["topic"] for body in shown})


def test_what_is_popped_is_settled_with_the_handles_of_the_java_client() -> None:
    """From each answer to a pop, ours builds the handles that Java then acked or postponed."""
    pops = list(recorded("5.3.3", C.POP_MESSAGE))
    settled = [java for java, _answer in recorded("5.3.3", C.ACK_MESSAGE, C.CHANGE_MESSAGE_INVISIBLETIME)]
    assert {java.code for java in settled} == {C.ACK_MESSAGE, C.CHANGE_MESSAGE_INVISIBLETIME}
    result: dict[str, Popped] = {}

    async def test(cluster: Cluster, one: Peer) -> None:
        for code in (C.ACK_MESSAGE, C.CHANGE_MESSAGE_INVISIBLETIME):
            one.replies[code] = lambda request: request.response()
        popper: Any = None
        for java, answer in pops:
            java_fields = fields_of(java)
            popper = Popper(
                cluster,
                java_fields["consumerGroup"],
                [] if java_fields["exp"] == "*" else java_fields["exp"].split(" || "),
            )
            told = answer or java.response(ResponseCode.POLLING_TIMEOUT)  # one that the end of the recording cut off
            one.replies[C.POP_MESSAGE] = lambda request, told=told: request.response(  # type: ignore[misc]
                told.code, fields=told.fields, body=told.body
            )
            queue = MessageQueue(java_fields["topic"], java_fields["bname"], int(java_fields["queueId"]))
            messages = await popper.pop(
                queue, most=int(java_fields["maxMsgNums"]), invisible=int(java_fields["invisibleTime"]) / 1000,
                wait=int(java_fields["pollTime"]) / 1000, from_first=java_fields["initMode"] == "0",
            )  # fmt: skip
            same(one.of(C.POP_MESSAGE)[-1], java, "bornTime")
            result.update((message.handle, message) for message in messages)
        assert len(result) >= 20
        assert {Handle.parse(handle).origin for handle in result} == {"0", "1"}  # from the topic, and from its retries
        for java in settled:
            java_fields = fields_of(java)
            message = result[java_fields["extraInfo"]]
            if java.code == C.ACK_MESSAGE:
                await popper.ack(message)
            else:
                await popper.change(message, int(java_fields["invisibleTime"]) / 1000)
            same(one.got[-1], java)

    topics = {fields_of(java)["topic"] for java, _answer in pops} | {fields_of(java)["topic"] for java in settled}
    repeat("5.3.3", "any", test, *topics)
