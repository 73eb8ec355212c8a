"""Static topics: two brokers hold ranges of their queues, and the leader answers for both.

``tests/interop/test_static_topics.py`` has real clients, and real brokers beside ours.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from formats.config.files_of_5 import LogicQueueMapping, TopicQueueMapping, TopicQueueMappings
from formats.fastjson.declare import T, body_of, read_body
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import PullFlag, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from rmqtool.errors import BadValue
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.signing import Credentials, sign
from rmqtool.rules.releases import RELEASES, V4_9, V5_3
from rmqtool.server.serve import Served, ServeOptions
from tests.server.serving import CONF, address, pull, records, send, serving

TOPIC = "Static"
ANY = ("127.0.0.1", 0)


@dataclass
class Cluster:
    """Two brokers, a and b, and their name server."""

    brokers: dict[str, Connection]
    namesrv: Connection

    async def ask(self, broker: str, code: int, header: Any, body: bytes = b"") -> Command:
        return await self.brokers[broker].call(Command(code, fields=to_fields(header), body=body))

    async def get(self, declared: type[T], broker: str, code: int, header: Any) -> T:
        answer = await self.ask(broker, code, header)
        assert answer.code == 0, answer.remark
        return from_fields(declared, answer.fields)

    async def send(self, broker: str, queue_id: int, number: int, **more: Any) -> h.Sent:
        sent = None
        for n in range(number):
            fields = send(TOPIC, queue_id, **more)
            answer = await self.brokers[broker].call(Command(C.SEND_MESSAGE_V2, fields=fields, body=b"%d" % n))
            assert answer.code == 0, answer.remark
            sent = from_fields(h.Sent, answer.fields)
        assert sent is not None
        return sent

    async def pull(self, broker: str, offset: int, queue_id: int = 0, **more: Any) -> Command:
        return await self.brokers[broker].call(Command(C.PULL_MESSAGE, fields=pull(offset, TOPIC, queue_id, **more)))


@asynccontextmanager
async def cluster(folder: Path, conf: dict[str, str] = CONF, acl: str | None = None) -> AsyncIterator[Cluster]:
    """Two brokers.

    Args:
        acl: accounts of broker a; b has no access control.
    """
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        brokers, names = {}, ""
        for name in ("a", "b"):
            options = ServeOptions(
                listen=ANY, namesrv_listen=ANY, broker_conf=conf, name=name, create=True, release=V5_3,
                namesrv=(names,) if names else (), acl=acl if name == "a" else None,
            )  # fmt: skip
            served = await stack.enter_async_context(Served(str(folder / name), options))
            [names] = served.name_servers
            brokers[name] = await stack.enter_async_context(open_connection(*address(served.broker_address)))
        yield Cluster(brokers, await stack.enter_async_context(open_connection(*address(names))))


def mapping(broker: str, epoch: int, **queues: list[LogicQueueMapping]) -> TopicQueueMapping:
    hosted = {int(name[1:]): tuple(ranges) for name, ranges in queues.items()}
    return TopicQueueMapping(topic=TOPIC, total_queues=2, broker_name=broker, epoch=epoch, hosted_queues=hosted)


def item(broker: str, gen: int = 0, queue_id: int = 0, logic_offset: int = 0) -> LogicQueueMapping:
    return LogicQueueMapping(gen=gen, queue_id=queue_id, broker_name=broker, logic_offset=logic_offset)


def created(queues: int, force: bool | None = None) -> h.CreateTopic:
    return h.CreateTopic(
        topic=TOPIC, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, force=force,
    )  # fmt: skip


async def put(cluster: Cluster, queues: int, part: TopicQueueMapping) -> Command:
    return await cluster.ask(part.broker_name or "", C.UPDATE_AND_CREATE_STATIC_TOPIC, created(queues), body_of(part))


def test_a_queue_that_moved_to_another_broker_is_one_queue(tmp_path: Path) -> None:
    """Queue 0 is held by physical queue 1 of a, then by queue 0 of b: b answers for both, forwarding to a."""
    at_a, at_b = item("a", queue_id=1), item("b", gen=1, logic_offset=10_000)
    group = {"consumer_group": "g", "topic": TOPIC, "queue_id": 0}
    queue = h.Queue(topic=TOPIC, queue_id=0)

    async def run() -> None:
        async with cluster(tmp_path) as both:
            assert not (await put(both, 2, mapping("a", 1, q0=[at_a], q1=[item("a")]))).code
            assert not (await put(both, 0, mapping("b", 1))).code
            sent = await both.send("a", 0, 5)
            assert (sent.queue_id, sent.queue_offset) == (0, 4)
            first = await both.pull("a", 2)
            assert [record.queue_offset for record in records(first.body)] == [2, 3, 4]
            assert {record.queue_id for record in records(first.body)} == {1}
            known = h.Commit(**group, commit_offset=3)
            await both.ask("a", C.GET_SUBSCRIPTIONGROUP_CONFIG, h.ConsumerGroup(consumer_group="g"))
            assert not (await both.ask("a", C.UPDATE_CONSUMER_OFFSET, known)).code

            moved = [at_a, at_b]
            assert not (await put(both, 1, mapping("b", 2, q0=moved))).code
            assert not (await put(both, 2, mapping("a", 2, q0=moved, q1=[item("a")]))).code
            refused = await both.pull("a", 2)
            assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE
            assert refused.remark == f"{TOPIC}-0 cannot find mapping item in request process of current broker a"
            sent = await both.send("b", 0, 3)
            assert (sent.queue_id, sent.queue_offset) == (0, 10_002)

            # the old range, its end, and the new one
            old = await both.pull("b", 2)
            answer = from_fields(h.PullResponse, old.fields)
            assert [record.body for record in records(old.body)] == [b"2", b"3", b"4"]
            assert (answer.next_begin_offset, answer.min_offset, answer.max_offset, answer.offset_delta) == (
                5, 0, 10_000, 0,
            )  # fmt: skip
            end = await both.pull("b", 5)
            assert end.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert from_fields(h.PullResponse, end.fields).next_begin_offset == 10_000
            new = await both.pull("b", 10_001)
            answer = from_fields(h.PullResponse, new.fields)
            assert [record.body for record in records(new.body)] == [b"1", b"2"]
            assert (answer.next_begin_offset, answer.max_offset, answer.offset_delta) == (10_003, 10_003, 10_000)
            beyond = await both.pull("b", 10_500)
            assert beyond.code == ResponseCode.PULL_OFFSET_MOVED
            assert from_fields(h.PullResponse, beyond.fields).next_begin_offset == 10_003

            async def offset(code: int, header: Any) -> int:
                return (await both.get(h.Offset, "b", code, header)).offset

            assert await offset(C.GET_MIN_OFFSET, queue) == 0
            assert await offset(C.GET_MAX_OFFSET, queue) == 10_003
            stored = records(new.body)[0].store_timestamp
            assert await offset(C.SEARCH_OFFSET_BY_TIMESTAMP, h.QueueTime(topic=TOPIC, queue_id=0, timestamp=0)) == 0
            later = h.QueueTime(topic=TOPIC, queue_id=0, timestamp=stored)
            assert await offset(C.SEARCH_OFFSET_BY_TIMESTAMP, later) in (10_000, 10_001)
            earliest = await both.get(h.Timestamp, "b", C.GET_EARLIEST_MSG_STORETIME, queue)
            assert earliest.timestamp == records(first.body)[0].store_timestamp or earliest.timestamp <= stored

            # the offset of the group is on a until it passes the range
            assert await offset(C.QUERY_CONSUMER_OFFSET, h.GroupQueue(**group)) == 3
            assert not (await both.ask("b", C.UPDATE_CONSUMER_OFFSET, h.Commit(**group, commit_offset=5))).code
            assert await offset(C.QUERY_CONSUMER_OFFSET, h.GroupQueue(**group)) == 5
            await both.ask("b", C.GET_SUBSCRIPTIONGROUP_CONFIG, h.ConsumerGroup(consumer_group="g"))
            assert not (await both.ask("b", C.UPDATE_CONSUMER_OFFSET, h.Commit(**group, commit_offset=10_001))).code
            assert await offset(C.QUERY_CONSUMER_OFFSET, h.GroupQueue(**group)) == 10_001
            flags = PullFlag.COMMIT_OFFSET | PullFlag.SUBSCRIPTION
            await both.pull("b", 10_002, sys_flag=flags, commit_offset=10_002)
            assert await offset(C.QUERY_CONSUMER_OFFSET, h.GroupQueue(**group)) == 10_002

    asyncio.run(run())


def test_what_is_forwarded_is_signed(tmp_path: Path) -> None:
    """Broker a has access control: the leader b signs what it asks a, with the keys in its file."""
    keys, accounts = Credentials("the-broker", "inner-secret"), tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- accessKey: the-broker\n  secretKey: inner-secret\n  admin: true\n")
    moved = [item("a"), item("b", gen=1, logic_offset=10_000)]

    async def run(inner: str) -> Command:
        conf = {**CONF, "innerClientAuthenticationCredentials": inner}
        (folder := tmp_path / f"{len(inner)}").mkdir()
        async with cluster(folder, conf, str(accounts)) as both:

            async def ask(code: int, fields: dict[str, str], body: bytes = b"") -> None:
                answer = await both.brokers["a"].call(sign(Command(code, fields=fields, body=body), keys))
                assert not answer.code, answer.remark

            first = to_fields(created(2))
            await ask(C.UPDATE_AND_CREATE_STATIC_TOPIC, first, body_of(mapping("a", 1, q0=[item("a")])))
            await ask(C.SEND_MESSAGE_V2, send(TOPIC, 0), b"here")
            await ask(C.UPDATE_AND_CREATE_STATIC_TOPIC, first, body_of(mapping("a", 2, q0=moved)))
            assert not (await put(both, 1, mapping("b", 2, q0=moved))).code
            return await both.pull("b", 0)

    unsigned = asyncio.run(run(""))
    assert unsigned.code == ResponseCode.SYSTEM_ERROR
    assert "No accessKey is configured" in str(unsigned.remark)
    signed = asyncio.run(run('{"accessKey":"the-broker","secretKey":"inner-secret"}'))
    assert [record.body for record in records(signed.body)] == [b"here"]
    with pytest.raises(BadValue, match="innerClientAuthenticationCredentials: give"):
        asyncio.run(run("inner:secret"))


def test_a_pull_waits_for_the_next_message_of_a_static_queue(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path) as both:
            assert not (await put(both, 2, mapping("a", 1, q1=[item("a")]))).code
            waiting = asyncio.create_task(both.pull("a", 0, 1, sys_flag=6, suspend_timeout_millis=20_000))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await both.send("a", 1, 1)
            async with asyncio.timeout(5):
                answer = await waiting
            assert [record.queue_id for record in records(answer.body)] == [0]

    asyncio.run(run())


def test_the_route_has_the_mapping_until_the_topic_is_deleted(tmp_path: Path) -> None:
    async def route(both: Cluster) -> b.TopicRouteData | None:
        answer = await both.namesrv.call(Command(C.GET_ROUTEINFO_BY_TOPIC, fields={"topic": TOPIC}))
        return None if answer.code else read_body(b.TopicRouteData, answer.body)

    async def run() -> None:
        async with cluster(tmp_path) as both:
            assert not (await put(both, 2, mapping("a", 1, q0=[item("a", queue_id=1)], q1=[item("a")]))).code
            assert not (await put(both, 0, mapping("b", 1))).code
            data = await route(both)
            assert data is not None
            infos = data.topic_queue_mapping_by_broker or {}
            assert {name: info.curr_id_map for name, info in infos.items()} == {"a": {0: 1, 1: 0}, "b": {}}
            for broker in ("a", "b"):
                assert not (await both.ask(broker, C.DELETE_TOPIC_IN_BROKER, h.Topic(topic=TOPIC))).code
            await both.namesrv.call(Command(C.DELETE_TOPIC_IN_NAMESRV, fields={"topic": TOPIC}))
            assert await route(both) is None
            await both.send("a", 0, 1)  # an ordinary topic of the same name
            data = await route(both)
            assert data is not None
            assert not data.topic_queue_mapping_by_broker

    asyncio.run(run())
    assert not TopicQueueMappings.parse((tmp_path / "a/config/topicQueueMapping.json").read_bytes()).mappings


def test_the_mapping_is_shown_and_kept(tmp_path: Path) -> None:
    """Over a restart; 351 shows it on request."""
    part = mapping("lab-a", 7, q0=[item("lab-a", queue_id=1)], q1=[item("lab-a")])

    async def create(client: Connection) -> None:
        command = Command(C.UPDATE_AND_CREATE_STATIC_TOPIC, fields=to_fields(created(2)), body=body_of(part))
        assert not (await client.call(command)).code

    async def look(client: Connection) -> None:
        asked = h.Topic(topic=TOPIC, lo=True)
        answer = await client.call(Command(C.GET_TOPIC_CONFIG, fields=to_fields(asked)))
        shown = json.loads(json.dumps(_loads(answer.body)))
        assert TopicQueueMapping.parse(json.dumps(shown["mappingDetail"]).encode()) == part
        plain = await client.call(Command(C.GET_TOPIC_CONFIG, fields={"topic": TOPIC}))
        assert b"mappingDetail" not in plain.body
        table = _loads((await client.call(Command(C.GET_ALL_TOPIC_CONFIG))).body)
        assert list(table["topicQueueMappingDetailMap"]) == [TOPIC]
        assert table["mappingDataVersion"]["counter"] == 1

    serving(tmp_path / "store", create, create=True, release=V5_3)
    serving(tmp_path / "store", look, release=V5_3)
    serving(tmp_path / "store", look, read_only=True, release=V5_3)


def _loads(data: bytes) -> Any:
    from formats.fastjson.read import loads

    return loads(data)


def test_a_followed_store_shows_what_its_broker_changes(tmp_path: Path) -> None:
    file = tmp_path / "store/config/topicQueueMapping.json"

    async def create(client: Connection) -> None:
        command = Command(C.UPDATE_AND_CREATE_STATIC_TOPIC, fields=to_fields(created(2)), body=body_of(OLD))
        assert not (await client.call(command)).code

    async def look(client: Connection) -> None:
        asked = Command(C.GET_TOPIC_CONFIG, fields=to_fields(h.Topic(topic=TOPIC, lo=True)))
        assert _loads((await client.call(asked)).body)["mappingDetail"]["epoch"] == 7
        changed = TopicQueueMappings(mappings={TOPIC: replace(OLD, epoch=8)})
        file.with_suffix(".new").write_bytes(changed.build(V5_3.version))
        file.with_suffix(".new").replace(file)
        async with asyncio.timeout(20):
            while _loads((await client.call(asked)).body)["mappingDetail"]["epoch"] != 8:
                await asyncio.sleep(0.1)

    serving(tmp_path / "store", create, create=True, release=V5_3)
    serving(tmp_path / "store", look, follow=True, release=V5_3)


OLD = mapping("lab-a", 7, q0=[item("lab-a", queue_id=1)], q1=[item("lab-a")])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (mapping("lab-a", 6, q0=[item("lab-a", queue_id=1)]), "small epoch 6 < 7"),
        (mapping("lab-a", 7, q0=[item("lab-a", queue_id=1)]), "equal epoch with null data"),
        (mapping("lab-a", 8, q0=[item("lab-b", queue_id=1)]), "gen 0 is immutable"),
        (mapping("lab-a", 8, q0=[item("lab-a", queue_id=1), item("b", gen=1)]), "base logic offset"),
        (mapping("lab-a", 8, q0=[item("lab-a", queue_id=1), item("b", logic_offset=9)]), "gen does not increase"),
        (mapping("lab-a", 8, q0=[item("lab-a", queue_id=-1)]), "should not be negative"),
        (mapping("lab-b", 8, q0=[item("lab-b", queue_id=1)]), "not of Static here"),
    ],
)
def test_a_mapping_that_brokers_refuse_changes_nothing(change: TopicQueueMapping, reason: str, tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        async def put(part: TopicQueueMapping, queues: int) -> Command:
            fields = to_fields(created(queues))
            return await client.call(Command(C.UPDATE_AND_CREATE_STATIC_TOPIC, fields=fields, body=body_of(part)))

        assert not (await put(OLD, 2)).code
        answer = await put(change, 9)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert reason in (answer.remark or "")
        config = await client.call(Command(C.GET_TOPIC_CONFIG, fields=to_fields(h.Topic(topic=TOPIC, lo=True))))
        shown = _loads(config.body)
        assert shown["readQueueNums"] == 2
        assert shown["mappingDetail"]["epoch"] == 7

    serving(tmp_path / "store", test, create=True, release=V5_3)


def test_a_broker_that_is_away_fails_only_its_ranges(tmp_path: Path) -> None:
    """The range on a broker that nobody knows cannot be read; what is here can."""

    async def test(client: Connection) -> None:
        ranges = [item("gone"), item("lab-a", gen=1, logic_offset=10_000)]
        fields = to_fields(created(1))
        body = body_of(mapping("lab-a", 1, q0=ranges))
        assert not (await client.call(Command(C.UPDATE_AND_CREATE_STATIC_TOPIC, fields=fields, body=body))).code
        old = await client.call(Command(C.PULL_MESSAGE, fields=pull(0, TOPIC)))
        assert old.code == ResponseCode.SYSTEM_ERROR
        assert old.remark == "broker gone, which holds a part of the queue: cannot find addr for broker gone"
        assert not (await client.call(Command(C.SEND_MESSAGE_V2, fields=send(TOPIC), body=b"x"))).code
        new = await client.call(Command(C.PULL_MESSAGE, fields=pull(10_000, TOPIC)))
        assert len(records(new.body)) == 1

    serving(tmp_path / "store", test, create=True, release=V5_3)


@pytest.mark.parametrize(("engine", "codes"), [("4.9", (3, 3)), ("5.3", (29, 29)), ("5.5", (29, 29))])
def test_names_of_static_topics_are_checked(engine: str, codes: tuple[int, ...], tmp_path: Path) -> None:
    """As those of others; 4.9.8 does not know the request."""

    async def test(client: Connection) -> None:
        answers = []
        for name in ("a b", "TBW102"):
            header = to_fields(created(4)) | {"topic": name}
            answers.append(await client.call(Command(C.UPDATE_AND_CREATE_STATIC_TOPIC, fields=header, body=b"{}")))
        assert [answer.code for answer in answers] == list(codes)

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])


def test_a_broker_of_4_9_takes_no_notice_of_a_mapping(tmp_path: Path) -> None:
    async def create(client: Connection) -> None:
        assert not (await client.call(Command(C.SEND_MESSAGE_V2, fields=send(TOPIC), body=b"x"))).code

    async def look(client: Connection) -> None:
        assert len(records((await client.call(Command(C.PULL_MESSAGE, fields=pull(0, TOPIC)))).body)) == 1

    serving(tmp_path / "store", create, create=True, release=V4_9)
    file = TopicQueueMappings(mappings={TOPIC: mapping("lab-a", 1)})
    (tmp_path / "store/config/topicQueueMapping.json").write_bytes(file.build(V5_3.version))
    serving(tmp_path / "store", look, release=V4_9)
