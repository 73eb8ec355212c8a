"""``sql --runner duckdb``: the answers of Spark, queries only, and nothing but the store."""

import json
import os
import signal
import subprocess
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from rmqtool.analytics.source.plan import request_of
from rmqtool.analytics.sql import duck
from rmqtool.cli.tables.asked import rows_of
from tests.amounts import by_turns
from tests.analytics.helpers import asked
from tests.cli.running import RMQTOOL, process, rmqtool
from tests.conftest import Unpacked
from tests.test_start import loaded_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "messages": "physicalOffset", "queues": "topic, queueId, queueOffset", "offsets": "topic, `group`, queueId",
    "topics": "topic", "index": "indexFile, number", "compacted": "topic, queueId, queueOffset",
    "findings": "code, file",
}  # fmt: skip
QUERIES = (
    *(f"SELECT * FROM {table} ORDER BY {order}" for table, order in TABLES.items()),
    ("SELECT topic, count(*) AS messages, sum(storeSize) AS bytes, avg(queueOffset) AS middle FROM messages "
    "GROUP BY topic ORDER BY bytes DESC, topic"),
    "SELECT tags, physicalOffset FROM messages ORDER BY tags, physicalOffset",
    "SELECT tags, physicalOffset FROM messages ORDER BY tags DESC, physicalOffset",
    ("SELECT a.physicalOffset, b.physicalOffset FROM messages a JOIN messages b "
    "ON a.msgId = b.msgId AND a.physicalOffset < b.physicalOffset ORDER BY 1, 2"),
    ("SELECT date_trunc('minute', storeTimestamp) AS minute, max(storeTimestamp) AS storeTimestamp, count(*) AS n "
    "FROM messages GROUP BY 1 ORDER BY 1"),
    "SELECT topic, (SELECT count(*) FROM queues q WHERE q.topic = t.topic) AS entries FROM topics t ORDER BY topic",
    "SELECT 1 AS one, 1 / 2 AS half, cast(1.5 AS decimal(5, 2)) AS price, NULL AS nothing, true AS yes",
)  # fmt: skip


def rows(result: Any) -> list[dict[str, Any]]:
    with closing(rows_of(result, "ndjson")) as every:
        return json.loads(json.dumps(list(every)))  # type: ignore[no-any-return]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@by_turns(11)
@pytest.mark.parametrize("case", ["broker", "broker-5.3.3"])
def test_both_runners_answer_alike(case: str, spark: "SparkSession", golden: Unpacked) -> None:
    store = golden(case)
    for query in QUERIES:
        with asked(store, query) as of_spark:
            wanted, columns, numbers = rows(of_spark), of_spark.columns, of_spark.are_numbers
        with duck.answer(request_of({"path": str(store)}), query.replace("`", '"')) as answered:
            assert (answered.columns, answered.are_numbers) == (columns, numbers), query
            assert rows(answered) == wanted, query


def test_neither_java_nor_pyspark_is_loaded(golden: Unpacked) -> None:
    loaded = loaded_by("sql", str(golden("broker")), "SELECT count(*) FROM messages", "--runner", "duckdb")
    assert "duckdb" in loaded
    assert not {name for name in loaded if name.split(".")[0] in ("pyspark", "py4j")}


def test_rows_in_every_form(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("broker")
    query = "SELECT topic, properties, keys, storeTimestamp FROM messages WHERE topic = 'Orders' ORDER BY 4 LIMIT 1"
    result = rmqtool("sql", store, query, "--runner", "duckdb", "-o", "ndjson")
    assert result.code == 0
    row = json.loads(result.out)
    assert (row["topic"], type(row["storeTimestamp"]), type(row["keys"])) == ("Orders", int, list)
    assert row["properties"]["KEYS"].split() == row["keys"]
    assert rmqtool("sql", store, query, "--runner", "duckdb").out.startswith("topic")
    out = tmp_path / "rows.parquet"
    assert rmqtool("sql", store, "SELECT topic, topic FROM messages", "--runner", "duckdb", "--to", out).code == 0
    assert pq.read_table(out).column_names == ["topic", "topic_2"]
    refused = rmqtool("sql", store, query, "--runner", "duckdb", "--to", out)
    assert (refused.code, "--overwrite" in refused.err) == (4, True)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELEC 1", "syntax error"), ("SELECT nope FROM messages", "nope"), ("SELECT 1; SELECT 2", "one at a time"),
        ("CREATE TABLE t (n int)", "only queries"), ("COPY (SELECT 1) TO 'rows.csv'", "only queries"),
        ("SET threads = 1", "only queries"), ("", "only queries"), ("ATTACH 'a.db'", "only queries"),
        ("SELECT * FROM read_text('{outside}')", "Permission"), ("FROM '{outside}'", "outside"),
        ("SELECT cast(topic AS int) FROM messages", "Conversion"),
    ],
)  # fmt: skip
def test_what_is_no_query_of_the_store(query: str, reason: str, golden: Unpacked, tmp_path: Path) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text("secret\n")
    result = rmqtool("sql", golden("broker"), query.format(outside=outside), "--runner", "duckdb")
    assert (result.code, result.out) == (2, "")
    assert reason in result.err
    assert "secret" not in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["outside.csv"]


@by_turns(3)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_long_query(number: int, code: int, golden: Unpacked) -> None:
    query = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
    args = [*RMQTOOL, "sql", golden("broker"), query, "--runner", "duckdb"]
    default = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default) as child:
        busy = Path(f"/proc/{child.pid}/stat")
        while sum(map(int, busy.read_text().rpartition(")")[2].split()[11:13])) < 3 * os.sysconf("SC_CLK_TCK"):
            time.sleep(0.05)  # until it has computed for some seconds
        child.send_signal(number)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (code, "")
    assert "Traceback" not in err


def test_damage_is_told(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    log = next((store / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(60)
        file.write(b"\xff" * 40)
    result = rmqtool("sql", store, "SELECT count(*) FROM messages", "--runner", "duckdb")
    assert result.code == 1
    assert "damage: " in result.err


def test_live_clusters_and_missing_libraries(golden: Unpacked, tmp_path: Path) -> None:
    result = rmqtool("sql", "rocketmq://127.0.0.1:1", "SELECT 1", "--runner", "duckdb")
    assert (result.code, "reads stores" in result.err) == (2, True)
    (tmp_path / "duckdb.py").write_text("raise ImportError('no such library')")
    about = {**os.environ, "PYTHONPATH": str(tmp_path)}
    missing = process("sql", golden("broker"), "SELECT 1", "--runner", "duckdb", env=about)
    assert missing.code == 6
    assert "pip install duckdb" in missing.err
