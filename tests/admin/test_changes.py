"""Changes of a live cluster: planned, written to all brokers, read back, undone; killed anywhere, run again, undone."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from rmqtool.admin.changes import journal, run
from rmqtool.admin.changes.change import Place, ValueChange
from rmqtool.admin.changes.name_servers import ORDER_TOPICS
from rmqtool.admin.changes.tables import Offsets, group_value, topic_value
from rmqtool.admin.live.brokers import fetch_settings
from rmqtool.admin.live.cold_data import fetch_cold_tables
from rmqtool.admin.live.info import fetch_table
from rmqtool.admin.live.name_servers import fetch_entries
from rmqtool.admin.live.questions import Questions, ask
from rmqtool.admin.live.settings import fetch_name_server_settings
from rmqtool.admin.live.tables import fetch_groups, fetch_offsets, fetch_topics
from rmqtool.admin.target import parse_target
from rmqtool.store.disk import durable
from tests.amounts import by_turns
from tests.cli.running import ROOT, Result, rmqtool
from tests.interop.serving import CLUSTER, Serving

GROUP = "lab-consumer"
RELEASES = ["4.9", "5.3"]


@dataclass
class Lab:
    """Two brokers with the same messages, and their name server."""

    release: str
    target: str

    def tables(self) -> dict[str, Any]:
        """Settings and offsets of both brokers."""

        async def fetch(questions: Questions) -> dict[str, Any]:
            nodes = await questions.nodes()
            result: dict[str, Any] = {}
            for node, topics in (await fetch_topics(questions, nodes)).items():
                result[f"{node.name} topics"] = {name: topic_value(topic) for name, topic in topics.items()}
            for node, groups in (await fetch_groups(questions, nodes)).items():
                result[f"{node.name} groups"] = {name: group_value(group) for name, group in groups.items()}
            for node, rows in (await fetch_offsets(questions, nodes)).items():
                result[f"{node.name} offsets"] = sorted(rows)
            for node in nodes:
                result[f"{node.name} settings"] = await fetch_settings(questions, node)
                if self.release != "4.9":
                    table: Any = await fetch_table(questions, node, "messageRequestMode.json")
                    # a mode that was never set, and PULL, are the same to brokers
                    result[f"{node.name} modes"] = [
                        mode for groups in table["messageRequestModeMap"].values() for mode in groups.values()
                        if mode["mode"] != "PULL"
                    ]  # fmt: skip
                    result[f"{node.name} cold data"] = (await fetch_cold_tables(questions, node)).thresholds
            assert len(result) == (8 if self.release == "4.9" else 12)
            for node in questions.name_servers():
                result[f"{node.name} settings"] = await fetch_name_server_settings(questions, node)
                for namespace in ("NAMES", ORDER_TOPICS):
                    result[namespace] = await fetch_entries(questions, node, namespace)
            return result

        return ask(parse_target(self.target), pytest.fail, fetch)

    def topic(self, broker: str, name: str) -> Any:
        """The settings of a topic on one broker; None where it has none."""
        return self.tables()[f"{broker} topics"].get(name)


@pytest.fixture(scope="module", params=RELEASES)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("changes")
    for name in "ab":
        shutil.copytree(ROOT / "examples" / "store", folder / name)
    with ExitStack() as stack:
        first = stack.enter_context(Serving(folder / "a", "--engine", request.param))
        command = [sys.executable, "-m", "rmqtool.main", "serve", str(folder / "b"), "--output", "json"]
        command += ["--name", "lab-b", "--cluster", CLUSTER, "--listen", "127.0.0.1:0", "--namesrv", first.namesrv]
        second = stack.enter_context(
            subprocess.Popen([*command, "--engine", request.param], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        stack.callback(second.kill)
        assert second.stdout is not None
        assert second.stdout.readline()
        yield Lab(request.param, f"rocketmq://{first.namesrv}/{CLUSTER}")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(run, "PATIENCE", 1.0)
    return tmp_path / "rmqtool"


def changed(*args: str) -> Result:
    """A command that must do all of what it says."""
    done = rmqtool(*args, "--yes")
    assert done.code == 0, (done.out, done.err)
    return done


def undo(lab: Lab, before: dict[str, Any], *args: str) -> None:
    changed("undo", lab.target, *args)
    assert lab.tables() == before


# what each command is given: it changes something on both brokers
CHANGES: dict[str, tuple[str, ...]] = {
    "topic create": ("New", "--queues", "4", "--perm", "R"),
    "topic update": ("Orders", "--read-queues", "6", "--write-queues", "5"),
    "topic perm": ("Orders", "R"),
    "group create": ("billing", "--max-retries", "3"),
    "group update": (GROUP, "--no-consume", "--max-retries", "7"),
    "group delete": ("lab-orderly",),
    "group reset": (GROUP, "--to-earliest"),
    "group mode": (GROUP, "Orders", "POP", "--share", "2"),
    "cold-data set": (GROUP, "1M"),
    "broker-config set": ("brokerPermission=4", "defaultTopicQueueNums=5"),
    "namesrv-config set": ("orderMessageEnable=true", "scanNotActiveBrokerInterval=4711"),
    "kv set": ("NAMES", "a", "b"),
    "order-conf set": ("Sequenced", "lab-a:4"),
}
OF_5 = ("group mode", "cold-data set")  # brokers of 4.9 do not know these requests


def of_5_alone(name: str, lab: Lab) -> bool:
    """Whether the brokers do not know a command's requests; it then says so, and changes nothing."""
    if name not in OF_5 or lab.release != "4.9":
        return False
    done = rmqtool(*name.split(), lab.target, *CHANGES[name], "--yes")
    assert done.code == 3, done.err
    assert "REQUEST_CODE_NOT_SUPPORTED" in done.err
    assert "nothing was changed" in done.err
    return True


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_planned_written_seen_and_undone(name: str, lab: Lab, state: Path) -> None:
    if of_5_alone(name, lab):
        return
    before, args = lab.tables(), (*name.split(), lab.target, *CHANGES[name])
    planned = rmqtool(*args, "--dry-run", "-o", "json")
    assert planned.code == 1, planned.err
    assert not state.exists(), "a dry run keeps no journal"
    assert lab.tables() == before, "a dry run changes nothing"
    refused = rmqtool(*args)
    assert refused.code == 4, "without a terminal and --yes"
    assert lab.tables() == before

    done = changed(*args, "-o", "json")
    plan, result = json.loads(planned.out), json.loads(done.out)
    assert (plan["applied"], result["applied"]) == (False, True)
    after = lab.tables()
    assert after != before
    (kept,) = state.iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    assert f"what was before is in {kept}" in done.err

    again = rmqtool(*args, "--dry-run")
    if name == "group delete":
        assert (again.code, "no broker has it" in again.err) == (4, True)
    else:
        assert (again.code, "nothing to change" in again.err) == (0, True), again.err
    undo(lab, before)
    assert rmqtool("undo", lab.target, "--yes").code == 1, "it is undone"
    assert lab.tables() == before


