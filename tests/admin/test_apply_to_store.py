"""The file of ``apply`` on a store directory: shown, written, served, undone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import ROOT, rmqtool
from tests.interop.serving import CLUSTER, Serving

EXAMPLE = ROOT / "examples" / "store"
FILE = """
topics:
  Orders:
    readQueueNums: 6
    perm: R
  Fresh: {readQueueNums: 2, writeQueueNums: 3}
groups:
  billing: {retryMaxTimes: 5, consumeEnable: false}
  lab-consumer: {retryMaxTimes: 7}
"""


def tables(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((store / "config").iterdir())}


def apply(store: Path, tmp_path: Path, text: str, *args: str) -> tuple[int, dict[str, Any], str]:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    done = rmqtool("apply", store, file, *args, "-o", "json")
    return done.code, json.loads(done.out or "{}") if done.out.startswith("{") else {}, done.err


@pytest.fixture
def store(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "store")
    return tmp_path / "store"


def test_shown_written_and_undone(store: Path, tmp_path: Path) -> None:
    before = tables(store)
    code, plan, err = apply(store, tmp_path, FILE, "--dry-run")
    assert code == 1, err
    assert tables(store) == before
    assert not (tmp_path / "store.rmqtool").exists()
    rows = {(row["kind"], row["name"], row["setting"]): (row["before"], row["after"]) for row in plan["changes"]}
    assert rows["topic", "Orders", "readQueueNums"] == (4, 6)
    assert rows["topic", "Orders", "perm"] == (6, 4)
    assert rows["group", "billing", "retryMaxTimes"] == (None, 5)
    assert apply(store, tmp_path, FILE)[0] == 4, "without a terminal and --yes"
    code, result, err = apply(store, tmp_path, FILE, "--yes")
    assert (code, result["applied"]) == (0, True), err
    assert {row["state"] for row in result["changes"]} == {"done"}
    after = tables(store)
    assert {name for name in after if after[name] != before.get(name)} == {
        "topics.json", "topics.json.bak", "subscriptionGroup.json", "subscriptionGroup.json.bak",
    }  # fmt: skip
    assert after["topics.json.bak"] == before["topics.json"]
    old, new = json.loads(before["topics.json"]), json.loads(after["topics.json"])
    assert new["dataVersion"]["counter"] == old["dataVersion"]["counter"] + 1
    fresh = new["topicConfigTable"].pop("Fresh")
    assert (fresh["readQueueNums"], fresh["writeQueueNums"], fresh["perm"]) == (2, 3, 6)
    orders = new["topicConfigTable"]["Orders"]
    assert orders == {**old["topicConfigTable"]["Orders"], "readQueueNums": 6, "perm": 4}
    assert {**new["topicConfigTable"], "Orders": None} == {**old["topicConfigTable"], "Orders": None}
    assert apply(store, tmp_path, FILE, "--yes")[0] == 0
    assert tables(store) == after, "a second time nothing is written"
    assert rmqtool("undo", store, "--yes").code == 0
    assert {name: data for name, data in tables(store).items() if name in before} == before


def test_a_new_store_is_ready_to_be_served(tmp_path: Path) -> None:
    store = tmp_path / "new"
    assert rmqtool("init", store).code == 0
    text = rmqtool("config", EXAMPLE, "--yaml").out
    code, _result, err = apply(store, tmp_path, text, "--yes")
    assert code == 0, err
    assert yaml.safe_load(rmqtool("config", store, "--yaml").out) == yaml.safe_load(text)
    with Serving(store) as served:
        target = f"rocketmq://{served.namesrv}/{CLUSTER}"
        done = rmqtool("apply", target, tmp_path / "cluster.yaml", "--dry-run")
        assert (done.code, "nothing to change" in done.err) == (0, True), done.err
        assert rmqtool("apply", store, tmp_path / "cluster.yaml", "--yes").code == 4, "it is served"


def test_settings_of_one_broker(store: Path, tmp_path: Path) -> None:
    text = "topics: {Orders: {perm: RW, brokers: {lab-b: {perm: R}, lab-c: null}}}"
    code, _plan, err = apply(store, tmp_path, text, "--dry-run")
    assert (code, "give --broker NAME" in err) == (2, True)
    assert apply(store, tmp_path, text, "--dry-run", "--broker", "lab-a")[0] == 0
    assert apply(store, tmp_path, text, "--dry-run", "--broker", "lab-b")[0] == 1
    assert apply(store, tmp_path, text, "--dry-run", "--broker", "lab-c")[0] == 0
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=lab-b\n")
    assert apply(store, tmp_path, text, "--dry-run", "--broker-conf", str(conf))[0] == 1
    assert apply(store, tmp_path, text, "--dry-run", "--broker", "lab-a", "--broker", "lab-b")[0] == 2
    assert apply(store, tmp_path, text, "--dry-run", "--prune")[0] == 2


def test_no_store(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert apply(tmp_path / "empty", tmp_path, FILE, "--yes")[0] == 3
    assert apply(tmp_path / "none", tmp_path, FILE, "--yes")[0] == 3
    assert not (tmp_path / "none").exists()


def test_broken_tables_are_not_written_over(store: Path, tmp_path: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_bytes(b"{")
    before = tables(store)
    assert apply(store, tmp_path, FILE, "--yes")[0] == 5
    assert tables(store) == before


def test_somebody_else_wrote_since_the_plan_was_shown(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store / "config" / "topics.json"

    def confirm(_question: str) -> bool:
        path.write_text(path.read_text().replace('"readQueueNums":4', '"readQueueNums":5'))
        return True

    monkeypatch.setattr("rmqtool.cli.framework.planning.confirm", confirm)
    monkeypatch.setattr("rmqtool.cli.framework.planning.Consent.need", lambda *_words: None)
    code, _result, err = apply(store, tmp_path, FILE)
    assert (code, "has changed since the plan was shown" in err) == (4, True), err
    assert "Fresh" not in path.read_text()


def test_the_disk_is_full(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tables(store)

    def fail(_path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rmqtool.store.changes.change.sync", fail)
    code, _result, err = apply(store, tmp_path, FILE, "--yes")
    assert code not in (0, 1), err
    assert "Traceback" not in err
    assert tables(store) == before
