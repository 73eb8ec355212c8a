"""Topics and groups as a file declares them: shown, written, pruned, undone; and files that are not in order."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmqtool.testing import broker
from tests.admin.test_changes import RELEASES, Lab, lab, state, undo  # noqa: F401 (fixtures)
from tests.cli.running import ROOT, rmqtool

assert RELEASES
FILE = """
topics:
  Orders:
    readQueueNums: 6
    brokers:
      lab-b: {perm: R}
  Fresh:
    readQueueNums: 2
    writeQueueNums: 2
    brokers:
      lab-b: null
groups:
  billing: {retryMaxTimes: 5, consumeEnable: false}
  lab-consumer: {retryMaxTimes: 7}
"""


def apply(target: str, tmp_path: Path, text: str, *args: str) -> tuple[int, dict[str, Any], str]:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    done = rmqtool("apply", target, file, *args, "-o", "json")
    return done.code, json.loads(done.out or "{}") if done.out.startswith("{") else {}, done.err


def test_what_is_declared_is_there(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    before = lab.tables()
    code, plan, _err = apply(lab.target, tmp_path, FILE, "--dry-run")
    assert code == 1
    assert lab.tables() == before, "a dry run changes nothing"
    changed = {(row["kind"], row["name"], row["server"], row["setting"]) for row in plan["changes"]}
    assert {("topic", "Orders", "lab-b", "perm"), ("topic", "Orders", "lab-a", "readQueueNums")} <= changed
    assert ("topic", "Orders", "lab-a", "perm") not in changed
    assert not any(row["name"] == "Fresh" and row["server"] == "lab-b" for row in plan["changes"])
    assert apply(lab.target, tmp_path, FILE)[0] == 4, "without a terminal and --yes"

    code, result, err = apply(lab.target, tmp_path, FILE, "--yes")
    assert code == 0, err
    assert {row["state"] for row in result["changes"]} <= {"done", "same"}
    assert (lab.topic("lab-a", "Orders")["readQueueNums"], lab.topic("lab-a", "Orders")["perm"]) == (6, 6)
    assert lab.topic("lab-b", "Orders")["perm"] == 4
    assert lab.topic("lab-a", "Orders")["writeQueueNums"] == 4, "what is not named stays"
    assert lab.topic("lab-b", "Fresh") is None
    assert lab.tables()["lab-b groups"]["billing"]["consumeEnable"] is False
    code, _plan, err = apply(lab.target, tmp_path, FILE, "--dry-run")
    assert (code, "nothing to change" in err) == (0, True)

    written = yaml.safe_load(rmqtool("config", lab.target, "--yaml").out)
    assert written["topics"]["Orders"]["brokers"] == {"lab-b": {"perm": "R"}}
    assert written["topics"]["Fresh"] == {
        "readQueueNums": 2, "writeQueueNums": 2, "perm": "RW", "brokers": {"lab-b": None},
    }  # fmt: skip
    assert written["groups"]["billing"]["retryMaxTimes"] == 5
    undo(lab, before)


def test_what_is_written_is_what_is_there(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    text = rmqtool("config", lab.target, "--yaml").out
    assert apply(lab.target, tmp_path, text, "--dry-run")[0] == 0
    of_store = rmqtool("config", str(ROOT / "examples" / "store"), "--yaml").out
    assert yaml.safe_load(of_store) == yaml.safe_load(text)
    assert apply(lab.target, tmp_path, of_store, "--dry-run")[0] == 0
    assert "%RETRY%" not in text
    assert "TBW102" not in text
    assert "CID_" not in text


def test_the_topic_that_proxies_make_is_not_declared(tmp_path: Path) -> None:
    with broker() as served:
        target = f"rocketmq://{served.namesrv}"
        assert apply(target, tmp_path, "topics: {Orders: {}}\ngroups: {billing: {}}\n", "--yes")[0] == 0
        assert rmqtool("topic", "create", target, "DefaultHeartBeatSyncerTopic", "--queues", "1", "--yes").code == 0
        of_cluster = rmqtool("config", target, "--yaml").out
        assert {*yaml.safe_load(of_cluster)["topics"]} == {"Orders"}
        assert rmqtool("config", served.store, "--yaml").out == of_cluster


def test_prune_deletes_what_the_file_owns(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    for name in ("own-one", "own-two", "other"):
        assert rmqtool("topic", "create", lab.target, name, "--queues", "1", "--yes").code == 0
    assert rmqtool("group", "create", lab.target, "own-group", "--yes").code == 0
    before = lab.tables()
    text = "topics: {own-one: {}}\nowns: {topics: [own-*], groups: ['own-*']}\n"
    assert apply(lab.target, tmp_path, text, "--dry-run")[0] == 0, "without --prune nothing is deleted"
    code, plan, err = apply(lab.target, tmp_path, text, "--dry-run", "--prune")
    assert code == 1
    assert "group own-group, topic own-two" in err
    code, plan, err = apply(lab.target, tmp_path, text, "--yes", "--prune")
    assert code == 0, err
    assert plan["applied"]
    assert lab.topic("lab-a", "own-two") is None
    assert lab.topic("lab-b", "own-one") is not None
    assert lab.topic("lab-a", "other") is not None
    assert "own-group" not in lab.tables()["lab-a groups"]
    undo(lab, before)
    for name in ("own-one", "own-two", "other"):
        assert rmqtool("topic", "delete", lab.target, name, "--yes").code == 0
    assert rmqtool("group", "delete", lab.target, "own-group", "--yes").code == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "give topics or groups"),
        ("[1]", "give topics or groups"),
        ("topic: {}", "'topic' is none of topics, groups, owns; topics?"),
        ("topics: {Orders: {readQueueNum: 4}}", "readQueueNums?"),
        ("topics: {Orders: {readQueueNums: four}}", "'four' is no number"),
        ("topics: {Orders: {readQueueNums: true}}", "True is no number"),
        ("topics: {Orders: {readQueueNums: 99999999999}}", "out of range"),
        ("topics: {Orders: {perm: X}}", "give RW, R, W or -"),
        ("topics: {Orders: 4}", "give names and their settings"),
        ("topics: {'a b': {}}", "a b"),
        ("groups: {'a b': {}}", "a b"),
        ("topics: {A: {}, A: {}}", "A is there twice"),
        ("topics: &x {A: {}}\ngroups: *x", "aliases are not taken"),
        ("topics: {A: {}", "cluster.yaml:1"),
        ("topics: {A: !!python/name:os.system {}}", "cluster.yaml:1"),
        ("owns: {topics: all}", "give a list of names or patterns"),
        ("topics: {Orders: {brokers: {lab-x: {}}}}", "no broker lab-x: there are lab-a, lab-b"),
        ("\x00", "cluster.yaml"),
    ],
)
def test_files_that_are_not_as_they_should_be(text: str, reason: str, lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    code, _plan, err = apply(lab.target, tmp_path, text, "--yes")
    assert code == 2, err
    assert reason in err
    assert "Traceback" not in err


def test_no_file(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    assert rmqtool("apply", lab.target, tmp_path / "none.yaml", "--yes").code == 3
    assert rmqtool("apply", str(ROOT / "examples" / "store"), tmp_path / "none.yaml", "--yes").code == 3
    assert rmqtool("config", lab.target, "topics.json", "--yaml").code == 2


@pytest.mark.parametrize(("content", "code"), [(None, 3), ('{"topicConfigTable":{', 5)])
def test_a_store_that_has_lost_its_topics_declares_nothing(content: str | None, code: int, tmp_path: Path) -> None:
    """A file without topics would be one that has none."""
    store = shutil.copytree(ROOT / "examples" / "store", tmp_path / "store")
    table = store / "config" / "topics.json"
    table.unlink()
    table.with_name("topics.json.bak").unlink(missing_ok=True)
    if content is not None:
        table.write_text(content)
    result = rmqtool("config", store, "--yaml")
    assert (result.code, result.out) == (code, "")
    assert "topics.json" in result.err
