"""Stores of 5.4 and 5.5 with their queues in files and in RocksDB (``rocksdbCQDoubleWriteEnable``), beside the engine.

Random damage is in :mod:`tests.interop.differential`: ``--double``.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool import Store
from tests.amounts import whole_by_turns
from tests.cli.running import rmqtool
from tests.interop.engine import LATEST, Engine, available
from tests.interop.rocks_recovery import drop_units_of, messages, seen_in
from tests.store.helpers import tree

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("double-written"), whole_by_turns(2, 5)]

_SIZES = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
_LIGHT = {"enableLmq": True, "enableMultiDispatch": True}
# name: (release, settings, directory of the database)
FORMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "one directory": ("5.5.0", {}, "consumequeue"),
    "separate": ("5.5.0", {"useSeparateStorePathForRocksdbCQ": True}, "consumequeue_rocksdb"),
    "light queues in the database alone": (
        "5.5.0",
        {"useSeparateStorePathForRocksdbCQ": True, "combineCQUseRocksdbForLmq": True, **_LIGHT},
        "consumequeue_rocksdb",
    ),
    "5.4": ("5.4.0", {}, "consumequeue"),
}
# since 5.5.1; none of the topics here is of lite topics
SELECTIVE = {"useSeparateStorePathForRocksdbCQ": True, "rocksdbCQSelectiveDoubleWriteEnable": True}


class Form:
    """A store of one form, with the engine that wrote it."""

    def __init__(self, name: str, folder: Path) -> None:
        release, settings, self.database = FORMS.get(name, (LATEST, SELECTIVE, "consumequeue_rocksdb"))
        self.config = {**_SIZES, "rocksdbCQDoubleWriteEnable": True, **settings}
        self.engine = Engine(release)
        self.conf = folder / "broker.conf"
        self.conf.write_text("".join(f"{key}={str(value).lower()}\n" for key, value in self.config.items()))
        self.stopped, self.killed = folder / "stopped", folder / "killed"
        self._write(self.stopped, 220)
        self._write(self.killed, 150)
        self._write(self.killed, 70, kill=True)

    def _write(self, store: Path, count: int, *, kill: bool = False) -> None:
        answer = self.engine.write(store, messages(count), self.config, kill=kill)
        assert "error" not in answer, answer

    def run(self, *words: Any) -> Any:
        """Run a command with the broker's settings."""
        return rmqtool(*words, "--broker-conf", self.conf)

    def open(self, store: Path) -> dict[tuple[str, int, int], tuple[int, int]]:
        """(physical offset, size) of the entries that the engine shows, by topic, queue and queue offset."""
        answer = self.engine.open(store, self.config)
        assert "error" not in answer, answer
        assert answer["loadOk"]
        return {
            (row["cqTopic"], row["cqQueueId"], row["cqOffset"]): (row["cqPhysicalOffset"], row["cqSize"])
            for row in answer["messages"]
        }


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Form]:
    made = Form(request.param, tmp_path_factory.mktemp("double"))
    yield made
    made.engine.close()


def test_healthy_stores_are_silent_with_and_without_settings(form: Form) -> None:
    before = tree(form.stopped)
    for options in ((), ("--broker-conf", form.conf)):
        checked = rmqtool("check", form.stopped, "--severity", "warning", *options)
        assert checked.code == 0, checked.out
    assert form.run("recover", form.stopped, "--dry-run").code == 0
    assert tree(form.stopped) == before


def test_check_compares_both_copies(form: Form, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(form.stopped, store)
    queue = next((store / "consumequeue" / "A" / "1").iterdir())
    whole = queue.read_bytes()
    queue.write_bytes(whole[:20] + bytes(20) + whole[40:])
    assert form.run("check", store, "--severity", "error").code == 1
    queue.write_bytes(whole)
    drop_units_of(store / form.database, "B")
    checked = form.run("check", store, "--severity", "warning", "--output", "json")
    assert checked.code == 1
    found = json.loads(checked.out)
    assert {finding["code"] for finding in found} == {"rcq-missing", "rcq-end"}
    assert {finding["severity"] for finding in found} == {"warning"}, "consumers read the files"
    assert {finding["topic"] for finding in found} == {"B"}


def test_all_light_queues_are_read(form: Form) -> None:
    with Store(form.stopped, broker_conf=form.conf) as store:
        light = sorted(queue.topic for queue in store.queues() if queue.topic.startswith("%LMQ%"))
    assert light == (["%LMQ%x", "%LMQ%y"] if form.config.get("enableLmq") else [])
    for topic in light:
        dumped = form.run("consumequeue", "dump", form.stopped, topic, "--output", "ndjson")
        assert [json.loads(line)["queueOffset"] for line in dumped.out.splitlines()] == list(range(11))


def test_the_engine_completes_both_after_recover(form: Form, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(form.killed, store)
    queue = max((store / "consumequeue" / "A" / "1").iterdir())
    queue.write_bytes(queue.read_bytes()[:20] + bytes(queue.stat().st_size - 20))
    assert seen_in(store / form.database).built < 50_000, "a killed broker leaves the database behind"
    recovered = form.run("recover", store, "--yes")
    assert recovered.code == 0, recovered.err
    assert "abort stays" in recovered.out
    assert form.run("recover", store, "--dry-run").code == 0, "nothing is left to do"
    shown = form.open(store)
    units = {key: unit[:2] for key, unit in seen_in(store / form.database).units.items()}
    assert shown.items() <= units.items()
    assert form.run("check", store, "--severity", "error").code == 0


def test_a_broken_database_is_moved_away(form: Form, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(form.stopped, store)
    before = form.open(store)
    for table in (store / form.database).glob("*.sst"):
        table.write_bytes(table.read_bytes()[:50])
    assert form.run("recover", store, "--yes").code == 1
    plan = form.run("recover", store, "--dry-run")
    assert "move the files of the database out of the store" in " ".join(plan.out.split())
    for path in (store / form.database).iterdir():
        if path.is_file():
            path.unlink()
    assert form.run("recover", store, "--yes").code == 0
    assert form.open(store) == before


def test_messages_are_not_stored_beside_the_database(form: Form, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(form.stopped, store)
    message = tmp_path / "message.ndjson"
    message.write_text('{"topic": "A", "queueId": 1, "body": "x"}\n')
    refused = form.run("append", store, message)
    assert refused.code == 4
    assert "in files and in RocksDB" in refused.err
    exported = tmp_path / "exported"
    assert form.run("export", store, exported).code == 0
    assert rmqtool("append", exported, message).code == 0


def test_a_database_of_lite_topics_alone(tmp_path: Path) -> None:
    """It has no units of other topics, and nothing is missing."""
    if reason := available(LATEST):
        pytest.skip(reason)
    form = Form("selective", tmp_path)
    before = tree(form.stopped)
    for options in ((), ("--broker-conf", form.conf)):
        checked = rmqtool("check", form.stopped, "--severity", "warning", *options)
        assert checked.code == 0, checked.out
        listed = rmqtool("topic", "list", form.stopped, *options)
        assert (listed.code, "warning" in listed.err) == (0, False), listed.err
    assert form.run("recover", form.stopped, "--dry-run").code == 0
    assert tree(form.stopped) == before
    shutil.copytree(form.killed, tmp_path / "started")
    assert form.run("recover", form.killed, "--yes").code == 0
    assert form.run("recover", form.killed, "--dry-run").code == 0
    assert form.open(form.killed) == form.open(tmp_path / "started")
    assert not seen_in(form.killed / form.database).units
    assert form.run("check", form.killed, "--severity", "warning").code == 0
    form.engine.close()
