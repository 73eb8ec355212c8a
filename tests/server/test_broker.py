"""A served store over our own connections: answers, persisted state, and what is never written."""

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.config.files import SubscriptionGroups, Topics
from formats.fastjson.declare import body_of, read_body
from formats.message.bodies import BatchItem, build_batch
from formats.message.fingerprint import fingerprint
from formats.message.ids import parse_offset_id
from formats.message.properties import parse
from formats.message.read import Record, read
from formats.remoting import admin as a
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, MessageQueue, ProducerData, SubscriptionData
from rmqtool import Message
from rmqtool.errors import Refused
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import RELEASES, V4_9, V5_3
from rmqtool.server.serve import Served, ServeOptions
from rmqtool.services.open_store.store import Store
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import BatchQueue, batch_queues_of
from rmqtool.store.queues.reader import open_queue
from rmqtool.testing import broker
from tests.conftest import Unpacked

_CONF = {"mappedFileSizeCommitLog": "4194304", "mappedFileSizeConsumeQueue": "60000"}
Test = Callable[[Connection], Awaitable[None]]


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def serving(store: Path, test: Test, **options: Any) -> None:
    """Run a test against a served store."""

    async def run() -> None:
        given = {"listen": ("127.0.0.1", 0), "namesrv_listen": ("127.0.0.1", 0), "broker_conf": _CONF, "name": "lab-a"}
        async with (
            asyncio.timeout(60),
            Served(str(store), ServeOptions(**{**given, **options})) as served,
            open_connection(*address(served.broker_address)) as client,
        ):
            await test(client)

    asyncio.run(run())


def send(topic: str = "Orders", queue_id: int = 0, properties: str = "", **more: Any) -> dict[str, str]:
    header = h.Send(
        producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue_id,
        sys_flag=0, born_timestamp=1_795_000_000_000, flag=0, properties=properties, **more,
    )  # fmt: skip
    return to_fields(header)


def pull(offset: int, topic: str = "Orders", queue_id: int = 0, **more: Any) -> dict[str, str]:
    given: dict[str, Any] = {
        "consumer_group": "g", "max_msg_nums": 32, "sys_flag": 4, "commit_offset": 0, "suspend_timeout_millis": 0,
        "sub_version": 0, "subscription": "*",
    }  # fmt: skip
    return to_fields(h.Pull(topic=topic, queue_id=queue_id, queue_offset=offset, **{**given, **more}))


def records(body: bytes) -> list[Record]:
    found, at = [], 0
    while at < len(body):
        record = read(body, at, len(body))
        assert isinstance(record, Record)
        found.append(record)
        at += record.total_size
    return found


def digest(root: Path) -> str:
    made = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            about = path.stat()
            made.update(f"{path} {about.st_size} {about.st_mtime_ns} {about.st_mode}".encode())
            made.update(path.read_bytes())
        made.update(" ".join(folders).encode())
    return made.hexdigest()


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_what_is_acknowledged_is_there_when_the_store_is_opened_again(tmp_path: Path, engine: str) -> None:
    acknowledged: list[tuple[int, int, bytes]] = []

    async def test(client: Connection) -> None:
        async def one(number: int) -> None:
            body = b"%d" % number
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(queue_id=number % 4), body=body), 30)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            sent = from_fields(h.Sent, answer.fields)
            acknowledged.append((sent.queue_id, sent.queue_offset, body))

        for start in range(0, 600, 100):
            await asyncio.gather(*(one(number) for number in range(start, start + 100)))

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])
    with Store(tmp_path / "store", broker_conf=_CONF) as store:
        for queue_id, queue_offset, body in acknowledged:
            got = store.get("Orders", queue_id, queue_offset, 1)
            assert [message.record.body for message in got.messages] == [body]
    assert len(acknowledged) == 600


def test_a_pull_is_held_until_a_message_comes_that_it_wants(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        async def put(tag: str) -> None:
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties=f"TAGS\x01{tag}"), body=b"x"))
            assert answer.code == ResponseCode.SUCCESS

        await put("other")
        fields = pull(1, sys_flag=6, suspend_timeout_millis=20_000, subscription="mine")
        held = asyncio.create_task(client.call(Command(C.PULL_MESSAGE, fields=fields), 30))
        await asyncio.sleep(0)  # it asks before the next message is sent
        await put("other")
        await asyncio.sleep(0.3)
        assert not held.done()
        await put("mine")
        answer = await held
        assert answer.code == ResponseCode.SUCCESS
        assert [record.queue_offset for record in records(answer.body)] == [2]
        assert from_fields(h.PullResponse, answer.fields).next_begin_offset == 3

    serving(tmp_path / "store", test, create=True, release=V5_3)