@pytest.mark.parametrize("release", ["5.3", "5.5"])
def test_attributes_of_a_group(release: str, tmp_path: Path) -> None:
    """They are set and taken away by name. Brokers of 5.3 have none, and refuse them."""

    def attributes() -> Any:
        groups = json.loads(rmqtool("config", target, "subscriptionGroup.json", "-o", "json").out)
        return groups["subscriptionGroupTable"]["limited"]["attributes"]

    shutil.copytree(ROOT / "examples" / "store", tmp_path / "store")
    with Serving(tmp_path / "store", "--engine", release) as served:
        target = f"rocketmq://{served.namesrv}"
        done = rmqtool("group", "create", target, "limited", "--attribute", "priority.factor=30", "--yes")
        if release == "5.3":
            assert (done.code, "unsupported key: priority.factor" in done.err) == (1, True)
            return
        assert (done.code, attributes()) == (0, {"priority.factor": "30"})
        changed("group", "update", target, "limited", "--attribute", "lite.sub.model=Exclusive")
        changed("group", "update", target, "limited", "--attribute", "priority.factor=")
        assert attributes() == {"lite.sub.model": "Exclusive"}
        changed("undo", target)
        assert attributes() == {"lite.sub.model": "Exclusive", "priority.factor": "30"}
        done = rmqtool("group", "update", target, "limited", "--attribute", "priority.factor", "--yes")
        assert (done.code, "give NAME=VALUE" in done.err) == (2, True)


