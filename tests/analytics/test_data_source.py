"""The data source in Spark itself: the engine's answers, and how little is read for them."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqtool.analytics.source.read import saved
from rmqtool.analytics.source.tables import TABLES
from rmqtool.analytics.source.tables_source import register
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests.analytics.helpers import engine_messages, plain, same_as_golden
from tests.analytics.stores import MESSAGES
from tests.conftest import Unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


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


@pytest.fixture
def pushed(spark: "SparkSession") -> Iterator[None]:
    """Filters reach the source; every question needs a frame of its own then."""
    spark.conf.set(PUSH_DOWN, "true")
    yield
    spark.conf.unset(PUSH_DOWN)


@pytest.mark.usefixtures("pushed")
def test_filters_are_pushed_down_and_counted(spark: "SparkSession", day: StoreLayout, tmp_path: Path) -> None:
    total = CommitLog(day).end()[0]
    for number, (where, count) in enumerate(
        [
            ("msgId = 'U4321'", 1),
            ("keys = array('k4321')", 1),
            ("topic = 'topic-11' AND queueId >= 0", MESSAGES // 50),
            ("storeTimestamp >= '2023-11-15 01:00:00' AND storeTimestamp < '2023-11-15 02:00:00'", 833),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        frame = spark.read.format("rocketmq").option("counters", str(folder)).load(day.root)
        assert frame.where(where).count() == pytest.approx(count, abs=1)
        assert 0 < saved(str(folder)).bytesRead < 0.36 * total, where  # entries of queues and index, to prove it


def test_a_frame_may_be_asked_again(spark: "SparkSession", day: StoreLayout, tmp_path: Path) -> None:
    """Spark keeps what a filter that was pushed down leaves of a frame, for all later questions: so none is."""
    assert spark.conf.get(PUSH_DOWN) == "false"
    frame = spark.read.format("rocketmq").option("counters", str(tmp_path)).load(day.root)
    one, other = (frame.where(f"topic = 'topic-{number}'") for number in (11, 12))
    assert one.count() == other.count() == MESSAGES // 50
    assert frame.count() == MESSAGES
    assert one.union(other).count() == MESSAGES // 25
    assert saved(str(tmp_path)).bytesRead > 0.99 * CommitLog(day).end()[0]


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
