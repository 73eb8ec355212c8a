"""Requests of a client other than sends match those of real Java clients, field by field.

Three differences are intended: a Java client also joins the group ``CLIENT_INNER_PRODUCER``, which nothing here uses;
our pulls include the subscription, so that they never wait for a heartbeat; and offsets are committed by an
acknowledged request.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from formats.remoting import frame
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.client import ClientOptions, From, Message, Producer, PushConsumer, PushOptions, Received
from rmqtool.rules.releases import RELEASES
from tests import wire
from tests.client.peers import Peer, peer, route, run, tells
from tests.client.test_producer import stored

INNER = "CLIENT_INNER_PRODUCER"
# times, where a consumer happened to be, and how much a client of 5.3 has room for
FLEETING = {"subVersion", "queueOffset", "commitOffset", "queueId", "maxMsgBytes"}
_SUBSCRIPTION = 4  # in a pull's system flag


def java(release: str, code: C, fits: Callable[[Command], bool] = lambda _: True) -> Command:
    """The first matching request of a Java client."""
    for request, _answer in wire.requests(release, "broker"):
        if request.request_code == code:
            command, _size = frame.parse(request.raw) or (Command(0), 0)
            if fits(command):
                return command
    raise LookupError(code)


def lasting(command: Command, **other: str) -> dict[str, str]:
    """Fields, without volatile ones."""
    return {name: value for name, value in (command.fields or {}).items() if name not in FLEETING} | other


async def until(so: Callable[[], object]) -> None:
    while not so():
        await asyncio.sleep(0.005)


def groups(body: bytes) -> Any:
    """A heartbeat without the inner group, sorted."""
    data = json.loads(body)
    data["producerDataSet"] = sorted(
        (row for row in data["producerDataSet"] if row["groupName"] != INNER), key=lambda row: row["groupName"]
    )
    for group in data["consumerDataSet"]:
        for subscription in group["subscriptionDataSet"]:
            assert subscription.pop("subVersion") > 0
            for name in ("tagsSet", "codeSet"):
                subscription[name] = sorted(subscription[name])
        group["subscriptionDataSet"].sort(key=lambda row: row["topic"])
    return data


@pytest.mark.parametrize("release", wire.RELEASES)
def test_a_producer_says_who_it_is_and_leaves(release: str) -> None:
    def of_producer(command: Command) -> bool:
        data = json.loads(command.body)
        return not data["consumerDataSet"] and len(data["producerDataSet"]) == 2

    wanted = java(release, C.HEART_BEAT, of_producer)
    answer = groups(wanted.body)

    async def test() -> None:
        async with peer() as namesrv, peer() as broker:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("lab-a", broker.address))})
            broker.replies[C.SEND_MESSAGE_V2] = stored
            options = ClientOptions(
                namesrv=namesrv.address, release=RELEASES[release[:3]], client_id=answer["clientID"]
            )
            async with Producer(options, answer["producerDataSet"][0]["groupName"]) as producer:
                await producer.send(Message("T", b"x"))
                await until(lambda: broker.of(C.HEART_BEAT))
            (ours, *_), (left,) = broker.of(C.HEART_BEAT), broker.of(C.UNREGISTER_CLIENT)
            assert groups(ours.body) == answer
            assert list(json.loads(ours.body)) == list(json.loads(wanted.body))
            assert (ours.fields or {}, ours.flag, ours.version) == (wanted.fields or {}, wanted.flag, wanted.version)
            theirs = java(release, C.UNREGISTER_CLIENT, lambda command: "producerGroup" in (command.fields or {}))
            assert set(left.fields or {}) == set(theirs.fields or {})
            assert (left.flag, left.body) == (theirs.flag, theirs.body)

    run(test)


@pytest.mark.parametrize("release", wire.RELEASES)
def test_a_consumer_asks_as_the_java_client_does(release: str) -> None:
    pull = java(release, C.PULL_MESSAGE, lambda command: (command.fields or {})["sysFlag"] == "2")
    fields = pull.fields or {}
    topic, group = fields["topic"], fields["consumerGroup"]

    def one_group(command: Command) -> bool:
        return any(row["groupName"] == group for row in json.loads(command.body)["consumerDataSet"])

    beat = java(release, C.HEART_BEAT, one_group)
    subscribed = {
        row["topic"]: row["subString"]
        for row in groups(beat.body)["consumerDataSet"][0]["subscriptionDataSet"]
        if not row["topic"].startswith("%RETRY%")
    }

    def place(request: Command, **more: str) -> Command:
        told = {"suggestWhichBrokerId": "0", "nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
        return request.response(ResponseCode.PULL_NOT_FOUND, fields=told | more)

    async def held(request: Command) -> Command:
        await asyncio.sleep(0.2)
        return place(request)

    def behave(broker: Peer, client_id: str) -> None:
        ids = json.dumps({"consumerIdList": [client_id]}).encode()
        broker.replies[C.GET_CONSUMER_LIST_BY_GROUP] = lambda request: request.response(body=ids)
        broker.replies[C.QUERY_CONSUMER_OFFSET] = lambda request: request.response(fields={"offset": "0"})
        broker.replies[C.GET_MAX_OFFSET] = broker.replies[C.GET_MIN_OFFSET] = broker.replies[C.QUERY_CONSUMER_OFFSET]
        broker.replies[C.PULL_MESSAGE] = held

    def take(messages: Sequence[Received]) -> None:
        raise AssertionError(messages)

    def pulls(broker: Peer) -> list[Command]:
        return [request for request in broker.of(C.PULL_MESSAGE) if (request.fields or {})["topic"] == topic]

    async def test() -> None:
        async with peer() as namesrv, peer() as broker:
            routes = {name: route(("lab-a", broker.address)) for name in [*subscribed, f"%RETRY%{group}"]}
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells(routes)
            client_id = json.loads(beat.body)["clientID"]
            behave(broker, client_id)
            options = ClientOptions(namesrv=namesrv.address, release=RELEASES[release[:3]], client_id=client_id)
            asks = PushOptions(start=From.FIRST, persist_interval=0.2)
            async with PushConsumer(options, group, subscribed, take, asks):
                await until(lambda: pulls(broker))
                await until(lambda: broker.of(C.UPDATE_CONSUMER_OFFSET))
                await until(lambda: broker.of(C.HEART_BEAT))
            ours = pulls(broker)[0]
            own = {"sysFlag": str(2 | _SUBSCRIPTION), "subscription": subscribed[topic]}
            assert lasting(ours) == lasting(pull, **own)
            assert (ours.flag, ours.body, ours.version) == (pull.flag, pull.body, pull.version)
            answer = groups(beat.body)
            assert groups(broker.of(C.HEART_BEAT)[-1].body) == answer
            for code in (C.QUERY_CONSUMER_OFFSET, C.UPDATE_CONSUMER_OFFSET, C.GET_CONSUMER_LIST_BY_GROUP):
                theirs = java(release, code, lambda command: (command.fields or {})["consumerGroup"] == group)
                mine = broker.of(code)[0]
                assert set(mine.fields or {}) == set(theirs.fields or {}), code
                assert (mine.flag & ~2, mine.body) == (theirs.flag & ~2, theirs.body), code
            left = [r for r in broker.of(C.UNREGISTER_CLIENT) if "consumerGroup" in (r.fields or {})]
            theirs = java(release, C.UNREGISTER_CLIENT, lambda command: "consumerGroup" in (command.fields or {}))
            assert set(left[0].fields or {}) == set(theirs.fields or {})

    run(test)


def test_a_message_is_called_back_as_the_java_client_does_it() -> None:
    wanted = java("5.3.3", C.RECALL_MESSAGE)
    fields = dict(wanted.fields or {})

    async def test() -> None:
        async with peer() as namesrv, peer() as broker:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Timers": route((fields["bname"], broker.address))})
            broker.replies[C.RECALL_MESSAGE] = lambda request: request.response(fields={"msgId": "1"})
            async with Producer(namesrv.address, fields["producerGroup"]) as producer:
                assert await producer.recall("Timers", fields["recallHandle"], fields["bname"]) == "1"
            (ours,) = broker.of(C.RECALL_MESSAGE)
            assert (ours.fields, ours.flag, ours.body) == (fields, wanted.flag, wanted.body)

    run(test)
