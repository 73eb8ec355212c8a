"""Queues in RocksDB of a real 5.3.3 broker: every unit is as read by the engine; nothing is written."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rocksdict

from formats.queues import rocks as codec
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.rocksdb import Database
from rmqtool.store.queues.batch import every_queue, open_any_queue
from rmqtool.store.queues.rocks import RocksQueue, built_up_to, queue_database, rocks_queue_names
from rmqtool.store.queues.rocks_columns import units_at
from rmqtool.store.queues.rocks_open import rocks_queues_of
from tests import goldens, rocks
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import check_store

CASE = "rocksdb-5.3.3"
SAID = list(goldens.messages(CASE))


def rows(*args: object) -> list[dict[str, Any]]:
    result = rmqtool(*args, "-o", "ndjson")
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


def touched(root: Path) -> dict[str, tuple[int, ...]]:
    """A value that changes with any creation, write, link or removal below a directory, but not with reads."""
    result = {}
    for path in [root, *root.rglob("*")]:
        stat = path.lstat()
        result[str(path)] = (stat.st_ino, stat.st_mode, stat.st_nlink, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    return result


def test_the_engine_read_something() -> None:
    assert len(SAID) == 446
    assert {row["cqType"] for row in SAID} == {"RocksDBCQ"}


def test_every_unit_of_every_queue(golden: Unpacked) -> None:
    assert goldens.sorted_units(rows("consumequeue", "dump", golden(CASE))) == goldens.units(SAID)


def test_times_of_units_are_those_of_messages(golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(CASE)))
    for row in SAID:
        queue = open_any_queue(layout, row["cqTopic"], row["cqQueueId"])
        assert isinstance(queue, RocksQueue)
        unit = queue.unit(row["cqOffset"])
        assert unit is not None
        assert unit.store_timestamp == row["message"]["storeTimestamp"]


def test_what_a_crash_took_from_the_queues_is_read_from_the_log(golden: Unpacked) -> None:
    store = golden("rocksdb-5.3.3-crash")
    listed = rows("consumequeue", "dump", store)
    wanted = {
        (row["cqTopic"], row["cqQueueId"], row["cqOffset"]): row["cqPhysicalOffset"]
        for row in goldens.messages("rocksdb-5.3.3-crash")
    }
    assert {(row["topic"], row["queueId"], row["queueOffset"]): row["physicalOffset"] for row in listed} == wanted
    database = queue_database(StoreLayout(str(store)))
    assert database is not None
    assert built_up_to(database) == 0


@pytest.mark.parametrize("case", ["rocksdb-5.3.3", "rocksdb-5.5.0-crash"])
def test_units_in_bulk_are_those_one_by_one(case: str, golden: Unpacked) -> None:
    """Those of the crashed store are made from the log."""
    for queue in rocks_queues_of(StoreLayout(str(golden(case)))):
        each = [(offset, *unit) for offset, unit in queue.units(0, queue.max_offset + 3, beyond=True)]
        assert units_at(queue, np.arange(queue.max_offset + 3)).tolist() == each
        assert units_at(queue, np.array([0, 1 << 40])).tolist() == each[:1]


def test_selections(golden: Unpacked) -> None:
    store = golden(CASE)
    listed = rows("consumequeue", "dump", store, "--topic", "Orders", "--queue", 2, "--queue-offset", "10:13")
    assert [(row["topic"], row["queueId"], row["queueOffset"]) for row in listed] == [
        ("Orders", 2, n) for n in (10, 11, 12)
    ]
    assert rmqtool("consumequeue", "dump", store, "--topic", "Nothing", "-o", "csv").code == 1


def test_info_counts_messages(golden: Unpacked) -> None:
    info = json.loads(rmqtool("info", golden(CASE), "-o", "json").out)
    told = {topic["topic"]: topic["messages"] for topic in info["topics"] if topic["messages"]}
    counted: dict[str, int] = {}
    for row in SAID:
        counted[row["cqTopic"]] = counted.get(row["cqTopic"], 0) + 1
    assert told == counted
    assert info["problems"] == []
    assert info["maxPhyOffset"] == 148209


# -- nothing is written -----------------------------------------------------------------------------------------------


def test_nothing_is_touched(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden(CASE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = touched(store)
    for arguments in (["consumequeue", "dump"], ["info"]):
        rmqtool(*arguments, store)
    assert touched(store) == before
    assert os.listdir(tmp_path) == []


def test_a_database_is_read_to_its_end_though_its_links_are_gone(golden: Unpacked) -> None:
    database = Database(str(golden(CASE) / "consumequeue"))
    assert database.families == ("default", "offset")
    assert sum(1 for _item in database.items("default")) == 446
    assert sum(1 for _item in database.items("offset")) == 82
    assert list(database.items("none")) == []
    assert database.get("none", b"key") is None


def test_a_foreign_file_beside_the_database_is_left_alone(golden_copy: Unpacked) -> None:
    folder = golden_copy(CASE) / "consumequeue"
    for name in ("rocksdict-config.json", "LOG", "LOCK"):  # RocksDB and its binding would write these
        (folder / name).write_text("mine")
    before = touched(folder)
    assert sum(1 for _item in Database(str(folder)).items("default")) == 446
    assert touched(folder) == before


def test_directories_that_may_not_be_written(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    paths = [store, *store.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert len(rows("consumequeue", "dump", store)) == 446
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)


# -- no library -------------------------------------------------------------------------------------------------------


def test_a_missing_library_is_one_line(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    result = rmqtool("consumequeue", "dump", golden(CASE))
    assert result.code == 6
    assert result.err.count("\n") == 1
    assert "pip install rocksdict" in result.err
    with pytest.raises(MissingRuntime):
        Database(str(golden(CASE) / "consumequeue"))


def test_info_says_that_queues_were_not_read(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    result = rmqtool("info", golden(CASE), "-o", "json")
    assert (result.code, result.err) == (0, "")
    info = json.loads(result.out)
    notes = {group["kind"]: group["note"] for group in info["files"]}
    assert notes["consumequeue"].endswith("not read: needs the library rocksdict: pip install rocksdict")
    assert (info["maxPhyOffset"], info["problems"]) == (148209, [])


def test_stores_of_files_need_no_library(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert rows("consumequeue", "dump", golden("broker-5.3.3"))


# -- where queues begin and end ---------------------------------------------------------------------------------------


def made(folder: Path, offsets: list[int], ends: dict[bytes, tuple[int, int]]) -> RocksQueue:
    """A queue with units at these queue offsets, each with a 100-byte record at 100 times the offset."""
    (folder / "commitlog").mkdir()
    units = {codec.unit_key("T", 0, n): codec.build_unit(codec.RocksUnit(100 * n, 100, 0, 1000 + n)) for n in offsets}
    noted = {
        codec.offset_key("T", 0, bound): rocks.build_offset(codec.RocksOffset(*end)) for bound, end in ends.items()
    }
    rocks.write(folder / "consumequeue", {"default": units, codec.OFFSETS: noted})
    queue = open_any_queue(StoreLayout(str(folder)), "T", 0)
    assert isinstance(queue, RocksQueue)
    return queue


@pytest.mark.parametrize(
    ("log_begins", "low"),
    [(0, 0), (1, 1), (100, 1), (101, 2), (450, 5), (900, 9), (901, 10), (5000, 10)],
)
def test_the_lowest_offset_follows_the_log(tmp_path: Path, log_begins: int, low: int) -> None:
    queue = made(tmp_path, list(range(10)), {codec.MAX: (900, 9), codec.MIN: (0, 0)})
    assert (queue.min_offset(log_begins), queue.max_offset) == (low, 10)


def test_a_noted_lowest_offset_is_taken(tmp_path: Path) -> None:
    queue = made(tmp_path, list(range(10)), {codec.MAX: (900, 9), codec.MIN: (400, 4)})
    assert [queue.min_offset(log) for log in (0, 400, 401)] == [4, 4, 5]
    assert [entry.queue_offset for entry in queue.entries(queue.min_offset(0))] == [4, 5, 6, 7, 8, 9]


def test_units_behind_the_end_are_not_the_queues(tmp_path: Path) -> None:
    queue = made(tmp_path, list(range(10)), {codec.MAX: (600, 6)})
    assert queue.max_offset == 7
    assert [entry.queue_offset for entry in queue.entries()] == list(range(7))
    assert queue.recovered == (7, 700)


def test_a_gap_is_passed_over(tmp_path: Path) -> None:
    queue = made(tmp_path, [0, 1, 2, 5, 6], {codec.MAX: (600, 6)})
    assert [entry.queue_offset for entry in queue.entries()] == [0, 1, 2, 5, 6]
    assert [(first, units["physical_offset"].tolist()) for first, units in queue.runs()] == [
        (0, [0, 100, 200]), (5, [500, 600]),
    ]  # fmt: skip
    assert queue.entry(3) is None


def test_a_queue_that_never_had_a_message(tmp_path: Path) -> None:
    queue = made(tmp_path, [], {codec.MIN: (0, 0)})
    assert (queue.min_offset(0), queue.max_offset, list(queue.entries()), queue.recovered) == (0, 0, [], (0, -1))


def test_queues_are_named_by_their_ends_and_on_demand_by_their_units(tmp_path: Path) -> None:
    layout = StoreLayout(made(tmp_path, [0, 1], {codec.MAX: (100, 1)})._layout.root)
    rocks.change(
        tmp_path / "consumequeue",
        lambda families: families["default"].update(
            {codec.unit_key("Lost", 3, 7): bytes(28), b"junk": b"", b"\xff": b"x"}
        ),
    )
    layout = StoreLayout(str(tmp_path))
    assert rocks_queue_names(layout) == [("T", 0)]
    assert rocks_queue_names(layout, units=True) == [("Lost", 3), ("T", 0)]


@pytest.mark.parametrize("topic", ["Nothing", "", "..", "a/b", "\ud800", "x" * 70000])
def test_queues_that_are_not_there(golden: Unpacked, topic: str) -> None:
    assert open_any_queue(StoreLayout(str(golden(CASE))), topic, 0) is None


@pytest.mark.parametrize("queue_id", [-1, 99, 2**31, -(2**31) - 1])
def test_queue_ids_that_are_not_there(golden: Unpacked, queue_id: int) -> None:
    assert open_any_queue(StoreLayout(str(golden(CASE))), "Orders", queue_id) is None


def test_files_count_before_the_database(golden: Unpacked, golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    shutil.copytree(golden("broker-5.3.3") / "consumequeue" / "Orders", store / "consumequeue" / "Orders")
    kinds = {queue.topic: type(queue).__name__ for queue in every_queue(StoreLayout(str(store)))}
    assert (kinds["Orders"], kinds["Popped"]) == ("ConsumeQueue", "RocksQueue")


# -- damaged bytes ----------------------------------------------------------------------------------------------------


@by_turns(3)
@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-000005", "000010.sst", "000011.sst"])
def test_damaged_files_end_in_one_line(golden_copy: Unpacked, name: str) -> None:
    store = golden_copy(CASE)
    path = store / "consumequeue" / name
    intact, chance = path.read_bytes(), random.Random(name)
    ends = []
    for number in range(8):
        data = bytearray(intact)
        at = chance.randrange(len(data))
        if number % 2:
            data[at] ^= 1 << chance.randrange(8)
        else:
            del data[at:]
        path.write_bytes(data)
        result = rmqtool("consumequeue", "dump", store)
        ends.append(result.code)
        assert result.code in (0, 5)
        assert result.err.count("\n") == (result.code == 5)
        info = json.loads(rmqtool("info", store, "-o", "json").out)
        assert not info["problems"] or result.code == 5
    assert 5 in ends


def test_no_current(golden_copy: Unpacked) -> None:
    folder = golden_copy(CASE) / "consumequeue"
    (folder / "CURRENT").unlink()
    with pytest.raises(CorruptFile, match="no CURRENT"):
        Database(str(folder))


def test_a_table_that_is_gone(golden_copy: Unpacked) -> None:
    folder = golden_copy(CASE) / "consumequeue"
    (folder / "000011.sst").unlink()
    with pytest.raises(CorruptFile, match=str(folder)):
        Database(str(folder))


OPEN_ALL = """
import resource, sys
from tests.rocks import build_offset
from rmqtool.store.layout.rocksdb import Database
resource.setrlimit(resource.RLIMIT_NOFILE, (40, int(sys.argv[2])))
try:
    print(len(list(Database(sys.argv[1]).items("default"))))