def test_what_a_plan_shows(lab: Lab) -> None:
    done = rmqtool("topic", "update", lab.target, "Orders", "--read-queues", "3", "-n", "-o", "json")
    plan = json.loads(done.out)
    assert [(row["setting"], row["before"], row["after"], row["state"], row["server"]) for row in plan["changes"]] == [
        ("readQueueNums", 4, 3, "pending", "lab-a"), ("readQueueNums", 4, 3, "pending", "lab-b"),
    ]  # fmt: skip
    assert plan["warnings"] == [
        f"{name}: 105 messages in queues that consumers do not read any more" for name in ("lab-a", "lab-b")
    ]
    table = rmqtool("topic", "update", lab.target, "Orders", "--read-queues", "3", "-n").out.splitlines()
    assert table[1].split() == ["topic", "Orders", "readQueueNums", "4", "3", "pending", "lab-a"]


def test_one_broker_alone(lab: Lab) -> None:
    before = lab.tables()
    changed("topic", "create", lab.target, "Alone", "--broker", "lab-b")
    assert lab.topic("lab-a", "Alone") is None
    assert lab.topic("lab-b", "Alone")["readQueueNums"] == 8
    done = rmqtool("topic", "create", lab.target, "Alone", "--queues", "4", "-n")
    assert (done.code, "is on lab-b with other settings" in done.err) == (4, True)
    undo(lab, before)
    assert rmqtool("topic", "create", lab.target, "Alone", "--broker", "lab-c", "-n").code == 3


def test_a_topic_is_deleted_everywhere(lab: Lab) -> None:
    changed("topic", "create", lab.target, "Gone", "--queues", "2")
    before = lab.tables()
    done = changed("topic", "delete", lab.target, "Gone", "-o", "json")
    rows = json.loads(done.out)["changes"]
    assert {row["state"] for row in rows} == {"done"}
    assert {row["kind"] for row in rows} == {"topic", "route"}
    assert rmqtool("topic", "show", lab.target, "Gone").code == 1
    undo(lab, before)
    changed("topic", "delete", lab.target, "Gone", "--broker", "lab-a")
    assert lab.topic("lab-a", "Gone") is None
    assert lab.topic("lab-b", "Gone") is not None, "and the name server still knows it there"
    changed("topic", "delete", lab.target, "Gone")


def test_messages_that_a_topic_loses_are_counted(lab: Lab) -> None:
    done = rmqtool("topic", "delete", lab.target, "Orders", "--dry-run")
    assert done.code == 1
    assert "840 messages cannot be read any more" in done.err
    assert f"consumed by {GROUP}" in done.err


def test_offsets_of_a_plan_that_was_edited(lab: Lab, tmp_path: Path) -> None:
    before, file = lab.tables(), tmp_path / "plan.csv"
    args = ("group", "reset", lab.target, GROUP)
    planned = rmqtool(*args, "--shift", "-10", "--topic", "Orders", "-n", "-o", "csv")
    assert planned.code == 1
    file.write_text(planned.out.replace(",95,", ",96,"))
    changed(*args, "--from-csv", str(file))
    stored = json.loads(rmqtool("group", "offsets", lab.target, "-g", GROUP, "-t", "Orders", "-o", "json").out)
    assert [row["consumerOffset"] for row in stored] == [96, 96, 94, 96] * 2
    late = rmqtool(*args, "--from-csv", str(file), "--yes")
    assert (late.code, "make a new plan" in late.err) == (4, True)
    undo(lab, before)
    outside = rmqtool(*args, "--to-offset", "999999", "--topic", "Orders", "--yes")
    assert (outside.code, "outside 0 to 105" in outside.err) == (4, True)
    assert lab.tables() == before


def test_a_group_gets_the_offsets_of_another(lab: Lab) -> None:
    changed("group", "create", lab.target, "copied")
    before = lab.tables()
    changed("group", "clone", lab.target, GROUP, "copied", "--topic", "Orders")
    stored = json.loads(rmqtool("group", "offsets", lab.target, "-o", "json", "-g", "copied").out)
    assert [row["consumerOffset"] for row in stored] == [105, 106, 104, 105] * 2
    done = rmqtool("undo", lab.target, "--dry-run")
    assert "no server forgets one: it stays" in done.err
    changed("group", "delete", lab.target, "copied")
    changed("group", "create", lab.target, "copied")
    assert lab.tables() == before
    changed("group", "delete", lab.target, "copied")


