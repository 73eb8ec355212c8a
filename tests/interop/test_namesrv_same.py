"""The same requests to a real 5.3.3 name server and to ours give the same answers."""

import asyncio
import json
import random
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import body_of
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.model.topics import DataVersion, TopicConfig
from formats.remoting import registration
from formats.remoting.bodies import RegisterBrokerBody, TopicTable
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode, Serializer
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError
from rmqtool.server.namesrv.key_values import KeyValueTable
from rmqtool.server.namesrv.server import NameServer
from tests.amounts import by_turns, some
from tests.interop import broker as brokers
from tests.interop.test_namesrv import Java, free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.xdist_group("broker-5.3.3")]

CLUSTERS, BROKERS, TOPICS = ("east", "west"), ("a", "b", "c"), ("T", "U", "V", "W", "X")
SETTINGS = ("orderMessageEnable", "supportActingMaster", "returnOrderTopicConfigToBroker", "enableTopicList")
_FORGOTTEN = "not set any response code"  # a remark that the real one leaves where all went well
_LOOKS = 200  # at what the real one does later than it says


@pytest.fixture
def real(tmp_path: Path) -> Iterator[str]:
    """The address of a real name server."""
    if reason := brokers.available("5.3.3"):
        pytest.skip(reason)
    java, port = Java("5.3.3", tmp_path / "home"), free_port()
    (tmp_path / "n.conf").write_text(f"listenPort={port}\nkvConfigPath={tmp_path}/kv.json\n")
    args = ("-c", str(tmp_path / "n.conf"))
    process = java.start("org.apache.rocketmq.namesrv.NamesrvStartup", *args)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def reached(address: str) -> AsyncIterator[Connection]:
    """Connect to a server that may still be starting."""
    host, _, port = address.rpartition(":")
    for look in range(_LOOKS):
        try:
            async with open_connection(host, int(port)) as connection:
                yield connection
                return
        except RemotingError:
            if look == _LOOKS - 1:
                raise
            await asyncio.sleep(0.2)


