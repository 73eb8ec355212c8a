"""recover --dry-run on RocksDB stores: its report, and that it only reads. Interop tests compare with the engine."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.queues.rocks import CHECKPOINT_KEY, MAX, MIN, OFFSETS, RocksOffset, offset_key
from tests import rocks
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.rocks import Families, build_offset
from tests.store.helpers import tree

CASE = "rocksdb-5.3.3"
END = 148_209
LAST = 77_211  # physical offset of the last message of Orders 2, whose queue offset is 60


def planned(store: Path, *options: object, code: int = 1) -> dict[str, Any]:
    before = tree(store)
    result = rmqtool("recover", store, "--dry-run", "-o", "json", *options)
    assert tree(store) == before
    assert result.code == code, result.err
    report: dict[str, Any] = json.loads(result.out)
    assert not report["applied"]
    return report


def ends(report: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in report["afterStart"]["queues"]}


def change(store: Path, what: Callable[[Families], Any]) -> None:
    rocks.change(store / "consumequeue", what)


def test_a_healthy_store_needs_nothing(golden: Unpacked) -> None:
    report = planned(golden(CASE), code=0)
    assert (report["loadOk"], report["abort"], report["actions"], report["warnings"]) == (True, False, [], [])
    assert report["afterStart"]["maxPhyOffset"] == END
    assert ends(report)["Orders", 2] == (0, 61)


def test_after_a_crash_the_database_is_filled(golden: Unpacked) -> None:
    report = planned(golden(CASE + "-crash"))
    assert sum(queue["entriesAdded"] for queue in report["queues"]) == 434
    healthy = ends(planned(golden(CASE), code=0))
    ends_now = ends(report)
    assert ends_now == {key: healthy[key] for key in ends_now}
    # without settings, and with nothing of them in the database, light queues are not known
    missing = {key for key, (_low, high) in healthy.items() if high} - ends_now.keys()
    assert {topic for topic, _queue_id in missing} == {"%LMQ%all", "%LMQ%device-0", "%LMQ%device-1"}
    assert f"note in consumequeue that queues have the log up to {END}" in report["actions"]
    assert any("does not change RocksDB databases" in note and "rmqtool salvage" in note for note in report["notes"])


def test_a_note_that_is_behind_costs_a_message(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    change(store, lambda f: f[OFFSETS].update({CHECKPOINT_KEY: LAST.to_bytes(8, "big")}))
    report = planned(store)
    assert report["queues"] == []  # the units are there
    [warning] = report["warnings"]
    assert "topic 'Orders' queue 2 offset 60" in warning
    assert "leaves it out" in warning


def test_a_cut_log_sets_queues_back(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    log = next((store / "commitlog").iterdir())
    data = log.read_bytes()
    log.write_bytes(data[:LAST] + bytes(len(data) - LAST))
    report = planned(store)
    assert report["afterStart"]["maxPhyOffset"] == LAST
    assert ends(report)["Orders", 2] == (0, 60)
    cut = {(q["topic"], q["queueId"]): q["entriesCut"] for q in report["queues"]}
    assert cut["Orders", 2] == 1
    assert f"set the ends of {len(cut)} queues back in consumequeue" in report["actions"]


def test_an_end_that_cannot_be_set_back(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    log = next((store / "commitlog").iterdir())
    data = log.read_bytes()
    log.write_bytes(data[:LAST] + bytes(len(data) - LAST))
    far = build_offset(RocksOffset(1 << 40, 70))
    change(store, lambda f: f[OFFSETS].update({offset_key("Orders", 2, which): far for which in (MIN, MAX)}))
    report = planned(store)
    assert any("the end cannot be set back" in warning for warning in report["warnings"])
    assert ends(report)["Orders", 2] == (70, 71)


def test_topics_that_the_table_lacks(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    rocks.change(store / "config" / "topics", lambda families: families["default"].pop(b"Orders"))
    report = planned(store, code=0)
    [warning] = report["warnings"]
    assert warning.startswith("topics that are not in the table of topics: 'Orders': ")
    assert "deletes their queues" in warning


def test_without_a_log_the_database_goes(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").mkdir()
    report = planned(store)
    assert any("remove consumequeue" in action for action in report["actions"])
    assert report["destroys"]
    assert report["afterStart"]["queues"] == []


def short_note(store: Path) -> None:
    change(store, lambda f: f[OFFSETS].update({CHECKPOINT_KEY: b"\0"}))


def torn_table(store: Path) -> None:
    table = max((store / "consumequeue").glob("*.sst"), key=lambda path: path.stat().st_size)
    table.write_bytes(table.read_bytes()[:100])


def no_beginning(store: Path) -> None:
    (store / "consumequeue" / "CURRENT").unlink()


@pytest.mark.parametrize("damage", [short_note, torn_table, no_beginning])
def test_a_database_that_a_broker_refuses(damage: Callable[[Path], None], golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    damage(store)
    report = planned(store)
    assert not report["loadOk"]
    assert [why.startswith(f"{store / 'consumequeue'}: ") for why in report["refusals"]] == [True]
    assert report["nextSteps"][0].startswith(f"rmqtool salvage {store}")
    shown = rmqtool("recover", store, "--dry-run")
    assert "refuses to load" in shown.out


@pytest.mark.parametrize("what", ["[!0-9]*", "*"])
def test_a_database_of_which_there_is_nothing_is_begun_anew(what: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    store, conf = golden_copy(CASE), tmp_path / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\n")
    for path in [*(store / "consumequeue").glob(what), *(store / "consumequeue").glob("*.log")]:
        path.unlink(missing_ok=True)
    options = ["--broker-conf", conf] if what == "*" else []
    report = planned(store, *options)
    assert sum(queue["entriesAdded"] for queue in report["queues"]) == 433
    assert any("leaves it out" in warning for warning in report["warnings"])
    # and it is not taken for a store of files
    before = tree(store)
    for args in (["recover", "--yes"], ["rebuild", "consumequeue", "--yes"], ["dispatch"]):
        assert rmqtool(args[0], store, *args[1:], *options).code == 4
    assert tree(store) == before


@pytest.mark.parametrize("args", [["--yes"], []])
def test_nothing_is_done(args: list[str], golden_copy: Unpacked) -> None:
    store = golden_copy(CASE + "-crash")
    before = tree(store)
    result = rmqtool("recover", store, *args)
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert f"rmqtool recover {store} --dry-run" in result.err
    assert "rmqtool salvage" in result.err
    assert tree(store) == before


def test_rules_of_4_9_do_not_know_such_a_store(golden: Unpacked) -> None:
    result = rmqtool("recover", golden(CASE), "--dry-run", "--engine", "4.9")
    assert (result.code, result.err.count("\n")) == (4, 1)


def test_without_the_library_one_line_says_so(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    result = rmqtool("recover", golden(CASE), "--dry-run")
    assert (result.code, result.err.count("\n")) == (6, 1)