except Exception as err:
    print(type(err).__name__, err)
"""


@pytest.mark.parametrize(("most", "text"), [(40, "UnreadableStore"), (400, "60")])
def test_many_tables_and_few_descriptors_are_no_damage(most: int, text: str, tmp_path: Path) -> None:
    rocks.write_tables(tmp_path / "many", 60)
    told = subprocess.run(
        [sys.executable, "-c", OPEN_ALL, str(tmp_path / "many"), str(most)], capture_output=True, text=True, check=True
    ).stdout
    assert told.startswith(text), told
    assert text == "60" or "60 tables" in told


def test_a_table_of_somebody_else_is_no_damage(monkeypatch: pytest.MonkeyPatch, golden: Unpacked) -> None:
    """Its mode forbids reading; this does not apply to root, so the library is replaced."""
    folder = golden(CASE) / "consumequeue"
    refused = Exception(f"IO error: While open a file for random read: {folder}/000010.sst: Permission denied")

    def refuse(*_: object, **__: object) -> None:
        raise refused

    monkeypatch.setattr(rocksdict.Rdict, "list_cf", refuse)
    with pytest.raises(UnreadableStore, match=r"consumequeue.*Permission denied"):
        Database(str(folder))
    findings = list(check_store(StoreLayout(str(golden(CASE)))))
    assert {f.file for f in findings if f.code == "file-unreadable"} >= {"consumequeue", "config/topics"}
    assert not {f.code for f in findings} & {"rcq-unreadable", "config-database"}
