"""Spark on a live cluster: batches, streams and writing, with drivers and brokers that are killed."""

import json
import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqtool import read_arrow
from rmqtool.admin.target import parse_target
from rmqtool.analytics.live.options import LiveRequest
from rmqtool.analytics.sql.query import answer
from rmqtool.client import Message
from rmqtool.client.sync import Producer
from rmqtool.errors import BadValue
from rmqtool.rules.ids import stable_id
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns
from tests.analytics.test_stream import batches_of, end, started
from tests.model.neighbours import Neighbour

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
COUNT = 300


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    """A broker with the topic Orders."""
    with broker() as running, Producer(running.namesrv) as producer:
        for number in range(COUNT):
            producer.send(Message("Orders", b"%d" % number, tags=f"t{number % 3}"))
        yield running


def frame(spark: "SparkSession", served: TestBroker, **options: str) -> "DataFrame":
    return spark.read.format("rocketmq").options(**{"namesrv": served.namesrv, "subscribe": "Orders", **options}).load()


def test_queries(spark: "SparkSession", served: TestBroker) -> None:
    whole = frame(spark, served, minPartitions="6")
    assert whole.schema == spark.read.format("rocketmq").load(served.store).schema
    assert whole.rdd.getNumPartitions() >= 6
    by_tag = {row["tags"]: row["count"] for row in whole.groupBy("tags").count().collect()}
    assert by_tag == {"t0": 100, "t1": 100, "t2": 100}
    assert sorted(int(row["body"]) for row in frame(spark, served, tags="t1").collect()) == list(range(1, COUNT, 3))
    narrow = frame(spark, served, columns="body,broker")
    assert narrow.columns == ["body", "broker"]
    assert narrow.where("broker = 'broker-a'").count() == COUNT
    stored = spark.read.format("rocketmq").load(served.store).where("topic = 'Orders'")
    assert whole.join(stored, "msgId").count() == COUNT


def test_a_table_of_the_catalog(spark: "SparkSession", served: TestBroker) -> None:
    try:
        spark.sql(
            f"CREATE TABLE live USING rocketmq OPTIONS (namesrv '{served.namesrv}', subscribe 'Orders', tags 't2', "
            "columns 'topic,body')"
        )
        assert [tuple(row) for row in spark.sql("SELECT topic, count(*) FROM live GROUP BY topic").collect()] == [
            ("Orders", 100)
        ]
    finally:
        spark.sql("DROP TABLE IF EXISTS live")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "Nowhere"}, "Nowhere: no name server knows the topic"),
        ({"startingOffsets": "middle"}, "option startingOffsets: 'middle' is not JSON like"),
        ({"sql": "n ="}, "of broker-a: 127.0.0.1"),
    ],
    ids=str,
)
def test_errors_are_one_line(options: dict[str, str], text: str, spark: "SparkSession", served: TestBroker) -> None:
    from pyspark.errors import PySparkException

    def count() -> int:
        return frame(spark, served, **options).count()

    with pytest.raises(PySparkException) as error:
        count()
    assert text in str(error.value)
    assert "Traceback" not in str(error.value)


def test_a_stream_that_is_refused_says_why(spark: "SparkSession", served: TestBroker, tmp_path: Path) -> None:
    """PySpark alone would say that its own variable has no value."""
    from pyspark.errors import StreamingQueryException

    stream = spark.readStream.format("rocketmq").options(
        namesrv=served.namesrv, subscribe="Told", endingOffsets="latest"
    )
    query = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state")).start()
    with pytest.raises(StreamingQueryException, match="option endingOffsets: a stream has no end") as error:
        query.awaitTermination(60)
    assert "Traceback" not in str(error.value)


def test_a_frame_is_sent_and_read_again(spark: "SparkSession", served: TestBroker) -> None:
    rows = spark.range(0, 500, 1, 3).selectExpr(
        "'Sent' AS topic", "concat('t', id % 2) AS tags", "array(concat('k', id)) AS keys",
        "map('n', cast(id AS string)) AS properties", "encode(cast(id AS string), 'utf-8') AS body",
        "concat('s', id % 5) AS shardingKey",
    )  # fmt: skip
    rows.write.format("rocketmq").mode("append").option("namesrv", served.namesrv).save()
    rows_read = frame(spark, served, subscribe="Sent").collect()
    assert sorted(int(row["body"]) for row in rows_read) == list(range(500))
    assert len({row["msgId"] for row in rows_read}) == 500
    for row in rows_read:
        number = int(row["body"])
        assert (row["tags"], row["keys"]) == (f"t{number % 2}", [f"k{number}"])
        assert row["properties"]["n"] == str(number)
    queues = {(row["properties"]["__SHARDINGKEY"], row["queueId"]) for row in rows_read}
    assert len(queues) == 5


