"""For 5.3.3 a message with invalid numbers of an inner batch ends the log."""

import shutil
from pathlib import Path
from random import Random

import pytest

from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import recover
from tests.amounts import by_turns
from tests.damage import log_files
from tests.interop.differential.bases import plain_messages, sizes
from tests.interop.differential.compare import engine_entries
from tests.interop.engine import Engine
from tests.store.helpers import cut_queues, entries_of

pytestmark = pytest.mark.interop

CONFIG = sizes(16384, 20, 61, 900)
VICTIM, MESSAGES = 110, 120


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), BrokerConf({name: str(value) for name, value in CONFIG.items()}))


@pytest.fixture(scope="module")
def written(engine_5: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 5.3.3 store with such a message, written under placeholder names, as the engine would refuse it."""
    messages = plain_messages(Random(5), MESSAGES, 2, 3)
    messages[VICTIM]["properties"] = {"INNXR_NUM": "11111", "INNXR_BASE": "22222"}
    store = tmp_path_factory.mktemp("batch") / "store"
    answer = engine_5.write(store, messages, CONFIG)
    assert {row["status"] for row in answer["results"]} == {"PUT_OK"}
    return store


@by_turns(11)
@pytest.mark.parametrize("ending", ["clean stop", "clean stop with queues behind", "crash"])
@pytest.mark.parametrize(("number", "base", "ends"), [
    ("11111", "22222", False),
    ("+1111", "-2222", False),
    ("1111x", "22222", True),
    ("11111", "2222x", True),
    ("11111", " 2222", True),
    ("99999", "22222", True),
])  # fmt: skip
def test_recovery_agrees(
    number: str, base: str, ends: bool, ending: str, written: Path, engine_5: Engine, tmp_path: Path
) -> None:
    store = shutil.copytree(written, tmp_path / "store")
    if "behind" in ending:
        cut_queues(layout_of(store), 20)
    if ending == "crash":
        (store / "abort").write_text("17")
    for path in log_files(store):
        data = path.read_bytes().replace(b"INNXR_", b"INNER_")
        path.write_bytes(data.replace(b"11111", number.encode()).replace(b"22222", base.encode()))
    judged = shutil.copytree(store, tmp_path / "judged")
    report = recover(layout_of(store), exactly=True)
    seen = engine_5.open(judged, CONFIG)
    assert seen["loadOk"]
    assert report.engine == "5.3"
    assert sum(loss.messages for loss in report.lost) == (MESSAGES - VICTIM - 1 if ends else 0)
    assert report.afterLoad.maxPhyOffset == seen["afterLoad"]["maxPhyOffset"]
    assert entries_of(layout_of(store)) == engine_entries(seen)
    again = engine_5.open(store, CONFIG)
    assert again["loadOk"]
    assert engine_entries(again) == engine_entries(seen)
