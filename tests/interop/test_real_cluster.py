"""Questions and changes on a real cluster of two masters and a slave with clients at work; then a master is killed."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.amounts import whole_by_turns
from tests.cli.running import Result, rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import NEWEST
from tests.interop.mqadmin import CONFIG
from tests.interop.test_live_admin import columns

pytestmark = [pytest.mark.interop, whole_by_turns(2, 8)]  # a cluster takes most of the time
CLUSTER, GROUP, TOPIC, SENT = "Shop", "readers", "Orders", 60
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
    """

    judge: Broker
    other: Broker
    target: str
    has_slaves: bool

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
    settings = {**CONFIG, "brokerClusterName": CLUSTER, "diskMaxUsedSpaceRatio": "95"}
    with ExitStack() as stack:
        judge, other, slave = (stack.enter_context(Broker(version)) for version in (first, second, first))
        judge.boot(folder / "a", {**settings, "brokerName": "lab-a"})
        other.boot(folder / "b", {**settings, "brokerName": "lab-b"}, namesrv=judge.namesrv)
        following = {**settings, "brokerName": "lab-a", "brokerRole": "SLAVE", "brokerId": "1"}
        slave.boot(folder / "slave", following, follows=judge.namesrv)
        made = Shop(judge, other, f"rocketmq://{judge.namesrv}/{CLUSTER}", not first.startswith("4"))
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