def test_a_pull_that_waits_in_vain_is_answered(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        assert not (await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))).code
        fields = pull(1, sys_flag=6, suspend_timeout_millis=300)
        answer = await client.call(Command(C.PULL_MESSAGE, fields=fields), 30)
        assert answer.code == ResponseCode.PULL_NOT_FOUND

    serving(tmp_path / "store", test, create=True, release=V4_9)


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
            listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), broker_conf=_CONF, create=True, release=V4_9
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


def test_topics_are_written_before_they_get_messages(tmp_path: Path) -> None:
    """They survive a kill; groups, which members create again, are written with the offsets."""
    config = tmp_path / "store" / "config"

    async def test(client: Connection) -> None:
        assert not (await client.call(Command(C.SEND_MESSAGE_V2, fields=send("Fresh"), body=b"x"))).code
        consumer = ConsumerData("fresh", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
        assert not (await client.call(Command(C.HEART_BEAT, body=body_of(b.HeartbeatData("id", [], [consumer]))))).code
        assert "Fresh" in Topics.parse((config / "topics.json").read_bytes()).topics

    serving(tmp_path / "store", test, create=True, release=V4_9)
    assert "%RETRY%fresh" in Topics.parse((config / "topics.json").read_bytes()).topics
    assert "fresh" in SubscriptionGroups.parse((config / "subscriptionGroup.json").read_bytes()).groups


def test_lists_of_topics_and_groups_are_made_whole_or_not_at_all(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        async def ask(code: int, body: str) -> int:
            return (await client.call(Command(code, body=body.encode()))).code

        topics = '{"topicConfigList": [{"topicName": "One", "writeQueueNums": 3}, {"topicName": "%s"}]}'
        groups = '{"groupConfigList": [{"groupName": "first", "retryMaxTimes": 7}, {"groupName": "%s"}]}'
        assert await ask(C.UPDATE_AND_CREATE_TOPIC_LIST, topics % "a b") == ResponseCode.INVALID_PARAMETER
        assert await ask(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups % "a b") == ResponseCode.SYSTEM_ERROR
        one = Command(C.GET_TOPIC_CONFIG, fields=to_fields(h.Topic(topic="One")))
        assert (await client.call(one)).code == ResponseCode.TOPIC_NOT_EXIST
        assert await ask(C.UPDATE_AND_CREATE_TOPIC_LIST, topics % "Two") == 0
        assert await ask(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups % "second") == 0
        assert (await client.call(one)).code == 0

    serving(tmp_path / "store", test, create=True, release=V5_3)
    config = tmp_path / "store" / "config"
    written = Topics.parse((config / "topics.json").read_bytes()).topics
    assert (written["One"].write_queue_nums, written["Two"].write_queue_nums) == (3, 16)
    found = SubscriptionGroups.parse((config / "subscriptionGroup.json").read_bytes()).groups
    assert found["first"].retry_max_times == 7
    assert "second" in found


@pytest.mark.parametrize(("engine", "code"), [("4.9", 0), ("5.3", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)])
def test_offsets_of_a_group_that_is_not_known(tmp_path: Path, engine: str, code: int) -> None:
    async def test(client: Connection) -> None:
        await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        commit = h.Commit(topic="Orders", consumer_group="nobody", queue_id=0, commit_offset=1)
        assert (await client.call(Command(C.UPDATE_CONSUMER_OFFSET, fields=to_fields(commit)))).code == code

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])


