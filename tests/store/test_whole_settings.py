"""Recovery of a store with broken config files, with an older .bak or none."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.read import loads
from formats.fastjson.write import dumps
from rmqtool.store.builders.config_evidence import find_delivered
from rmqtool.store.changes.undo import undo
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.config_evidence import gather
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import tree
from tests.store.walked import walk_from

CASES = ["broker", "broker-5.3.3", "broker-5.5.0"]
TOPIC = "Orders"


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store))


def broken_since(store: Path, timestamp: int | None = None) -> Path:
    """Break topics.json; the .bak is from before the topic was created, or after it was deleted.

    Args:
        timestamp: of the last change of the .bak, ms.
    """
    path = store / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"][TOPIC]
    if timestamp is not None:
        table["dataVersion"]["timestamp"] = timestamp
    path.with_name("topics.json.bak").write_text(json.dumps(table))
    path.write_text("{")
    return path


def problems(store: Path) -> list[str]:
    return [finding.code for finding in check_store(layout_of(store)) if is_problem(finding)]


@pytest.mark.parametrize("case", CASES)
def test_a_topic_created_since_the_bak_gets_its_entry(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    at_first = problems(store)
    whole = json.loads((store / "config" / "topics.json").read_text())
    path = broken_since(store, 1)
    before = tree(store)
    shown = plan(layout_of(store))
    assert [action for action in shown.actions if "topics.json" in action] == [
        "restore from its .bak config/topics.json",
        f"add topic {TOPIC}: 4 queues, since it has messages and no entry, to config/topics.json",
    ]
    assert recover(layout_of(store)).actions == shown.actions
    restored = json.loads(path.read_text())
    assert restored["topicConfigTable"].keys() == whole["topicConfigTable"].keys()
    assert restored["topicConfigTable"][TOPIC] == whole["topicConfigTable"][TOPIC]
    assert restored["dataVersion"]["timestamp"] > 1
    assert problems(store) == at_first
    assert plan(layout_of(store)).clean
    undo(str(store))
    assert tree(store) == before


@pytest.mark.parametrize("case", CASES)
def test_a_topic_deleted_before_the_bak_is_not_brought_back(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    path = broken_since(store, 2**42)  # later than every message
    shutil.rmtree(store / "consumequeue" / TOPIC)
    older = path.with_name("topics.json.bak").read_bytes()
    recover(layout_of(store))
    assert path.read_bytes() == older
    assert not (store / "consumequeue" / TOPIC).exists()
    assert "topic-deleted" in {finding.code for finding in check_store(layout_of(store))}
    assert plan(layout_of(store)).clean


@pytest.mark.parametrize("case", CASES[:1])
def test_a_topic_created_after_the_bak_gets_queues_and_entry(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    path = broken_since(store, 1)
    shutil.rmtree(store / "consumequeue" / TOPIC)
    recover(layout_of(store))
    assert json.loads(path.read_text())["topicConfigTable"][TOPIC]["readQueueNums"] == 4
    assert sorted(entry.name for entry in (store / "consumequeue" / TOPIC).iterdir()) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("case", CASES[:1])
def test_exactly_takes_the_bak_as_a_broker_does(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    path = broken_since(store)
    recover(layout_of(store), exactly=True)
    assert path.read_text() == "{"  # a broker reads the .bak, and writes the file when it is next changed


TORN = [("broker", name) for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json")]
TORN += [(case, name) for case in CASES[1:] for name in ("topics.json", "delayOffset.json")]


def levels_of(data: bytes) -> dict[Any, Any]:
    """Delay offsets, without those of levels that nothing was delivered from."""
    value = loads(data)
    assert isinstance(value, dict)
    return {level: offset for level, offset in value["offsetTable"].items() if offset}


@by_turns(7)
@pytest.mark.parametrize("bak", [None, b"{"], ids=["no bak", "broken bak"])
@pytest.mark.parametrize("left", [0, 3], ids=["empty", "torn"])
@pytest.mark.parametrize(("case", "name"), TORN)
def test_what_is_left_of_a_file_without_whole_bak_is_restored(
    case: str, name: str, left: int, bak: bytes | None, golden_copy: Unpacked
) -> None:
    """With a broken .bak a broker does not start; without one it starts with an empty table."""
    store = golden_copy(case)
    at_first = problems(store)
    path = store / "config" / name
    backup = path.with_name(f"{name}.bak")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * left // 4])
    backup.unlink(missing_ok=True)
    if bak is not None:
        backup.write_bytes(bak)
    before = tree(store)
    assert "config-broken" in problems(store)
    shown = plan(layout_of(store))
    assert recover(layout_of(store)).actions == shown.actions
    assert [warning for warning in shown.warnings if name in warning] or name == "delayOffset.json"
    assert problems(store) == at_first
    assert plan(layout_of(store)).clean
    if name == "topics.json":
        table = json.loads(path.read_text())["topicConfigTable"]
        assert set(table) > {TOPIC, "Payments"}
        if case != "broker":
            assert table["BatchQueue"]["attributes"] == {"queue.type": "BatchCQ"}
            assert table["Profiles"]["attributes"] == {"cleanup.policy": "COMPACTION"}
    elif name == "delayOffset.json":  # nothing is delivered twice
        assert levels_of(path.read_bytes()) == levels_of(data)
    undo(str(store))
    assert tree(store) == before


@pytest.mark.parametrize("case", CASES)
def test_levels_delivered_since_the_bak_are_not_delivered_again(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    path = store / "config" / "delayOffset.json"
    data = path.read_bytes()
    levels = levels_of(data)
    level, offset = next(iter(levels.items()))
    path.with_name("delayOffset.json.bak").write_bytes(dumps({"offsetTable": dict(levels.items() - {(level, offset)})}))
    path.write_text("{")
    shown = plan(layout_of(store))
    assert f"add level {level}: offset {offset}, since its copy is in the log, to config/delayOffset.json" in (
        shown.actions
    )
    recover(layout_of(store))
    assert levels_of(path.read_bytes()) == levels


def test_copies_that_are_cut_off_prove_no_delivery(golden: Unpacked) -> None:
    layout = layout_of(golden("broker"))
    evidence = gather(layout)
    assert evidence is not None
    assert set(find_delivered(layout, evidence)) == {1, 2, 3, 4}
    assert find_delivered(layout, replace(evidence, log_end=0)) == {}


def test_rebuild_config_names_batch_queues(golden_copy: Unpacked, tmp_path: Path) -> None:
    """Without the attribute a broker does not start, and recover refuses."""
    store = golden_copy("broker-5.3.3")
    at_first = problems(store)
    path = store / "config" / "topics.json"
    table = json.loads(path.read_text())
    table["topicConfigTable"]["BatchQueue"]["attributes"] = {}
    path.write_text(json.dumps(table))
    assert problems(store) == ["bcq-form", *at_first]
    assert not walk_from(["recover", "STORE"], store, tmp_path, None)
    assert problems(store) == at_first
    table = json.loads(path.read_text())["topicConfigTable"]
    assert table["BatchQueue"]["attributes"] == {"queue.type": "BatchCQ"}


def test_exactly_refuses_batch_queues_of_a_lost_table(golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    path = store / "config" / "topics.json"
    path.write_text("")
    path.with_name("topics.json.bak").unlink()
    assert "bcq-form" in problems(store)
    report = recover(layout_of(store), exactly=True)
    assert [why.rpartition(": ")[2] for why in report.refusals] == [
        "topics.json does not say that the topic has batch consume queues"
    ] * 2
