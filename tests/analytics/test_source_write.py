"""Data frames of messages become stores again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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
    from rmqtool.analytics.source import register

    register(spark)
    return spark.read.format("rocketmq").option("splitBytes", "40000").load(str(store))


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


def test_what_is_refused_leaves_nothing(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    some = frame(spark, golden("clean")).limit(5)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    for name, mode, said in (("there", "append", "exists already"), ("new", "overwrite", "not overwritten")):
        with pytest.raises(Exception, match=said):
            some.write.format("rocketmq").mode(mode).save(str(tmp_path / name))
    with pytest.raises(Exception, match="topic of 0 bytes"):
        spark.createDataFrame([("", b"x")], "topic string, body binary").write.format("rocketmq").mode("append").save(
            str(tmp_path / "new")
        )
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