@pytest.mark.parametrize("name", ["broker", "broker-5.3.3", "broker-crash"])
def test_a_store_that_is_served_read_only_is_not_touched(golden_copy: Unpacked, tmp_path: Path, name: str) -> None:
    store = golden_copy(name)
    before = digest(store)
    offsets = tmp_path / "offsets.csv"
    queue = open_queue(StoreLayout(str(store)), "Orders", 1)
    assert queue is not None
    messages = [entry.physical_offset for entry in queue.entries()]

    async def test(client: Connection) -> None:
        refused = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        assert refused.code == ResponseCode.NO_PERMISSION
        got, at = [], 0
        while True:
            answer = await client.call(Command(C.PULL_MESSAGE, fields=pull(at, queue_id=1, sys_flag=5)))
            if answer.code:
                break
            got += records(answer.body)
            at = from_fields(h.PullResponse, answer.fields).next_begin_offset
        assert len(got) == at
        assert [record.physical_offset for record in got] == messages
        fields = to_fields(h.Commit(consumer_group="g", topic="Orders", queue_id=1, commit_offset=at))
        assert not (await client.call(Command(C.UPDATE_CONSUMER_OFFSET, fields=fields))).code

    serving(store, test, broker_conf=None, read_only=True, offsets=str(offsets))
    assert digest(store) == before
    last = fingerprint(read_at(store, messages[-1]))
    assert offsets.read_text() == f"group,topic,queueId,consumerOffset,lastMessage\ng,Orders,1,{len(messages)},{last}\n"

    async def again(client: Connection) -> None:
        fields = to_fields(h.GroupQueue(consumer_group="g", topic="Orders", queue_id=1))
        answer = await client.call(Command(C.QUERY_CONSUMER_OFFSET, fields=fields))
        assert from_fields(h.Offset, answer.fields).offset == len(messages)

    serving(store, again, broker_conf=None, read_only=True, offsets=str(offsets))
    for count, words in ((len(messages) + 5, "has another message before that now"), (len(messages) - 1, "ends at")):
        shutil.rmtree(tmp_path / "another", ignore_errors=True)
        with Store.create(tmp_path / "another") as another:
            another.append_many([Message(topic="Orders", queue_id=1, body=b"new") for _ in range(count)])
        with pytest.raises(Refused, match=f"{words}.*offsets of another store"):
            serving(tmp_path / "another", again, broker_conf=None, read_only=True, offsets=str(offsets))


def read_at(store: Path, physical_offset: int) -> Record:
    found = CommitLog(StoreLayout(str(store))).read(physical_offset)
    assert found is not None
    return found.record


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    async def test(_client: Connection) -> None:
        with pytest.raises(Refused):
            Store(tmp_path / "store", write=True)
        with pytest.raises(Refused):
            async with Served(str(tmp_path / "store"), ServeOptions(listen=("127.0.0.1", 0), namesrv=("127.0.0.1:1",))):
                pass

    serving(tmp_path / "store", test, create=True)


def test_every_code_with_broken_fields_and_bodies_is_answered(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        wrong: list[tuple[dict[str, str] | None, bytes]] = [
            (None, b""), ({}, b"{"), ({"topic": "Orders"}, b"[]"), ({"queueId": "x", "topic": "\0"}, b"\xff"),
            ({"topic": "../../x", "queueId": "-1", "consumerGroup": "g@h", "group": "x/y"}, b'{"clientID":1}'),
            (pull(-(1 << 63), topic="..", queue_id=0), b""), (send("a/b"), b""), (send("x" * 300), b"y"),
            (send(properties="\x01\x02" * 50), b"y"), (send(properties="DELAY\x01" + "9" * 400), b"y"),
        ]  # fmt: skip
        for code in [*C, -1, 0, 32767]:
            if code == C.END_TRANSACTION:
                continue  # one whose end is unknown gets no answer
            for fields, body in wrong:
                await client.call(Command(int(code), fields=fields, body=body), 20)
        answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        assert answer.code == ResponseCode.SUCCESS

    serving(tmp_path / "store", test, create=True, release=V5_3)


@pytest.fixture
def served() -> Iterator[Any]:
    with broker() as running:
        yield running


def test_a_broker_for_tests(served: Any) -> None:
    async def talk() -> None:
        async with (
            open_connection(*address(served.namesrv)) as names,
            open_connection(*address(served.address)) as client,
        ):
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
            assert answer.code == ResponseCode.SUCCESS
            fields = to_fields(h.Topic(topic="Orders"))
            for _ in range(100):
                route = await names.call(Command(C.GET_ROUTEINFO_BY_TOPIC, fields=fields))
                if not route.code:
                    break
                await asyncio.sleep(0.05)
            found = read_body(b.TopicRouteData, route.body)
            assert [data.broker_addrs for data in found.broker_datas] == [{0: served.address}]

    asyncio.run(talk())
    assert Path(served.store, "commitlog").is_dir()


def test_what_a_broker_for_tests_cannot_do_is_raised(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no directory")
    with pytest.raises((Refused, OSError, Exception), match="store"), broker(tmp_path / "store"):
        pass
    with broker() as running, pytest.raises(Refused), broker(running.store):
        pass
    assert not Path(running.store).exists()


@pytest.mark.parametrize("count", [1, 3, 250])
def test_each_message_of_a_batch_is_found_by_its_id(tmp_path: Path, count: int) -> None:
    body = build_batch([BatchItem(n, b"in %d" % n, b"KEYS\x01k%d\x02" % n) for n in range(count)])

    async def test(client: Connection) -> None:
        await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"before"))
        done = await client.call(Command(C.SEND_BATCH_MESSAGE, fields=send(batch=True), body=body))
        ids = done.fields["msgId"].split(",")
        assert len(set(ids)) == count
        for number, one in enumerate(ids):
            parts = parse_offset_id(one)
            seen = await client.call(Command(C.VIEW_MESSAGE_BY_ID, fields={"offset": str(parts.physical_offset)}))
            (record,) = records(seen.body)
            assert (record.body, record.flag, record.queue_offset) == (b"in %d" % number, number, 1 + number)
            assert (record.physical_offset, record.store_port) == (parts.physical_offset, parts.port)

    serving(tmp_path / "store", test, create=True)


