"""Streams in Spark from a log being written, both sides killed at random: each message once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.amounts import by_turns
from tests.analytics.helpers import log_of, store_of
from tests.analytics.stream_writer import KILLED, SIZE, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).parents[2]
COUNT = 500


Start = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def started() -> Iterator[Start]:
    """A function that starts processes in their own groups, so that Spark's Java is killed too."""
    processes: list[subprocess.Popen[str]] = []

    def start(module: str, *args: object) -> "subprocess.Popen[str]":
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        call = [sys.executable, "-m", f"tests.analytics.{module}", *map(str, args)]
        process = subprocess.Popen(
            call, env=environ, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        return process

    try:
        yield start
    finally:
        for process in processes:
            end(process)


def end(process: "subprocess.Popen[str]") -> None:
    """Kill a process and its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def batches_of(checkpoint: Path) -> int:
    """Number of batches that a query has finished."""
    commits = checkpoint / "commits"
    return sum(name.isdecimal() for name in os.listdir(commits)) if commits.exists() else 0


def finish(spark: "SparkSession", store: Path, checkpoint: Path, out: Path) -> list[tuple[int, bytes]]:
    """Read the rest; returns (physical offset, body) of everything in the sink."""
    frame = spark.readStream.format("rocketmq").option("maxRecordsPerTrigger", "300").load(str(store))
    query = (
        frame.select("physicalOffset", "body", "sourceFile")
        .writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start(str(out))
    )  # fmt: skip
    query.awaitTermination()
    return [(row[0], bytes(row[1])) for row in spark.read.parquet(str(out)).collect()]


@by_turns(13)
@pytest.mark.parametrize("seed", [20_261_121])
def test_each_message_once_whoever_is_killed(seed: int, spark: "SparkSession", tmp_path: Path) -> None:
    chance = random.Random(seed)
    store, checkpoint, out = tmp_path / "store", tmp_path / "checkpoint", tmp_path / "out"
    (store / "commitlog").mkdir(parents=True)
    options = json.dumps({"path": str(store), "maxBytesPerTrigger": "15000"})
    torn = killed = 0
    with started() as start:
        writer = start("stream_writer", store, COUNT, seed)
        for _run in range(2):
            reader = start("stream_reader", options, checkpoint, out)
            done = batches_of(checkpoint)
            assert reader.stdout is not None
            assert reader.stdout.readline() == "running\n"
            deadline = time.monotonic() + 200
            target = done + chance.randrange(2, 5)
            while batches_of(checkpoint) < target:
                assert time.monotonic() < deadline, "the stream does not go on"
                if writer.poll() == KILLED or chance.random() < 0.002:
                    torn += writer.poll() == KILLED
                    killed += 1
                    end(writer)  # maybe inside of a record
                    writer = start("stream_writer", store, COUNT, seed + killed)
                elif writer.poll() == 0:
                    break
                time.sleep(0.02)
            time.sleep(chance.random() * 0.4)
            end(reader)
        while writer.wait() != 0:
            torn += writer.returncode == KILLED
            killed += 1
            writer = start("stream_writer", store, COUNT, seed + killed)
    assert written(str(store))[0] == COUNT
    rows = finish(spark, store, checkpoint, out)
    numbers = sorted(int(body.split()[1]) for _offset, body in rows)
    assert numbers == list(range(COUNT))
    items = [item for item in CommitLog(StoreLayout(str(store))).walk() if isinstance(item, LocatedRecord)]
    assert sorted(rows) == [(item.physical_offset, item.record.body) for item in items]
    assert len(CommitLog(StoreLayout(str(store))).segments) > 3
    assert batches_of(checkpoint) > 2
    assert torn > 0


def test_expired_files_stop_a_stream_that_is_not_told_to_skip(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    first, second = log_of(["A"] * 3), log_of(["B"] * 2, base=SIZE)
    layout = store_of(tmp_path, first, second, size=SIZE)
    (Path(layout.root) / "commitlog" / f"{0:020d}").unlink()
    begin = f'{{"{layout.root}": 0}}'

    def run(name: str, **options: str) -> int:
        frame = spark.readStream.format("rocketmq").options(startingPosition=begin, **options).load(layout.root)
        query = (
            frame.writeStream.format("memory").queryName(name)
            .option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return spark.table(name).count()

    with pytest.raises(StreamingQueryException, match=f"the log begins at {SIZE}, and was read up to 0"):
        run("failing")
    assert run("skipping", onExpired="skip") == 2
