"""Recovery of a store whose topics.json is broken, with an older .bak that does not have all topics."""

import json
import shutil
from pathlib import Path

import pytest

from rmqtool.store.changes.undo import undo
from rmqtool.store.check import is_problem
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan, recover
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import tree

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
    return [found.code for found in check_store(layout_of(store)) if is_problem(found)]


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
        f"add topic {TOPIC} with 4 queues, since it has messages, to config/topics.json",
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
    assert "topic-deleted" in {found.code for found in check_store(layout_of(store))}
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
