"""Answers of the name server, over real connections."""

import asyncio
import json
import zlib

import pytest

from formats.fastjson.declare import body_of
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.model.topics import TopicConfig
from formats.remoting import frame, registration
from formats.remoting.bodies import RegisterBrokerBody, TopicTable
from formats.remoting.codes import ResponseCode, Serializer
from formats.remoting.frame import Command
from formats.remoting.shapes import MappingInfo
from rmqtool.server.namesrv.key_values import ORDER_TOPICS
from rmqtool.server.namesrv.server import NameServer
from rmqtool.server.namesrv.settings import NamesrvSettings
from tests.server.name_servers import (
    ADDRESS,
    BROKER,
    CLUSTER,
    Peer,
    command,
    topics,
    version,
)
from tests.server.name_servers import (
    registration as who,
)
from tests.server.namesrv_asked import OK, C, Clock, asked, body, register, value

NEW = RegisterBrokerBody(
    TopicTable(
        {
            **topics("Orders"),
            "Fixed": TopicConfig(
                topic_name="Fixed", read_queue_nums=8, write_queue_nums=8, attributes={"+message.type": "NORMAL"}
            ),
        },
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
        assert loads((await peer.ask(register("Orders"))).body, BODY) == {"table": {"Orders": "lab-a:4"}}
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
        assert (answer.fields, loads(answer.body, BODY)) == (
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

    asked(test, NamesrvSettings(scan_not_active_broker_interval=10), clock)


def test_brokers_go_with_their_connection() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        broker = await Peer.to(server)
        await broker.ask(register("Orders"))
        await broker.close()
        while (await peer.ask(command(C.GET_ROUTEINFO_BY_TOPIC, topic="Orders"))).code == OK:
            await asyncio.sleep(0.005)

    asked(test)


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


def test_lists_of_topics() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        configs = {
            name: TopicConfig(topic_name=name, topic_sys_flag=flag) for name, flag in (("U", 1), ("S", 2), ("B", 3))
        }
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
