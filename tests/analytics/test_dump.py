"""Dumps without Spark: everything but the scheduling is the same."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from rmqtool.analytics.dump import tasks
from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.report import DumpOptions, DumpReport
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.errors import BadValue, Refused, RmqError, UnreadableStore
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from tests import goldens
from tests.amounts import by_turns
from tests.analytics.helpers import TIME, engine_messages, log_of, rows_of, same_as_golden, store_of
from tests.analytics.test_splits import body_with_a_record, old_records_behind_a_blank
from tests.conftest import Unpacked


def dump(layout: StoreLayout, out: Path, **options: Any) -> DumpReport:
    return dump_to_parquet(layout, str(out), DumpOptions(runner="local", **options))


@by_turns(13)
@pytest.mark.parametrize("case", goldens.cases())
def test_every_record_and_all_damage(case: str, golden: Unpacked, tmp_path: Path) -> None:
    layout = StoreLayout(str(golden(case)))
    report = dump(layout, tmp_path / "out", split_bytes=10_000)
    items = list(CommitLog(layout).walk())
    located = [item for item in items if isinstance(item, LocatedRecord)]
    damage = tuple(item for item in items if isinstance(item, Damage))
    rows = rows_of(tmp_path / "out")
    assert [row["physicalOffset"] for row in rows] == [item.physical_offset for item in located]
    assert [row["storeSize"] for row in rows] == [item.record.total_size for item in located]
    assert (report.rows, report.damage, report.damaged) == (len(located), damage, len(damage))
    assert report.records == len(located)
    assert report.damaged_bytes == sum(item.length for item in damage)
    assert report.bytes_read == sum(item.record.total_size for item in located) + report.damaged_bytes


@pytest.mark.parametrize("case", ["broker", "large-bodies"])
def test_partitions(case: str, golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = dump(StoreLayout(str(golden(case))), out, partition_by=("topic", "day"))
    rows = rows_of(out)
    messages = engine_messages(case)
    for row in rows:
        assert row["topicDir"] == row["topic"]
        if row["physicalOffset"] in messages:
            same_as_golden(row, messages[row["physicalOffset"]])
    assert report.partitions == len({(row["topicDir"], row["day"]) for row in rows})
    assert report.files == len(list(out.rglob("*.parquet")))
    assert messages.keys() <= {row["physicalOffset"] for row in rows}


def test_options(tmp_path: Path) -> None:
    layout = store_of(tmp_path, log_of(["A", "B", "%RETRY%A", "A"]), log_of([], base=0) or bytes(64))

    def topics(name: str, **options: Any) -> list[str]:
        dump(layout, tmp_path / name, **options)
        return [row["topic"] for row in rows_of(tmp_path / name)]

    assert topics("1", topics=("A",)) == ["A", "A"]
    assert topics("2", topics=("*A",), since=TIME + 1) == ["%RETRY%A", "A"]
    assert topics("3", until=TIME + 1000) == ["A"]
    offsets = [row["physicalOffset"] for row in rows_of(tmp_path / "1")]
    assert topics("4", start_offset=1, stop_offset=offsets[1]) == ["B", "%RETRY%A"]
    assert topics("5", topics=("none",)) == []


def test_damage_outside_of_the_range_is_not_told(golden: Unpacked, tmp_path: Path) -> None:
    layout = StoreLayout(str(golden("magic-broken-last-file")))
    (where,) = dump(layout, tmp_path / "all").damage
    assert dump(layout, tmp_path / "before", stop_offset=where.physical_offset).damaged == 0
    assert dump(layout, tmp_path / "behind", start_offset=where.physical_offset + 1).damaged == 0
    stop = where.physical_offset + 1
    assert dump(layout, tmp_path / "with", start_offset=stop - 5000, stop_offset=stop).damaged == 1


@pytest.mark.parametrize("build", [body_with_a_record, old_records_behind_a_blank])
def test_splits_begun_at_the_wrong_place_are_read_again(build: Any, tmp_path: Path) -> None:
    layout = store_of(tmp_path, build())
    dump(layout, tmp_path / "whole")
    whole = [(row["physicalOffset"], row["topic"]) for row in rows_of(tmp_path / "whole")]
    for size in (60, 97, 128, 150, 301):
        report = dump(layout, tmp_path / f"{size}", split_bytes=size)
        assert [(row["physicalOffset"], row["topic"]) for row in rows_of(tmp_path / f"{size}")] == whole
        assert report.rows == len(whole)


def test_report_and_manifest(golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = dump(StoreLayout(str(golden("magic-broken-last-file"))), out, codec="snappy")
    row = report.to_dict()
    assert row["damage"] == [
        {
            "file": report.damage[0].path,
            "fileOffset": 8755,
            "physicalOffset": 147456 + 8755,
            "length": 420,
            "ending": "damaged",
            "reason": "magic 0x00010203 is not that of a record",
        }
    ]
    assert (row["out"], row["rows"], row["damaged"], row["spark"]) == (str(out), report.rows, 1, None)
    files = sorted(path.name for path in out.iterdir())
    assert [name for name in files if name.startswith("part-")] == [
        f"part-{base:020d}-{files[-1][26:34]}.snappy.parquet" for base in (0, 49152, 98304, 147456)
    ]
    assert {"_SUCCESS", "_rmqtool.json"} < set(files)
    manifest = json.loads((out / "_rmqtool.json").read_text())
    assert manifest["report"] == row
    assert manifest["options"]["codec"] == "snappy"
    assert {file["path"]: file["bytes"] for file in manifest["files"]} == {
        path.name: path.stat().st_size for path in out.glob("*.parquet")
    }
    assert sum(file["bytes"] for file in manifest["files"]) == row["bytesWritten"]


@pytest.mark.parametrize("partition_by", [(), ("topic",)])
def test_a_log_without_messages_still_has_a_schema(partition_by: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "store" / "config").mkdir(parents=True)
    options = DumpOptions(partition_by=partition_by)  # needs no Spark either
    report = dump_to_parquet(StoreLayout(str(tmp_path / "store")), str(tmp_path / "out"), options)
    assert (report.rows, report.files, report.spark) == (0, 1, None)
    table = ds.dataset(tmp_path / "out", partitioning="hive").to_table()
    assert table.schema.remove_metadata().equals(MESSAGE_SCHEMA)
    assert table.num_rows == 0


def test_an_output_is_replaced_only_when_told_so(tmp_path: Path) -> None:
    layout = store_of(tmp_path, log_of(["A", "B"]))
    out = tmp_path / "out"
    dump(layout, out, topics=("A",))
    with pytest.raises(Refused):
        dump(layout, out)
    assert len(rows_of(out)) == 1
    dump(layout, out, overwrite=True, partition_by=("topic",))
    assert [row["topic"] for row in rows_of(out)] == ["A", "B"]
    with pytest.raises(Refused):
        dump(layout, Path(layout.root) / "out", overwrite=True)


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = store_of(tmp_path, *(log_of(["A"] * 3, base=base) for base in (0, 10_000)))
    out = tmp_path / "out"
    dump(layout, out)
    before = sorted(path.name for path in out.iterdir())

    def full(self: Any, batch: Any) -> None:
        raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(tasks.PartWriter, "write", full)
    for place, overwrite in ((out, True), (tmp_path / "other", False)):
        with pytest.raises(RmqError, match="the output cannot be written: No space left on device"):
            dump(layout, place, overwrite=overwrite)
    assert sorted(path.name for path in out.iterdir()) == before
    assert sorted(os.listdir(tmp_path)) == ["out", "store"]


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = store_of(tmp_path, log_of(["A"]))
    real = tasks.batches

    def vanished(split: Any, *args: Any, **options: Any) -> Any:
        Path(split.path).unlink()
        return real(split, *args, **options)

    monkeypatch.setattr(tasks, "batches", vanished)
    with pytest.raises(UnreadableStore, match="No such file"):
        dump(layout, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["store"]


@pytest.mark.parametrize(
    "options",
    [
        {"partition_by": ("queueId",)},
        {"partition_by": ("day", "day")},
        {"codec": "lzo"},
        {"runner": "flink"},
        {"split_bytes": 0},
    ],
)
def test_values_that_make_no_sense(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadValue):
        dump_to_parquet(store_of(tmp_path, b""), str(tmp_path / "out"), DumpOptions(**options))
    assert not (tmp_path / "out").exists()