def test_a_batch_without_messages_has_no_ids(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        done = await client.call(Command(C.SEND_BATCH_MESSAGE, fields=send(batch=True)))
        assert not (done.fields or {}).get("msgId")
        after = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"after"))
        assert (after.code, after.fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")

    serving(tmp_path / "store", test, create=True)


def test_a_topic_with_batch_queues_is_made_and_sent_to(tmp_path: Path) -> None:
    """At once and after the next start; the kind of queues cannot be changed."""
    store = tmp_path / "store"
    body = build_batch([BatchItem(n, b"in %d" % n, b"KEYS\x01k%d\x02" % n) for n in range(5)])
    made = h.CreateTopic(
        topic="InBatches", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, attributes="+queue.type=BatchCQ",
    )  # fmt: skip

    async def test(client: Connection) -> None:
        base = 6 * sum(1 for _ in queues())
        place = to_fields(h.Queue(topic="InBatches", queue_id=0))
        again = made if base == 0 else replace(made, attributes="-queue.type")
        answer = await client.call(Command(C.UPDATE_AND_CREATE_TOPIC, fields=to_fields(again)))
        assert bool(answer.code) == bool(base)
        assert (await client.call(Command(C.DELETE_TOPIC_IN_BROKER, fields={"topic": "InBatches"}))).code
        lowest = await client.call(Command(C.GET_MIN_OFFSET, fields=place))
        assert lowest.fields["offset"] == ("0" if base else "-1")
        fields = send("InBatches", properties="UNIQ_KEY\x01" + "A" * 32, batch=True)
        done = await client.call(Command(C.SEND_BATCH_MESSAGE, fields=fields, body=body))
        assert (done.code, done.fields["queueOffset"], done.fields["msgId"].count(",")) == (0, str(base), 0)
        assert done.fields["batchUniqId"] == "A" * 32
        alone = await client.call(Command(C.SEND_MESSAGE_V2, fields=send("InBatches"), body=b"alone"))
        assert (alone.code, alone.fields["queueOffset"]) == (0, str(base + 5))
        for offset in range(base, base + 6):
            got = await client.call(Command(C.PULL_MESSAGE, fields=pull(offset, "InBatches")))
            assert (got.code, got.fields["nextBeginOffset"]) == (0, str(base + 6))
            first = read(got.body, 0, len(got.body))
            assert isinstance(first, Record)
            assert first.queue_offset == (base if offset < base + 5 else base + 5)
        behind = await client.call(Command(C.PULL_MESSAGE, fields=pull(base + 6, "InBatches")))
        assert behind.code == ResponseCode.PULL_NOT_FOUND

    def queues() -> Iterator[BatchQueue]:
        return (queue for queue in batch_queues_of(StoreLayout(str(store))) if queue.topic == "InBatches")

    for _ in range(2):
        serving(store, test, create=True, release=V5_3)
    (queue,) = queues()
    assert [(entry.queue_offset, entry.batch_num) for entry in queue.entries()] == [(0, 5), (5, 1), (6, 5), (11, 1)]


def test_a_batch_to_an_ordinary_topic_has_an_id_for_each_message(tmp_path: Path) -> None:
    """A client of 5.x gives every batch an id; if it got that back, it would know one id instead of ten."""
    body = build_batch([BatchItem(n, b"in %d" % n, b"UNIQ_KEY\x01%032d\x02" % n) for n in range(10)])

    async def test(client: Connection) -> None:
        fields = send(properties="UNIQ_KEY\x01" + "A" * 32, batch=True)
        done = await client.call(Command(C.SEND_BATCH_MESSAGE, fields=fields, body=body))
        assert (done.code, done.fields["msgId"].count(",")) == (0, 9)
        assert "batchUniqId" not in done.fields

    serving(tmp_path / "store", test, create=True, release=V5_3)


def test_a_popped_message_that_is_sent_on_loses_its_handle(tmp_path: Path) -> None:
    """As in SendMessageProcessor.clearReservedProperties."""
    mine = "TAGS\x01t\x02POP_CK\x010 1 2 3 4 lab-a 5 6\x02own\x01kept"

    async def test(client: Connection) -> None:
        await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties=mine), body=b"sent on"))
        got = await client.call(Command(C.PULL_MESSAGE, fields=pull(0)))
        (record,) = records(got.body)
        stored = parse(record.properties)
        assert (stored["own"], stored["TAGS"]) == ("kept", "t")
        assert "POP_CK" not in stored

    serving(tmp_path / "store", test, create=True, release=V5_3)


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_tags_with_an_extension_of_the_queue(engine: str, tmp_path: Path) -> None:
    """With ``enableConsumeQueueExt``, entries point to the tags code; held pulls use it too."""

    async def test(client: Connection) -> None:
        for n, tag in enumerate(("a", "b", "a", None)):
            properties = "" if tag is None else f"TAGS\x01{tag}\x02"
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties=properties), body=b"%d" % n))
        for expression, wanted in (("a", [b"0", b"2"]), ("b", [b"1"]), ("a || b", [b"0", b"1", b"2"]), ("c", [])):
            got = await client.call(Command(C.PULL_MESSAGE, fields=pull(0, subscription=expression)))
            assert [record.body for record in records(got.body)] == wanted, expression
        fields = pull(4, subscription="b", sys_flag=6, suspend_timeout_millis=20_000)
        waiting = asyncio.create_task(client.call(Command(C.PULL_MESSAGE, fields=fields), 30))
        await asyncio.sleep(0.2)
        for tag in ("a", "b"):
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties=f"TAGS\x01{tag}\x02"), body=b"late"))
        got = await asyncio.wait_for(waiting, 10)
        assert [parse(record.properties)["TAGS"] for record in records(got.body)] == ["b"]

    serving(
        tmp_path / "store",
        test,
        create=True,
        release=RELEASES[engine],
        broker_conf={**_CONF, "enableConsumeQueueExt": "true"},
    )
    assert (tmp_path / "store" / "consumequeue_ext").exists()


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_a_query_by_key_is_answered_with_64_messages(engine: str, tmp_path: Path) -> None:
    """``maxMsgsNumBatch``, whatever is requested."""

    async def test(client: Connection) -> None:
        for n in range(99):
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties="KEYS\x01k\x02"), body=b"%d" % n))
        asked = h.Query(topic="Orders", key="k", max_num=99, begin_timestamp=0, end_timestamp=2**62)
        found = await client.call(Command(C.QUERY_MESSAGE, fields=to_fields(asked)))
        # the newest, oldest first, as a broker takes them from its index
        assert [record.body for record in records(found.body)] == [b"%d" % n for n in range(99 - 64, 99)]

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


