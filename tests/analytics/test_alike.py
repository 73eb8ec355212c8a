"""Which queries ``sql`` gives to DuckDB by itself, and that Spark answers those alike."""

from typing import TYPE_CHECKING, Any

import pytest

from rmqtool.analytics.source.plan import request_of
from rmqtool.analytics.sql import duck
from rmqtool.analytics.sql.alike import RENAMED, is_answered_alike
from tests.amounts import by_turns
from tests.analytics.helpers import asked
from tests.analytics.test_duckdb import rows
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.test_start import loaded_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALIKE = (
    "select 1",
    "SELECT topic, count(*) FROM messages GROUP BY topic ORDER BY topic",
    "SELECT count(*), count(tags), min(tags), max(storeTimestamp), sum(storeSize), avg(storeSize) FROM messages",
    """SELECT topic, queueId, sum(storeSize) AS bytes FROM messages WHERE queueId IN (0, 1) AND NOT topic LIKE '%RETRY%'
    GROUP BY 1, 2 HAVING count(*) > 2 ORDER BY bytes DESC, topic, 2 LIMIT 5""",
    "SELECT * FROM messages WHERE storeTimestamp >= '2026-11-20 20:34:45' ORDER BY physicalOffset LIMIT 20",
    "SELECT DISTINCT topic FROM queues ORDER BY topic",
    "SELECT topic, tags FROM messages WHERE tags IS NOT NULL AND queueOffset BETWEEN 1 AND 3 ORDER BY physicalOffset",
    "SELECT keys, properties, body FROM messages WHERE topic = 'Orders' ORDER BY physicalOffset",
    "SELECT tags FROM messages WHERE tags <> 'x' OR tags IS NULL ORDER BY tags DESC",
    "SELECT COUNT(*), MAX(storeSize) FROM messages",
    "SELECT code, severity FROM findings ORDER BY code",
    "SELECT topic, configured FROM topics WHERE configured = true ORDER BY topic",
)
OTHERS = (
    'SELECT topic FROM messages WHERE topic = "Orders"', "SELECT `topic` FROM messages", "SELECT TOPIC FROM messages",
    "SELECT count(DISTINCT topic) FROM messages", "SELECT 1.5", "SELECT 'a'", "SELECT storeSize / 2 FROM messages",
    "SELECT lower(topic) FROM messages", "SELECT keys[0] FROM messages", "SELECT properties['a'] FROM messages",
    "SELECT * FROM messages m", "SELECT a.topic FROM messages a JOIN messages b ON a.msgId = b.msgId",
    "SELECT topic FROM messages WHERE queueId = '1'", "SELECT topic FROM messages WHERE topic = 1",
    "SELECT topic FROM messages WHERE storeTimestamp > '2026-1-2'", "SELECT topic FROM messages WHERE queueId",
    "SELECT topic FROM messages WHERE topic LIKE 'a\\_%'", "SELECT sum(tagsCode) FROM queues",
    "SELECT topic AS queueId FROM messages", "WITH a AS (SELECT 1) SELECT * FROM a", "SELECT 1 UNION SELECT 2",
    "SELECT topic, row_number() OVER () AS n FROM messages", "SELECT CAST(queueId AS string) AS q FROM messages",
    "SELECT 1; SELECT 2", "DROP TABLE messages", "SELECT nothing FROM messages", "SELECT * FROM elsewhere", "",
    "SELECT * EXCLUDE (topic) FROM messages", "SELECT topic FROM messages -- all",
    "SELECT topic FROM queues TABLESAMPLE 5",
    "SELECT max(keys) FROM messages", "SELECT queueId AS q FROM messages WHERE q = 1",
    "SELECT topic FROM messages HAVING topic = 'a'", "SELECT topic FROM messages ORDER BY 'topic'",
    "SELECT keys FROM messages ORDER BY keys", "SELECT sum(topic) FROM messages",
    "SELECT topic FROM messages LIMIT 10%", "SELECT * FROM 'file.parquet'", "SELECT main.messages.topic FROM messages",
)  # fmt: skip


@pytest.mark.parametrize("query", ALIKE)
def test_queries_for_either(query: str) -> None:
    assert is_answered_alike(query)


@pytest.mark.parametrize("query", OTHERS)
def test_queries_for_spark_alone(query: str) -> None:
    assert not is_answered_alike(query)


def test_a_small_store_starts_no_java(golden: Unpacked) -> None:
    modules = loaded_by("sql", str(golden("broker")), ALIKE[1], "-o", "csv")
    assert "duckdb" in modules
    assert not [name for name in modules if name.startswith(("pyspark", "py4j"))]
    result = rmqtool("sql", golden("broker"), ALIKE[1], "-o", "csv")
    assert (result.code, result.out.splitlines()[0]) == (0, "topic,count(1)")
    by_name = rmqtool("sql", golden("broker"), ALIKE[1], "-o", "csv", "--runner", "duckdb")
    assert by_name.out.splitlines() == ["topic,count_star()", *result.out.splitlines()[1:]]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@by_turns(3)
@pytest.mark.parametrize("case", ["broker", "broker-5.3.3"])
def test_spark_answers_alike(case: str, spark: "SparkSession", golden: Unpacked) -> None:
    store = golden(case)
    for query in ALIKE:
        with asked(store, query) as of_spark:
            wanted: Any = (of_spark.columns, rows(of_spark))
        with duck.answer(request_of({"path": str(store)}), query, RENAMED) as of_duckdb:
            assert (of_duckdb.columns, rows(of_duckdb)) == wanted, query
