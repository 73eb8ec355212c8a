"""Run the dump and the data source on a real standalone cluster on this machine: a master and two workers."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds
import pytest

from rmqtool import NewMessage, Store
from rmqtool.analytics.spark.java import find_java
from rmqtool.errors import MissingRuntime
from rmqtool.testing.embedded import broker
from tests.amounts import only_in_all
from tests.analytics.stores import MESSAGES, day_store
from tests.cli.running import RMQTOOL

# prints (process of the worker, rows) of each task
_TASKS = """
import json, os, sys
import rmqtool
from pyspark.sql import SparkSession
spark = SparkSession.builder.master(sys.argv[1]).getOrCreate()
rmqtool.register(spark)
frame = spark.read.format("rocketmq").option("namesrv", sys.argv[2]).option("subscribe", "Orders")
frame = frame.option("maxRecordsPerPartition", "5000").load().select("queueOffset")
def count(batches):
    import os, pyarrow as pa
    yield pa.RecordBatch.from_pydict({"worker": [os.getppid()], "rows": [sum(batch.num_rows for batch in batches)]})
rows = frame.mapInArrow(count, "worker long, rows long").collect()
print(json.dumps([(row.worker, row.rows) for row in rows]))
"""
pytestmark = [only_in_all, pytest.mark.spark, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).parents[2]


class Cluster(NamedTuple):
    """Address of the cluster, and logs of its workers."""

    master: str
    work: list[Path]
    environ: dict[str, str]
    log: Path

    def run(self, *args: object) -> "subprocess.CompletedProcess[str]":
        """Run a driver on this cluster."""
        return subprocess.run(
            [sys.executable, *map(str, args)],
            cwd=ROOT, env=self.environ, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def executors(self) -> list[set[str]]:
        """Applications for which each worker has run executors."""
        return [{path.name for path in work.glob("app-*") if any(path.iterdir())} for work in self.work]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        java = find_java()
    except MissingRuntime as err:
        pytest.skip(str(err))
    import pyspark

    home = Path(pyspark.__file__).parent
    folder = tmp_path_factory.mktemp("cluster")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {
        **os.environ, "SPARK_HOME": str(home), "JAVA_HOME": java.home, "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(folder),
        # eight JVMs that live for seconds each: their compiler would take most of the time
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }  # fmt: skip
    package, master = "org.apache.spark.deploy", f"spark://127.0.0.1:{port}"
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    work = [folder / "one", folder / "two"]
    calls = [[f"{package}.master.Master", "--port", str(port), *common]]
    worker = [f"{package}.worker.Worker", "--cores", "1", "--memory", "2g", *common]
    calls += [[*worker, "--work-dir", str(path), master] for path in work]
    with ExitStack() as stack:
        for number, call in enumerate(calls):
            log = stack.enter_context((folder / f"log-{number}").open("w+"))
            process = subprocess.Popen([str(home / "bin" / "spark-class"), *call], env=environ, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)  # spark-class has become the Java process
        wait_for(folder / "log-0", "Registering worker", 2)
        yield Cluster(master, work, environ, folder / "log-0")


def wait_for(log: Path, text: str, count: int) -> None:
    deadline = time.monotonic() + 120
    while log.read_text().count(text) < count:
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)


def test_the_dump_and_the_data_source_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    layout = day_store(tmp_path)
    out = tmp_path / "out"
    args = ["dump-to-parquet", layout.root, out, "--master", cluster.master, "--split-mb", 1, "-o", "json"]
    done = cluster.run(*RMQTOOL[1:], *args)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == MESSAGES
    assert cluster.master in report["spark"]
    table = ds.dataset(out, partitioning="hive").to_table(columns=["msgId"])
    assert set(table["msgId"].to_pylist()) == {f"U{number}" for number in range(MESSAGES)}
    first, second = cluster.executors()
    assert first & second, "one worker did it all"
    # the data source, as a job that spark-submit starts
    submit = [
        str(Path(sys.executable).with_name("spark-submit")), "--master", cluster.master,
        "examples/spark_source.py", layout.root, "topic-07",
    ]  # fmt: skip
    done = subprocess.run(
        submit, cwd=ROOT, env=cluster.environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:3] == ["store", "topic-07", str(MESSAGES // 50)]


def test_a_queue_with_most_messages_is_shared_by_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    sizes = [36_000, 1000, 1000, 1000, 1000]
    queues = [queue for queue, size in enumerate(sizes) for _ in range(size)]
    with Store.create(tmp_path / "store") as store:
        store.append_many([NewMessage(topic="Orders", queue_id=queue, body=b"x") for queue in queues])
    with broker(tmp_path / "store") as served:
        done = cluster.run("-c", _TASKS, cluster.master, served.namesrv)
    assert done.returncode == 0, done.stderr
    tasks = json.loads(done.stdout.splitlines()[-1])
    assert sum(rows for _worker, rows in tasks) == sum(sizes)
    assert max(rows for _worker, rows in tasks) <= 5000
    rows_of = Counter[int]()
    for worker, rows in tasks:
        rows_of[worker] += rows
    assert len(rows_of) == 2
    assert max(rows_of.values()) <= 2 * min(rows_of.values())


def test_a_dump_that_no_worker_has_room_for(cluster: Cluster, tmp_path: Path) -> None:
    layout = day_store(tmp_path)
    (tmp_path / "spark-defaults.conf").write_text("spark.executor.memory 8g\n")
    args = [*RMQTOOL, "dump-to-parquet", layout.root, tmp_path / "out", "--master", cluster.master]
    environ = {**cluster.environ, "SPARK_CONF_DIR": str(tmp_path)}
    process = subprocess.Popen(
        [*map(str, args)], cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        begun = time.monotonic()
        stderr = process.stderr.readline()
        assert stderr.startswith(
            f"waiting for {cluster.master}: no task has begun in 10 s. Each executor needs 8g of memory"
        )
        assert time.monotonic() - begun < 90
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143
        wait_for(cluster.log, "Received unregister request", 1)
    finally:
        process.kill()
        process.communicate()
    assert not (tmp_path / "out").exists()


def test_a_master_that_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        args = [*RMQTOOL, "dump-to-parquet", day_store(tmp_path).root, tmp_path / "out", "--master", master]
        process = subprocess.Popen([*map(str, args)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith(f"waiting for {master}: it has not answered in 10 s.")
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 143
        finally:
            process.kill()
            process.communicate()
    assert not (tmp_path / "out").exists()