@pytest.mark.parametrize("engine", ["4.9", "5.3", "5.5"])
def test_the_timer_cannot_be_switched(engine: str, tmp_path: Path) -> None:
    """As answered by a real broker of each release; 5.5.0 is the first to know the request."""

    async def test(client: Connection) -> None:
        answers = [
            await client.call(Command(C.SWITCH_TIMER_ENGINE, fields=fields))
            for fields in (None, {"E_T": ""}, {"E_T": "R"}, {"E_T": "F"})
        ]
        expected = [3, 3, 3, 3] if engine != "5.5" else [29, 29, 29, 0]
        assert [answer.code for answer in answers] == expected

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])


@pytest.mark.parametrize(("engine", "code"), [("4.9", 13), ("5.3", 1), ("5.5", 1)])
def test_a_batch_that_is_too_large(engine: str, code: int, tmp_path: Path) -> None:
    """In real brokers 4.9.8 checks the whole body, in 5.x the encoder throws; single messages would be accepted."""

    async def test(client: Connection) -> None:
        for size, expected in ((1000, 0), (40_000, code)):
            body = build_batch([BatchItem(0, bytes(size), b"KEYS\x01a")] * 2)
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(batch=True), body=body))
            assert answer.code == expected, answer.remark

    conf = _CONF | {"maxMessageSize": "65536"}
    serving(tmp_path / "store", test, create=True, release=RELEASES[engine], broker_conf=conf)


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_a_kill_after_a_topic_was_made_again_hides_nothing(engine: str, tmp_path: Path) -> None:
    """Queue offsets continue: if they were reused, the next start would dispatch the old messages instead of the
    new.
    """
    store = tmp_path / "store"

    async def test(client: Connection) -> None:
        for n in range(40):
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"old %d" % n))
        deleted = await client.call(Command(C.DELETE_TOPIC_IN_BROKER, fields={"topic": "Orders"}))
        assert deleted.code == ResponseCode.SUCCESS
        for n in range(10):
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"new %d" % n))
        shutil.copytree(store, tmp_path / "killed")

    async def look(client: Connection) -> None:
        pulled = await client.call(Command(C.PULL_MESSAGE, fields=pull(40)))
        first = read(pulled.body, 0, len(pulled.body))
        assert isinstance(first, Record)
        assert (first.body, pulled.body.count(b"new ")) == (b"new 0", 10)

    serving(store, test, create=True, release=RELEASES[engine])
    serving(tmp_path / "killed", look, release=RELEASES[engine])


