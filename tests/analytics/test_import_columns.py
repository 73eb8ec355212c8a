"""Parquet written by other programs: equivalent columns are used, and the rest is reported in one line."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.amounts import by_turns
from tests.cli.running import rmqtool

INF, NAN = float("inf"), float("nan")
TIME = datetime(2024, 1, 2, tzinfo=UTC)
PAIR = pa.struct([("key", pa.string()), ("value", pa.string())])


def imported(folder: Path, **columns: Any) -> Any:
    rows = len(next(iter(columns.values())))
    table = pa.table({"topic": ["t"] * rows, "body": [b""] * rows, **columns})
    pq.write_table(table, folder / "in.parquet")
    return rmqtool("import", folder / "new", folder / "in.parquet")


def told(folder: Path) -> list[dict[str, Any]]:
    out = rmqtool("commitlog", "dump", folder / "new", "-o", "ndjson").out
    return [json.loads(line) for line in out.splitlines()]


@by_turns(3)
@pytest.mark.parametrize(
    ("column", "values", "wanted"),
    [
        ("queueId", pa.array([3.0, 1.0, None]), [3, 1, 0]),
        ("queueId", pa.array([3, 1, None], pa.uint64()), [3, 1, 0]),
        ("queueId", pa.array([Decimal("3.00"), Decimal(1), None]), [3, 1, 0]),
        ("queueId", pa.array(["", None]).slice(1), [0]),
        ("queueId", pa.nulls(2), [0, 0]),
        ("queueId", pa.nulls(2, pa.string()), [0, 0]),
        ("physicalOffset", pa.array([10.0, None, 5.0]), None),
        ("queueOffset", pa.array([None, 5, None]), None),
        ("storeTimestamp", pa.array([TIME, TIME], pa.timestamp("ns")), [1704153600000] * 2),
        ("storeTimestamp", pa.array([TIME, TIME], pa.timestamp("s", "UTC")), [1704153600000] * 2),
        ("storeTimestamp", pa.array([19724, 19724], pa.date32()), [1704153600000] * 2),
        ("storeTimestamp", pa.array([1704153600000.0] * 2), [1704153600000] * 2),
        ("bornTimestamp", pa.array([-1, 5], pa.timestamp("us")), [-1, 0]),
        ("properties", pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string())), [{"a": "b"}, {}]),
        ("properties", pa.array([[{"key": "a", "value": "b"}], []], pa.list_(PAIR)), [{"a": "b"}, {}]),
        ("properties", pa.array([{"a": "b", "c": None}, {"c": "d"}]), [{"a": "b"}, {"c": "d"}]),
        ("properties", pa.nulls(2), [{}, {}]),
        ("tags", pa.array(["x", None, "x"]).dictionary_encode(), ["x", None, "x"]),
        ("keys", pa.array(["x", None]), [["x"], []]),
        ("keys", pa.array([["x", "y"], None], pa.large_list(pa.string())), [["x", "y"], []]),
        ("body", pa.array([b"x", None], pa.large_binary()), ["x", ""]),
        ("body", pa.array(["x", "y"], pa.large_string()), ["x", "y"]),
        ("body", pa.array([{"a": 1}, {"a": None}]), ['{"a":1}', '{"a":null}']),
        ("body", pa.array([[1, 2], None]), ["[1,2]", ""]),
        ("body", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())), ['{"a":1}']),
        ("body", pa.array([1, 2]), ["1", "2"]),
    ],
)
def test_what_means_the_same_is_taken(column: str, values: pa.Array, wanted: list[Any], tmp_path: Path) -> None:
    done = imported(tmp_path, **{column: values})
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    assert len(told(tmp_path)) == len(values)
    if wanted is not None:
        assert [row[column] for row in told(tmp_path)] == wanted


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [
        ("queueId", pa.array([1.5, 1.0]), "queueId: 1.5 is not a whole number"),
        ("queueId", pa.array([NAN, 1.0]), "queueId: nan is not a whole number"),
        ("queueId", pa.array([INF, 1.0], pa.float32()), "queueId: inf is not a whole number"),
        ("queueId", pa.array([2**64 - 1, 1], pa.uint64()), "queueId: 18446744073709551615 is not a whole number"),
        ("queueId", pa.array([Decimal("1.5"), Decimal("1.0")]), "queueId: 1.5 is not a whole number"),
        ("queueId", pa.array([2**40, 1]), "queue"),
        ("physicalOffset", pa.array([INF, 1.0]), "physicalOffset: inf is not a whole number"),
        ("physicalOffset", pa.array([-INF, 1.0]), "physicalOffset: -inf is not a whole number"),
        ("queueOffset", pa.array([1e300, 1.0]), "queueOffset: 1e+300 is not a whole number"),
        ("sysFlag", pa.array([2**40, 1]), ""),
        ("flag", pa.array([2**40, 1]), ""),
        ("properties", pa.array([{"a": 1}, None]), "properties: not a map of texts"),
        ("properties", pa.array([[("a", None)], None], pa.map_(pa.string(), pa.string())), "not a map of texts"),
        ("properties", pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())), "not a map of texts"),
        ("keys", pa.array([["x", None], None]), "keys: neither a text nor a list of texts"),
        ("body", pa.array([{"a": TIME}, None]), "body: not JSON: Object of type datetime"),
        ("body", pa.array([[Decimal("1.5")], None]), "body: not JSON: Object of type Decimal"),
        ("body", pa.array([{"a": b"x"}, None]), "body: not JSON"),
        ("body", pa.array([NAN, 1.0]), "body: not JSON"),
        ("tags", pa.array([b"\xff", b"x"]), "tags: not UTF-8"),
        ("tags", pa.array([b"\xff", b"x"]).view(pa.string()), "tags: not UTF-8"),
        ("keys", pa.ListArray.from_arrays([0, 1, 2], pa.array([b"\xff", b"x"]).view(pa.string())), "keys: not UTF-8"),
    ],
)
def test_rows_that_are_refused_are_named(column: str, values: pa.Array, text: str, tmp_path: Path) -> None:
    done = imported(tmp_path, **{column: values})
    assert done.code == 1, done
    assert "1 message appended, 1 refused" in done.err
    assert [line for line in done.err.splitlines() if line.startswith("row ") and text in line], done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [
        ("queueId", pa.array(["1", "2"]), "column queueId is string, not a number"),
        ("queueId", pa.array([True, False]), "column queueId is bool, not a number"),
        ("physicalOffset", pa.array(["1", "2"]), "column physicalOffset is string, not a number"),
        ("queueOffset", pa.array([[1], [2]]), "column queueOffset is list<element: int64>, not a number"),
        ("storeTimestamp", pa.array(["now", "then"]), "not a time or a number"),
        ("properties", pa.array(["a=b", "c=d"]), "column properties is string, not a map of texts"),
        ("properties", pa.array([["a"], ["b"]]), "column properties is list<element: string>, not a map of texts"),
        ("tags", pa.array([1, 2]), "column tags is int64, not a text"),
        ("keys", pa.array([1, 2]), "column keys is int64, not a list of texts"),
        ("topic", pa.array([1, 2]), "column topic is int64, not a text"),
        ("body", pa.array([TIME, TIME]), "not bytes, a text, or what JSON has"),
        ("body", pa.array([Decimal("1.5"), Decimal("2.5")]), "not bytes, a text, or what JSON has"),
    ],
)
def test_columns_that_are_of_no_use_are_told_once(column: str, values: pa.Array, text: str, tmp_path: Path) -> None:
    done = imported(tmp_path, **{column: values})
    assert (done.code, done.out) == (5, "")
    (line,) = done.err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'in.parquet'}: column {column} is ")
    assert text in line
    assert not (tmp_path / "new").exists()


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    columns = [pa.array(["t"]), pa.array([b""]), pa.array([1]), pa.array([2])]
    table = pa.Table.from_arrays(columns, ["topic", "body", "queueId", "queueId"])
    pq.write_table(table, tmp_path / "in.parquet")
    result = rmqtool("import", tmp_path / "new", tmp_path / "in.parquet")
    assert (result.code, result.err.count("\n")) == (5, 1)
    assert "queueId more than once" in result.err


def test_where_every_row_is_refused_nothing_is_left(tmp_path: Path) -> None:
    done = imported(tmp_path, queueId=pa.array([-1, -2]))
    assert done.code == 1
    assert "0 messages appended, 2 refused" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    (tmp_path / "in.ndjson").write_text('{"queueId": 1}\nx\n')
    (tmp_path / "new").mkdir()
    assert rmqtool("import", tmp_path / "new", tmp_path / "in.ndjson").code == 1
    assert list((tmp_path / "new").iterdir()) == []


def test_whole_floats_in_ndjson(tmp_path: Path) -> None:
    lines = [{"topic": "t", "queueId": 3.0, "flag": 1e2}, {"topic": "t", "queueId": 1.5}]
    (tmp_path / "in.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = rmqtool("import", tmp_path / "new", tmp_path / "in.ndjson")
    assert (result.code, result.err.splitlines()[0]) == (1, "row 2: queueId: not a number")
    assert [(row["queueId"], row["flag"]) for row in told(tmp_path)] == [(3, 100)]


def test_times_that_step_back_are_told(tmp_path: Path) -> None:
    for name, times in (("a", [5000, 6000]), ("b", [1000, 7000])):
        table = pa.table({"topic": ["t", "t"], "storeTimestamp": times, "body": [b"%d" % time for time in times]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    result = rmqtool("import", tmp_path / "new", tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert result.code == 0
    assert "store times step back 1 times, by 5000 ms at most" in result.err
    assert [row["storeTimestamp"] for row in told(tmp_path)] == [5000, 6000, 1000, 7000]
    alone = rmqtool("import", tmp_path / "one", tmp_path / "b.parquet", tmp_path / "a.parquet", "--new-times")
    assert "step back" not in alone.err
