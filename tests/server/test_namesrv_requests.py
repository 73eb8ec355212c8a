"""What the name server answers, asked over real connections."""

import asyncio
import gc
import json
import logging
import random
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from formats.remoting import frame, registration
from formats.remoting.bodies import RegisterBrokerBody, TopicTable
from formats.remoting.codes import Flag, RequestCode, ResponseCode, Serializer
from formats.remoting.dialect import loads
from formats.remoting.frame import Command
from formats.remoting.shapes import MappingInfo, TopicConfig
from formats.remoting.typed import body_of
from rmqtool.server.namesrv import key_values
from rmqtool.server.namesrv.key_values import ORDER_TOPICS
from rmqtool.server.namesrv.server import NameServer
from rmqtool.server.namesrv.settings import Settings
from tests.server.name_servers import (
    ADDRESS,
    BROKER,
    CLUSTER,
    Peer,
    command,
    run,
    topics,
    version,
)
from tests.server.name_servers import (
    registration as who,
)

C, OK = RequestCode, ResponseCode.SUCCESS
Test = Callable[[NameServer, Peer], Awaitable[None]]


class Clock:
    """Time that passes when the test says so."""

    now = 0

    def __call__(self) -> int:
        return self.now


def asked(test: Test, settings: Settings | None = None, clock: Clock | None = None) -> None:
    """Run a test with a server and a connection to it."""

    async def with_server() -> None:
        async with NameServer(settings=settings, clock=clock or Clock()) as server:
            peer = await Peer.to(server)
            try:
                await test(server, peer)
            finally:
                await peer.close()

    run(with_server)


def body(*names: str, counter: int = 1, filters: list[str] | None = None) -> RegisterBrokerBody:
    return RegisterBrokerBody(TopicTable(topics(*names), version(counter)), filters or [])


def register(*names: str, counter: int = 1, **more: str) -> Command:
    return command(C.REGISTER_BROKER, body_of(body(*names, counter=counter)), **who(**more))


async def value(peer: Peer, code: RequestCode, data: bytes = b"", **fields: str) -> Any:
    answer = await peer.ask(command(code, data, **fields))
    assert (answer.code, answer.remark) == (OK, None)
    return loads(answer.body)


# -- registrations ----------------------------------------------------------------------------------------------------

NEW = RegisterBrokerBody(
    TopicTable(
        {**topics("Orders"), "Fixed": TopicConfig("Fixed", 8, 8, 6, attributes={"+message.type": "NORMAL"})},
        version(7),
        topic_queue_mapping_info_map={"Fixed": MappingInfo("Fixed", "s", 8, BROKER, 1, False, {0: 1})},
    ),
    ["192.0.2.9:1"],
)


