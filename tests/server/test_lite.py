"""Lite topics of 5.5: subscriptions, pops that wait, acks, what administrators are told."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import body_of
from formats.remoting import lite as lt
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from formats.variants.pop_handle import ORDERED, Handle
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import V5_4, V5_5
from tests.amounts import by_turns
from tests.server.serving import address, records, send, serving

CONF = {
    "mappedFileSizeCommitLog": "4194304", "mappedFileSizeConsumeQueue": "60000", "mappedFileSizeTimerLog": "52000",
    "enableLmq": "true", "enableMultiDispatch": "true", "maxLiteSubscriptionCount": "8",
}  # fmt: skip
TOPIC = {
    "topic": "Parent", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    "attributes": "+message.type=LITE,+lite.topic.expiration=30",
}  # fmt: skip


async def call(client: Connection, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
    return await client.call(Command(C(code), fields=fields or {}, body=body), 30)


async def make(client: Connection, group: str = "g", **attributes: str) -> None:
    assert (await call(client, C.UPDATE_AND_CREATE_TOPIC, TOPIC)).code == 0
    given = {
        "+lite.bind.topic": "Parent",
        **{f"+{name.replace('_', '.')}": value for name, value in attributes.items()},
    }
    body = json.dumps({"groupName": group, "attributes": given}).encode()
    assert (await call(client, C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 0


async def put(client: Connection, lite: str, *bodies: bytes) -> None:
    for body in bodies:
        fields = send(topic="Parent", properties=f"__LITE_TOPIC\x01{lite}\x02")
        assert (await call(client, C.SEND_MESSAGE_V2, fields, body)).code == 0


async def change(client: Connection, action: str, *names: str, who: str = "c1", group: str = "g", **more: Any) -> int:
    asked = lt.LiteSubscriptionChange(
        action=action, client_id=who, group=group, topic="Parent", lite_topic_set=list(names), **more
    )
    return (await call(client, C.LITE_SUBSCRIPTION_CTL, body=body_of(lt.LiteSubscriptionChanges([asked])))).code


async def pop(client: Connection, who: str = "c1", group: str = "g", **more: Any) -> Command:
    given: dict[str, Any] = {"max_msg_num": 32, "invisible_time": 60_000, "poll_time": 0, "born_time": 0, **more}
    asked = lt.PopLite(client_id=who, consumer_group=group, topic="Parent", **given)
    return await call(client, C.POP_LITE_MESSAGE, to_fields(asked))


def bodies(answer: Command) -> list[bytes]:
    return [bytes(record.body) for record in records(answer.body)]


def handle(answer: Command, offset: int) -> str:
    popped = from_fields(lt.PopLiteResponse, answer.fields)
    return Handle(
        start_offset=0, pop_time=popped.pop_time, invisible_time=popped.invisible_time, revive_queue=ORDERED,
        origin="0", broker_name="lab-a", queue_id=0, queue_offset=offset,
    ).text  # fmt: skip


async def ack(client: Connection, answer: Command, lite: str, offset: int, group: str = "g") -> int:
    fields = to_fields(
        p.AckMessage(
            consumer_group=group, topic="Parent", queue_id=0, offset=offset, extra_info=handle(answer, offset),
            lite_topic=lite,
        )
    )  # fmt: skip
    return (await call(client, C.ACK_MESSAGE, fields)).code


async def postpone(client: Connection, answer: Command, offset: int, invisible: int, *, suspend: bool) -> int:
    asked = p.ChangeInvisible(
        consumer_group="g", topic="Parent", queue_id=0, offset=offset, extra_info=handle(answer, offset),
        invisible_time=invisible, lite_topic="one", suspend=suspend,
    )  # fmt: skip
    return (await call(client, C.CHANGE_MESSAGE_INVISIBLETIME, to_fields(asked))).code


def serve(tmp_path: Path, test: Callable[[Connection], Awaitable[None]], **options: Any) -> None:
    serving(tmp_path / "store", test, **{"create": True, "release": V5_5, "broker_conf": CONF, **options})


def test_a_lite_topic_is_popped_in_order_and_comes_back(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await make(client)
        await put(client, "one", b"a", b"b", b"c")
        await put(client, "two", b"x")
        assert (await pop(client)).code == ResponseCode.POLLING_TIMEOUT, "it has not subscribed"
        option = lt.OffsetOption(type=lt.POLICY, value=lt.MIN_POLICY)
        assert await change(client, lt.ADD_SOME, "one", offset_option=option) == 0
        first = await pop(client, max_msg_num=2, invisible_time=1_500)
        assert (first.code, bodies(first), (first.fields or {})["orderCountInfo"]) == (0, [b"a", b"b"], "0;0")
        assert (await pop(client)).code == ResponseCode.POLLING_TIMEOUT, "its last messages are not acked"
        assert await ack(client, first, "one", 0) == 0
        again = await pop(client, poll_time=30_000, max_msg_num=1)
        assert (bodies(again), (again.fields or {})["orderCountInfo"]) == ([b"b"], "0 qo0%1 1")
        assert await ack(client, again, "one", 7) == ResponseCode.NO_MESSAGE
        assert await ack(client, first, "one", 1) == 0, "an old handle changes nothing"
        assert await ack(client, again, "one", 1) == 0
        last = await pop(client)
        assert bodies(last) == [b"c"]
        assert await postpone(client, last, 2, 1, suspend=True) == 0
        again = await pop(client, poll_time=20_000)
        assert (bodies(again), (again.fields or {})["orderCountInfo"]) == ([b"c"], "0 qo0%2 1")
        await put(client, "one", b"d")
        assert await postpone(client, again, 2, 1, suspend=False) == 0
        assert (await call(client, C.TRIGGER_LITE_DISPATCH, {"group": "g", "clientId": "c1"})).code == 0
        both = await pop(client, poll_time=20_000)
        assert (bodies(both), (both.fields or {})["orderCountInfo"]) == ([b"c", b"d"], "0 qo0%2 2")

    serve(tmp_path, test)


def test_the_handle_has_the_time_of_the_pop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a pop takes: an ack with another time has no effect."""
    ticks = count(time.time_ns(), 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: next(ticks))

    async def test(client: Connection) -> None:
        await make(client)
        await put(client, "one", b"a", b"b")
        assert await change(client, lt.ADD_SOME, "one", offset_option=lt.OffsetOption(type=lt.OFFSET, value=0)) == 0
        first = await pop(client, max_msg_num=1)
        assert bodies(first) == [b"a"]
        assert await ack(client, first, "one", 0) == 0
        assert bodies(await pop(client, poll_time=10_000)) == [b"b"]

    serve(tmp_path, test)


