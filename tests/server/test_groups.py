"""Consumer groups: members, locks, offsets, and messages in flight."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import body_of, read_body
from formats.remoting import admin as a
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, MessageQueue, ProducerData, SubscriptionData
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import RELEASES, V4_9, V5_3
from rmqtool.server.serve import Served, ServeOptions
from tests.server.serving import CONF, address, commit_offset, positions, pull, send, serving


def test_members_of_a_group_are_told_when_one_comes_or_goes(tmp_path: Path) -> None:
    told: list[int] = []

    async def listen(_connection: Connection, request: Command) -> None:
        told.append(request.code)

    def heartbeat(client_id: str) -> bytes:
        consumer = ConsumerData("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET",
                                [SubscriptionData("Orders")])  # fmt: skip
        return body_of(b.HeartbeatData(client_id, [ProducerData("p")], [consumer]))

    async def run() -> None:
        options = ServeOptions(
            listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), broker_conf=CONF, create=True, release=V4_9
        )
        async with asyncio.timeout(60), Served(str(tmp_path / "store"), options) as served:
            at = address(served.broker_address)
            async with open_connection(*at, handler=listen) as first:
                assert not (await first.call(Command(C.HEART_BEAT, body=heartbeat("one")))).code
                async with open_connection(*at) as second:
                    assert not (await second.call(Command(C.HEART_BEAT, body=heartbeat("two")))).code
                    fields = to_fields(h.ConsumerGroup(consumer_group="g"))
                    answer = await first.call(Command(C.GET_CONSUMER_LIST_BY_GROUP, fields=fields))
                    assert read_body(b.ConsumerIds, answer.body).consumer_id_list == ["one", "two"]
                while len(told) < 3:
                    await asyncio.sleep(0.01)
                answer = await first.call(Command(C.GET_CONSUMER_LIST_BY_GROUP, fields=fields))
                assert read_body(b.ConsumerIds, answer.body).consumer_id_list == ["one"]

    asyncio.run(run())
    assert told == [C.NOTIFY_CONSUMER_IDS_CHANGED] * 3


def test_a_queue_is_locked_for_one_client(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        async def lock(client_id: str, code: int = C.LOCK_BATCH_MQ) -> list[MessageQueue]:
            queues = [MessageQueue("Orders", "lab-a", number) for number in range(2)]
            answer = await client.call(Command(code, body=body_of(b.LockRequest("g", client_id, queues))))
            assert not answer.code
            return read_body(b.LockResponse, answer.body).lock_ok_mq_set if answer.body else []

        assert len(await lock("one")) == 2
        assert await lock("two") == []
        assert len(await lock("one")) == 2
        await lock("two", C.UNLOCK_BATCH_MQ)
        assert await lock("two") == []
        await lock("one", C.UNLOCK_BATCH_MQ)
        assert len(await lock("two")) == 2

    serving(tmp_path / "store", test, create=True, release=V4_9)


def test_offsets_are_kept(tmp_path: Path) -> None:
    fields = to_fields(h.Commit(consumer_group="g", topic="Orders", queue_id=3, commit_offset=77))

    async def commit(client: Connection) -> None:
        assert not (await client.call(Command(C.UPDATE_CONSUMER_OFFSET, fields=fields))).code

    async def ask(client: Connection) -> None:
        answer = await client.call(Command(C.QUERY_CONSUMER_OFFSET, fields=fields))
        assert from_fields(h.Offset, answer.fields).offset == 77

    serving(tmp_path / "store", commit, create=True, release=V4_9)
    serving(tmp_path / "store", ask)


@pytest.mark.parametrize(("engine", "code"), [("4.9", 0), ("5.3", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)])
def test_offsets_of_a_group_that_is_not_known(tmp_path: Path, engine: str, code: int) -> None:
    async def test(client: Connection) -> None:
        await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        commit = h.Commit(topic="Orders", consumer_group="nobody", queue_id=0, commit_offset=1)
        assert (await client.call(Command(C.UPDATE_CONSUMER_OFFSET, fields=to_fields(commit)))).code == code

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])


@pytest.mark.parametrize("engine", ["5.4", "5.5"])
def test_lists_of_topics_and_groups_are_deleted_whole_or_not_at_all(engine: str, tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await client.call(Command(C.SEND_MESSAGE_V2, fields=send()))
        await client.call(Command(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"g"}'))

        async def ask(code: C, body: Any) -> int:
            return (await client.call(Command(code, body=body_of(body)))).code

        topics = [["Orders", "TBW102"], [], ["Orders", " "], ["Orders", "Orders", "nowhere"]]
        groups = [[], ["g", ""], ["g", "nobody"]]
        codes = [await ask(C.DELETE_TOPIC_IN_BROKER_LIST, a.TopicsToDelete(names)) for names in topics]
        codes += [await ask(C.DELETE_SUBSCRIPTION_GROUP_LIST, a.GroupsToDelete(names, True)) for names in groups]
        assert codes == ([29, 29, 29, 0, 29, 29, 0] if engine == "5.5" else [3] * 7)
        left = [
            await client.call(Command(code)) for code in (C.GET_ALL_TOPIC_CONFIG, C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        ]
        assert (b'"Orders"' in left[0].body, b'"g"' in left[1].body) == (engine != "5.5",) * 2

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])


def test_what_a_group_has_in_hand_is_told(tmp_path: Path) -> None:
    """5.x reports how far a group has pulled; uncommitted messages before that are in flight."""

    async def test(client: Connection) -> None:
        for n in range(80):
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"%d" % n))
        for offset in (0, 32, 64):
            await client.call(Command(C.PULL_MESSAGE, fields=pull(offset)))
        await commit_offset(client, 8)
        assert await positions(client) == (80, 8, 80)

    serving(tmp_path / "store", test, create=True, release=V5_3)


@pytest.mark.parametrize(
    ("code", "deleted", "offset"),
    [
        (C.DELETE_TOPIC_IN_BROKER, h.Topic(topic="Orders"), 2),  # whose queues stay, and with them the offsets
        (C.DELETE_SUBSCRIPTIONGROUP, a.DeleteGroup(group_name="g", clean_offset=True), 0),
    ],
    ids=["topic", "group"],
)
def test_what_was_deleted_has_nothing_in_hand(code: C, deleted: Any, offset: int, tmp_path: Path) -> None:
    """As in ``ConsumerOffsetManager.cleanOffsetByTopic``, ``removeOffset`` (4.9) and ``cleanOffset`` (5.x)."""

    async def test(client: Connection) -> None:
        for n in range(8):
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"%d" % n))
        await client.call(Command(C.PULL_MESSAGE, fields=pull(0)))
        await commit_offset(client, 2)
        assert await positions(client) == (8, 2, 8)
        done = await client.call(Command(code, fields=to_fields(deleted)))
        assert done.code == ResponseCode.SUCCESS, done.remark
        await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        assert await positions(client) == (9, offset, offset)

    serving(tmp_path / "store", test, create=True, release=V5_3)
