"""Tables of topics and groups: when they are written, and what they show."""

import json
import shutil
from pathlib import Path

import pytest

from formats.config.files import SubscriptionGroups, Topics
from formats.fastjson.declare import body_of
from formats.message.read import Record, read
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData
from rmqtool import NewMessage
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import RELEASES, V4_9, V5_3
from rmqtool.services.open_store.store import Store
from tests.conftest import Unpacked
from tests.server.serving import CONF, pull, records, send, serving


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
        command = Command(C.GET_TOPIC_CONFIG, fields=to_fields(h.Topic(topic="One")))
        assert (await client.call(command)).code == ResponseCode.TOPIC_NOT_EXIST
        assert await ask(C.UPDATE_AND_CREATE_TOPIC_LIST, topics % "Two") == 0
        assert await ask(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups % "second") == 0
        assert (await client.call(command)).code == 0

    serving(tmp_path / "store", test, create=True, release=V5_3)
    config = tmp_path / "store" / "config"
    written = Topics.parse((config / "topics.json").read_bytes()).topics
    assert (written["One"].write_queue_nums, written["Two"].write_queue_nums) == (3, 16)
    parsed = SubscriptionGroups.parse((config / "subscriptionGroup.json").read_bytes()).groups
    assert parsed["first"].retry_max_times == 7
    assert "second" in parsed


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


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_without_topics_json_is_served_as_its_queues_show_it(
    read_only: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store created by ``append``, ``import`` or ``salvage``: its messages are served, with a hint."""
    store = tmp_path / "store"
    with Store.create(store, broker_conf=CONF) as made:
        made.append_many([NewMessage(topic="Orders", queue_id=n % 3, body=b"x") for n in range(6)])
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
    (answer,) = [record.getMessage() for record in caplog.records if "topics.json" in record.getMessage()]
    assert answer.endswith(f"has no topics.json: 1 topic is served as the queues show; rmqtool rebuild {store} "
                         f"config writes one")  # fmt: skip


def test_batch_queues_of_a_store_without_topics_are_served(golden_copy: Unpacked) -> None:
    """Their kind is that of their files. Such a store is only read: no broker starts on it."""
    store = golden_copy("broker-5.3.3")
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).unlink(missing_ok=True)

    async def test(client: Connection) -> None:
        got = await client.call(Command(C.PULL_MESSAGE, fields=pull(0, "BatchQueue")))
        assert (got.code, {record.topic for record in records(got.body)}) == (0, {b"BatchQueue"})
        told = json.loads((await client.call(Command(C.GET_ALL_TOPIC_CONFIG))).body)["topicConfigTable"]
        assert told["BatchQueue"]["attributes"] == {"queue.type": "BatchCQ"}

    serving(store, test, read_only=True)