def test_what_changed_since_is_not_undone(lab: Lab, tmp_path: Path) -> None:
    before = lab.tables()
    changed("topic", "perm", lab.target, "Orders", "R")
    changed("topic", "perm", lab.target, "Orders", "W", "--backup", str(tmp_path / "elsewhere"))
    done = rmqtool("undo", lab.target, "--yes")
    assert (done.code, "has changed since" in done.err) == (4, True)
    assert rmqtool("undo", lab.target, "--dry-run").code == 1
    undo(lab, before, "--force")


def test_key_values_and_ordered_topics(lab: Lab) -> None:
    changed("kv", "set", lab.target, "NAMES", "a", "b")
    (row,) = json.loads(rmqtool("kv", "show", lab.target, "NAMES", "-o", "json").out)
    assert (row["key"], row["value"]) == ("a", "b")
    changed("kv", "set", lab.target, "NAMES", "a", "c")
    changed("undo", lab.target)
    assert json.loads(rmqtool("kv", "show", lab.target, "NAMES", "a", "-o", "json").out)[0]["value"] == "b"
    changed("kv", "delete", lab.target, "NAMES", "a")
    assert rmqtool("kv", "show", lab.target, "NAMES").code == 1
    changed("undo", lab.target)
    changed("undo", lab.target)
    assert rmqtool("kv", "show", lab.target, "NAMES").code == 1
    assert rmqtool("kv", "delete", lab.target, "NAMES", "a", "-n").code == 4
    changed("order-conf", "set", lab.target, "Sequenced", "lab-a:4;lab-b:4")
    (row,) = json.loads(rmqtool("order-conf", "show", lab.target, "-o", "json").out)
    assert (row["key"], row["value"]) == ("Sequenced", "lab-a:4;lab-b:4")
    changed("order-conf", "delete", lab.target, "Sequenced")
    assert rmqtool("order-conf", "show", lab.target).code == 1
    assert rmqtool("order-conf", "set", lab.target, "Sequenced", "four", "-n").code == 2


def test_nobody_sends_to_a_broker(lab: Lab) -> None:
    done = changed("write-perm", "wipe", lab.target, "lab-b", "-o", "json")
    (row,) = json.loads(done.out)["changes"]
    assert row["after"].startswith("0 of ")
    assert rmqtool("write-perm", "wipe", lab.target, "lab-b", "-n").code == 0
    done = rmqtool("undo", lab.target, "--yes")
    if done.code == 1:  # 5.x has topics that are only written to
        assert "a name server gives all topics the same permission" in done.err
    assert rmqtool("write-perm", "add", lab.target, "lab-b", "-n").code == 0
    assert rmqtool("write-perm", "wipe", lab.target, "lab-c", "-n").code == 3


def test_settings_of_brokers(lab: Lab) -> None:
    wrong = rmqtool("broker-config", "set", lab.target, "brokerPermision=4", "--yes")
    assert (wrong.code, "it has brokerPermission" in wrong.err) == (2, True)
    done = changed("broker-config", "set", lab.target, "brokerPermission=4", "-o", "json")
    assert [row["after"] for row in json.loads(done.out)["changes"]] == ["4", "4"]
    changed("undo", lab.target)
    args = ("broker-config", "show", lab.target, "--name", "brokerPermission", "-o", "json")
    assert [row["value"] for row in json.loads(rmqtool(*args).out)] == ["6", "6"]
    refused = rmqtool("broker-config", "set", lab.target, "maxMessageSize=1048576", "--yes", "-o", "json")
    assert refused.code == 1
    rows = json.loads(refused.out)["changes"]
    assert [row["state"] for row in rows] == ["not-done", "not-done"]
    assert "cannot be changed while the store is served" in rows[0]["reason"]


