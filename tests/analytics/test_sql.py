"""``sql``: the engine's answers, and how little is read for them."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from rmqtool.analytics.source.filter import Condition
from rmqtool.analytics.spark import watching
from rmqtool.analytics.spark.java import find_java
from rmqtool.analytics.sql import query as asking
from rmqtool.analytics.sql.plan import conditions_of
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.progress import Stage, listening
from rmqtool.store.check.run import check_store
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests import goldens
from tests.amounts import by_turns, only_in_all
from tests.analytics.helpers import ask, asked, engine_messages, log_of, store_of
from tests.analytics.stores import MESSAGES
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), by_turns(3)]
ROOT = Path(__file__).parents[2]
TOPIC = "AttributeReference topic"


@by_turns(3)
def test_what_is_read_is_what_the_query_needs(spark: "SparkSession", day: StoreLayout) -> None:
    total = CommitLog(day).end()[0]
    for query, rows in [
        ("SELECT count(*) FROM messages WHERE array_contains(keys, 'k1234')", [(1,)]),
        ("SELECT queueOffset FROM messages WHERE msgId = 'U1234' AND 'topic-34' = topic", [(12,)]),
        (
            "SELECT count(*) FROM messages WHERE storeTimestamp BETWEEN '2023-11-15 01:00' AND '2023-11-15 01:30'",
            [(417,)],
        ),
        ("SELECT (SELECT count(*) FROM messages WHERE topic = 'topic-01') AS n", [(400,)]),
        (
            "WITH a AS (SELECT * FROM messages WHERE topic = 'topic-01') SELECT count(*) FROM a JOIN a b USING (msgId)",
            [(400,)],
        ),
        ("SELECT count(*) FROM messages WHERE physicalOffset < 10000", [(33,)]),
    ]:
        with asked(day.root, query) as answered:
            assert [tuple(row) for row in answered.rows()] == rows, query
            assert 0 < answered.counters.bytesRead < 0.36 * total, query
    with asked(day.root, "SELECT count(*), sum(storeSize) FROM messages") as answered:
        ((count, size),) = answered.rows()
        assert (count, size) == (MESSAGES, answered.counters.bytesRead)
    # conditions of one scan do not hold for another
    both = "SELECT (SELECT count(*) FROM messages WHERE topic = 'topic-01'), (SELECT count(*) FROM messages)"
    assert ask(day.root, both) == [(400, MESSAGES)]
    either = "SELECT count(*) FROM messages WHERE topic = 'topic-01' OR topic = 'topic-02'"
    assert ask(day.root, either) == [(800,)]
    assert ask(day.root, "SELECT count(*) FROM messages WHERE NOT topic = 'topic-01'") == [(MESSAGES - 400,)]


def test_only_the_columns_that_are_needed_are_decoded(
    spark: "SparkSession", golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqtool.analytics.sql import query as sql

    seen: dict[str, tuple[str, ...] | None] = {}
    decode = sql._decode

    def spy(context: Any, request: Any, need: Any, folder: str) -> Any:
        seen[request.table] = need.columns
        return decode(context, request, need, folder)

    monkeypatch.setattr(sql, "_decode", spy)
    query = "SELECT m.topic, o.`group`, count(*) FROM messages m JOIN offsets o USING (topic, queueId) GROUP BY 1, 2"
    assert len(ask(golden("broker"), query)) > 5
    assert {table: set(columns or ()) for table, columns in seen.items()} == {
        "messages": {"topic", "queueId"},
        "offsets": {"topic", "queueId", "group"},
    }
    seen.clear()
    assert ask(golden("broker"), "SELECT count(*) FROM messages") == [(609,)]
    assert seen == {"messages": ()}
    seen.clear()
    assert ask(golden("broker"), "SELECT 'messages'") == [("messages",)]
    assert seen == {}
    assert ask(golden("broker"), "SELECT topic FROM messages WHERE false") == []


@by_turns(3)
def test_sums_of_every_golden_store_are_the_engines(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    """Counts and sums of messages equal the engine's, with findings; all stores in one table."""
    expected: dict[tuple[str, str], list[int]] = {}
    findings: Counter[tuple[str, str]] = Counter()
    cut = []  # what lies in a log and the engine does not read, behind damage or in files that no queue knows
    for case in goldens.cases():
        (tmp_path / case).symlink_to(golden(case))
        layout = StoreLayout(str(golden(case)))
        messages = engine_messages(case) if goldens.has(case, "messages.ndjson.gz") else {}
        in_log = {item.physical_offset for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)}
        if in_log - messages.keys():
            listed = ", ".join(map(str, in_log - messages.keys()))
            cut.append(f"NOT (broker = '{case}' AND physicalOffset IN ({listed}))")
        for message in (message for at, message in messages.items() if at in in_log):
            sums = expected.setdefault((case, message["topic"]), [0, 0, 0, 0, 0, 0])
            sums[0] += 1
            for number, name in enumerate(("storeSize", "bodyLength", "queueOffset", "bodyCrc", "storeTimestamp"), 1):
                sums[number] += message[name]
        for finding in check_store(layout):
            findings[case, finding.code] += finding.count
    assert len(expected) > 60
    rows = ask(
        f"{tmp_path}/*",
        "SELECT broker, topic, count(*), sum(storeSize), sum(bodyLength), sum(queueOffset), sum(bodyCrc), "
        f"sum(unix_millis(storeTimestamp)) FROM messages WHERE {' AND '.join(cut)} GROUP BY broker, topic",
    )
    assert {(row[0], row[1]): list(row[2:]) for row in rows} == expected
    rows = ask(f"{tmp_path}/*", "SELECT broker, code, sum(count) FROM findings GROUP BY broker, code")
    assert {(row[0], row[1]): row[2] for row in rows} == findings


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT * FROM nothing", "[TABLE_OR_VIEW_NOT_FOUND]"),
        ("SELEC 1", "[PARSE_SYNTAX_ERROR]"),
        ("SELECT nothing FROM messages", "(line 1, pos 7)"),
        ("SELECT 1 / 0", "[DIVIDE_BY_ZERO]"),
        ("SELECT raise_error(topic) FROM messages", "[USER_RAISED_EXCEPTION]"),
        ("INSERT INTO messages VALUES (1)", "only queries"),
        ("CREATE TABLE t (a int)", "only queries"),
        ("DROP VIEW messages", "only queries"),
        ("WITH a AS (SELECT 1) INSERT INTO messages SELECT * FROM a", "only queries"),
        ("", "[PARSE_"),
    ],
)
def test_queries_that_cannot_be_run(query: str, text: str, spark: "SparkSession", golden: Unpacked) -> None:
    result = rmqtool("sql", golden("clean"), query)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert text in result.err
    assert result.err.count("\n") == 1


