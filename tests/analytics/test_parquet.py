"""Parquet files of a task: partitions, labels, row groups, few open files, no visible partial files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rmqtool.analytics.dump.parquet import CODECS, PartWriter
from rmqtool.analytics.dump.partitions import Partitioned, segment
from rmqtool.analytics.ranges.splits import plan
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.table.arrow import batches
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.analytics.table.views import memory_of
from rmqtool.store.log.commit_log import CommitLog
from tests.amounts import by_turns
from tests.analytics.helpers import log_of, rows_of, store_of

TOPICS = ["A", "B", "A", "C", "A", "B"]


def batch_of(folder: Path, topics: list[Any], **fields: Any) -> pa.RecordBatch:
    (split,), _none = plan(CommitLog(store_of(folder, log_of(topics, **fields))))
    (batch,) = batches(split, MessageChoice(), SplitTally())
    return batch


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith("_"))


def test_rows_by_partition_keep_their_order(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, TOPICS)
    parts = {key: rows["queueOffset"].to_pylist() for key, rows, _size in Partitioned(batch, ("topic",)).largest(0)}
    assert parts == {
        ("A",): [0, 2, 4],
        ("B",): [1, 5],
        ("C",): [3],
    }


def test_days_are_utc_and_may_be_missing(tmp_path: Path) -> None:
    batch = batch_of(tmp_path / "a", ["T"], store_timestamp=86_400_000 - 1)
    batch = pa.concat_batches([batch, batch_of(tmp_path / "b", ["T"], store_timestamp=86_400_000)])
    batch = pa.concat_batches([batch, batch_of(tmp_path / "c", ["U"], store_timestamp=-(2**63))])
    assert [key for key, _rows, _size in Partitioned(batch, ("day",)).largest(0)] == [
        ("1970-01-01",),
        ("1970-01-02",),
        (None,),
    ]
    keys = {key for key, _rows, _size in Partitioned(batch, ("topic", "day")).largest(0)}
    assert keys == {("T", "1970-01-01"), ("T", "1970-01-02"), ("U", None)}


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("007", "007"),
        ("%RETRY%g", "%25RETRY%25g"),
        ("a/b=c", "a%2Fb%3Dc"),
        ("主题", "主题"),
        ("\0\n", "%00%0A"),
        (None, "unknown"),
        ("", "unknown"),
        ("__HIVE_DEFAULT_PARTITION__", "unknown"),
        ("..", ".."),
    ],
)
def test_labels(value: str | None, label: str) -> None:
    assert segment("topicDir", value) == f"topicDir={label}"


@pytest.mark.parametrize("value", ["%" * 127, "题" * 127, "x" * 32767, "\x01" * 70])
def test_labels_fit_a_file_name(value: str) -> None:
    label = segment("topicDir", value)
    assert len(label.encode()) <= 255
    assert label != segment("topicDir", value + "x")


def test_files_show_when_they_are_complete(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    writer = PartWriter(Folder(str(out)), "part-00007", "run.zstd", ("topic",), row_group_bytes=1)
    writer.write(batch_of(tmp_path, TOPICS))
    assert visible(out) == []
    parts = writer.close()
    assert sorted(part.path for part in parts) == [str(path.relative_to(out)) for path in visible(out)]
    assert sum(part.rows for part in parts) == len(TOPICS)
    assert all(part.bytes == (out / part.path).stat().st_size for part in parts)
    assert not list(out.rglob("_*"))
    assert {row["topic"] for row in rows_of(out)} == {"A", "B", "C"}


def test_discard_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    writer = PartWriter(Folder(str(out)), "part", "run", row_group_bytes=1)
    writer.write(batch_of(tmp_path, TOPICS))
    writer.discard()
    assert [path for path in out.rglob("*") if path.is_file()] == []


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    topics = [f"T{number % 9}" for number in range(90)]
    out = tmp_path / "out"
    out.mkdir()
    writer = PartWriter(Folder(str(out)), "part", "run", ("topic",), row_group_bytes=1, max_open=4)
    batch = batch_of(tmp_path, topics)
    for at in range(0, 90, 30):
        writer.write(batch.slice(at, 30))
        assert len(writer._open) <= 4
    parts = writer.close()
    assert len({part.path for part in parts}) == len(parts) > 9
    assert [row["topic"] for row in rows_of(out)] == topics


def test_rows_wait_for_a_row_group(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    writer = PartWriter(Folder(str(out)), "part", "run", ("topic",))
    batch = batch_of(tmp_path, TOPICS)
    for _time in range(20):
        writer.write(batch)
    parts = writer.close()
    assert len(parts) == 3
    assert all(pq.ParquetFile(out / part.path).num_row_groups == 1 for part in parts)


def test_two_topics_with_one_directory_do_not_overwrite_each_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    writer = PartWriter(Folder(str(out)), "part", "run", ("topic",))
    batch = batch_of(tmp_path, ["__HIVE_DEFAULT_PARTITION__", "x"])
    empty = batch.set_column(0, MESSAGE_SCHEMA.field("topic"), pa.array(["", ""]))
    for rows in (batch, empty):
        writer.write(rows)
    writer.close()
    assert sorted(row["topic"] for row in rows_of(out)) == ["", "", "__HIVE_DEFAULT_PARTITION__", "x"]


@pytest.mark.parametrize("codec", CODECS)
def test_codecs_and_encodings(codec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    writer = PartWriter(Folder(str(out)), "part", "run", codec=codec)
    writer.write(batch_of(tmp_path, TOPICS))
    (part,) = writer.close()
    file = pq.ParquetFile(out / part.path)
    columns = {file.metadata.row_group(0).column(i).path_in_schema: i for i in range(file.metadata.num_columns)}
    column = file.metadata.row_group(0).column(columns["physicalOffset"])
    assert column.compression == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert "DELTA_BINARY_PACKED" in column.encodings
    assert column.statistics.min == 0
    assert file.metadata.row_group(0).column(columns["body"]).statistics is None
    assert file.schema_arrow.remove_metadata().equals(MESSAGE_SCHEMA)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [10, 3000])
def test_files_of_few_rows_have_the_schema_and_the_rows(size: int, codec: str, tmp_path: Path) -> None:
    """They are written differently, so everything that readers rely on is checked."""
    out = tmp_path / "out"
    out.mkdir()
    batch = batch_of(tmp_path, ["A", "B", "A", "A"], body=b"x" * size, properties=b"KEYS\x01a b\x02TAGS\x01paid\x02")
    writer = PartWriter(Folder(str(out)), "part", "run", ("topic",), codec=codec)
    writer.write(batch)
    parts = writer.close()
    whole = pa.Table.from_batches([batch])
    for part in parts:
        file = pq.ParquetFile(out / part.path)
        assert part.bytes == (out / part.path).stat().st_size
        assert file.schema_arrow.remove_metadata().equals(MESSAGE_SCHEMA)
        rows = file.read()
        assert rows.equals(whole.filter(pc.equal(whole["topic"], rows["topic"][0])))
        group = file.metadata.row_group(0)
        columns = {group.column(i).path_in_schema.split(".")[0]: group.column(i) for i in range(group.num_columns)}
        assert all(columns[name].statistics.has_min_max for name in ("topic", "physicalOffset", "storeTimestamp"))
        small = part.rows * size < 4096
        sent = "UNCOMPRESSED" if codec == "none" or small else codec.upper()
        assert columns["body"].compression == columns["properties"].compression == sent
        assert columns["topic"].compression == "UNCOMPRESSED"


def test_an_empty_file_has_the_schema(tmp_path: Path) -> None:
    writer = PartWriter(Folder(str(tmp_path)), "part-00000", "run", ("topic", "day"))
    writer.empty_file()
    (part,) = writer.close()
    assert part.path == "part-00000-run.parquet"
    assert ds.dataset(tmp_path).to_table().schema.names == MESSAGE_SCHEMA.names


@by_turns(13)
@pytest.mark.parametrize("views", [False, True])
def test_many_partitions_take_bounded_memory(views: bool, tmp_path: Path) -> None:
    """Rows are kept together, not split into a batch per partition."""
    topics = [f"T{number * 7919 % 400}" for number in range(1200)]
    (split,), _none = plan(CommitLog(store_of(tmp_path, log_of(topics))))
    if views:
        import rmqtool.analytics.table.column_reader  # noqa: F401 - large splits are read by it, and then small ones too
    read_batches = list(batches(split, MessageChoice(), SplitTally(), batch_bytes=9000, views=views))
    limit = 2 * sum(memory_of(batch) for batch in read_batches) // len(read_batches) + 40_000
    out = tmp_path / "out"
    out.mkdir()
    writer = PartWriter(Folder(str(out)), "part", "run", ("topic",), row_group_bytes=limit, max_open=8)
    most = 0
    for batch in read_batches:
        writer.write(batch)
        assert writer._waiting_bytes < limit
        most = max(most, len(writer._waiting))
        assert len(writer._open) <= 8
    parts = writer.close()
    assert most < 8
    rows = rows_of(out)
    assert [row["topic"] for row in rows] == topics
    assert [row["body"] for row in rows] == [b"body %d" % number for number in range(1200)]
    assert sum(part.rows for part in parts) == 1200
    for part in parts:
        table = pq.read_table(out / part.path)
        offsets = table["physicalOffset"].to_pylist()
        assert offsets == sorted(offsets)
        assert len(set(table["topic"].to_pylist())) == 1
