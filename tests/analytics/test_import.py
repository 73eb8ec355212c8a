"""Import: Parquet and NDJSON become a store again."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rmqtool.analytics.load.rows import parquet_files, rows
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.errors import CorruptFile, UnreadableStore
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

PLACED = ("queueOffset", "physicalOffset", "offsetMsgId", "storeSize")
INFLATED = ("sysFlag", "bodyCrc")


def dumped(store: Path) -> list[dict[str, Any]]:
    out = rmqtool("commitlog", "dump", store, "-o", "ndjson", "--body", "base64").out
    return [json.loads(line) for line in out.splitlines()]


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A message without its position and without fields that compression changes."""
    kept = {name: value for name, value in row.items() if name not in PLACED + INFLATED}
    if "UNIQ_KEY" not in row["properties"]:
        del kept["msgId"]
    del kept["preparedTransactionOffset"]
    return kept


def as_parquet(entries: list[dict[str, Any]], folder: Path) -> None:
    """Parquet files as from a dump: one per topic and part of the log."""
    import base64

    columns = [f for f in MESSAGE_SCHEMA if f.name not in ("sourceFile", "fileOffset", "bodyError")]
    for stretch in range(0, len(entries), 100):
        part = entries[stretch : stretch + 100]
        for topic in sorted({row["topic"] for row in part}):
            chosen = [row for row in part if row["topic"] == topic]
            arrays = []
            for field in columns:
                values = [row[field.name] for row in chosen]
                if field.name == "body":
                    values = [
                        base64.b64decode(v) if r["bodyEncoding"] == "base64" else v.encode()
                        for v, r in zip(values, chosen, strict=True)
                    ]
                elif field.name == "properties":
                    values = [list(value.items()) for value in values]
                elif field.name == "bodyEncoding":
                    values = ["binary"] * len(values)
                if pa.types.is_timestamp(field.type):
                    arrays.append(pc.multiply(pa.array(values, pa.int64()), 1000).cast(field.type))
                else:
                    arrays.append(pa.array(values, field.type))
            target = folder / f"topicDir={topic.replace('%', '_')}" / f"{stretch}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(arrays, schema=pa.schema(columns)), target)


@pytest.mark.parametrize(
    ("case", "form"), list(product(["clean", "broker", "large-bodies", "lmq"], ["parquet", "ndjson"]))
)
def test_what_was_dumped_becomes_a_store(case: str, form: str, golden: Unpacked, tmp_path: Path) -> None:
    before = dumped(golden(case))
    source = tmp_path / ("dump" if form == "parquet" else "dump.ndjson")
    if form == "parquet":
        as_parquet(before, source)
        (source / "_temporary").mkdir()
        (source / "_temporary" / "torn.parquet").write_bytes(b"PAR1")
    else:
        source.write_text("".join(json.dumps(row) + "\n" for row in before))
    result = rmqtool("import", tmp_path / "new", source, "-o", "ndjson")
    assert result.code == 0, result.err
    after = dumped(tmp_path / "new")
    assert [told(row) for row in after] == [told(row) for row in before]
    acknowledged = [json.loads(line) for line in result.out.splitlines()]
    assert [row["physicalOffset"] for row in acknowledged] == [row["physicalOffset"] for row in after]
    # commits point at their half messages, wherever these lie now
    place = {old["physicalOffset"]: new["physicalOffset"] for old, new in zip(before, after, strict=True)}
    for old, new in zip(before, after, strict=True):
        prepared = old["preparedTransactionOffset"]
        assert new["preparedTransactionOffset"] == place.get(prepared, prepared) if prepared else True
    checked = rmqtool("check", tmp_path / "new", "-o", "json")
    assert [f["code"] for f in json.loads(checked.out) if f["severity"] == "error"] == []
    assert not (tmp_path / "new" / "abort").exists()


def test_rows_of_overlapping_files_come_in_the_order_of_the_log(golden: Unpacked, tmp_path: Path) -> None:
    before = dumped(golden("broker"))
    as_parquet(before, tmp_path / "dump")
    files = parquet_files(str(tmp_path / "dump"))
    assert len(files) > 10
    assert [row["physicalOffset"] for row in rows(files[::-1])] == [row["physicalOffset"] for row in before]


def test_new_times_and_few_columns(tmp_path: Path) -> None:
    table = pa.table({"topic": ["t", "t"], "body": [b"\xff\x00", None], "storeTimestamp": [5, 6]})
    pq.write_table(table, tmp_path / "few.parquet")
    assert rmqtool("import", tmp_path / "kept", tmp_path / "few.parquet").code == 0
    assert rmqtool("import", tmp_path / "now", tmp_path / "few.parquet", "--new-times").code == 0
    kept, now = dumped(tmp_path / "kept"), dumped(tmp_path / "now")
    assert [(row["body"], row["storeTimestamp"], row["queueOffset"]) for row in kept] == [("/wA=", 5, 0), ("", 6, 1)]
    assert min(row["storeTimestamp"] for row in now) > 10**12


def test_rows_that_are_no_messages_are_named_and_passed_over(tmp_path: Path) -> None:
    table = pa.table({"topic": ["a", None, "b", "x" * 200], "queueId": [0, 0, -1, 0], "body": [b"x"] * 4})
    pq.write_table(table, tmp_path / "some.parquet")
    result = rmqtool("import", tmp_path / "new", tmp_path / "some.parquet")
    assert result.code == 1
    assert [line.split(":")[0] for line in result.err.splitlines()[:3]] == ["row 2", "row 3", "row 4"]
    assert "1 message appended, 3 refused" in result.err


def test_what_is_no_input(tmp_path: Path, golden: Unpacked) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1" + bytes(100))
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    (tmp_path / "empty").mkdir()
    for name, code, text in (
        ("torn.parquet", 5, "not a Parquet file"),
        ("other.parquet", 5, "no column topic"),
        ("nothing.parquet", 3, "No such file"),
        ("nothing.ndjson", 3, "No such file"),
        ("empty", 3, "no Parquet files"),
    ):
        result = rmqtool("import", tmp_path / "new", tmp_path / name)
        assert (result.code, result.out) == (code, ""), result
        assert result.err.startswith(f"error: {tmp_path / name}: ")
        assert text in result.err
        assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "other.parquet", "torn.parquet"]
    assert rmqtool("import", golden("clean"), tmp_path / "other.parquet").code == 4
    with pytest.raises(UnreadableStore):
        parquet_files(str(tmp_path / "empty"))
    with pytest.raises(CorruptFile):
        list(rows([str(tmp_path / "torn.parquet")]))
