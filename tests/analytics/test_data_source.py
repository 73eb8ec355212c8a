"""The data source in Spark: the engine's answers, and how little is read for them."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqtool.analytics.source.tables import TABLES
from rmqtool.analytics.source.tables_source import register
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns, every
from tests.analytics.helpers import engine_messages, plain, same_as_golden
from tests.analytics.stores import MESSAGES
from tests.conftest import Unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@by_turns(13)
@pytest.mark.parametrize("case", ["broker", "torn-header"])
def test_spark_finds_the_source_and_reads_what_the_engine_says(
    case: str, spark: "SparkSession", golden: Unpacked
) -> None:
    frame = spark.read.format("rocketmq").option("splitBytes", "30000").load(str(golden(case)))
    rows = {row["physicalOffset"]: plain(row.asDict()) for row in frame.collect()}
    messages = {at: message for at, message in engine_messages(case).items() if at in rows}
    assert len(messages) > 250
    for offset, message in messages.items():
        same_as_golden(rows[offset], message)
    topics = Counter(row["topic"] for row in rows.values())
    assert {row[0]: row[1] for row in frame.groupBy("topic").count().collect()} == topics


@by_turns(13)
@pytest.mark.parametrize("pushing", every(2, ["true", "false"]))
def test_a_frame_may_be_asked_again(pushing: str, spark: "SparkSession", day: StoreLayout) -> None:
    """Spark would reuse the result of a pushed-down filter for all later queries on a frame, so none is pushed down."""
    spark.conf.set(PUSH_DOWN, pushing)
    try:
        frame = spark.read.format("rocketmq").option("columns", "topic,msgId").load(day.root)
        first, second = (frame.where(f"topic = 'topic-{number}'") for number in (11, 12))
        assert first.count() == second.count() == MESSAGES // 50
        assert frame.count() == MESSAGES
        assert first.union(second).count() == MESSAGES // 25
        assert first.alias("one").join(frame.alias("all"), "msgId").count() == MESSAGES // 50
        assert first.join(second, "msgId").count() == 0
    finally:
        spark.conf.unset(PUSH_DOWN)


@by_turns(13)
def test_a_table_of_the_catalog(spark: "SparkSession", golden: Unpacked) -> None:
    root = str(golden("broker"))
    try:
        spark.sql(
            f"CREATE TABLE orders USING rocketmq OPTIONS (path '{root}', topic 'Orders', columns 'queueId,topic')"
        )
        spark.sql(f"CREATE TABLE everything USING rocketmq LOCATION '{root}'")
        assert spark.sql("SELECT count(*), min(topic) FROM orders").first() == (420, "Orders")
        assert spark.table("orders").columns == ["queueId", "topic"]
        assert spark.sql("SELECT count(*) FROM everything").first() == (609,)
        joined = "SELECT count(*) FROM everything a JOIN everything b ON a.offsetMsgId = b.offsetMsgId"
        assert spark.sql(f"{joined} WHERE a.topic = 'Orders'").first() == (420,)
        spark.sql(f"CREATE TABLE named (topic string) USING rocketmq OPTIONS (path '{root}')")
        try:
            outcome = str(spark.sql("SELECT count(*) FROM named").collect()[0][0])
        except Exception as err:
            outcome = str(err)
        # if another test has registered the source, it knows the path
        assert outcome == "609" or "CREATE TABLE keeps it without a list of columns" in outcome
        with pytest.raises(Exception, match="option columns: nothing: give some of topic, queueId"):
            spark.sql(f"CREATE TABLE wrong USING rocketmq OPTIONS (path '{root}', columns 'nothing')")
    finally:
        for name in ("orders", "everything", "named", "wrong"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


@by_turns(7)
def test_columns_by_a_schema_and_tables_by_an_option(spark: "SparkSession", golden: Unpacked) -> None:
    root = str(golden("broker"))
    frame = spark.read.format("rocketmq").schema("keys array<string>, broker string, topic string").load(root)
    row = frame.where("topic = 'Payments'").first()
    assert row is not None
    assert (row["broker"], row["topic"]) == ("store", "Payments")
    assert len(row["keys"]) > 0
    register(spark)  # once more does no harm
    counts = {"messages": 609, "queues": 609, "index": 1640, "offsets": 24, "topics": 19, "findings": 0, "compacted": 0}
    for table in TABLES:
        count = spark.read.format("rocketmq").option("table", table).load(root).count()
        assert count == counts[table]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v (topic string) USING rocketmq OPTIONS (path '{root}')")
    assert spark.sql("SELECT count(*) FROM v WHERE topic = 'Orders'").first() == (420,)


def test_errors_say_what_is_wrong(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="no such directory"):
        spark.read.format("rocketmq").load(str(tmp_path / "nothing")).count()
    with pytest.raises(AnalysisException, match="none of messages, queues"):
        spark.read.format("rocketmq").option("table", "x").load(str(tmp_path)).count()