def test_a_stream_from_topic_to_topic(spark: "SparkSession", served: TestBroker, tmp_path: Path) -> None:
    """The ids are the same if a batch is repeated after its checkpoint was lost."""
    for run in range(2):
        stream = (
            spark.readStream.format("rocketmq").option("namesrv", served.namesrv).option("subscribe", "Orders")
            .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "100").load()
        )  # fmt: skip
        query = (
            stream.selectExpr("'Copied' AS topic", "tags", "body").writeStream.format("rocketmq")
            .option("namesrv", served.namesrv).option("checkpointLocation", str(tmp_path / "state"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        if run == 0:
            (tmp_path / "state" / "commits" / "2").unlink()
            for crc in (tmp_path / "state" / "commits").glob(".2*"):
                crc.unlink()
    rows_read = frame(spark, served, subscribe="Copied").collect()
    ids = Counter(row["msgId"] for row in rows_read)
    assert len(ids) == COUNT
    assert sorted(ids.values()) == [1] * 200 + [2] * 100
    query_id = json.loads((tmp_path / "state" / "metadata").read_text())["id"]
    assert stable_id(f"{query_id}:0:0", 0) in ids


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT topic, count(*) FROM messages WHERE topic IN ('Orders') GROUP BY topic", [("Orders", COUNT)]),
        ("SELECT count(DISTINCT topic) > 0, count(*) >= 300 FROM messages", [(True, True)]),
        ("SELECT count(*) FROM messages WHERE topic = 'Orders' AND queueId IN (1, 2)", [(COUNT // 2,)]),
        (
            "WITH a AS (SELECT * FROM messages WHERE topic = 'Orders') SELECT count(*) FROM a JOIN a b USING (msgId)",
            [(COUNT,)],
        ),
    ],
)
def test_sql(query: str, expected: list[tuple[Any, ...]], spark: "SparkSession", served: TestBroker) -> None:
    request = LiveRequest(parse_target(f"rocketmq://{served.namesrv}"), pattern=".*")
    with answer(request, query) as answered:
        assert [tuple(row) for row in answered.rows()] == expected


def test_sql_has_no_other_tables(spark: "SparkSession", served: TestBroker) -> None:
    request = LiveRequest(parse_target(f"rocketmq://{served.namesrv}"), pattern=".*")
    with pytest.raises(BadValue, match="table queues is one of a store"), answer(request, "SELECT * FROM queues"):
        pass


def produce(namesrv: str, first: int, count: int, seed: int) -> None:
    """Send numbered messages slowly, each until it is acknowledged; what may be stored twice has one number."""
    chance = random.Random(seed)
    with Producer(namesrv) as producer:
        for number in range(first, first + count):
            while True:
                try:
                    producer.send(Message("Live", b"%d" % number), timeout=2)
                    break
                except Exception:
                    time.sleep(0.1)
            time.sleep(chance.random() * 0.02)


@by_turns(5)
@pytest.mark.parametrize("seed", [20_261_129])
def test_each_message_once_whoever_is_killed(seed: int, spark: "SparkSession", tmp_path: Path) -> None:
    """A broker and drivers are killed while messages are sent; Parquet then has the rows of the broker's store."""
    chance, count = random.Random(seed), 600
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    with Neighbour(tmp_path / "store") as neighbour, started() as start:
        options = {
            "namesrv": neighbour.namesrv,
            "subscribe": "Live", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40",
        }  # fmt: skip
        sending = multiprocessing.get_context("spawn").Process(target=produce, args=(neighbour.namesrv, 0, count, seed))
        sending.start()
        kills = 0
        while not (tmp_path / "store" / "consumequeue" / "Live").exists():
            time.sleep(0.05)
        for driver in range(2):
            reader = start("stream_reader", json.dumps(options), checkpoint, out)
            assert reader.stdout is not None
            assert reader.stdout.readline() == "running\n"
            target, deadline = batches_of(checkpoint) + chance.randrange(2, 5), time.monotonic() + 200
            while batches_of(checkpoint) < target:
                assert time.monotonic() < deadline, "the stream does not go on"
                assert reader.poll() is None, "the stream has ended"
                # a stream that begins needs its topic's route; one that goes on waits for it
                if batches_of(checkpoint) and (kills == driver or chance.random() < 0.05):
                    neighbour.end(signal.SIGKILL)
                    time.sleep(chance.random() * 0.5)
                    neighbour.start()
                    kills += 1
                time.sleep(0.05)
            time.sleep(chance.random() * 0.4)
            end(reader)
        sending.join(100)
        assert sending.exitcode == 0
        frame = spark.readStream.format("rocketmq").options(**options).load()
        query = (
            frame.select("physicalOffset", "body", "sourceFile").writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(out))
        )  # fmt: skip
        query.awaitTermination()
    rows = [(row[0], int(row[1])) for row in spark.read.parquet(str(out)).collect()]
    stored: list[dict[str, Any]] = (
        read_arrow(str(tmp_path / "store"), topic="Live", columns=["physicalOffset", "body"]).read_all().to_pylist()
    )
    assert sorted(rows) == sorted((row["physicalOffset"], int(row["body"])) for row in stored)
    assert {number for _offset, number in rows} == set(range(count))
    assert batches_of(checkpoint) > 5
    assert kills > 1
