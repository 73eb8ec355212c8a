"""The planner's side of the data source: each scan reads what its query needs, and every answer is that without it."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from rmqtool import read_arrow
from rmqtool.analytics.source.filter import Condition
from rmqtool.analytics.source.planner.planner import planner_jar
from rmqtool.analytics.source.pushed import Pushed
from rmqtool.analytics.source.read import sum_counters
from rmqtool.analytics.source.tables_source import register
from rmqtool.analytics.spark.columns import limit_rows
from rmqtool.client import Message as Sent
from rmqtool.client.sync import Producer
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.testing import TestBroker, broker
from tests.amounts import TURN, some
from tests.conftest import Unpacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

COLUMNS = [
    "topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "tags", "msgId", "reconsumeTimes",
    "storeTimestamp", "bornHost", "bodyLength",
]  # fmt: skip


@pytest.fixture(scope="module")
def session(spark: "SparkSession") -> "SparkSession":
    register(spark)
    return spark


def frame_of(spark: "SparkSession", path: object, **options: str) -> "DataFrame":
    return spark.read.format("rocketmq").options(**options).load(str(path))


def columns_read(frame: "DataFrame") -> set[str]:
    """The columns that the scans of a query read."""
    read, pending = set(), [frame._jdf.queryExecution().optimizedPlan()]
    while pending:
        plan = pending.pop()
        if plan.getClass().getSimpleName() == "DataSourceV2ScanRelation":
            read |= set(plan.scan().readSchema().fieldNames())
        children = plan.children()
        pending += [children.apply(n) for n in range(children.size())]
    return read


# -- what is read ------------------------------------------------------------------------------------------------------


def test_columns_of_a_query_alone_are_read(session: "SparkSession", day: StoreLayout) -> None:
    frame = frame_of(session, day.root)
    assert columns_read(frame.select("topic")) == {"topic"}
    assert columns_read(frame.where("queueId = 1").groupBy("TOPIC").count()) == {"topic", "queueId"}
    assert columns_read(frame.agg({"*": "count"})) == {"queueId"}
    assert "body" in columns_read(frame)


def test_conditions_limits_and_sizes_reach_the_reader(
    session: "SparkSession", day: StoreLayout, tmp_path: Path
) -> None:
    whole = frame_of(session, day.root).count()

    def rows_read(path: Path, query: Any) -> int:
        path.mkdir()
        query(frame_of(session, day.root, counters=str(path)))
        return sum_counters(str(path)).rows

    assert rows_read(tmp_path / "topic", lambda frame: frame.where("topic = 'topic-07'").count()) == whole // 50
    assert rows_read(tmp_path / "limit", lambda frame: frame.limit(3).collect()) < whole // 2
    size = frame_of(session, day.root)._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert 0 < int(str(size)) < 100 << 20


def test_filters_belong_to_one_scan(session: "SparkSession", day: StoreLayout) -> None:
    frame = frame_of(session, day.root)
    whole = frame.count()
    part = frame.where("topic = 'topic-07'")
    assert part.count() == whole // 50
    assert frame.count() == whole
    other = frame.where("topic = 'topic-08'")
    assert part.alias("a").join(other.alias("b"), "queueOffset").select("a.topic").count() > 0
    kept = part.cache()
    assert (kept.count(), frame.count(), other.count()) == (whole // 50, whole, whole // 50)
    kept.unpersist()


def test_tables_by_path_and_in_the_catalog(session: "SparkSession", day: StoreLayout) -> None:
    whole = frame_of(session, day.root).count()
    assert session.sql(f"SELECT count(*) FROM rocketmq.`{day.root}`").first()[0] == whole
    named = f"SELECT DISTINCT topic FROM rocketmq.`{day.root}` WITH (topic = 'topic-07')"
    assert [row.topic for row in session.sql(named).collect()] == ["topic-07"]
    session.sql(f"CREATE TABLE planned USING rocketmq OPTIONS (path '{day.root}', topic 'topic-07')")
    session.sql(f"CREATE TABLE narrow (topic STRING, queueId INT) USING rocketmq OPTIONS (path '{day.root}')")
    try:
        assert session.sql("SELECT count(*) FROM planned").first()[0] == whole // 50
        assert columns_read(session.sql("SELECT queueId FROM planned")) == {"queueId"}
        assert session.sql("SELECT count(*) FROM narrow").first()[0] == whole
    finally:
        session.sql("DROP TABLE planned")
        session.sql("DROP TABLE narrow")
    with pytest.raises(Exception, match=r"/nowhere: no such directory"):
        session.sql("SELECT * FROM rocketmq.`/nowhere`")


def test_the_classes_are_compiled_once(session: "SparkSession") -> None:
    assert planner_jar(session) == planner_jar(session)
    register(session)


# -- what is passed ----------------------------------------------------------------------------------------------------


def test_conditions_as_options(golden: Unpacked) -> None:
    rest, pushed = Pushed.take(
        {"PATH": "/s", "pushed": '[["topic","in",["a","b"]],["storeTimestamp",">",[5000000]]]', "limit": "7"}
    )
    assert rest == {"path": "/s"}
    assert pushed.limit == 7
    assert pushed.conditions[0] == Condition("topic", "in", ["a", "b"])
    assert pushed.conditions[1].value.timestamp() == 5
    batch = read_arrow(str(golden("clean")), columns=["topic"]).read_next_batch()
    assert sum(each.num_rows for each in limit_rows(iter([batch, batch]), batch.num_rows + 1)) == batch.num_rows + 1
    assert sum(each.num_rows for each in limit_rows(iter([batch]), None)) == batch.num_rows


# -- the same answers --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with broker() as one, Producer(one.namesrv) as producer:
        for topic in ("Orders", "Other"):
            queues = producer.queues(topic)
            for number in range(150):
                tag = f"t{number % 3}" if number % 7 else None
                producer.send(Sent(topic, b"%d" % number, tags=tag, keys=[f"k{number % 40}"]), queue=queues[number % 4])
        yield one


def conditions(draw: random.Random, rows: list[dict[str, Any]]) -> str:
    """A random condition whose values are in the data, or just beside."""
    row = draw.choice(rows)

    def comparison() -> str:
        column = draw.choice(COLUMNS)
        value = row[column]
        if value is None or draw.random() < 0.1:
            return f"{column} IS {draw.choice(('', 'NOT '))}NULL"
        if column == "storeTimestamp":
            text = f"timestamp '{value:%Y-%m-%d %H:%M:%S.%f}'"
        elif isinstance(value, int):
            text = str(value + draw.choice((0, 0, 1, -1)))
        else:
            text = f"'{value}'"
        if draw.random() < 0.25:
            more = draw.choice(rows)[column]
            other = (
                text if more is None or column == "storeTimestamp" else f"'{more}'" if isinstance(more, str) else more
            )
            return f"{column} {draw.choice(('', 'NOT '))}IN ({text}, {other})"
        return f"{column} {draw.choice(('=', '=', '<', '<=', '>', '>=', '<>', '<=>'))} {text}"

    parts = [comparison() for _ in range(draw.randint(1, 3))]
    text = parts[0]
    for part in parts[1:]:
        text = f"({text} {draw.choice(('AND', 'AND', 'OR'))} {part})"
    return f"NOT {text}" if draw.random() < 0.1 else text


def query_of(draw: random.Random, rows: list[dict[str, Any]], table: str) -> str:
    """A random query of a table, or of several of its scans."""
    where = conditions(draw, rows)
    chosen = ", ".join(draw.sample(COLUMNS, draw.randint(1, 4)))
    kind = draw.randrange(7)
    if kind == 0:
        return f"SELECT {chosen} FROM {table} WHERE {where}"
    if kind == 1:
        return f"SELECT topic, count(*), sum(storeSize), min(queueOffset) FROM {table} WHERE {where} GROUP BY topic"
    if kind == 2:
        other = conditions(draw, rows)
        return (
            f"SELECT count(*), max(a.storeSize + b.storeSize) FROM (SELECT * FROM {table} WHERE {where}) a JOIN "
            f"(SELECT * FROM {table} WHERE {other}) b ON a.queueOffset = b.queueOffset AND a.queueId = b.queueId"
        )
    if kind == 3:
        return f"SELECT count(*) FROM (SELECT {chosen} FROM {table} WHERE {where} LIMIT {draw.randint(0, 60)})"
    if kind == 4:
        order = "topic, queueId, queueOffset, physicalOffset"
        return f"SELECT {chosen} FROM {table} WHERE {where} ORDER BY {order} LIMIT {draw.randint(1, 60)}"
    if kind == 5:
        inner = f"SELECT topic FROM {table} WHERE {where}"
        return f"SELECT {chosen} FROM {table} WHERE topic {draw.choice(('', 'NOT '))}IN ({inner})"
    other = conditions(draw, rows)
    return f"SELECT {chosen} FROM {table} WHERE {where} UNION ALL SELECT {chosen} FROM {table} WHERE {other}"


@pytest.mark.slow
@pytest.mark.parametrize("source", ["store", "live"])
def test_queries_have_the_same_answers(
    source: str, session: "SparkSession", served: TestBroker, golden: Unpacked, tmp_path: Path
) -> None:
    """Random queries: through the planner, and on a copy of all rows as Parquet; on frames that are kept, too."""
    if source == "store":
        copy = read_arrow(str(golden("broker"))).read_all()
        frame = frame_of(session, golden("broker"))
    else:
        copy = read_arrow(served.store, topic=["Orders", "Other"]).read_all()
        frame = session.read.format("rocketmq").option("namesrv", served.namesrv).option("subscribe", "Orders,Other")
        frame = frame.load()
    pq.write_table(copy, tmp_path / "copy.parquet")
    frame.createOrReplaceTempView("asked")
    session.read.parquet(str(tmp_path / "copy.parquet")).createOrReplaceTempView("copied")
    rows, draw = copy.select(COLUMNS).to_pylist(), random.Random(f"{source}{TURN}")
    for number in range(some(12, 250)):
        query = query_of(draw, rows, "{}")
        asked = session.sql(query.replace("{}", "asked"))
        kept = asked.cache() if number % 5 == 0 else asked
        found = Counter(map(repr, kept.collect()))
        expected = Counter(map(repr, session.sql(query.replace("{}", "copied")).collect()))
        assert found == expected, query
        if number % 5 == 0:
            assert session.table("asked").count() == copy.num_rows, query
            kept.unpersist()
