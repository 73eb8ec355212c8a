"""Controller commands beside ``mqadmin`` on a real controller with two replicas: each sees what the other has done."""

import json
import re
import time
from collections.abc import Callable, Iterator
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
from tests.interop.replicas import CONTROLLER_OPTIONS, Replicas

pytestmark = [pytest.mark.interop, whole_by_turns(3, 8)]  # a cluster takes most of the time
NAME, CLUSTER = "store-1", "Shop"
_SETTINGS = {
    "brokerClusterName": CLUSTER, "brokerName": NAME, "brokerRole": "SLAVE", "brokerId": "-1",
    "enableControllerMode": "true", "mappedFileSizeCommitLog": "1048576", "diskMaxUsedSpaceRatio": "95",
    "syncBrokerMetadataPeriod": "1000", "syncControllerMetadataPeriod": "1000",
}  # fmt: skip
_SECONDS = 60


@dataclass
class Controlled:
    """A controller, and two replicas of one broker."""

    pair: Replicas
    controller: str
    target: str

    def admin(self, line: str) -> str:
        """The output of ``mqadmin``."""
        words = line.replace("CONTROLLER", self.controller).split()
        said: str = self.pair.master.ask("admin", arguments=words, seconds=20)["said"]
        return said

    def ours(self, line: str) -> Result:
        """The result of our command."""
        return rmqtool(*(self.target if word == "TARGET" else word for word in line.split()))

    def rows(self, line: str) -> list[dict[str, Any]]:
        """The rows of our command."""
        done = self.ours(f"{line} -o json")
        assert done.code == 0, done.err
        found: list[dict[str, Any]] = json.loads(done.out)
        return found

    def master(self) -> int:
        """The id of the master, by ``mqadmin``."""
        (found,) = re.findall(r"#MasterBrokerId\s+([0-9]+)", self.admin(f"getSyncStateSet -a CONTROLLER -b {NAME}"))
        return int(found)

    def wait(self, done: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Our rows of the replicas, once they are as wanted."""
        end = time.monotonic() + _SECONDS
        while True:
            answer = self.ours("controller replicas TARGET -o json")  # while roles change, a replica may not answer
            rows: list[dict[str, Any]] = json.loads(answer.out or "[]")
            if answer.code == 0 and done(rows):
                return rows
            assert time.monotonic() < end, (rows, answer.err)
            time.sleep(0.5)

    def wait_in_sync(self) -> list[dict[str, Any]]:
        """Our rows of the replicas, once all are in sync and up to date."""
        return self.wait(lambda rows: all(row["inSync"] for row in rows) and len({r["maxOffset"] for r in rows}) == 1)


@pytest.fixture(scope="module", params=["5.3.3", NEWEST])
def controlled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controlled]:
    version = request.param
    if reason := brokers.available(version):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("controlled")
    for name in ("controller", "a", "b"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        controlling = stack.enter_context(Broker(version, *CONTROLLER_OPTIONS))
        address = controlling.ask("controller", store=str(folder / "controller"), fileSize=65_536)["address"]
        settings = {**_SETTINGS, "controllerAddr": address}
        one, other = stack.enter_context(Broker(version)), stack.enter_context(Broker(version))
        one.boot(folder / "a", settings)
        other.boot(folder / "b", settings, follows=one.namesrv)
        one.ask("topic", topic="Events")
        made = Controlled(Replicas(one, other), address, f"rocketmq://{one.namesrv}")
        made.pair.send("Events", "first-", 20)
        made.wait_in_sync()
        yield made


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_controller_list(controlled: Controlled) -> None:
    (row,) = controlled.rows("controller list TARGET")
    theirs = dict(re.findall(r"#(\w+):?\s+(\S+)", controlled.admin("getControllerMetaData -a CONTROLLER")))
    assert (row["address"], row["isLeader"]) == (controlled.controller, True)
    assert (row["group"], row["leaderId"], row["leaderAddress"], row["peers"].rstrip(";")) == (
        theirs["ControllerGroup"], theirs["ControllerLeaderId"], theirs["ControllerLeaderAddress"], theirs["Peer"],
    )  # fmt: skip


def test_controller_replicas(controlled: Controlled) -> None:
    rows = controlled.wait_in_sync()
    said = controlled.admin(f"getSyncStateSet -a CONTROLLER -b {NAME}")
    theirs = {
        (int(number), address, alive == "true", kind == "InSyncReplica")
        for kind, number, address, alive in re.findall(
            r"(\w+):\s+ReplicaIdentity\{brokerName='\S+', brokerId=(\d+), brokerAddress='(\S+)', alive=(\w+)\}", said
        )
    }
    assert {(row["brokerId"], row["address"], row["alive"], row["inSync"]) for row in rows} == theirs
    assert len(theirs) == 2
    heads = dict(re.findall(r"#(\w+)\s+(\d+)", said))
    for row in rows:
        assert (row["masterEpoch"], row["syncStateSetEpoch"]) == (
            int(heads["MasterEpoch"]), int(heads["SyncStateSetEpoch"]),
        )  # fmt: skip
        assert row["isMaster"] == (row["brokerId"] == int(heads["MasterBrokerId"]))
    epochs: dict[str, list[dict[str, int | None]]] = {}
    for part in controlled.admin(f"getBrokerEpoch -b {NAME}").split("#clusterName")[1:]:
        address = re.findall(r"#brokerAddr\s+(\S+)", part)[0]
        epochs[address] = [
            {"epoch": int(epoch), "startOffset": int(start), "endOffset": int(end)}
            for epoch, start, end in re.findall(r"epoch=(\d+), startOffset=(\d+), endOffset=(\d+)", part)
        ]
    for row in rows:  # mqadmin puts the end of the log for the end of an epoch that is not over
        ours = [{**epoch, "endOffset": epoch["endOffset"] or row["maxOffset"]} for epoch in row["epochs"]]
        assert ours == epochs[row["address"]]


def test_each_sees_whom_the_other_elects(controlled: Controlled) -> None:
    controlled.wait_in_sync()
    before = controlled.master()
    other = 3 - before
    planned = controlled.ours(f"controller elect TARGET {NAME} {other} --dry-run -o json")
    (change,) = json.loads(planned.out)["changes"]
    assert (planned.code, change["before"], change["after"]) == (1, before, other)
    assert controlled.master() == before
    assert controlled.ours(f"controller elect TARGET {NAME} {other} --yes").code == 0
    assert controlled.master() == other
    assert controlled.ours(f"controller elect TARGET {NAME} {other} --yes").code == 0, "nothing is left to do"
    controlled.wait_in_sync()
    assert controlled.ours("undo TARGET --yes").code == 0
    assert controlled.master() == before
    controlled.wait_in_sync()
    controlled.admin(f"electMaster -a CONTROLLER -b {other} -n {NAME} -c {CLUSTER}")
    if controlled.master() == before:  # 5.3.3 and 5.5.0 name that option differently
        controlled.admin(f"electMaster -a CONTROLLER -b {other} -bn {NAME} -c {CLUSTER}")
    assert [row["brokerId"] for row in controlled.rows("controller replicas TARGET") if row["isMaster"]] == [other]
    controlled.wait_in_sync()
    unknown = controlled.ours(f"controller elect TARGET {NAME} 9 --yes")
    assert (unknown.code, "it has 1, 2; nothing was changed" in unknown.err) == (4, True)
    absent = controlled.ours("controller elect TARGET store-9 1 --yes")
    assert (absent.code, "has no broker store-9" in absent.err) == (4, True)


def test_controller_settings(controlled: Controlled) -> None:
    def theirs() -> dict[str, str]:
        pairs = (line.partition("=") for line in controlled.admin("getControllerConfig -a CONTROLLER").splitlines())
        return {name.strip(): value.strip() for name, sign, value in pairs if sign}

    def ours() -> dict[str, str]:
        return {row["name"]: row["value"] for row in controlled.rows("controller-config show TARGET")}

    assert ours().items() <= theirs().items()
    before = ours()
    assert controlled.ours("controller-config set TARGET electMasterMaxRetryCount=7 --yes").code == 0
    assert theirs()["electMasterMaxRetryCount"] == "7"
    assert controlled.ours("undo TARGET --yes").code == 0
    assert ours() == before
    controlled.admin("updateControllerConfig -a CONTROLLER -k electMasterMaxRetryCount -v 5")
    assert ours() == {**before, "electMasterMaxRetryCount": "5"}
    assert controlled.ours("controller-config set TARGET electMasterMaxRetryCountt=7 --yes").code == 2
    forbidden = controlled.ours("controller-config set TARGET configBlackList=x --yes")
    assert (forbidden.code, "black list" in forbidden.err) == (1, True)


def test_a_replica_that_is_down_is_forgotten(controlled: Controlled) -> None:
    rows = controlled.wait_in_sync()
    address = controlled.pair.replica.ask("addresses")["broker"]  # the other JVM has the name server
    (slave,) = (row["brokerId"] for row in rows if row["address"] == address)
    refused = controlled.ours(f"controller forget TARGET {NAME} {slave} --yes")
    assert (refused.code, "is up: stop it first" in refused.err) == (4, True)
    assert controlled.ours(f"controller elect TARGET {NAME} {3 - slave} --yes").code == 0
    controlled.wait_in_sync()
    controlled.pair.replica.kill()
    rows = controlled.wait(lambda rows: not all(row["alive"] for row in rows))
    assert [(row["epochs"], row["maxOffset"]) for row in rows if not row["alive"]] == [(None, None)]
    down = controlled.ours(f"controller elect TARGET {NAME} {slave} --yes")
    assert (down.code, "is down" in down.err) == (4, True)
    assert controlled.ours(f"controller forget TARGET {NAME} {slave} --yes").code == 0
    assert f"brokerId={slave}" not in controlled.admin(f"getSyncStateSet -a CONTROLLER -b {NAME}")
    assert [row["brokerId"] for row in controlled.rows("controller replicas TARGET")] == [3 - slave]