def test_settings_that_differ(lab: Lab, tmp_path: Path) -> None:
    assert rmqtool("broker-config", "diff", lab.target).code == 0
    assert rmqtool("broker-config", "diff", lab.target, "--own", "--name", "brokerName").code == 1
    changed("broker-config", "set", lab.target, "brokerPermission=4", "--broker", "lab-b")
    done = rmqtool("broker-config", "diff", lab.target, "-o", "json")
    rows = [(row["name"], row["brokerName"], row["value"], row["other"]) for row in json.loads(done.out)]
    assert (done.code, rows) == (
        1, [("brokerPermission", "lab-a", "6", None), ("brokerPermission", "lab-b", "4", None)],
    )  # fmt: skip
    done = rmqtool("broker-config", "diff", lab.target, "--defaults", "--name", "*Perm*", "-o", "json")
    assert [(row["brokerName"], row["value"], row["other"]) for row in json.loads(done.out)] == [("lab-b", "4", "6")]
    assert done.code == 1
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerPermission=04\nflushDiskType=SYNC_FLUSH\n")
    done = rmqtool("broker-config", "diff", lab.target, "--file", conf, "-o", "json")
    rows = [(row["name"], row["brokerName"], row["value"], row["other"]) for row in json.loads(done.out)]
    assert (done.code, rows) == (
        1, [
            ("brokerPermission", "lab-a", "6", "04"), ("flushDiskType", "lab-a", "ASYNC_FLUSH", "SYNC_FLUSH"),
            ("flushDiskType", "lab-b", "ASYNC_FLUSH", "SYNC_FLUSH"),
        ],
    )  # fmt: skip
    assert rmqtool("broker-config", "diff", lab.target, "--file", conf, "--defaults").code == 2
    assert rmqtool("broker-config", "diff", lab.target, "--file", tmp_path / "none").code == 3
    changed("undo", lab.target)


def test_settings_of_name_servers(lab: Lab) -> None:
    args = ("namesrv-config", "show", lab.target, "--name", "scanNot*", "-o", "json")
    assert [row["value"] for row in json.loads(rmqtool(*args).out)] == ["5000"]
    assert rmqtool("namesrv-config", "show", lab.target, "--name", "none").code == 1
    assert rmqtool("namesrv-config", "set", lab.target, "none=1", "--yes").code == 2
    refused = rmqtool("namesrv-config", "set", lab.target, "configBlackList=none", "--yes")
    assert (refused.code, "cannot be changed" in refused.err) == (1, True), refused.err


def test_limits_on_cold_data_are_listed(lab: Lab) -> None:
    if lab.release == "4.9":
        assert rmqtool("cold-data", "list", lab.target).code == 3
        return
    changed("cold-data", "set", lab.target, GROUP, "2K", "--broker", "lab-b")
    (row,) = json.loads(rmqtool("cold-data", "list", lab.target, "-o", "json").out)
    assert row == {
        "group": GROUP, "threshold": 2048, "defaultThreshold": 3 << 20, "coldAcc": None, "lastColdReadTimestamp": None,
        "brokerName": "lab-b",
    }  # fmt: skip
    changed("cold-data", "remove", lab.target, GROUP)
    changed("undo", lab.target)
    assert json.loads(rmqtool("cold-data", "list", lab.target, "-o", "json").out) == [row]
    changed("cold-data", "remove", lab.target, GROUP)
    assert rmqtool("cold-data", "list", lab.target, "-g", GROUP).code == 1


def test_masters_without_slaves(lab: Lab) -> None:
    done = rmqtool("cluster", "replicas", lab.target, "-o", "json")
    if lab.release == "4.9":
        assert (done.code, json.loads(done.out), "lab-a, lab-b: brokers of 4.9" in done.err) == (1, [], True)
        return
    rows = json.loads(done.out)
    assert (done.code, [(row["brokerName"], row["slaveAddress"]) for row in rows]) == (
        0, [("lab-a", None), ("lab-b", None)],
    )  # fmt: skip
    assert all(row["masterMaxOffset"] > 100_000 for row in rows)


def test_how_long_brokers_take(lab: Lab) -> None:
    changed("topic", "create", lab.target, "Timed", "--queues", "2")
    args = ("send-rtt", lab.target, "Timed", "--messages", "5")
    assert rmqtool(*args).code == 4
    planned = rmqtool(*args, "--dry-run")
    assert (planned.code, planned.out) == (1, "")
    assert "5 messages would be sent to each of 2 brokers" in planned.err
    done = rmqtool(*args, "--yes", "-o", "json")
    rows = json.loads(done.out)
    assert [(row["brokerName"], row["sent"], row["failed"]) for row in rows] == [("lab-a", 5, 0), ("lab-b", 5, 0)]
    assert all(0 < row["minMillis"] <= row["medianMillis"] <= row["maxMillis"] for row in rows)
    (topic,) = json.loads(rmqtool("topic", "list", lab.target, "Timed", "-o", "json").out)
    assert topic["messages"] == 10
    changed("topic", "perm", lab.target, "Timed", "R", "--broker", "lab-b")
    refused = rmqtool(*args, "--yes")
    assert (refused.code, "lab-b has no queue of topic Timed" in refused.err) == (3, True)
    assert len(json.loads(rmqtool(*args, "--broker", "lab-a", "--yes", "-o", "json").out)) == 1
    assert rmqtool("send-rtt", lab.target, "NoSuch", "--yes").code == 3