def value_of(request: Command, answer: Command) -> Any:
    """The content of an answer, with lists from sets or maps sorted."""
    zone = "__ZONE_MODE" in (request.fields or {})  # there the real one quotes no numbers for anybody

    def plain(value: Any, member: str = "") -> Any:
        if isinstance(value, dict):
            keyed = {int(key): item for key, item in value.items()} if zone and member == "brokerAddrs" else value
            return {key: plain(item, str(key)) for key, item in keyed.items()}
        if isinstance(value, list):
            return sorted((plain(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
        return value

    body = plain(loads(answer.body, BODY)) if answer.body else None
    remark = answer.remark if answer.remark != _FORGOTTEN else None
    return answer.code, answer.fields or {}, remark, body


class Asking:
    """Generates random requests, most of them meaningful."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.counter = 0

    def broker(self) -> dict[str, str]:
        name = self.chance.choice(BROKERS)
        return {
            "clusterName": CLUSTERS[name == "c"],
            "brokerName": name,
            "brokerId": str(id := self.chance.choice((0, 0, 1, 2))),
            "brokerAddr": f"192.0.2.{BROKERS.index(name)}:{self.chance.choice((id, id, id, 0))}",
        }

    def version(self) -> DataVersion:
        self.counter += self.chance.choice((0, 1))
        return DataVersion(timestamp=1_700_000_000_000, counter=self.counter)

    def register(self) -> Command:
        names = self.chance.sample(TOPICS, self.chance.choice((1, 2, 3)))
        return self.registration(self.broker(), names)

    def registration(self, who: dict[str, str], names: Sequence[str]) -> Command:
        configs = {
            name: TopicConfig(
                topic_name=name, read_queue_nums=self.chance.randint(0, 3), write_queue_nums=self.chance.randint(0, 3),
                perm=self.chance.choice((2, 4, 6, 7)), topic_sys_flag=self.chance.randint(0, 3),
            )
            for name in names
        }  # fmt: skip
        filters = self.chance.choice(([], [], ["192.0.2.200:1"]))
        table = TopicTable(configs, self.version(), DataVersion(state_version=None), {})
        whole = RegisterBrokerBody(table, filters)
        packed = self.chance.random() < 0.3
        data = registration.build(whole, mappings=True) if packed else body_of(whole)
        crc = zlib.crc32(data) & 0x7FFFFFFF if self.chance.random() < 0.9 else 1
        fields = {
            **who, "haServerAddr": "192.0.2.100:1", "compressed": str(packed).lower(), "bodyCrc32": str(crc),
            "enableActingMaster": self.chance.choice(("true", "false")),
        }  # fmt: skip
        if self.chance.random() < 0.5:
            fields["__ZONE_NAME"] = self.chance.choice(("north", "south"))
        return Command(C.REGISTER_BROKER, fields=fields, body=data)

    def route(self) -> Command:
        fields = {"topic": self.chance.choice((*TOPICS, "none"))}
        if self.chance.random() < 0.3:
            fields |= {"__ZONE_MODE": "true", "__ZONE_NAME": self.chance.choice(("north", "south", ""))}
        return Command(C.GET_ROUTEINFO_BY_TOPIC, fields=fields, version=self.chance.choice((393, 409, 479)))

    def settings(self) -> Command:
        lines = [f"{name}={self.chance.choice(('true', 'false'))}" for name in self.chance.sample(SETTINGS, 2)]
        return Command(C.UPDATE_NAMESRV_CONFIG, body="\n".join(lines).encode())

    def entered(self) -> Command:
        name = self.chance.choice(BROKERS)
        queues = {"brokerName": name, "readQueueNums": 1, "writeQueueNums": 2, "perm": 6, "topicSysFlag": 0}
        data = {"queueDatas": [queues]}
        return Command(
            C.REGISTER_TOPIC_IN_NAMESRV, fields={"topic": self.chance.choice(TOPICS)}, body=json.dumps(data).encode()
        )

    def other(self) -> Command:
        choose = self.chance.choice
        entry = {"namespace": choose(("ORDER_TOPIC_CONFIG", "n")), "key": choose(TOPICS)}
        return choose(
            [
                Command(C.GET_BROKER_CLUSTER_INFO),
                Command(C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
                Command(C.GET_TOPICS_BY_CLUSTER, fields={"cluster": choose((*CLUSTERS, "none"))}),
                Command(C.GET_UNIT_TOPIC_LIST),
                Command(C.GET_HAS_UNIT_SUB_TOPIC_LIST),
                Command(C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
                Command(C.GET_BROKER_MEMBER_GROUP, fields=self.broker()),
                Command(C.WIPE_WRITE_PERM_OF_BROKER, fields={"brokerName": choose(BROKERS)}),
                Command(C.ADD_WRITE_PERM_OF_BROKER, fields={"brokerName": choose(BROKERS)}),
                Command(C.DELETE_TOPIC_IN_NAMESRV, fields={"topic": choose(TOPICS)}),
                Command(C.DELETE_TOPIC_IN_NAMESRV, fields={"topic": choose(TOPICS), "clusterName": choose(CLUSTERS)}),
                Command(C.QUERY_DATA_VERSION, fields=self.broker(), body=body_of(self.version())),
                Command(C.BROKER_HEARTBEAT, fields=self.broker()),
                Command(C.PUT_KV_CONFIG, fields={**entry, "value": choose(("a:1", "b:2"))}),
                Command(C.GET_KV_CONFIG, fields=entry),
                Command(C.DELETE_KV_CONFIG, fields=entry),
                Command(C.GET_KVLIST_BY_NAMESPACE, fields=entry),
                Command(310, fields={}),
                Command(7777),
            ]
        )

    def next(self) -> Command:
        what = self.chance.random()
        request = (
            self.register() if what < 0.25
            else self.route() if what < 0.55
            else Command(C.UNREGISTER_BROKER, fields=self.broker()) if what < 0.6
            else self.settings() if what < 0.64
            else self.entered() if what < 0.67
            else self.other()
        )  # fmt: skip
        if self.chance.random() < 0.2:
            request.serializer = Serializer.ROCKETMQ
        return request


@by_turns(23)
@pytest.mark.parametrize("seed", range(some(2, 4)))
def test_the_same_requests_have_the_same_answers(seed: int, real: str, tmp_path: Path) -> None:
    codes: set[tuple[int, int]] = set()

    async def both(theirs: Connection, ours: Connection, request: Command) -> tuple[Any, Any]:
        return value_of(request, await theirs.call(request, 60)), value_of(request, await ours.call(request, 60))

    async def test() -> None:
        async with NameServer() as server, reached(real) as theirs, reached(server.address) as ours:
            asking, last = Asking(seed), []
            for _ in range(1500):
                request = asking.next()
                last = [*last[-12:], request]
                first, second = await both(theirs, ours, request)
                asked = "\n".join(f"{each.code} {each.fields} {each.body[:300]!r}" for each in last)
                assert second == first, f"{asked}\ntheirs {first}\nours   {second}"
                codes.add((request.code, first[0]))
                if first[2] == "register broker failed":
                    # the real one has changed half of what it knows of the broker: it gets the other half
                    fields = request.fields or {}
                    who = {name: fields[name] for name in asking.broker()}
                    while (await both(theirs, ours, asking.registration(who, TOPICS)))[0][0]:
                        pass  # with a wrong checksum
                if request.code == C.UNREGISTER_BROKER:  # the real one does that a little later
                    for _ in range(_LOOKS):
                        looks = [Command(C.GET_BROKER_CLUSTER_INFO), Command(C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)]
                        if all(first == second for first, second in [await both(theirs, ours, look) for look in looks]):
                            break
                        await asyncio.sleep(0.02)
                    await asyncio.sleep(0.02)

            # the file that the real one has made is read as what ours knows
            kept = KeyValueTable(str(tmp_path / "kv.json")).table
            assert kept == server.requests.key_values.table != {}

    asyncio.run(test())
    ok, refused = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR
    assert codes >= {(C.REGISTER_BROKER, ok), (C.REGISTER_BROKER, refused), (C.GET_ROUTEINFO_BY_TOPIC, ok)}
    assert len(codes) > 25
