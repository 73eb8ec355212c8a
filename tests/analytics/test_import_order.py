"""Order survives any shuffle: rows in any order become the original queues, in bounded memory."""

import os
import random
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtool.analytics.load.order import SortOrder
from rmqtool.analytics.load.rows import rows
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

Rows = list[dict[str, Any]]


def messages(count: int, queues: int = 7) -> Rows:
    return [
        {
            "topic": f"T{number % queues % 3}",
            "queueId": number % queues // 3,
            "queueOffset": number // queues,
            "physicalOffset": 1000 + 211 * number,
            "body": b"%d" % number,
        }
        for number in range(count)
    ]


def files_of(folder: Path, parts: list[Rows], drop: tuple[str, ...] = ()) -> list[str]:
    folder.mkdir()
    paths = []
    for number, part in enumerate(parts):
        path = folder / f"{number:05d}.parquet"
        pq.write_table(pa.Table.from_pylist(part).drop_columns(list(drop)), path, row_group_size=13)
        paths.append(str(path))
    return paths


def shuffled(entries: Rows, parts: int, seed: int) -> list[Rows]:
    chance = random.Random(seed)
    made: list[Rows] = [[] for _part in range(parts)]
    for row in entries:
        made[chance.randrange(parts)].append(row)
    for part in made:
        chance.shuffle(part)
    return [part for part in made if part]


def queues_of(result: list[Any]) -> dict[tuple[str, int], list[bytes]]:
    queues: dict[tuple[str, int], list[bytes]] = {}
    for row in result:
        queues.setdefault((row["topic"], row["queueId"]), []).append(row["body"])
    return queues


@pytest.mark.parametrize("run_bytes", [1, 3000, 1 << 26])
@pytest.mark.parametrize("parts", [1, 7, 60])
def test_by_physical_offset(parts: int, run_bytes: int, tmp_path: Path) -> None:
    before = messages(300)
    paths = files_of(tmp_path / "in", shuffled(before, parts, parts))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    in_order = list(rows(paths, scratch=str(scratch), sorter=partial(SortOrder, run_bytes=run_bytes, most_open=4)))
    assert [row["body"] for row in in_order if isinstance(row, dict)] == [row["body"] for row in before]
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("parts", [1, 7])
def test_by_queue_offset_where_there_is_no_other(parts: int, tmp_path: Path) -> None:
    before = messages(300)
    paths = files_of(tmp_path / "in", shuffled(before, parts, parts), ("physicalOffset",))
    assert queues_of(list(rows(paths, sorter=partial(SortOrder, run_bytes=3000)))) == queues_of(before)


def test_rows_stay_as_they_are_where_queues_are_in_order(tmp_path: Path) -> None:
    chance = random.Random(1)
    before = messages(300)
    mixed = sorted(before, key=lambda row: (chance.choice([row["queueId"]]), row["queueOffset"]))
    for drop in (("physicalOffset",), ("physicalOffset", "queueOffset")):
        paths = files_of(tmp_path / str(len(drop)), [mixed[:100], mixed[100:]], drop)
        assert [row["body"] for row in rows(paths) if isinstance(row, dict)] == [row["body"] for row in mixed]


def test_rows_without_a_place_follow_in_their_order(tmp_path: Path) -> None:
    before = messages(60)
    edited = [dict(row, physicalOffset=None if number % 3 == 0 else row["physicalOffset"])
              for number, row in enumerate(before)]  # fmt: skip
    in_order = list(rows(files_of(tmp_path / "in", [edited[::-1][:30], edited[::-1][30:]])))
    placed = [row["body"] for row in edited if row["physicalOffset"] is not None]
    assert [row["body"] for row in in_order if isinstance(row, dict)][: len(placed)] == placed
    assert len(in_order) == 60


def test_stores_that_were_joined_keep_the_order_of_each(tmp_path: Path) -> None:
    first, second = messages(50), [dict(row, body=b"b" + row["body"]) for row in messages(80)]
    listed = [row for row in rows(files_of(tmp_path / "in", [first[::-1], second])) if isinstance(row, dict)]
    for begin in (False, True):
        part = [row["body"] for row in listed if row["body"].startswith(b"b") == begin]
        assert part == [row["body"] for row in (second if begin else first)]


def test_a_shuffled_dump_becomes_the_store_that_it_was(golden: Unpacked, tmp_path: Path) -> None:
    def dumped(store: Path) -> Rows:
        import json

        out = rmqtool("commitlog", "dump", store, "-o", "ndjson", "--body", "base64").out
        return [json.loads(line) for line in out.splitlines()]

    before = dumped(golden("clean"))
    names = ("topic", "queueId", "queueOffset", "physicalOffset", "body", "bodyEncoding")
    kept = [{name: row[name] for name in names} for row in before]
    files_of(tmp_path / "in", shuffled(kept, 7, 1))
    assert rmqtool("import", tmp_path / "new", tmp_path / "in").code == 0
    again = [(row["topic"], row["queueId"], row["body"]) for row in dumped(tmp_path / "new")]
    assert again == [(row["topic"], row["queueId"], row["body"]) for row in before]


def test_more_files_than_may_be_open(tmp_path: Path) -> None:
    before = [dict(row, topic=f"topic-{number % 300}") for number, row in enumerate(messages(900))]
    files_of(tmp_path / "in", [before[number::300] for number in range(300)])

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    script = "from rmqtool.analytics.load.rows import parquet_files, rows\nimport sys\n"
    script += "for row in rows(parquet_files(sys.argv[1])): print(row['physicalOffset'])"
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "in")],
        preexec_fn=few, capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert [int(line) for line in result.stdout.split()] == [row["physicalOffset"] for row in before]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