def test_a_waiting_pop_gets_what_arrives_and_only_of_its_lite_topics(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await make(client)
        assert await change(client, lt.ADD_ALL, "one", "two") == 0
        waiting = asyncio.create_task(pop(client, poll_time=20_000))
        await put(client, "three", b"z")
        await put(client, "two", b"y")
        assert bodies(await waiting) == [b"y"]
        assert await change(client, lt.ADD_ALL, "one") == 0
        await put(client, "two", b"w")
        assert (await pop(client)).code == ResponseCode.POLLING_TIMEOUT
        assert await change(client, lt.REMOVE_ALL) == 0
        await put(client, "one", b"v")
        assert (await pop(client)).code == ResponseCode.POLLING_TIMEOUT

    serve(tmp_path, test)


def test_an_exclusive_lite_topic_goes_to_the_client_that_came_last(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        notified: list[dict[str, str]] = []

        def note(_connection: Connection, request: Command) -> None:
            assert request.code == C.NOTIFY_UNSUBSCRIBE_LITE
            notified.append(dict(request.fields or {}))

        await make(client, lite_sub_model="Exclusive")
        await put(client, "one", b"a")
        option = lt.OffsetOption(type=lt.OFFSET, value=0)
        async with open_connection(*address(client.peer), handler=note) as first:
            assert await change(first, lt.ADD_SOME, "one", offset_option=option) == 0
            assert await change(client, lt.ADD_SOME, "one", who="c2", offset_option=option) == 0
            assert (await pop(first, "c1")).code == ResponseCode.POLLING_TIMEOUT
            assert bodies(await pop(client, "c2")) == [b"a"]
            assert notified == [{"liteTopic": "one", "consumerGroup": "g", "clientId": "c1"}]

    serve(tmp_path, test)


def test_a_wildcard_group_shares_all_lite_topics(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await make(client, lite_sub_wildcard="true")
        assert await change(client, lt.ADD_SOME, "one") == ResponseCode.ILLEGAL_OPERATION
        for who in ("c1", "c2"):
            assert await change(client, lt.ADD_ALL, who=who) == 0
        await put(client, "one", b"a")
        await put(client, "two", b"b")
        got = [*bodies(await pop(client, "c1")), *bodies(await pop(client, "c2"))]
        assert sorted(got) == [b"a", b"b"]
        info = json.loads(
            (await call(client, C.GET_LITE_TOPIC_INFO, {"parentTopic": "Parent", "liteTopic": "one"})).body
        )
        assert info["subscriber"] == [{"clientId": "*", "group": "g"}]

    serve(tmp_path, test)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await make(client)
        await make(client, "other", lite_bind_topic="Elsewhere")
        assert (await pop(client, group="other")).code == ResponseCode.INVALID_PARAMETER
        assert (await pop(client, max_msg_num=33)).code == ResponseCode.INVALID_PARAMETER
        assert (await call(client, C.LITE_SUBSCRIPTION_CTL)).code == ResponseCode.ILLEGAL_OPERATION
        assert (await call(client, C.LITE_SUBSCRIPTION_CTL, body=b"{}")).code == ResponseCode.ILLEGAL_OPERATION
        assert await change(client, lt.ADD_SOME, *map(str, range(8))) == 0
        assert await change(client, lt.ADD_SOME, "more") == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert (await call(client, C.GET_PARENT_TOPIC_INFO, {"topic": "nothing"})).code == ResponseCode.TOPIC_NOT_EXIST

    serve(tmp_path, test)


def test_administrators_see_subscriptions_and_lag(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await make(client)
        await put(client, "one", b"a", b"b")
        assert await change(client, lt.ADD_SOME, "one", offset_option=lt.OffsetOption(type=lt.OFFSET, value=0)) == 0
        assert len(bodies(await pop(client, max_msg_num=1))) == 1
        answers = {
            code: json.loads((await call(client, code, fields)).body)
            for code, fields in (
                (C.GET_BROKER_LITE_INFO, {}),
                (C.GET_PARENT_TOPIC_INFO, {"topic": "Parent"}),
                (C.GET_LITE_CLIENT_INFO, {"parentTopic": "Parent", "group": "g", "clientId": "c1"}),
                (C.GET_LITE_GROUP_INFO, {"group": "g", "topK": "5"}),
            )
        }
        broker = answers[C.GET_BROKER_LITE_INFO]
        assert (broker["liteSubscriptionCount"], broker["currentLmqNum"], broker["topicMeta"]) == (1, 1, {"Parent": 30})
        assert answers[C.GET_PARENT_TOPIC_INFO]["groups"] == ["g"]
        assert answers[C.GET_LITE_CLIENT_INFO]["liteTopicSet"] == ["%LMQ%$Parent$one"]
        group = answers[C.GET_LITE_GROUP_INFO]
        assert (group["totalLagCount"], group["lagCountTopK"][0]["liteTopic"]) == (2, "one")
        assert (await call(client, C.TRIGGER_LITE_DISPATCH, {"group": "g"})).code == 0

    serve(tmp_path, test)


def test_a_broker_of_5_4_has_no_lite_topics(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        assert (await pop(client)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    serve(tmp_path, test, release=V5_4)


@by_turns(3)
@pytest.mark.parametrize(("suspend", "times"), [(True, 0), (False, 1)])
def test_a_suspended_message_does_not_count_as_consumed(suspend: bool, times: int, tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        assert (await call(client, C.SEND_MESSAGE_V2, send(), b"a")).code == 0
        asked: dict[str, Any] = {
            "consumer_group": "g", "topic": "Orders", "queue_id": -1, "max_msg_nums": 32, "invisible_time": 60_000,
            "poll_time": 0, "born_time": 0, "init_mode": 0, "order": False,
        }  # fmt: skip
        answer = await call(client, C.POP_MESSAGE, to_fields(p.Pop(**asked)))
        popped = from_fields(p.PopResponse, answer.fields)
        extra = Handle(
            start_offset=0, pop_time=popped.pop_time, invisible_time=60_000, revive_queue=popped.revive_qid,
            origin="0", broker_name="lab-a", queue_id=0, queue_offset=0,
        ).text  # fmt: skip
        given = p.ChangeInvisible(
            consumer_group="g", topic="Orders", queue_id=0, extra_info=extra, offset=0, invisible_time=1,
            suspend=suspend,
        )  # fmt: skip
        assert (await call(client, C.CHANGE_MESSAGE_INVISIBLETIME, to_fields(given))).code == 0
        again = await call(client, C.POP_MESSAGE, to_fields(p.Pop(**{**asked, "poll_time": 30_000})))
        assert [record.reconsume_times for record in records(again.body)] == [times]

    serve(tmp_path, test)


def test_a_client_that_does_not_renew_its_subscription_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqtool.server.broker.broker._EXPIRE", 0.1)

    async def test(client: Connection) -> None:
        await make(client)
        assert await change(client, lt.ADD_ALL, "one", who="gone") == 0
        await put(client, "one", b"a")
        await asyncio.sleep(0.3)
        assert await change(client, lt.ADD_ALL, "one", who="here") == 0
        got: list[bytes] = []
        while not got:  # noted for the one that is gone, until that is forgotten
            assert await change(client, lt.ADD_ALL, "one", who="here") == 0
            got = bodies(await pop(client, "here", poll_time=200))
        assert got == [b"a"]
        asked = {"parentTopic": "Parent", "group": "g", "clientId": "gone"}
        while json.loads((await call(client, C.GET_LITE_CLIENT_INFO, asked)).body)["liteTopicCount"] != -1:
            await asyncio.sleep(0.05)

    serve(tmp_path, test, broker_conf={**CONF, "liteSubscriptionCheckTimeoutMills": "1000"})
