"""Foreign tables: ignored columns are named, bodies are not lost, names are mapped, flipped bits are detected."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtool.analytics.load.rows import rows
from rmqtool.errors import BadValue, CorruptFile
from rmqtool.services.sending.fields import parse_map, shape_of
from tests.cli.running import rmqtool

TIME = datetime(2024, 1, 2, tzinfo=UTC)
MILLIS = 1704153600000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def kafka() -> pa.Table:
    """A table as read by Spark from Kafka; two partitions with interleaved rows."""
    return pa.table({
        "key": pa.array([b"k1", None, b"k3"]),
        "value": pa.array([b"v1", b"\xff", b"v3"]),
        "topic": ["t", "t", "t"],
        "partition": pa.array([1, 0, 1], pa.int32()),
        "offset": pa.array([8, 5, 7], pa.int64()),
        "timestamp": pa.array([TIME] * 3, pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0, 0, 0], pa.int32()),
        "headers": pa.array([[("h", b"x")], None, []], HEADERS),
    })  # fmt: skip


def table(folder: Path, name: str = "in.parquet", **columns: Any) -> Path:
    return written(folder / name, pa.table(columns))


def written(path: Path, content: pa.Table) -> Path:
    pq.write_table(content, path)
    return path


def told(store: Path) -> list[dict[str, Any]]:
    out = rmqtool("commitlog", "dump", store, "-o", "ndjson").out
    return [json.loads(line) for line in out.splitlines()]


def test_a_table_in_kafkas_shape_is_known(tmp_path: Path) -> None:
    source = written(tmp_path / "kafka.parquet", kafka())
    result = rmqtool("import", tmp_path / "new", source)
    assert result.code == 0, result.err
    assert (
        f"{source}: in Kafka's shape: taken as partition=queueId, offset=queueOffset, key=keys, value=body"
        in result.err
    )
    assert "columns that are not taken: timestampType, headers (map NAME=FIELD takes one)" in result.err
    listed = [(row["queueId"], row["queueOffset"], row["keys"], row["body"]) for row in told(tmp_path / "new")]
    assert listed == [(0, 0, [], "/w=="), (1, 0, ["k3"], "v3"), (1, 1, ["k1"], "v1")]
    assert {(row["bornTimestamp"], row["storeTimestamp"]) for row in told(tmp_path / "new")} == {(MILLIS, MILLIS)}


def test_more_of_kafkas_columns_are_mapped(tmp_path: Path) -> None:
    source = written(tmp_path / "kafka.parquet", kafka())
    result = rmqtool("import", tmp_path / "new", source, "--map", "headers=properties", "--map", "key=tags")
    assert result.code == 0, result.err
    assert "not taken: timestampType (" in result.err
    by_body = {row["body"]: row for row in told(tmp_path / "new")}
    assert by_body["v1"]["properties"] == {"h": "x", "TAGS": "k1"}
    assert (by_body["v1"]["keys"], by_body["v3"]["tags"]) == ([], "k3")


def test_lines_in_kafkas_shape_are_known(tmp_path: Path) -> None:
    lines = [
        {"topic": "t", "partition": 2, "offset": 5, "key": "k", "value": "v", "timestamp": MILLIS},
        {"topic": "t", "partition": 2, "offset": 6, "key": None, "value": {"a": 1}, "timestamp": MILLIS, "extra": 1},
    ]
    (tmp_path / "in.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = rmqtool("import", tmp_path / "new", tmp_path / "in.ndjson")
    assert result.code == 0, result.err
    assert "fields that are not taken: extra (" in result.err
    listed = [(row["queueId"], row["keys"], row["body"], row["storeTimestamp"]) for row in told(tmp_path / "new")]
    assert listed == [(2, ["k"], "v", MILLIS), (2, [], '{"a":1}', MILLIS)]


@pytest.mark.parametrize("name", ["Body", "value", "payload", "stuff"])
@pytest.mark.parametrize("form", ["parquet", "ndjson"])
def test_a_body_of_another_name_is_not_lost(name: str, form: str, tmp_path: Path) -> None:
    if form == "parquet":
        source = table(tmp_path, topic=["t"], **{name: ["x"]})
    else:
        (source := tmp_path / "in.ndjson").write_text(json.dumps({"topic": "t", name: "x"}) + "\n")
    result = rmqtool("import", tmp_path / "new", source)
    assert result.code == (2 if form == "parquet" else 1)
    likely = "COLUMN" if name == "stuff" else name
    assert f"no field body, and {name} not taken: map {likely}=body takes one, map =body none" in result.err
    assert not (tmp_path / "new").exists()
    assert rmqtool("import", tmp_path / "new", source, "--map", f"{name}=body").code == 0
    assert [row["body"] for row in told(tmp_path / "new")] == ["x"]
    none = rmqtool("import", tmp_path / "none", source, "--map", "=body")
    assert (none.code, f"not taken: {name} (" in none.err) == (0, True)
    assert [row["body"] for row in told(tmp_path / "none")] == [""]


def test_a_second_file_without_bodies_is_told(tmp_path: Path) -> None:
    first, second = table(tmp_path, "a.parquet", topic=["t"], body=["x"]), table(tmp_path, "b.parquet", topic=["t"])
    result = rmqtool("import", tmp_path / "new", first, second)
    assert result.code == 0
    assert f"{second}: no column body: messages have no bodies" in result.err
    assert f"{first}:" not in result.err
    third = table(tmp_path, "c.parquet", topic=["t"], payload=["y"])
    result = rmqtool("import", tmp_path / "newer", first, third)
    assert (result.code, result.err.startswith(f"error: {third}: no field body")) == (2, True)
    assert not (tmp_path / "newer").exists()


def test_what_append_and_replay_do_not_take_is_told(tmp_path: Path) -> None:
    assert rmqtool("init", tmp_path / "store").code == 0
    lines = [
        {"topic": "t", "body": "x", "tag": "a"},
        {"topic": "t", "payload": "x"},
        {"topic": "t", "body": "", "tag": 1},
    ]
    (tmp_path / "in.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = rmqtool("append", tmp_path / "store", tmp_path / "in.ndjson")
    assert result.code == 1
    first, second, third = result.err.splitlines()
    assert first == f"{tmp_path / 'in.ndjson'}: fields that are not taken: tag (map NAME=FIELD takes one)"
    assert second.startswith("line 2: no field body, and payload not taken")
    assert third == "2 messages appended, 1 refused"
    from rmqtool.services.sending.fields import Fields

    with pytest.raises(BadValue, match="no field body, and payload not taken"):
        list(rows([str(table(tmp_path, topic=["t"], payload=["x"]))], fields=Fields()))


def test_what_is_written_of_messages_is_all_known(tmp_path: Path) -> None:
    rmqtool("init", tmp_path / "store")
    (tmp_path / "in.ndjson").write_text('{"topic": "t", "body": "x", "tags": "a", "keys": ["k"]}\n')
    rmqtool("append", tmp_path / "store", tmp_path / "in.ndjson")
    (tmp_path / "out.ndjson").write_text(rmqtool("commitlog", "dump", tmp_path / "store", "-o", "ndjson").out)
    assert rmqtool("dump-to-parquet", tmp_path / "store", tmp_path / "out", "--runner", "local").code == 0
    for source in ("out.ndjson", "out"):
        result = rmqtool("import", tmp_path / f"new-{source}", tmp_path / source)
        assert (result.code, result.err) == (0, "1 message appended\n")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("value", "map value: give COLUMN=FIELD"),
        ("value=", "map value=: give COLUMN=FIELD"),
        ("value=Body", "map value=Body: Body is no field of a message; there are topic, queueId"),
        ("a=body,b=body", "map b=body: body is given twice"),
        ("nothing=body", "map nothing=body: "),
    ],
)
def test_a_mapping_that_cannot_be_is_refused(given: str, text: str, tmp_path: Path) -> None:
    result = rmqtool("import", tmp_path / "new", table(tmp_path, topic=["t"], value=["x"]), "--map", given)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert result.err.startswith(f"error: {text}")
    assert not (tmp_path / "new").exists()


def test_a_column_with_another_name_and_of_no_use(tmp_path: Path) -> None:
    source = table(tmp_path, topic=["t"], body=["x"], number=["x"])
    result = rmqtool("import", tmp_path / "new", source, "--map", "number=queueId")
    assert result.code == 5
    assert "column number, taken as queueId, is string, not a number" in result.err


def test_names_of_a_table() -> None:
    assert parse_map(["a=b=body", " key = keys "]) == {"body": "a=b", "keys": "key"}
    swapped = shape_of(["topic", "body", "payload"], {"body": "payload"})
    assert (swapped.names["body"], swapped.ignored) == ("payload", ("body",))
    assert not shape_of(["topic", "partition", "offset", "value", "body"], {}).kafka


@pytest.mark.parametrize("column", ["topic", "body"])
def test_a_flipped_bit_is_seen_by_the_checksums_of_pages(column: str, tmp_path: Path) -> None:
    content = pa.table({"topic": ["x" * 50] * 10, "body": [b"y" * 50] * 10})
    source = tmp_path / "in.parquet"
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(content, source, write_page_checksum=True, **options)
    data = bytearray(source.read_bytes())
    data[data.index(content[column][0].as_py().encode() if column == "topic" else b"y" * 50) + 9] ^= 1
    source.write_bytes(data)
    result = rmqtool("import", tmp_path / "new", source)
    assert (result.code, result.out, result.err.count("\n")) == (5, "", 1)
    assert f"{source}: cannot be read: could not verify page integrity" in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet"]


def test_dumps_have_checksums(tmp_path: Path) -> None:
    rmqtool("init", tmp_path / "store")
    (tmp_path / "in.ndjson").write_text('{"topic": "t", "body": "%s"}\n' % ("y" * 200))
    rmqtool("append", tmp_path / "store", tmp_path / "in.ndjson")
    out = tmp_path / "out"
    assert rmqtool("dump-to-parquet", tmp_path / "store", out, "--runner", "local", "--codec", "none").code == 0
    assert rmqtool("salvage", tmp_path / "store", tmp_path / "all.parquet", "--to", "parquet").code == 0
    (dumped,) = out.glob("*.parquet")
    plain = bytearray(dumped.read_bytes())
    plain[plain.index(b"y" * 200) + 9] ^= 1
    dumped.write_bytes(plain)
    with pytest.raises(CorruptFile, match="could not verify page integrity"):
        list(rows([str(dumped)]))


@pytest.mark.parametrize("cut", range(4, 60, 7))
def test_an_error_of_the_footer_is_one_line(cut: int, tmp_path: Path) -> None:
    source = table(tmp_path, topic=["t"], body=["x"])
    data = bytearray(source.read_bytes())
    data[-8 - cut] ^= 0xFF
    source.write_bytes(data)
    result = rmqtool("import", tmp_path / "new", source)
    assert "\\x0a" not in result.err
    assert (result.code, result.err.count("\n")) in ((5, 1), (0, result.err.count("\n"))), result.err


def test_the_store_comes_first(tmp_path: Path) -> None:
    source = table(tmp_path, topic=["t"], body=["x"])
    (tmp_path / "dump").mkdir()
    table(tmp_path / "dump", topic=["t"], body=["x"])
    for name in (source, tmp_path / "dump"):
        result = rmqtool("import", name, tmp_path / "new")
        assert result.code == 2
        assert (
            result.err
            == f"error: {name} is no new store: that comes first, as in rmqtool import {tmp_path / 'new'} {name}\n"
        )
        assert not (tmp_path / "new").exists()
    assert rmqtool("import", tmp_path / "new", source).code == 0
    again = rmqtool("import", tmp_path / "new", tmp_path / "misspelt.parquet")
    assert (again.code, "exists" in again.err) == (4, True)