async def commit_offset(client: Connection, offset: int) -> None:
    commit = h.Commit(consumer_group="g", topic="Orders", queue_id=0, commit_offset=offset)
    done = await client.call(Command(C.UPDATE_CONSUMER_OFFSET, fields=to_fields(commit)))
    assert done.code == ResponseCode.SUCCESS, done.remark


async def positions(client: Connection) -> tuple[int, int, int | None]:
    """(end of the first queue, the group's offset, offset up to which messages were delivered)."""
    asked = h.ConsumerGroup(consumer_group="g", topic="Orders")
    answer = await client.call(Command(C.GET_CONSUME_STATS, fields=to_fields(asked)))
    table = read_body(b.ConsumeStats, answer.body).offset_table
    first = {queue.queue_id: wrapper for queue, wrapper in table.items()}[0]
    return first.broker_offset, first.consumer_offset, first.pull_offset


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_without_topics_json_is_served_as_its_queues_show_it(
    read_only: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store created by ``append``, ``import`` or ``salvage``: its messages are served, with a hint."""
    store = tmp_path / "store"
    with Store.create(store, broker_conf=_CONF) as made:
        made.append_many([Message(topic="Orders", queue_id=n % 3, body=b"x") for n in range(6)])
    assert not (store / "config" / "topics.json").exists()

    async def test(client: Connection) -> None:
        got = await client.call(Command(C.PULL_MESSAGE, fields=pull(0, queue_id=2)))
        assert (got.code, len(records(got.body))) == (0, 2)
        if read_only:
            return
        assert not (await client.call(Command(C.SEND_MESSAGE_V2, fields=send("Fresh"), body=b"x"))).code
        told = json.loads((await client.call(Command(C.GET_ALL_TOPIC_CONFIG))).body)["topicConfigTable"]
        assert (told["Orders"]["readQueueNums"], told["Orders"]["perm"]) == (3, 6)

    with caplog.at_level("WARNING"):
        serving(store, test, read_only=read_only)
    (said,) = [record.getMessage() for record in caplog.records if "topics.json" in record.getMessage()]
    assert said.endswith(f"has no topics.json: 1 topic is served as the queues show; rmqtool rebuild {store} "
                         f"config writes one")  # fmt: skip


@pytest.mark.parametrize("engine", RELEASES)
@pytest.mark.parametrize("most", [20_000, 6 << 20])
def test_a_body_is_as_long_as_the_configuration_allows(engine: str, most: int, tmp_path: Path) -> None:
    """``maxMessageSize``, below and above its default; tests/interop/test_sending.py asks a real broker."""

    async def test(client: Connection) -> None:
        for code, size in ((ResponseCode.SUCCESS, most), (ResponseCode.MESSAGE_ILLEGAL, most + 1)):
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=bytes(size)), 30)
            assert answer.code == code, answer.remark

    conf = _CONF | {"mappedFileSizeCommitLog": str(16 << 20), "maxMessageSize": str(most)}
    serving(tmp_path / "store", test, create=True, release=RELEASES[engine], broker_conf=conf)
