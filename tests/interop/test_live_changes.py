"""Changes of a live cluster beside ``mqadmin``: each that ours makes is seen by it, and each that it makes by ours.

A normal run has one of the brokers, by turns of days; ``RMQTOOL_TESTS=all`` has them all.
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.admin.test_changes import killed_at
from tests.amounts import ALL
from tests.cli.running import rmqtool
from tests.interop.engine import NEWEST
from tests.interop.serving import CLUSTER, NAME
from tests.interop.test_live_admin import Both, booted, columns, fields

pytestmark = pytest.mark.interop
CASES = [("5.3.3", "real"), ("4.9.8", "ours"), ("4.9.8", "real"), ("5.3.3", "ours"), (NEWEST, "real")]
if not ALL:
    CASES = [CASES[datetime.now(UTC).toordinal() % len(CASES)]]

_LOCAL = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
ACCESS = {  # where users and rules are kept; nobody is asked for a password
    "authenticationMetadataProvider": _LOCAL.format("authentication", "Authentication"),
    "authorizationMetadataProvider": _LOCAL.format("authorization", "Authorization"),
}


@dataclass
class Lab(Both):
    """A cluster that both change.

    Attributes:
        has_users: it has access control 2.0.
    """

    has_users: bool

    def change(self, line: str, code: int = 0) -> dict[str, Any]:
        """What our command says that it has done."""
        args = [self.target if word == "TARGET" else word for word in line.split()]
        done = rmqtool(*args, "--yes", "-o", "json")
        assert done.code == code, (line, done.out, done.err)
        shown: dict[str, Any] = json.loads(done.out or "{}")
        return shown

    def state(self) -> dict[str, Any]:
        """Settings, and offsets of groups that nobody consumes in."""
        tables = {
            file: self.ours(f"config TARGET {file}") for file in ("topics.json", "subscriptionGroup.json")
        }  # fmt: skip
        for table in tables.values():
            table.pop("dataVersion")
        return {**tables, "offsets": self.ours("group offsets TARGET --group idle")}


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[1]}-{case[0]}")
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    version, kind = request.param
    has_access = not version.startswith("4")
    more = ACCESS if has_access else {}
    with booted(version, kind, tmp_path_factory.mktemp("changes"), more=more) as (judge, target, filled):
        yield Lab(judge, target, filled, kind == "real" and has_access)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def queues_of(lab: Lab, topic: str) -> tuple[int, int, int]:
    """Read queues, write queues and permission, as mqadmin has them from the name server."""
    text = lab.admin(f"topicRoute -t {topic}")
    route = json.loads(re.sub(r"([{,]\s*)([0-9]+):", r'\1"\2":', text[text.index("{") :]))  # Java's keys are numbers
    (queue,) = [row for row in route["queueDatas"] if row["brokerName"] == NAME]
    return queue["readQueueNums"], queue["writeQueueNums"], queue["perm"]


def test_topics(lab: Lab) -> None:
    before = lab.state()
    lab.change("topic create TARGET Ours --queues 4")
    assert queues_of(lab, "Ours") == (4, 4, 6)
    lab.change("topic update TARGET Ours --read-queues 6")
    assert queues_of(lab, "Ours") == (6, 4, 6)
    lab.change("topic perm TARGET Ours R")
    assert queues_of(lab, "Ours") == (6, 4, 4)
    lab.admin(f"updateTopicPerm -t Ours -c {CLUSTER} -p 6")
    assert lab.ours("topic list TARGET Ours")[0]["perm"] == "RW"
    lab.change("topic delete TARGET Ours")
    assert "Ours" not in lab.admin("topicList").split()
    lab.change("undo TARGET")
    assert queues_of(lab, "Ours") == (6, 4, 6)
    lab.change("topic delete TARGET Ours")
    assert lab.state() == before
    lab.admin(f"updateTopic -c {CLUSTER} -t Theirs -r 3 -w 2")
    (theirs,) = lab.ours("topic list TARGET Theirs")
    assert (theirs["readQueueNums"], theirs["writeQueueNums"]) == (3, 2)
    lab.admin(f"deleteTopic -c {CLUSTER} -t Theirs")
    assert lab.state() == before


def test_groups(lab: Lab) -> None:
    before = lab.state()
    lab.change("group create TARGET ours --max-retries 3")
    assert fields(lab.admin("getConsumerConfig -g ours"), "=")["retryMaxTimes"] == "3"
    lab.change("group update TARGET ours --no-consume")
    theirs = fields(lab.admin("getConsumerConfig -g ours"), "=")
    assert (theirs["retryMaxTimes"], theirs["consumeEnable"]) == ("3", "false")
    lab.admin(f"updateSubGroup -c {CLUSTER} -g ours -r 9")
    row = next(row for row in lab.ours("group list TARGET") if row["group"] == "ours")
    assert row["retryMaxTimes"] == 9
    lab.change("group delete TARGET ours")
    assert "retryMaxTimes" not in lab.admin("getConsumerConfig -g ours")
    lab.change("undo TARGET")
    assert fields(lab.admin("getConsumerConfig -g ours"), "=")["retryMaxTimes"] == "9"
    lab.change("group delete TARGET ours")
    assert lab.state() == before
    lab.change("group delete TARGET readers", 4)


def test_how_a_group_reads(lab: Lab) -> None:
    if lab.judge.engine == "4.9":
        lab.change("group mode TARGET idle Orders POP", 3)
        return

    def mode() -> Any:
        table = lab.ours("config TARGET messageRequestMode.json")["messageRequestModeMap"]
        return table.get("Orders", {}).get("idle", {}).get("mode")

    lab.change("group mode TARGET idle Orders POP --share 2")
    assert mode() == "POP"
    lab.change("undo TARGET")
    assert mode() == "PULL"
    lab.admin(f"setConsumeMode -c {CLUSTER} -t Orders -g idle -m POP -q 1")
    assert mode() == "POP"
    planned = rmqtool("group", "mode", lab.target, "idle", "Orders", "POP", "--share", "1", "--dry-run")
    assert (planned.code, "nothing to change" in planned.err) == (0, True), planned.err
    lab.change("group mode TARGET idle Orders PULL")


def test_limits_on_cold_data(lab: Lab) -> None:
    if lab.judge.engine == "4.9":
        lab.change("cold-data set TARGET idle 1M", 3)
        return
    lab.change("cold-data set TARGET idle 1M")
    assert "1048576" in lab.admin(f"getColdDataFlowCtrInfo -c {CLUSTER}")
    lab.admin(f"updateColdDataFlowCtrGroupConfig -c {CLUSTER} -g idle -v 4096")
    (row,) = lab.ours("cold-data list TARGET -g idle")
    assert row["threshold"] == 4096
    lab.change("cold-data remove TARGET idle")
    assert "4096" not in lab.admin(f"getColdDataFlowCtrInfo -c {CLUSTER}")
    lab.change("undo TARGET")
    assert lab.ours("cold-data list TARGET -g idle") == [row]
    lab.change("cold-data remove TARGET idle")


def test_settings_of_name_servers(lab: Lab) -> None:
    (row,) = lab.ours("namesrv-config show TARGET --name orderMessageEnable")
    other = "false" if row["value"] == "true" else "true"
    lab.change(f"namesrv-config set TARGET orderMessageEnable={other}")
    assert fields(lab.admin("getNamesrvConfig"), "=")["orderMessageEnable"] == other
    lab.change("undo TARGET")
    assert lab.ours("namesrv-config show TARGET --name orderMessageEnable") == [row]
    lab.change("namesrv-config set TARGET none=1", 2)


def test_a_group_comes_back_with_its_offsets(lab: Lab) -> None:
    before = lab.state()
    lab.change("group delete TARGET idle")
    assert lab.ours("group offsets TARGET --group idle", 1) == []
    lab.change("undo TARGET")
    assert lab.state() == before


def offsets_of(lab: Lab, group: str) -> list[int]:
    """What mqadmin says of the queues of Orders."""
    if lab.judge.engine == "4.9":
        # its consumerProgress knows no topic, and needs the group's retry topic; this leaves out what is at offset 0
        output = columns(lab.admin("brokerConsumeStats -b {broker}"))
        rows = [row for row in output if (row["#Group"], row["#Topic"]) == (group, "Orders")]
        assert rows
    else:
        rows = columns(lab.admin(f"consumerProgress -g {group} -t Orders"))
    offsets = {int(row["#QID"]): int(row["#Consumer Offset"]) for row in rows}
    return [offsets.get(queue_id, 0) for queue_id in range(4)]


def test_offsets_of_a_group_that_is_offline(lab: Lab) -> None:
    before = lab.state()
    lab.change("group reset TARGET idle --to-latest --topic Orders")
    assert offsets_of(lab, "idle") == [5, 5, 5, 5]
    lab.change("group reset TARGET idle --to-offset 2 --topic Orders --queue 1")
    assert offsets_of(lab, "idle") == [5, 2, 5, 5]
    lab.change("undo TARGET")
    assert offsets_of(lab, "idle") == [5, 5, 5, 5]
    lab.change("undo TARGET")
    assert offsets_of(lab, "idle") == [0, 1, 2, 3]
    assert lab.state() == before
    lab.admin("resetOffsetByTime -g idle -t Orders -s 0")
    assert [row["consumerOffset"] for row in lab.ours("group offsets TARGET --group idle --topic Orders")] == [0] * 4
    lab.change("group reset TARGET idle --shift 1 --topic Orders")
    assert offsets_of(lab, "idle") == [1, 1, 1, 1]
    lab.change("undo TARGET")


def test_offsets_of_a_group_that_is_online(lab: Lab) -> None:
    for _ in range(40):
        if offsets_of(lab, "readers") == [5, 5, 5, 5]:
            break
        time.sleep(0.5)
    seen = len(lab.judge.ask("seen"))
    done = rmqtool("group", "reset", lab.target, "readers", "--to-earliest", "--topic", "Orders", "--yes")
    again = lab.judge.wait_for(lambda rows: len(rows) >= seen + 20, 60)
    assert len(again) == seen + 20, "every message is consumed once more, and none twice"
    assert "the group is online with 1 client" in done.err
    # all is consumed again before it is read back, and that is said
    assert done.code in (0, 1)
    if lab.judge.engine == "4.9":
        single = rmqtool("group", "reset", lab.target, "readers", "--to-offset", "1", "--topic", "Orders", "--yes")
        assert (single.code, "group readers is online" in single.err) == (4, True)


def test_name_servers(lab: Lab) -> None:
    lab.change("order-conf set TARGET Orders lab-a:4")
    assert "lab-a:4" in lab.admin("updateOrderConf -m get -t Orders")
    lab.change("undo TARGET")
    assert "lab-a:4" not in lab.admin("updateOrderConf -m get -t Orders")
    lab.admin("updateKvConfig -s NAMES -k theirs -v value")
    assert [row["value"] for row in lab.ours("kv show TARGET NAMES theirs")] == ["value"]
    lab.change("kv delete TARGET NAMES theirs")
    lab.ours("kv show TARGET NAMES", 1)
    lab.change("write-perm wipe TARGET lab-a")
    assert queues_of(lab, "Orders") == (4, 4, 4)
    lab.admin("addWritePerm -b lab-a")
    assert queues_of(lab, "Orders") == (4, 4, 6)
    lab.change("write-perm wipe TARGET lab-a")
    rmqtool("undo", lab.target, "--yes")
    assert queues_of(lab, "Orders") == (4, 4, 6)


def test_settings(lab: Lab) -> None:
    lab.change("broker-config set TARGET brokerPermission=4")
    theirs = fields(lab.admin("getBrokerConfig -b {broker}"), "=")
    assert theirs["brokerPermission"] == "4"
    lab.change("undo TARGET")
    theirs = fields(lab.admin("getBrokerConfig -b {broker}"), "=")
    assert theirs["brokerPermission"] == "6"
    lab.admin("updateBrokerConfig -b {broker} -k brokerPermission -v 4")
    (ours,) = lab.ours("broker-config show TARGET --name brokerPermission")
    assert ours["value"] == "4"
    lab.change("broker-config set TARGET brokerPermission=6")


def test_users_and_rules(lab: Lab, tmp_path: Path) -> None:
    if not lab.has_users:
        done = rmqtool("user", "list", lab.target)
        assert (done.code, "REQUEST_CODE_NOT_SUPPORTED" in done.err or "SYSTEM_ERROR" in done.err) == (3, True)
        return
    password = tmp_path / "password"
    password.write_text("secretive\n")
    lab.change(f"user create TARGET ours --password-file {password}")
    output = lab.admin("getUser -b {broker} -u ours")
    assert "ours" in output
    assert "Normal" in output
    (row,) = lab.ours("user list TARGET ours")
    assert (row["userType"], row["userStatus"]) == ("Normal", "enable")
    lab.change("user update TARGET ours --super")
    assert "Super" in lab.admin("getUser -b {broker} -u ours")
    lab.change("undo TARGET")
    assert "Normal" in lab.admin("getUser -b {broker} -u ours")
    lab.admin("createUser -b {broker} -u theirs -p other")
    assert [row["user"] for row in lab.ours("user list TARGET theirs")] == ["theirs"]

    lab.change("acl set TARGET User:ours --resource Topic:Orders --action Sub")
    lab.change("acl set TARGET User:ours --resource Group:readers --action Sub --action Get")
    output = lab.admin("getAcl -b {broker} -s User:ours")
    assert "Topic:Orders" in output
    assert "Group:readers" in output
    lab.change("undo TARGET")
    assert "Group:readers" not in lab.admin("getAcl -b {broker} -s User:ours")
    lab.admin("updateAcl -b {broker} -s User:ours -r Topic:Orders -a Pub -d Deny")
    (row,) = lab.ours("acl list TARGET User:ours")
    assert (row["resource"], row["actions"], row["decision"]) == ("Topic:Orders", ["Pub"], "Deny")
    lab.change("acl delete TARGET User:ours")
    assert "Topic:Orders" not in lab.admin("getAcl -b {broker} -s User:ours")
    lab.change("undo TARGET")
    assert lab.ours("acl list TARGET User:ours") == [row]
    lab.change("acl delete TARGET User:ours")
    lab.change("user delete TARGET ours")
    assert lab.ours("user list TARGET ours", 1) == []
    lab.change("undo TARGET")
    assert "Normal" in lab.admin("getUser -b {broker} -u ours")
    assert "secretive" not in rmqtool("user", "update", lab.target, "ours", "--super", "-n", "-o", "json").out


@pytest.mark.parametrize(
    "line",
    ["topic update TARGET Orders --read-queues 6", "group delete TARGET idle", "group reset TARGET idle --to-latest"],
)
def test_killed_run_again_and_undone(line: str, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.state()
    args = [lab.target if word == "TARGET" else word for word in line.split()]
    step = 1
    while step < 9 and killed_at(step, monkeypatch, *args):
        done = rmqtool(*args, "--yes")
        assert done.code == 0 or "no broker has it" in done.err, (step, done.err)
        while rmqtool("undo", lab.target, "--yes").code == 0:
            pass
        assert lab.state() == before, step
        for file in (tmp_path / "rmqtool").glob("*.json"):
            file.unlink()
        step += 1
    assert step > 5
    rmqtool("undo", lab.target, "--yes")
    assert lab.state() == before


def test_what_a_file_declares(lab: Lab, tmp_path: Path) -> None:
    before, file = lab.state(), tmp_path / "cluster.yaml"
    file.write_text(
        "topics: {Declared: {readQueueNums: 3, writeQueueNums: 2}}\ngroups: {declared: {retryMaxTimes: 4}}\n"
    )
    lab.change(f"apply TARGET {file}")
    assert queues_of(lab, "Declared") == (3, 2, 6)
    assert fields(lab.admin("getConsumerConfig -g declared"), "=")["retryMaxTimes"] == "4"
    lab.change("undo TARGET")
    assert "Declared" not in lab.admin("topicList").split()
    assert lab.state() == before
