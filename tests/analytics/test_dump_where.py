"""SQL conditions with incremental and remote outputs: each matching message once."""

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.dataset as ds
import pytest

from rmqtool.analytics.dump import tasks
from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.report import DumpOptions, DumpReport
from rmqtool.analytics.ranges.splits import plan
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.spark.where import SparkCondition, read_selected
from rmqtool.errors import BadValue, Refused
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests.amounts import by_turns, only_in_all
from tests.analytics import test_remote_store
from tests.analytics.helpers import rows_of
from tests.analytics.test_dump_again import Broker, Killed, a_store
from tests.conftest import Unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
EVEN = "tags IN ('t0', 't2') AND length(body) >= 0"
server = test_remote_store.server


def dump(layout: StoreLayout, out: object, where: str = EVEN, **options: Any) -> DumpReport:
    return dump_to_parquet(layout, str(out), DumpOptions(where=where, since_last=True, **options))


def wanted(broker: Broker) -> list[int]:
    """Offsets of the messages that match :data:`EVEN`."""
    return [offset for number, offset in enumerate(broker.offsets) if number % 3 != 1]


@only_in_all
def test_each_message_that_is_chosen_once_while_a_broker_writes(spark: "SparkSession", tmp_path: Path) -> None:
    broker, out, chance, before = Broker(tmp_path), tmp_path / "out", random.Random(7), 0
    for run in range(5):
        for _message in range(chance.randrange(2, 8)):
            broker.put()
        if run % 2:
            broker.put((chance.random(),))  # a record that is half there
        report = dump(broker.layout, out, split_bytes=900)
        assert [row["physicalOffset"] for row in rows_of(out)] == wanted(broker)
        assert report.rows == len(wanted(broker)) - before
        before = len(wanted(broker))
        assert report.position is not None
        assert report.position > broker.offsets[-1]
    assert 5 < before < broker.number
    nothing = dump(broker.layout, out)
    assert (nothing.rows, nothing.records, nothing.files) == (0, 0, 0)


@by_turns(3)
def test_the_position_passes_what_is_not_chosen(spark: "SparkSession", tmp_path: Path) -> None:
    broker, out = Broker(tmp_path), tmp_path / "out"
    for _message in range(4):
        broker.put()
    first = dump(broker.layout, out, "tags = 'none'")
    assert (first.rows, first.records, rows_of(out)) == (0, 4, [])
    assert first.position is not None
    assert first.position > broker.offsets[-1]
    broker.put()
    again = dump(broker.layout, out, "tags = 'none'")
    assert (again.rows, again.records) == (0, 1)
    assert json.loads((out / "_rmqtool.json").read_text())["position"]["last"] == broker.offsets[-1]
    for other in (EVEN, None):
        with pytest.raises(Refused, match="was begun with where"):
            dump(broker.layout, out, other)  # type: ignore[arg-type]
    broker.put()
    with pytest.raises(BadValue, match="is not a condition"):
        dump(broker.layout, tmp_path / "bad", "tags =")


@only_in_all
def test_a_killed_run_with_a_condition_is_gone_on_with(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, out, real = a_store(tmp_path), tmp_path / "out", tasks._run_in_spark

    def killed(job: Any, splits: Any, *rest: Any) -> Any:
        real(job, splits[:2], *rest)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "_run_in_spark", killed)
        with pytest.raises(Killed):
            dump(layout, out, "topic = 'B'")
    report = dump(layout, out, "topic = 'B'")
    assert (report.resumed, report.rows, report.records) == (2, 20, 40)
    assert {row["topic"] for row in rows_of(out)} == {"B"}
    assert len(rows_of(out)) == 20
    assert sorted(path.name[0] for path in out.iterdir()) == ["_", "_", *"pppp"]


def test_what_is_selected_is_what_the_condition_holds_for(
    spark: "SparkSession", golden: Unpacked, tmp_path: Path
) -> None:
    log = CommitLog(StoreLayout(str(golden("broker"))))
    splits, _none = plan(log, split_bytes=30_000)
    folder = Folder(str(tmp_path / "selected"))
    where = SparkCondition(spark, "topic = 'Orders' OR queueId = 3")
    where.select(splits, where.narrow(tasks.MessageChoice()), folder)
    rows = spark.read.format("rocketmq").load(log.layout.root).where("topic = 'Orders' OR queueId = 3")
    expected = sorted(row[0] for row in rows.select("physicalOffset").collect())
    assert np.concatenate([read_selected(folder, split) for split in splits]).tolist() == expected
    SparkCondition(spark, "topic = 'none'").select(splits, tasks.MessageChoice(topics=("none",)), folder.below("none"))
    assert not any(len(read_selected(folder.below("none"), split)) for split in splits)


@by_turns(7)
def test_an_output_on_object_storage(spark: "SparkSession", server: test_remote_store.Server, tmp_path: Path) -> None:
    broker, out = Broker(tmp_path), server.uri("dumped/where")
    for _message in range(30):
        broker.put()
    assert dump(broker.layout, out).rows == len(wanted(broker))
    broker.put()
    assert dump(broker.layout, out).rows == len(wanted(broker)) - 20
    files = server.listing("dumped/where")
    dataset = ds.dataset([path for path, _size, _time in files if path.endswith(".parquet")], filesystem=server.fs)
    assert sorted(dataset.to_table(columns=["physicalOffset"])["physicalOffset"].to_pylist()) == wanted(broker)
    names = {path.rsplit("/", 1)[1] for path, _size, _time in files if not path.endswith(".parquet")}
    assert names == {"_SUCCESS", "_rmqtool.json"}
