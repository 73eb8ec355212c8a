"""Dumps partitioned by many topics: one file per partition, from spilled rows, whatever fits into memory."""

import errno
import os
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.analytics.dump.spill import HASHES, Merge, Spill, hash_of, merges
from rmqtool.store.disk import durable
from rmqtool.store.disk.durable import Barrier
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns, every
from tests.analytics.helpers import log_of, rows_of, store_of

TOPICS, FILES, SIZE = 300, 3, 1 << 17
BY_TOPIC = DumpOptions(runner="local", partition_by=("topic",))


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    """Two messages of every topic in each log file; one topic has many more."""
    names = [f"T{number:03d}" for number in range(TOPICS)] * 2 + ["Large"] * 200
    return store_of(tmp_path, *(log_of(names, base=SIZE * number) for number in range(FILES)), size=SIZE)


@by_turns(13)
@pytest.mark.parametrize(
    ("row_group_bytes", "engine"),
    every(2, [(128 << 20, "spark"), (128 << 20, "local"), (1 << 16, "local"), (1 << 16, "spark")]),
)
def test_each_partition_is_one_file(engine: str, row_group_bytes: int, layout: StoreLayout, tmp_path: Path) -> None:
    options = replace(BY_TOPIC, runner=engine, row_group_bytes=row_group_bytes, split_bytes=SIZE)
    report = dump_to_parquet(layout, str(tmp_path / "out"), options)
    dump_to_parquet(layout, str(tmp_path / "whole"), DumpOptions(runner="local"))
    rows = rows_of(tmp_path / "out")
    for row in rows:
        row.pop("topicDir")
    assert rows == rows_of(tmp_path / "whole")
    assert report.rows == len(rows) == FILES * (2 * TOPICS + 200)
    files = list((tmp_path / "out").rglob("*.parquet"))
    held = Counter(file.parent.name for file in files)
    assert len(held) == TOPICS + 1
    if row_group_bytes > 1 << 16:  # so little memory holds too few partitions at a time to put rows aside
        assert {count for name, count in held.items() if name != "topicDir=Large"} == {1}
    for file in files:
        offsets = pq.read_table(file, columns=["physicalOffset"], partitioning=None)["physicalOffset"].to_pylist()
        assert offsets == sorted(offsets)
    assert {name for name in os.listdir(tmp_path / "out") if name.startswith("_")} == {"_SUCCESS", "_rmqtool.json"}


def test_buckets_of_topics_are_those_that_spark_says(layout: StoreLayout, tmp_path: Path) -> None:
    report = dump_to_parquet(layout, str(tmp_path / "out"), replace(BY_TOPIC, partition_by=("bucket",)))
    rows = rows_of(tmp_path / "out")
    assert {row["topic"]: row.pop("topicBucket") for row in rows} == {
        row["topic"]: zlib.crc32(row["topic"].encode()) % 64 for row in rows
    }
    dump_to_parquet(layout, str(tmp_path / "whole"), DumpOptions(runner="local"))
    assert rows == rows_of(tmp_path / "whole")
    assert report.partitions == 64  # which 301 topics fill


def test_tasks_share_the_hashes_and_take_no_more_than_they_may() -> None:
    spills = [Spill(f"_spill/_{n:032x}.arrow", 1, tuple(range(n, 1000, 10)), (50,) * 100) for n in range(3)]
    made = merges(spills, 7, 1000)
    assert [merge.stop for merge in made] == [*(merge.start for merge in made[1:]), HASHES]
    assert made[0].start == 0
    assert {merge.offset for merge in made} == {7}

    def weight(task: Merge) -> int:
        return sum(50 for spill in spills for first in spill.first if task.start <= first < task.stop)

    assert max(map(weight, made)) <= 1000
    assert sum(map(weight, made)) == 3 * 100 * 50


def test_the_hash_of_a_partition_is_the_same_everywhere() -> None:
    assert hash_of(("Orders", None)) == hash_of(("Orders", None)) < HASHES
    assert hash_of(("Orders",)) != hash_of(("Payments",))


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "../victim"},
        {"path": "_spill/../../victim.arrow"},
        {"path": 5},
        {"bytes": -1},
        {"bytes": True},
        {"sizes": [1]},
        {"first": ["0", "1"]},
    ],
)
def test_what_was_found_beside_an_output_names_no_other_file(wrong: dict[str, object]) -> None:
    good = {"path": f"_spill/_{0:032x}.arrow", "bytes": 5, "first": [0, 1], "sizes": [2, 3]}
    assert Spill.from_dict(good).to_dict() == Spill(**{**good, "first": (0, 1), "sizes": (2, 3)}).to_dict()  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError)):
        Spill.from_dict({**good, **wrong})


# -- one sync for many files ------------------------------------------------------------------------------------------


def test_a_barrier_fails_where_the_file_system_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def syncfs(self, _fd: int) -> int:
            durable.ctypes.set_errno(errno.EIO)
            return -1

    barrier = Barrier(str(tmp_path))
    monkeypatch.setattr(barrier, "_fd", os.open(tmp_path, os.O_RDONLY))
    monkeypatch.setattr(durable, "_libc", Broken)
    with pytest.raises(OSError, match="Input/output error"):
        barrier.sync()
    barrier.close()
    barrier.close()


@pytest.mark.parametrize("kind", [-1, 0x794C7630, 0x65735546])  # unknown, an overlay, FUSE
def test_a_barrier_does_nothing_on_what_it_does_not_know(
    kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_file_system", lambda _fd: kind)
    before = len(os.listdir("/proc/self/fd"))
    barrier = Barrier(str(tmp_path))
    assert not barrier.sync()
    assert len(os.listdir("/proc/self/fd")) == before