def test_a_setting_that_does_not_stick(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that says yes, and does nothing."""

    async def nothing(*_words: object) -> None:
        return None

    before = lab.tables()
    with monkeypatch.context() as patch:
        patch.setattr(Questions, "send", nothing)
        done = rmqtool("topic", "perm", lab.target, "Orders", "R", "--yes")
    assert done.code == 1
    assert "it did not stick: the old value is back" in done.err
    assert "0 of 2 entries changed" in done.err
    assert rmqtool("undo", lab.target, "--yes").code == 0, "there is nothing to put back"
    assert lab.tables() == before


# -- killed -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The end of a process, at one of its steps."""


class Steps:
    """Ends a run at its nth step: before or after a request that changes something, or the journal is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.count, self._last = 0, last
        send, replace_file = Questions.send, durable.replace_file

        async def send_or_end(*args: Any, **more: Any) -> None:
            self._step()
            await send(*args, **more)
            self._step()

        def replace_or_end(*args: Any, **more: Any) -> None:
            self._step()
            replace_file(*args, **more)
            self._step()

        monkeypatch.setattr(Questions, "send", send_or_end)
        monkeypatch.setattr(journal, "replace_file", replace_or_end)

    def _step(self) -> None:
        self.count += 1
        if self.count >= self._last:
            raise Killed


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch, *args: str) -> bool:
    """Whether a run was ended at a step, or had fewer."""
    with monkeypatch.context() as patch:
        Steps(patch, step)
        try:
            rmqtool(*args, "--yes")
        except (BaseExceptionGroup, Killed):
            pass
        else:
            return False
    return True


def undo_kills(monkeypatch: pytest.MonkeyPatch, target: str, *args: str, stride: int = 1) -> Iterator[int]:
    """Kill a change at each step, run it again, and undo it; yields the step each time.

    Args:
        stride: after the first eight steps only each of so many, where there is one for each of many offsets.
    """
    step = 1
    while killed_at(step, monkeypatch, *args):
        done = rmqtool(*args, "--yes")
        assert done.code == 0 or "no broker has it" in done.err, (step, done.err)
        while rmqtool("undo", target, "--yes").code == 0:
            pass
        yield step
        step += 1 if step < 8 else stride
    assert step > 6


@by_turns(7)
@pytest.mark.parametrize("name", CHANGES)
def test_killed_anywhere_run_again_and_undone(
    name: str, lab: Lab, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if of_5_alone(name, lab):
        return
    before = lab.tables()
    for step in undo_kills(monkeypatch, lab.target, *name.split(), lab.target, *CHANGES[name], stride=7):
        assert lab.tables() == before, step
        shutil.rmtree(state, ignore_errors=True)
    changed("undo", lab.target)
    assert lab.tables() == before


@by_turns(3)
@pytest.mark.parametrize("name", ["topic update", "group delete", "group reset"])
def test_killed_anywhere_and_undone_killed_anywhere(
    name: str, lab: Lab, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, args = lab.tables(), (*name.split(), lab.target, *CHANGES[name])
    for step in (3, 4, 5, 6):
        assert killed_at(step, monkeypatch, *args)
        assert state.exists(), "the journal comes before the first request"
        inner = 1
        while inner < 9 and killed_at(inner, monkeypatch, "undo", lab.target):
            inner += 1
        while rmqtool("undo", lab.target, "--yes").code == 0:
            pass
        assert lab.tables() == before, (step, inner)
        shutil.rmtree(state)


def test_an_interrupted_run_says_how_to_go_on(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.tables()
    with monkeypatch.context() as patch:
        send = Questions.send

        async def interrupted(*args: Any, **more: Any) -> None:
            await send(*args, **more)
            raise KeyboardInterrupt

        patch.setattr(Questions, "send", interrupted)
        done = rmqtool("topic", "perm", lab.target, "Orders", "R", "--yes")
    assert done.code == 130
    assert "some of it may be written" in done.err
    assert f"rmqtool undo {lab.target}" in done.err
    undo(lab, before)


# -- asked on a terminal, and what moves by itself --------------------------------------------------------------------


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_shown_the_plan_and_asked(answer: bool, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before, asked = lab.tables(), list[str]()

    def confirm(question: str) -> bool:
        asked.append(question)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr("rmqtool.cli.framework.planning.confirm", confirm)
        patch.setattr("rmqtool.cli.framework.planning.Consent.need", lambda *_words: None)
        done = rmqtool("group", "reset", lab.target, GROUP, "--to-earliest", "--topic", "Orders")
    assert asked == ["Change 8 entries? 840 messages are consumed again."]
    assert f"lab-a: offset {GROUP} Orders 0: 105 to 0" in done.err
    assert done.code == (0 if answer else 4)
    assert (lab.tables() == before) is not answer
    if answer:
        undo(lab, before)


@pytest.mark.parametrize(
    ("before", "after", "now", "went_on"),
    [
        (100, 0, 0, True), (100, 0, 40, True), (100, 0, 100, False), (100, 0, 120, False), (0, 100, 130, True),
        (0, 100, 40, False), (None, 5, 7, True), (None, 5, None, False), (5, None, 7, False),
    ],
)  # fmt: skip
def test_a_group_that_goes_on_from_where_it_was_set(
    before: int | None, after: int | None, now: int | None, went_on: bool
) -> None:
    place = Place(kind="offset", cluster="C", server="a", name=("g", "T", "0"))
    assert Offsets.went_on(ValueChange(place=place, before=before, after=after), now) is went_on


def order(lab: Lab, topic: str, ordered: bool) -> None:
    """Create a topic as ``mqadmin updateTopic -o`` does."""

    async def work(questions: Questions) -> None:
        for node in await questions.nodes():
            header = h.CreateTopic(
                topic=topic, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
                topic_filter_type="SINGLE_TAG", order=ordered,
            )  # fmt: skip
            await questions.send(node, C.UPDATE_AND_CREATE_TOPIC, header)

    ask(parse_target(lab.target), pytest.fail, work)


def test_an_ordered_topic_stays_ordered(lab: Lab, state: Path) -> None:
    order(lab, "Ordered", True)
    before = lab.tables()
    changed("topic", "perm", lab.target, "Ordered", "R")
    assert lab.topic("lab-a", "Ordered") == {**before["lab-a topics"]["Ordered"], "perm": 4}
    (kept,) = state.iterdir()
    content = json.loads(kept.read_text())
    for change in content["changes"]:  # as 0.2.0 wrote them
        assert [change[name].pop("order") for name in ("before", "after")] == [True, True]
    kept.write_text(json.dumps(content))
    undo(lab, before)
    changed("topic", "delete", lab.target, "Ordered")
    changed("undo", lab.target)
    assert lab.topic("lab-b", "Ordered") == before["lab-b topics"]["Ordered"]
    changed("topic", "delete", lab.target, "Ordered")


def test_names_that_brokers_do_not_take(tmp_path: Path) -> None:
    store = shutil.copytree(ROOT / "examples" / "store", tmp_path / "store")
    file = store / "config" / "topics.json"
    content = json.loads(file.read_text())
    content["topicConfigTable"]["A topic"] = {"topicName": "A topic", "readQueueNums": 1, "writeQueueNums": 1}
    file.write_text(json.dumps(content))
    with Serving(store, "--engine", "5.3") as served:
        target = f"rocketmq://{served.namesrv}"
        for name, *args in (("topic update", "A topic", "--queues", "2"), ("topic perm", "A topic", "R")):
            refused = rmqtool(*name.split(), target, *args, "--dry-run")
            assert (refused.code, "brokers refuse to change it" in refused.err) == (4, True), refused.err
        planned = rmqtool("topic", "delete", target, "A topic", "--dry-run")
        assert (planned.code, "undo cannot bring it back" in planned.err) == (1, True), planned.err
        planned = rmqtool("group", "reset", target, GROUP, "--to-earliest", "--dry-run")
        assert "undo leaves" not in planned.err
        planned = rmqtool("group", "reset", target, "lab-orderly", "--topic", "Orders", "--to-earliest", "--dry-run")
        assert "4 queues have no offset of the group: undo leaves the new one there" in planned.err
