"""Questions and changes on a real cluster of two masters and a slave with clients at work; then a master is killed."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import body_of
from formats.remoting.bodies import RegisterBrokerBody, TopicTable
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.admin.doctor import run as doctor
from rmqtool.remoting.client import open_connection
from tests.amounts import only_in_all, whole_by_turns
from tests.cli.running import Result, rmqtool
from tests.client.peers import serving
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import NEWEST
from tests.interop.mqadmin import CONFIG
from tests.interop.test_live_admin import columns
from tests.server.name_servers import registration, version
from tests.server.serving import address

pytestmark = [pytest.mark.interop, whole_by_turns(2, 8)]  # a cluster takes most of the time
CLUSTER, GROUP, TOPIC, SENT = "Shop", "readers", "Orders", 60
SETTINGS = {**CONFIG, "brokerClusterName": CLUSTER, "diskMaxUsedSpaceRatio": "95"}
# releases of the master with the slave, and of the other master
CLUSTERS = [("5.3.3", "5.3.3"), (NEWEST, NEWEST), ("4.9.8", "4.9.8"), ("4.9.8", NEWEST)]
QUESTIONS = (
    "cluster list TARGET", "info TARGET", "topic list TARGET", "topic show TARGET Orders", "group list TARGET",
    "group lag TARGET -g readers", "group offsets TARGET", "offsets TARGET", "client list TARGET",
    "client producers TARGET", "client show TARGET readers", "client stack TARGET readers", "broker-config show TARGET",
    "namesrv-config show TARGET", "query-key TARGET Orders m7", "retry list TARGET", "dlq list TARGET",
    "delay list TARGET", "delay due TARGET", "transaction list TARGET",
    "rebalance plan TARGET Orders --clients-of readers", "doctor TARGET",
)  # fmt: skip
CHANGES = (
    "topic update TARGET Orders --read-queues 6", "group update TARGET readers --max-retries 7",
    "broker-config set TARGET brokerPermission=4", "kv set TARGET NAMES a b",
)  # fmt: skip


@dataclass
class Shop:
    """The cluster.

    Attributes:
        judge: the JVM of the first master and of the clients.
        other: that of the second one.
        has_slaves: the first master reports its slaves.
        store: directory of the second master.
    """

    judge: Broker
    other: Broker
    target: str
    has_slaves: bool
    store: Path

    def ours(self, line: str) -> Result:
        """The result of our command."""
        return rmqtool(*(self.target if word == "TARGET" else word for word in line.split()))

    def rows(self, line: str) -> list[dict[str, Any]]:
        """The rows of our command."""
        done = self.ours(f"{line} -o json")
        assert done.code in (0, 1), (line, done.err)
        found: list[dict[str, Any]] = json.loads(done.out)
        return found

    def admin(self, line: str) -> str:
        """The output of ``mqadmin``."""
        said: str = self.judge.ask("admin", arguments=line.split(), seconds=20)["said"]
        return said

    def state(self) -> list[Any]:
        """Settings of both masters."""
        files = ("topics.json", "subscriptionGroup.json")
        return [self.table(file, name) for file in files for name in ("lab-a", "lab-b")]

    def table(self, file: str, broker: str) -> dict[str, Any]:
        """A table of one master, whatever its version."""
        table: dict[str, Any] = json.loads(self.ours(f"config TARGET {file} --broker {broker} -o json").out)
        return {**table, "dataVersion": None}


@pytest.fixture(scope="module", params=CLUSTERS, ids=lambda releases: "-".join(releases))
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    first, second = request.param
    if reason := brokers.available(first) or brokers.available(second):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("shop")
    for name in ("a", "b", "slave"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        judge, other, slave = (stack.enter_context(Broker(version)) for version in (first, second, first))
        judge.boot(folder / "a", {**SETTINGS, "brokerName": "lab-a"})
        other.boot(folder / "b", {**SETTINGS, "brokerName": "lab-b"}, namesrv=judge.namesrv)
        following = {**SETTINGS, "brokerName": "lab-a", "brokerRole": "SLAVE", "brokerId": "1"}
        slave.boot(folder / "slave", following, follows=judge.namesrv)
        made = Shop(judge, other, f"rocketmq://{judge.namesrv}/{CLUSTER}", not first.startswith("4"), folder / "b")
        assert made.ours(f"topic create TARGET {TOPIC} --queues 4 --yes").code == 0
        assert made.ours(f"group create TARGET {GROUP} --yes").code == 0
        judge.ask("heartbeat")
        judge.ask("consume", group=GROUP, topic=TOPIC, failures=0, most=1, level=0)
        rows = judge.ask("sendMany", topic=TOPIC, prefix="m", count=SENT, threads=1, how="sync")
        assert [row.get("error") for row in rows] == [None] * SENT
        assert len(judge.wait_for(lambda rows: len(rows) >= SENT)) == SENT
        yield made


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_two_masters_and_a_slave(shop: Shop) -> None:
    brokers_of = shop.rows("cluster list TARGET")
    roles = [(row["brokerName"], row["brokerId"]) for row in brokers_of]
    assert roles == [("lab-a", 0), ("lab-a", 1), ("lab-b", 0)]
    if len({row["version"] for row in brokers_of}) == 1:  # mqadmin of 4.9 ends at a broker of 5.x
        theirs = columns(shop.admin("clusterList"), begin="#Cluster")
        assert {(row["#Broker Name"], row["#Addr"]) for row in theirs} == {
            (row["brokerName"], row["address"]) for row in brokers_of
        }
    if shop.has_slaves:
        slaves = {row["brokerName"]: row["slaveAddress"] for row in shop.rows("cluster replicas TARGET")}
        assert slaves["lab-a"] is not None
        assert slaves["lab-b"] is None
    queues = json.loads(shop.ours(f"topic show TARGET {TOPIC} -o json").out)["queueTable"]
    held = {
        name: sum(row["maxOffset"] - row["minOffset"] for row in queues if row["brokerName"] == name)
        for name in ("lab-a", "lab-b")
    }
    assert sum(held.values()) == SENT
    assert min(held.values()) > 0
    for _ in range(60):  # clients commit every five seconds
        lag = [row for row in shop.rows(f"group lag TARGET -g {GROUP} -t {TOPIC}") if row["topic"] == TOPIC]
        if sum(row["lag"] for row in lag) == 0:
            break
        time.sleep(0.5)
    assert [(row["brokerName"], row["lag"]) for row in lag] == [("lab-a", 0)] * 4 + [("lab-b", 0)] * 4


def test_questions(shop: Shop) -> None:
    for line in QUESTIONS:
        done = shop.ours(f"{line} -o ndjson")
        assert done.code == 0, (line, done.err)
        assert "missing" not in done.err, (line, done.err)


@pytest.mark.parametrize("line", CHANGES)
def test_changes_on_both_masters_are_undone(line: str, shop: Shop) -> None:
    before = shop.state()
    done = shop.ours(f"{line} --yes")
    assert done.code == 0, done.err
    assert shop.ours(f"{line} --dry-run").code == 0, "nothing is left to change"
    assert shop.ours("undo TARGET --yes").code == 0
    assert shop.state() == before


@asynccontextmanager
async def ghost(namesrv: str) -> AsyncIterator[None]:
    """A slave that is registered, and is not there."""
    fields = registration(name="lab-x", address="127.0.0.1:1", id=1, cluster=CLUSTER, compressed="false", bodyCrc32="0")
    body = body_of(RegisterBrokerBody(TopicTable({}, version()), []))
    async with open_connection(*address(namesrv)) as client:
        answer = await client.call(Command(RequestCode.REGISTER_BROKER, fields=fields, body=body), 30)
        assert answer.code == 0, answer.remark
        yield
        await client.call(Command(RequestCode.UNREGISTER_BROKER, fields=fields), 30)


@only_in_all
def test_doctor_finds_each_fault(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults made by mqadmin, clients and the broker's file, one after the other; a sound cluster has none."""
    judge, (lab_a, lab_b) = shop.judge, (side.ask("addresses")["broker"] for side in (shop.judge, shop.other))
    for name, value in (("_ENOUGH", 20), ("_MANY_RETRIES", 0)):
        monkeypatch.setattr(doctor, name, value)

    def find(target: str | None = None) -> set[tuple[str, str | None]]:
        """Codes, each with the topic, group or server that it names."""
        rows = json.loads(rmqtool("doctor", target or shop.target, "-o", "json").out)
        return {(row["code"], row["topic"] or row["group"] or row["server"]) for row in rows}

    def finds(*expected: tuple[str, str | None]) -> None:
        for _ in range(120):  # clients and name servers know of each other after a while
            if find() == {*expected}:
                return
            time.sleep(0.5)
        assert find() == {*expected}

    finds()
    servers = f"rocketmq://{judge.namesrv},{shop.other.namesrv},127.0.0.1:1/{CLUSTER}"
    assert find(servers) == {("namesrv-differ", shop.other.namesrv), ("namesrv-silent", "127.0.0.1:1")}
    with serving(ghost(judge.namesrv)):
        finds(("broker-silent", "lab-x"), ("broker-no-master", "lab-x"))
    finds()
    assert shop.ours("broker-config set TARGET diskMaxUsedSpaceRatio=10 --broker lab-b --yes").code == 0
    finds(("disk-filling", "lab-b"))
    assert shop.ours("undo TARGET --yes").code == 0
    shop.other.stop()
    spelled = {**SETTINGS, "brokerName": "lab-b", "mapedFileSizeConsumeQueue": "60000"}
    shop.other.boot(shop.store, spelled, namesrv=judge.namesrv)
    lab_b = shop.other.ask("addresses")["broker"]
    faults: list[tuple[str, str | None]] = [("setting-unknown", "lab-b")]
    finds(*faults)
    shop.admin(f"updateTopic -b {lab_b} -t Less -r 2 -w 4")
    faults.append(("topic-reads-less", "Less"))
    shop.admin(f"updateTopic -c {CLUSTER} -t Differs -p 6")
    shop.admin(f"updateTopic -b {lab_b} -t Differs -p 4")
    faults.append(("topic-differs", "Differs"))
    shop.admin(f"updateTopic -b {lab_a} -t Uneven -r 2 -w 2")
    shop.admin(f"updateTopic -b {lab_a} -t One -r 1 -w 1")
    for number in range(30):
        judge.ask("send", topic="Uneven", keys=f"u{number}", queueId=1, tag="a")
    faults.append(("queues-uneven", "Uneven"))
    judge.ask("setOffset", group="gone", topic="Uneven", queueId=1, offset=1)
    faults.append(("group-offline", "gone"))
    finds(*faults)
    for tag in ("a", "b"):
        judge.ask(
            "consume", group="two", topic="One", failures=0, most=1, level=0, instance=f"two-{tag}", expression=tag
        )
    faults += [("group-differs", "two"), ("clients-idle", "One")]
    judge.ask("send", topic="One", keys="bad", queueId=0, tag="a")
    judge.ask("consume", group="dying", topic="One", failures=9, most=0, level=0)
    faults.append(("dead-letters-grow", "%DLQ%dying"))
    judge.ask("consume", group="failing", topic="One", failures=9, most=16, level=1, instance="failing")
    judge.wait_for(lambda rows: [row["group"] for row in rows].count("failing") >= 2)  # it has read its retries once
    judge.ask("leave", instance="failing")
    faults += [("retries-many", "%RETRY%failing"), ("group-offline", "failing")]
    finds(*faults)


def test_a_master_is_killed(shop: Shop) -> None:
    """Nothing is changed without it, and questions name it, for as long as name servers do not know; this is last."""
    before = shop.table("topics.json", "lab-a")
    shop.other.kill()
    for line in CHANGES[:3]:
        done = shop.ours(f"{line} --yes")
        known = "lab-b" in shop.ours("cluster list TARGET -o json").out
        if known:  # a name server forgets a broker once its connection has ended
            assert done.code == 3, (line, done.err)
            assert "nothing was changed" in done.err
        else:
            assert done.code == 0, (line, done.err)
            assert shop.ours("undo TARGET --yes").code == 0
    for line in QUESTIONS:
        done = shop.ours(f"{line} -o ndjson")
        assert "Traceback" not in done.err
        assert done.code in (0, 1), (line, done.err)
    assert shop.table("topics.json", "lab-a") == before
