"""Data frames of messages become stores again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import rand

from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
PLACED = (
    "queueOffset",
    "physicalOffset",
    "offsetMsgId",
    "storeSize",
    "sysFlag",
    "bodyCrc",
    "preparedTransactionOffset",
)


def told(store: Path) -> list[dict[str, Any]]:
    out = rmqtool("commitlog", "dump", store, "-o", "ndjson", "--body", "base64").out
    return [{k: v for k, v in json.loads(line).items() if k not in PLACED} for line in out.splitlines()]


def frame(spark: "SparkSession", store: Path) -> Any:
    from rmqtool.analytics.source.tables_source import register

    register(spark)
    return spark.read.format("rocketmq").option("splitBytes", "40000").load(str(store))


@by_turns(3)
def test_what_is_read_can_be_written(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    source = golden("clean")
    frame(spark, source).write.format("rocketmq").mode("append").save(str(tmp_path / "all"))
    with_ids = [row for row in told(source) if "UNIQ_KEY" in row["properties"]]
    assert [row for row in told(tmp_path / "all") if "UNIQ_KEY" in row["properties"]] == with_ids
    assert len(told(tmp_path / "all")) == len(told(source))
    some = frame(spark, source).where("topic = 'TopicA' AND queueId = 0")
    some.write.format("rocketmq").mode("append").save(str(tmp_path / "some"))
    assert {(row["topic"], row["queueId"]) for row in told(tmp_path / "some")} == {("TopicA", 0)}
    assert len(told(tmp_path / "some")) == some.count()
    assert rmqtool("check", tmp_path / "all").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "some"]


@by_turns(7)
def test_a_shuffle_scrambles_no_queue(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    source = golden("clean")
    before = told(source)
    for name, shuffled in (
        ("spread", frame(spark, source).repartition(7)),
        ("mixed", frame(spark, source).orderBy(rand(1)).drop("physicalOffset")),
        ("both", frame(spark, source).orderBy(rand(2)).coalesce(2)),
    ):
        shuffled.write.format("rocketmq").mode("append").save(str(tmp_path / name))
        after = told(tmp_path / name)
        assert queues_of(after) == queues_of(before), name
        if name != "mixed":
            assert [row["body"] for row in after] == [row["body"] for row in before]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "mixed", "spread"]


def queues_of(rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[str]]:
    queues: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        queues.setdefault((row["topic"], row["queueId"]), []).append(row["body"])
    return queues


def test_columns_of_other_types(spark: "SparkSession", tmp_path: Path) -> None:
    some = spark.createDataFrame([("t", 3.0, "x"), ("t", 3.0, "y")], "topic string, queueId double, body string")
    # what Spark itself advises where no mode is given
    some.coalesce(1).write.format("rocketmq").mode("overwrite").save(str(tmp_path / "new"))
    assert [(row["queueId"], row["body"]) for row in told(tmp_path / "new")] == [(3, "eA=="), (3, "eQ==")]
    for kinds, values, text in (
        ("topic string, queueId string", ("t", "1"), "column queueId is string, not a number"),
        ("topic string, queueId double", ("t", 1.5), "queueId: 1.5 is not a whole number"),
    ):
        with pytest.raises(Exception, match=text):
            spark.createDataFrame([values], kinds).write.format("rocketmq").mode("append").save(str(tmp_path / "no"))
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_frames_of_others(spark: "SparkSession", tmp_path: Path) -> None:
    def saved(kinds: str, values: tuple[Any, ...], name: str, **options: str) -> list[tuple[int, str]]:
        made = spark.createDataFrame([values], kinds).write.format("rocketmq").mode("append").options(**options)
        made.save(str(tmp_path / name))
        return [(row["queueId"], row["body"]) for row in told(tmp_path / name)]

    with pytest.raises(Exception, match="the data frame: no field body, and payload not taken"):
        saved("topic string, payload string", ("t", "x"), "no")
    assert saved("topic string, payload string", ("t", "x"), "mapped", map="payload=body") == [(0, "eA==")]
    kafka = "topic string, partition int, offset bigint, key binary, value binary"
    assert saved(kafka, ("t", 2, 7, b"k", b"x"), "kafka") == [(2, "eA==")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kafka", "mapped"]


@by_turns(13)
def test_what_is_refused_leaves_nothing(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    some = frame(spark, golden("clean")).limit(5)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    for name, mode, text in (("there", "append", "exists already"), ("there", "overwrite", "not overwritten")):
        with pytest.raises(Exception, match=text):
            some.write.format("rocketmq").mode(mode).save(str(tmp_path / name))
    with pytest.raises(Exception, match="topic of 0 bytes"):
        spark.createDataFrame([("", b"x")], "topic string, body binary").write.format("rocketmq").mode("append").save(
            str(tmp_path / "new")
        )
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_rows_are_appended_to_a_store(spark: "SparkSession", golden_copy: Unpacked, golden: Unpacked) -> None:
    """As a broker would: with new store times, after what is there, all of them or none."""
    target = golden_copy("broker")
    before = told(target)
    some = frame(spark, golden("clean")).where("topic = 'TopicA'")
    some.write.format("rocketmq").mode("append").save(str(target))
    after = told(target)
    assert after[: len(before)] == before
    added = after[len(before) :]
    assert len(added) == some.count() > 0
    assert sorted(row["body"] for row in added) == sorted(
        row["body"] for row in told(golden("clean")) if row["topic"] == "TopicA"
    )
    assert min(row["storeTimestamp"] for row in added) > max(row["storeTimestamp"] for row in before)
    assert rmqtool("check", target, "--severity", "error").code == 0
    rows = spark.createDataFrame([("t", b"x"), ("", b"y")], "topic string, body binary")
    with pytest.raises(Exception, match="topic of 0 bytes"):
        rows.coalesce(1).write.format("rocketmq").mode("append").save(str(target))
    assert len(told(target)) == len(after)
    with pytest.raises(Exception, match="not overwritten"):
        some.write.format("rocketmq").mode("overwrite").save(str(target))
    assert not list(target.parent.glob("*.parts-*"))
