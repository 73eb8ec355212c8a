"""Salvage of stores with storeType=defaultRocksDB into files; no command writes them in place."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.check.run import is_problem
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout
from tests import goldens, rocks
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import tree

CASES = ["rocksdb-5.3.3", "rocksdb-5.3.3-crash"]
TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
SAID = list(goldens.messages("rocksdb-5.3.3"))


def salvaged(store: Path, new: Path) -> dict[str, Any]:
    result = rmqtool("salvage", store, new, "-o", "json")
    assert result.code == 0
    report: dict[str, Any] = json.loads(result.out)
    return report


@pytest.mark.parametrize("case", CASES)
def test_every_message_and_every_table_is_in_files(case: str, golden: Unpacked, tmp_path: Path) -> None:
    store, new = golden(case), tmp_path / "new"
    before = tree(store)
    report = salvaged(store, new)
    assert tree(store) == before
    assert (report["messages"], report["lostRangeCount"]) == (434, 0)
    assert any("storeType=defaultRocksDB" in text for text in report["warnings"])
    entries = rmqtool("consumequeue", "dump", new, "-o", "ndjson").out.splitlines()
    listed = {(e["topic"], e["queueId"], e["queueOffset"], e["size"]) for e in map(json.loads, entries)}
    assert listed == {(row["cqTopic"], row["cqQueueId"], row["cqOffset"], row["cqSize"]) for row in SAID}
    for name in TABLES:
        assert name in report["configs"]
        assert read_config(StoreLayout(str(new)), name) == read_config(StoreLayout(str(store)), name)


def test_timers_go_on_waiting(golden: Unpacked, tmp_path: Path) -> None:
    salvaged(golden(CASES[0]), tmp_path / "new")
    waiting = []
    for store in (golden(CASES[0]), tmp_path / "new"):
        rows = map(json.loads, rmqtool("delay", "due", store, "--all", "-o", "ndjson").out.splitlines())
        waiting.append(sorted((row["deliverTimestamp"], row["physicalOffset"]) for row in rows if not row["level"]))
    assert waiting[0] == waiting[1]
    assert len(waiting[0]) == 6
    codes = {finding.code for finding in check_store(StoreLayout(str(tmp_path / "new"))) if is_problem(finding)}
    assert not codes


def test_settings_that_name_rocksdb_are_those_of_the_old_store(golden: Unpacked, tmp_path: Path) -> None:
    conf, new = tmp_path / "broker.conf", tmp_path / "new"
    conf.write_text("storeType=defaultRocksDB\nenableLmq=true\n")
    result = rmqtool("salvage", golden(CASES[0]), new, "--broker-conf", conf)
    assert result.code == 0, result.err
    entries = rmqtool("consumequeue", "dump", new, "-o", "ndjson").out.splitlines()
    assert len(entries) == len(SAID)


def test_lag_is_the_same(golden: Unpacked, tmp_path: Path) -> None:
    salvaged(golden(CASES[0]), tmp_path / "new")
    lags = []
    for store in (golden(CASES[0]), tmp_path / "new"):
        result = rmqtool("group", "lag", store, "-o", "ndjson")
        rows = map(json.loads, result.out.splitlines())
        # of queues that never had a message the database knows where they begin
        lags.append([row for row in rows if row["brokerOffset"] or row["consumerOffset"] is not None])
    assert lags[0] == lags[1]


def test_a_table_that_cannot_be_read_costs_itself_only(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(CASES[0])
    rocks.change(store / "config" / "topics", lambda families: families["default"].update({b"Orders": b"{"}))
    report = salvaged(store, tmp_path / "new")
    assert [name for name in TABLES if name in report["configs"]] == list(TABLES[1:])
    assert any("config/topics.json is left out" in text for text in report["warnings"])


def test_messages_go_into_a_file(golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "messages.ndjson"
    assert rmqtool("salvage", golden(CASES[0]), out, "--to", "ndjson").code == 0
    assert len(out.read_text().splitlines()) == 434


WRITING = (
    ["recover", "--yes"], ["rebuild", "consumequeue", "--yes"], ["rebuild", "index", "--yes"], ["dispatch"],
    ["truncate", "1000", "--yes"], ["clean", "--yes"],
)  # fmt: skip


def test_nothing_is_written_in_place(golden_copy: Unpacked) -> None:
    store = golden_copy(CASES[0])
    before = tree(store)
    for args in WRITING:
        result = rmqtool(args[0], store, *args[1:])
        assert (result.code, result.err.count("\n")) == (4, 1)
        assert "RocksDB database" in result.err
        assert "rmqtool salvage" in result.err
        assert tree(store) == before