def test_forms(spark: "SparkSession", golden: Unpacked) -> None:
    query = (
        "SELECT topic, queueId AS q, storeTimestamp, keys, properties, body, CAST(NULL AS INT) AS none, topic, "
        "CAST('NaN' AS DOUBLE) AS nan, CAST(1.5 AS DECIMAL(3,1)) AS dec, date(storeTimestamp) AS day, "
        "struct(flag, topic) AS s, X'FF00' AS raw FROM messages WHERE msgId = "
        "'FD0000000000000000000000000000020FB630946E0966434500000A' AND topic = 'Orders'"
    )
    (row,) = json.loads(rmqtool("sql", golden("broker"), query, "-o", "json").out)
    assert row == {
        "topic": "Orders", "q": 3, "storeTimestamp": 1795206884611, "keys": ["order-10", "user-10"],
        "properties": {
            "region": "r1", "UNIQ_KEY": "FD0000000000000000000000000000020FB630946E0966434500000A",
            "CLUSTER": "LabCluster", "TAGS": "created", "KEYS": "order-10 user-10",
        },
        "body": '{"id":10,"城市":"杭州"}', "none": None, "topic_2": "Orders", "nan": "nan", "dec": 1.5,
        "day": "2026-11-20", "s": {"flag": 0, "topic": "Orders"}, "raw": "/wA=",
    }  # fmt: skip
    lines = rmqtool("sql", golden("broker"), query, "-o", "ndjson").out.splitlines()
    assert [json.loads(line) for line in lines] == [row]
    (parsed,) = csv.DictReader(io.StringIO(rmqtool("sql", golden("broker"), query, "-o", "csv").out))
    assert (parsed["topic_2"], parsed["keys"], parsed["q"]) == ("Orders", "order-10 user-10", "3")
    table = rmqtool(
        "sql", golden("broker"), "SELECT topic, count(*) AS n FROM messages GROUP BY 1 ORDER BY n DESC LIMIT 2"
    )
    assert table.out.splitlines() == [
        "topic                  n",
        "Orders               420",
        "SCHEDULE_TOPIC_XXXX   38",
    ]
    assert table.err == "159803 bytes of the store were read\n"
    assert table.code == 0