@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize("form", ["plain", "compressed", "compressed of 4.9", "compressed, unsaid"])
def test_registrations_in_every_form(form: str, crc: bool) -> None:
    new = form != "compressed of 4.9"
    data = body_of(NEW) if form == "plain" else registration.build(NEW, mappings=new)
    fields = who(
        compressed="true" if form in ("compressed", "compressed of 4.9") else "false",
        bodyCrc32=str(zlib.crc32(data) & 0x7FFFFFFF if crc else 0),
    )

    async def test(server: NameServer, peer: Peer) -> None:
        answer = await peer.ask(Command(C.REGISTER_BROKER, 1, 0, fields, data, version=479 if new else 409))
        assert (answer.code, answer.fields, answer.body) == (OK, {}, b"")
        route = await value(peer, C.GET_ROUTEINFO_BY_TOPIC, topic="Fixed")
        assert route["brokerDatas"] == [{"brokerAddrs": {"0": ADDRESS}, "brokerName": BROKER, "cluster": CLUSTER}]
        assert route["queueDatas"] == [
            {"brokerName": BROKER, "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}
        ]
        assert route["filterServerTable"] == {ADDRESS: ["192.0.2.9:1"]}
        assert ("topicQueueMappingByBroker" in route) is new
        if new:
            assert route["topicQueueMappingByBroker"][BROKER]["currIdMap"] == {"0": 1}
        state = body_of(version(7, 0))
        changed = await peer.ask(command(C.QUERY_DATA_VERSION, state, **who()))
        assert changed.fields == {"changed": "false"}

    asked(test)


def test_a_registration_of_before_3_0_11_has_topics_only() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        data = body_of(TopicTable(topics("Orders"), version()))
        assert (await peer.ask(Command(C.REGISTER_BROKER, 1, 0, who(), data, version=36))).code == OK
        assert (await value(peer, C.GET_ROUTEINFO_BY_TOPIC, topic="Orders"))["queueDatas"]

    asked(test)


def test_a_body_with_another_checksum_is_refused() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        data = body_of(body("Orders"))
        fields = who(bodyCrc32=str(zlib.crc32(data) & 0x7FFFFFFF))
        answer = await peer.ask(Command(C.REGISTER_BROKER, 1, 0, fields, data + b" "))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
        assert not server.requests.routes.brokers.named

    asked(test)


def test_a_large_registration_is_read_while_others_are_answered() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        large = body(*(f"topic-of-a-broker-with-many-{n}" for n in range(5000)))
        other = await Peer.to(server)
        await peer.send(frame.build(command(C.REGISTER_BROKER, body_of(large), **who())))
        await peer.send(frame.build(register("Late", name="lab-b", address="192.0.2.3:1")))
        assert await value(other, C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"topicList": []}
        assert (await peer.read()).code == (await peer.read()).code == OK
        assert len((await value(other, C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"]) == 5003
        await other.close()

    asked(test)


def test_a_broker_that_is_gone_before_its_registration_is_read_does_not_stay() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        large = body(*(f"topic-of-a-broker-with-many-{n}" for n in range(5000)))
        await peer.send(frame.build(command(C.REGISTER_BROKER, body_of(large), **who())))
        peer.writer.transport.abort()
        other = await Peer.to(server)
        # the next one has to wait until that is done
        assert (await other.ask(register("Orders", name="lab-b", address="192.0.2.3:1"))).code == OK
        while len(server.requests.routes.brokers.named) != 1:
            await asyncio.sleep(0.01)
        assert list(server.requests.routes.brokers.named) == ["lab-b"]
        await other.close()

    asked(test)


def test_order_topics_are_told_to_brokers_and_clients() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        assert (await peer.ask(register("Orders"))).body == b""
        put = command(C.PUT_KV_CONFIG, namespace=ORDER_TOPICS, key="Orders", value="lab-a:4")
        assert (await peer.ask(put)).code == OK
        assert loads((await peer.ask(register("Orders"))).body) == {"table": {"Orders": "lab-a:4"}}
        assert "orderTopicConf" not in await value(peer, C.GET_ROUTEINFO_BY_TOPIC, topic="Orders")
        data = b"orderMessageEnable=true\nreturnOrderTopicConfigToBroker=false\nunknown=1\n"
        assert (await peer.ask(command(C.UPDATE_NAMESRV_CONFIG, data))).code == OK
        assert (await value(peer, C.GET_ROUTEINFO_BY_TOPIC, topic="Orders"))["orderTopicConf"] == "lab-a:4"
        assert (await peer.ask(register("Orders"))).body == b""

    asked(test)


def test_versions_heartbeats_and_expiry() -> None:
    clock = Clock()

    async def test(server: NameServer, peer: Peer) -> None:
        asks = command(C.QUERY_DATA_VERSION, body_of(version()), **who())
        answer = await peer.ask(asks)
        assert (answer.code, answer.fields, answer.body) == (OK, {"changed": "true"}, b"")
        await peer.ask(register("Orders", heartbeatTimeoutMillis="5000"))
        answer = await peer.ask(asks)
        assert (answer.fields, loads(answer.body)) == (
            {"changed": "false"},
            {"counter": 1, "stateVersion": 0, "timestamp": version().timestamp},
        )
        clock.now = 5000
        assert (await peer.ask(command(C.BROKER_HEARTBEAT, **who()))).code == OK
        clock.now = 10_000
        server.requests.expire()
        assert (await value(peer, C.GET_BROKER_MEMBER_GROUP, **who()))["brokerMemberGroup"]["brokerAddrs"]
        clock.now = 10_001
        server.requests.expire()
        group = {"brokerAddrs": {}, "brokerName": BROKER, "cluster": CLUSTER}
        assert await value(peer, C.GET_BROKER_MEMBER_GROUP, **who()) == {"brokerMemberGroup": group}

    asked(test, clock=clock)


def test_brokers_expire_by_themselves() -> None:
    clock = Clock()

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.ask(register("Orders"))
        clock.now = 120_001
        while server.requests.routes.brokers.named:
            await asyncio.sleep(0.005)

    asked(test, Settings(scan_not_active_broker_interval=10), clock)


def test_brokers_go_with_their_connection() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        broker = await Peer.to(server)
        await broker.ask(register("Orders"))
        await broker.close()
        while (await peer.ask(command(C.GET_ROUTEINFO_BY_TOPIC, topic="Orders"))).code == OK:
            await asyncio.sleep(0.005)

    asked(test)


# -- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", Serializer)
@pytest.mark.parametrize(
    ("release", "accepts", "quoted"),
    [(400, None, False), (401, None, True), (400, "true", True), (400, "false", False)],
)
def test_keys_of_routes_have_quotes_for_those_who_want_them(
    release: int, accepts: str | None, quoted: bool, form: Serializer
) -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        await peer.ask(register("Orders"))
        fields = {"topic": "Orders"} | ({"acceptStandardJsonOnly": accepts} if accepts else {})
        answer = await peer.ask(Command(C.GET_ROUTEINFO_BY_TOPIC, 1, 0, fields, version=release, serializer=form))
        assert answer.serializer == form
        assert (b'{"0":"192' in answer.body, b'{0:"192' in answer.body) == (quoted, not quoted)

    asked(test)


def test_zones_are_heeded_where_the_client_says_so() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        await peer.ask(register("Orders", __ZONE_NAME="east"))
        await peer.ask(register("Orders", name="lab-b", address="192.0.2.3:1", __ZONE_NAME="west"))
        zone = {"__ZONE_NAME": "east"}
        near = await value(peer, C.GET_ROUTEINFO_BY_TOPIC, topic="Orders", __ZONE_MODE="true", **zone)
        assert [data["zoneName"] for data in near["brokerDatas"]] == ["east"]
        for fields in ({"__ZONE_MODE": "true"}, zone, {"__ZONE_MODE": "false", **zone}):
            assert len((await value(peer, C.GET_ROUTEINFO_BY_TOPIC, topic="Orders", **fields))["brokerDatas"]) == 2

    asked(test)


def test_a_slave_stands_in_where_the_settings_say_so() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        await peer.ask(register("Orders", enableActingMaster="true"))
        await peer.ask(register("Orders", id=1, address="192.0.2.3:1", enableActingMaster="true"))  # type: ignore[arg-type]
        await peer.ask(command(C.UNREGISTER_BROKER, **who()))
        route = await value(peer, C.GET_ROUTEINFO_BY_TOPIC, topic="Orders")
        assert route["brokerDatas"][0]["brokerAddrs"] == {"1": "192.0.2.3:1"}
        await peer.ask(command(C.UPDATE_NAMESRV_CONFIG, b"supportActingMaster = true"))
        route = await value(peer, C.GET_ROUTEINFO_BY_TOPIC, topic="Orders")
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "192.0.2.3:1"}

    asked(test)


# -- administrators ---------------------------------------------------------------------------------------------------


def test_lists_of_topics() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        configs = {name: TopicConfig(name, topic_sys_flag=flag) for name, flag in (("U", 1), ("S", 2), ("B", 3))}
        data = body_of(RegisterBrokerBody(TopicTable(configs, version())))
        await peer.ask(command(C.REGISTER_BROKER, data, **who()))
        lists = {
            C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ["B", "S", "U"],
            C.GET_TOPICS_BY_CLUSTER: ["B", "S", "U"],
            C.GET_UNIT_TOPIC_LIST: ["B", "U"],
            C.GET_HAS_UNIT_SUB_TOPIC_LIST: ["B", "S"],
            C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ["S"],
        }
        for code, names in lists.items():
            assert sorted((await value(peer, code, cluster=CLUSTER))["topicList"]) == names
        system = await value(peer, C.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        assert system == {"brokerAddr": ADDRESS, "topicList": [CLUSTER, BROKER]}
        await peer.ask(command(C.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false\nenableAllTopicList=false"))
        for code in lists:
            answer = await peer.ask(command(code, cluster=CLUSTER))
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")

    asked(test)


def test_key_values() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        entry = {"namespace": "n", "key": "k"}
        answer = await peer.ask(command(C.GET_KV_CONFIG, **entry))
        assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: n Key: k")
        assert (await peer.ask(command(C.GET_KVLIST_BY_NAMESPACE, namespace="n"))).code == ResponseCode.QUERY_NOT_FOUND
        for text in ("v", "ü"):
            assert (await peer.ask(command(C.PUT_KV_CONFIG, **entry, value=text))).code == OK
            assert (await peer.ask(command(C.GET_KV_CONFIG, **entry))).fields == {"value": text}
        assert await value(peer, C.GET_KVLIST_BY_NAMESPACE, namespace="n") == {"table": {"k": "ü"}}
        for _ in range(2):
            assert (await peer.ask(command(C.DELETE_KV_CONFIG, **entry))).code == OK
        assert await value(peer, C.GET_KVLIST_BY_NAMESPACE, namespace="n") == {"table": {}}
        assert (await peer.ask(command(C.PUT_KV_CONFIG, **entry))).code == ResponseCode.SYSTEM_ERROR

    asked(test)


def test_settings_are_told_and_changed() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        text = (await peer.ask(command(C.GET_NAMESRV_CONFIG))).body.decode()
        lines = text.splitlines()
        assert lines == sorted(lines)
        assert {f"listenPort={server.address.rpartition(':')[2]}", "bindAddress=127.0.0.1"} <= set(lines)
        assert "orderMessageEnable=false" in lines
        keys = json.dumps({"keys": ["orderMessageEnable", "nothing"]}).encode()
        assert (await peer.ask(command(C.GET_CLIENT_CONFIG, keys))).body == b"orderMessageEnable=false\n"
        for name in ("kvConfigPath", "configStorePath", "configBlackList"):
            data = f"orderMessageEnable=true\n{name}=/etc/passwd".encode()
            assert (await peer.ask(command(C.UPDATE_NAMESRV_CONFIG, data))).code == ResponseCode.NO_PERMISSION
        for wrong in (
            b"orderMessageEnable=true\nscanNotActiveBrokerInterval=0",
            b"scanNotActiveBrokerInterval=x",
            b"\xff",
        ):
            assert (await peer.ask(command(C.UPDATE_NAMESRV_CONFIG, wrong))).code == ResponseCode.SYSTEM_ERROR
        assert (await peer.ask(command(C.GET_NAMESRV_CONFIG))).body.decode() == text

    asked(test)


def test_topics_can_be_entered_and_deleted() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        await peer.ask(register("Orders"))
        queues = {"brokerName": BROKER, "readQueueNums": 2, "writeQueueNums": 3, "perm": 6}
        data = json.dumps({"queueDatas": [queues]}).encode()
        assert (await peer.ask(command(C.REGISTER_TOPIC_IN_NAMESRV, data, topic="Logic"))).code == OK
        assert (await value(peer, C.GET_ROUTEINFO_BY_TOPIC, topic="Logic"))["queueDatas"][0]["writeQueueNums"] == 3
        assert (await peer.ask(command(C.DELETE_TOPIC_IN_NAMESRV, topic="Logic"))).code == OK
        answer = await peer.ask(command(C.GET_ROUTEINFO_BY_TOPIC, topic="Logic"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    asked(test)


# -- whatever comes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, -1, 10, 310, 99_999, *sorted(C)])
def test_every_code_has_one_answer_whatever_is_with_it(code: int) -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        for data in (b"", b"{", b"[]", b"null", b"\x00" * 40, b'{"topicConfigSerializeWrapper":7}'):
            for fields in (None, {}, {"brokerId": "x"}, {"topic": "\n"}):
                answer = await peer.ask(Command(code, 77, 0, fields, data))
                assert answer.opaque == 77
                assert answer.is_response
        if code not in server.requests._answers:
            assert (answer.code, answer.remark) == (
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {code} not supported",
            )
        routes = server.requests.routes
        assert (routes.brokers.named, routes.brokers.live, routes.topics.queues) == ({}, {}, {})
        await peer.send(frame.build(Command(code, 5, Flag.ONEWAY, None, b"{")))
        assert (await peer.ask(command(C.GET_BROKER_CLUSTER_INFO))).opaque == 1  # nothing came before it

    asked(test)


GOOD = body_of(body("Orders"))
PACKED = registration.build(body("Orders"), mappings=True)
BOMB = zlib.compress(b"\x00" * (registration.MAX_INFLATED + 1))
LOOSE = zlib.decompress(PACKED)


@pytest.mark.parametrize(
    ("data", "packed"),
    [
        (GOOD[:-1], False),
        (GOOD + b"}", False),
        (b"[" * 5000, False),
        (b'{"filterServerList":[7]}', False),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"readQueueNums":99999999999}}}}', False),
        (PACKED[:-5], True),
        (GOOD, True),
        (BOMB, True),
        (zlib.compress(LOOSE[:-1]), True),
        (zlib.compress(LOOSE[:4]), True),
        (zlib.compress(b"\x7f\xff\xff\xff" + LOOSE[4:]), True),
        (zlib.compress(b"\xff\xff\xff\xff" + LOOSE[4:]), True),
        (zlib.compress(LOOSE.replace(b"Orders 4 4 6", b"Orders 4 4 x")), True),
        (zlib.compress(LOOSE.replace(b"Orders 4 4 6 S", b"Orders 4 4  6S")), True),
    ],
)
def test_broken_registrations_have_one_clear_answer(data: bytes, packed: bool) -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        fields = who(compressed=str(packed).lower())
        answer = await peer.ask(Command(C.REGISTER_BROKER, 9, 0, fields, data))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert "\n" not in answer.remark
        assert not server.requests.routes.brokers.named
        assert (await peer.ask(register("Orders"))).code == OK  # the connection stays

    asked(test)


def test_large_bodies_of_small_requests_are_refused() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        for code in (C.QUERY_DATA_VERSION, C.UPDATE_NAMESRV_CONFIG, C.GET_CLIENT_CONFIG, C.REGISTER_TOPIC_IN_NAMESRV):
            answer = await peer.ask(command(code, b" " * 2_000_000, topic="T", **who()))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "2000000 bytes" in (answer.remark or "")

    asked(test)


def test_key_values_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_values, "MOST_TEXT", 10_000)

    async def test(server: NameServer, peer: Peer) -> None:
        async def put(namespace: str, key: str, text: str) -> int:
            return (await peer.ask(command(C.PUT_KV_CONFIG, namespace=namespace, key=key, value=text))).code

        assert await put("n", "k", "x" * 20_000) == ResponseCode.SYSTEM_ERROR
        assert not server.requests.key_values.table
        answers = []
        for n in range(200):  # namespaces stay, also without entries
            answers.append(await put(f"n{n}", "k", ""))
            await peer.ask(command(C.DELETE_KV_CONFIG, namespace=f"n{n}", key="k"))
        assert answers[0] == OK
        assert answers[-1] == ResponseCode.SYSTEM_ERROR
        assert len(server.requests.key_values.table) < 100
        for _ in range(200):  # what is replaced makes room
            assert await put("n0", "k", "x" * 10) in (OK, ResponseCode.SYSTEM_ERROR)

    asked(test)


def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged from now on, from warnings on, as texts: pytest's records would keep what they tell of."""
    texts: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(f"{record.levelname} {self.format(record)}")

    for logger in map(logging.getLogger, ("rmqtool", "asyncio")):
        monkeypatch.setattr(logger, "handlers", [Keeper(logging.WARNING)])
        monkeypatch.setattr(logger, "propagate", False)
    return texts


def test_mutated_requests_neither_grow_the_server_nor_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = logged(monkeypatch)
    asks = [
        register("Orders"), Command(C.REGISTER_BROKER, 1, 0, who(compressed="true"), PACKED),
        command(C.GET_ROUTEINFO_BY_TOPIC, topic="Orders"), command(C.PUT_KV_CONFIG, namespace="n", key="k", value="v"),
        command(C.QUERY_DATA_VERSION, body_of(version()), **who()), command(C.UNREGISTER_BROKER, **who()),
        command(C.WIPE_WRITE_PERM_OF_BROKER, brokerName=BROKER), command(C.GET_NAMESRV_CONFIG),
    ]  # fmt: skip
    raw = [frame.build(one) for one in asks]
    chance = random.Random(17)

    def mutated() -> bytes:
        data = bytearray(chance.choice(raw))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randint(1, len(data))] if chance.random() < 0.3 else data)

    async def test(server: NameServer, peer: Peer) -> None:
        async def batch(count: int) -> None:
            for _ in range(count):
                one = await Peer.to(server)
                for _ in range(5):
                    one.writer.write(mutated())
                one.writer.write_eof()
                try:
                    while await one.reader.read(1 << 16):
                        pass
                except ConnectionError:
                    pass
                one.writer.close()
            assert (await peer.ask(register("Still", name="lab-z", address="192.0.2.8:1"))).code == OK

        await batch(100)
        gc.collect()
        tracemalloc.start()
        await batch(50)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await batch(400)
        while len(server.requests.routes.brokers.named) > 1:  # all others have gone with their connections
            await asyncio.sleep(0.01)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert grown < 500_000

    asked(test)
    assert said
    assert not [text for text in said if not text.startswith("WARNING ") or "\n" in text]