def test_times_do_not_depend_on_the_zone(
    golden: Unpacked, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    try:
        query = "SELECT min(storeTimestamp) AS t, hour(min(storeTimestamp)) AS h FROM messages"
        (row,) = json.loads(rmqtool("sql", golden("broker"), query, "-o", "json").out)
        assert os.environ["TZ"] == "America/St_Johns"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert row == {"t": "2026-11-20T20:34:44.370Z", "h": 20}


def test_rows_to_a_file(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    args = ("sql", golden("clean"), "SELECT topic, physicalOffset FROM messages", "--to", path)
    assert rmqtool(*args).code == 0
    assert pq.read_table(path).num_rows == 500
    assert [p.name for p in tmp_path.iterdir()] == ["rows.parquet"]
    refused = rmqtool(*args)
    assert (refused.code, "exists; give --overwrite" in refused.err) == (4, True)
    nothing = ("sql", golden("clean"), "SELECT topic FROM messages WHERE topic = 'none'", "--to", path, "--overwrite")
    assert rmqtool(*nothing).code == 0
    assert pq.read_table(path).schema.names == ["topic"]
    assert pq.read_table(path).num_rows == 0
    assert rmqtool(*args[:-1], tmp_path / "no" / "rows").code == 4
    assert rmqtool(*args[:-1], tmp_path, "--overwrite").code == 4


def test_rows_of_a_private_store_are_private(spark: "SparkSession", golden_copy: Unpacked, tmp_path: Path) -> None:
    store, path = golden_copy("clean"), tmp_path / "rows.parquet"
    store.chmod(0o750)
    assert rmqtool("sql", store, "SELECT topic FROM messages", "--to", path).code == 0
    assert path.stat().st_mode & 0o777 == 0o640


def test_damage_is_told(spark: "SparkSession", golden: Unpacked) -> None:
    result = rmqtool("sql", golden("torn-header"), "SELECT count(*) FROM messages")
    assert result.code == 1
    assert result.out.split() == ["count(1)", "499"]
    assert result.err.startswith("damage: ")
    assert "findings" in result.err
    clean = rmqtool("sql", golden("clean"), "SELECT count(*) FROM findings WHERE severity <> 'info'")
    assert (clean.code, clean.out.split()) == (0, ["count(1)", "0"])


def test_several_stores(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    for name, case in (("a", "clean"), ("b", "broker")):
        shutil.copytree(golden(case), tmp_path / f"broker-{name}")
    query = "SELECT broker, count(*) FROM messages GROUP BY broker ORDER BY broker"
    assert ask(f"{tmp_path}/broker-*", query) == [("broker-a", 500), ("broker-b", 609)]
    query = "SELECT DISTINCT t.broker FROM topics t JOIN queues q USING (broker, topic) WHERE topic = 'Orders'"
    assert ask(f"{tmp_path}/broker-a,{tmp_path}/broker-b", query) == [("broker-b",)]


def test_large_stores_are_decoded_by_workers(
    spark: "SparkSession", day: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqtool.analytics.sql import query as sql

    monkeypatch.setattr(sql, "_ALONE", 0)
    monkeypatch.setattr(sql, "_LARGE", 0)
    assert ask(day.root, "SELECT count(*), max(length(body)) FROM messages", splitBytes="3000000") == [(MESSAGES, 186)]


@pytest.mark.parametrize("store", ["missing", "file", "no store"])
def test_stores_that_are_none(store: str, tmp_path: Path) -> None:
    """Detected before Spark starts."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "no store").mkdir()
    for arguments in (["sql", tmp_path / store, "SELECT 1"], ["report", "traffic", tmp_path / store]):
        began = time.process_time()
        result = rmqtool(*arguments)
        assert (result.code, result.out) == (3, "")
        assert result.err.startswith(f"error: {tmp_path / store}: ")
        assert time.process_time() - began < 5
    with pytest.raises(UnreadableStore):
        ask(tmp_path / store, "SELECT 1")


def test_a_file_that_goes_or_cannot_be_read(spark: "SparkSession", tmp_path: Path) -> None:
    layout = store_of(tmp_path, log_of(["A"] * 3))
    (path,) = (Path(layout.root) / "commitlog").iterdir()
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    result = rmqtool("sql", layout.root, "SELECT count(*) FROM messages")
    path.unlink()
    path.write_bytes(content)
    assert result.code in (0, 3)
    assert rmqtool("sql", layout.root, "SELECT count(*) FROM messages").out.split()[-1] == "3"


@pytest.mark.parametrize(
    ("nodes", "conditions"),
    [
        (["LessThan 2", "Literal 5 integer", "AttributeReference queueId"], [Condition("queueId", ">", 5)]),
        (["Not 1", "EqualTo 2", TOPIC, "Literal A string"], []),
        (
            [
                "Or 2",
                "EqualTo 2",
                TOPIC,
                "Literal A string",
                "IsNull 1",
                TOPIC,
            ],
            [],
        ),
        (
            [
                "And 2",
                "IsNotNull 1",
                TOPIC,
                "EqualTo 2",
                TOPIC,
                "Literal A string",
            ],
            [Condition("topic", "=", "A")],
        ),
        (["In 3", "AttributeReference queueId", "Literal 1 integer", "AttributeReference flag"], []),
        (["EqualTo 2", "AttributeReference storeTimestamp", "Literal +12345-01-01 timestamp"], []),
        (["EqualTo 2", "AttributeReference keys", "Literal [a] array"], []),
    ],
)
def test_conditions_as_catalyst_writes_them(nodes: list[str], conditions: list[Condition]) -> None:
    listed = []
    for node in nodes:
        kind, *rest = node.split()
        fields: dict[str, Any] = {"class": f"org.apache.spark.sql.catalyst.expressions.{kind}", "num-children": 0}
        if kind == "Literal":
            fields |= {"value": rest[0], "dataType": rest[1]}
        elif kind == "AttributeReference":
            fields["name"] = rest[0]
        else:
            fields["num-children"] = int(rest[0])
        listed.append(fields)
    assert conditions_of(json.dumps(listed)) == conditions


@only_in_all
def test_an_answer_outside_of_any_session(golden: Unpacked) -> None:
    """In a separate process, with its own Java, which ends afterwards."""
    code = (
        "from rmqtool.analytics.source.plan import request_of\n"
        "from rmqtool.analytics.sql.query import answer\n"
        "import sys\n"
        "for _ in range(2):\n"
        "    with answer(request_of({'path': sys.argv[1]}), 'SELECT count(*) FROM messages') as found:\n"
        "        print(next(found.rows())[0])\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_REMOTE": "sc://nowhere"}
    result = subprocess.run(
        [sys.executable, "-c", code, str(golden("clean"))],
        env=environ, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["500", "500"], "")


def test_bad_values_are_ours(spark: "SparkSession", golden: Unpacked) -> None:
    with pytest.raises(BadValue, match="UNRESOLVED_COLUMN"):
        ask(golden("clean"), "SELECT nothing FROM messages")


@pytest.mark.slow
@only_in_all
def test_spark_connect(golden: Unpacked, tmp_path: Path) -> None:
    """If PySpark's requirements for it are installed, as in the extra ``test``."""
    for module in ("grpc", "grpc_status", "zstandard"):
        pytest.importorskip(module)
    code = """
import sys
from pyspark.sql import SparkSession
from tests.analytics.ready_frame import ready_frame
from rmqtool.analytics.spark.java import find_java
from rmqtool.analytics.source.tables_source import register
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("rocketmq").load(sys.argv[1])
print(type(spark).__module__, frame.count(), frame.where("topic = 'Orders'").count())
register(spark)
print(ready_frame(spark, "retries", sys.argv[1]).count())
stream = spark.readStream.format("rocketmq").load(sys.argv[1]).select("topic").writeStream.format("memory")
stream.queryName("t").option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start().awaitTermination()
print(spark.table("t").count())
spark.stop()
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": find_java().home}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(golden("broker")), str(tmp_path / "checkpoint")],
        env=environ, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["pyspark.sql.connect.session", "609", "420", "16", "609"]


@pytest.mark.parametrize("alone", [True, False])
def test_it_is_told_how_far_it_is(alone: bool, golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Stage] = []

    class Listener:
        def begin(self, stage: Stage) -> None:
            heard.append(stage)

        def end(self, stage: Stage) -> None: ...

    monkeypatch.setattr(watching, "_EVERY", 0.005)
    if not alone:
        monkeypatch.setattr(asking, "_ALONE", 0)
    with listening(Listener()):
        assert ask(golden("clean"), "SELECT count(*) FROM messages WHERE bodyLength > 0")
    names = [stage.name for stage in heard]
    assert names[:1] == ["starting Spark"]
    assert names[1:] == ["asking Spark", "reading the store", "asking Spark"]
    reading = heard[2]
    assert reading.unit == ("parts" if alone else "tasks")
    assert reading.total
    assert 0 < reading.done <= reading.total or not alone  # a short job may end between two looks
