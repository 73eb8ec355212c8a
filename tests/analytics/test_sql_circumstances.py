"""``sql`` with closed pipes, few descriptors, and killed processes."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqtool.analytics.dump import tasks
from rmqtool.analytics.sql.query import translate_errors
from rmqtool.errors import RmqError
from tests.amounts import by_turns, only_in_all
from tests.analytics.helpers import log_of, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).parents[2]


def running(tmp_path: Path, command: str, *arguments: object, files: str = "") -> "subprocess.Popen[str]":
    args = [sys.executable, "-m", "rmqtool.main", *map(str, arguments)]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    environ.pop("SPARK_LOCAL_DIRS", None)
    return subprocess.Popen(
        ["bash", "-c", f'{files}{command.replace("RMQTOOL", chr(34) + "$@" + chr(34))}', "bash", *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=ROOT,
    )  # fmt: skip


@by_turns(13)
def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    store_of(tmp_path, log_of(["A", "B"] * 5000))
    query = "select topic, physicalOffset, body from messages"
    done = running(tmp_path, "RMQTOOL | head -2", "sql", tmp_path / "store", query, "-o", "ndjson")
    out, err = done.communicate(timeout=120)
    assert out.count("\n") == 2
    assert err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@only_in_all
def test_too_few_open_files_are_told(tmp_path: Path) -> None:
    store_of(tmp_path, log_of(["A"]))
    limited = "ulimit -n 256; "
    done = running(tmp_path, "exec RMQTOOL", "sql", tmp_path / "store", "select 1", files=limited)
    _out, err = done.communicate(timeout=120)
    assert done.returncode == 6
    assert "at most 256 files may be open here, and Spark needs more: ulimit -n 1024" in err
    assert err.count("\n") == 1


def test_a_python_worker_that_is_killed_is_told(spark: "SparkSession") -> None:
    def die(_number: int) -> int:
        os.kill(os.getpid(), 9)
        return 0

    text = "a Python worker of Spark's ended before it was done: it was killed, or the memory did not suffice"
    with pytest.raises(RmqError) as failed:
        tasks._collect(spark.sparkContext.parallelize([1], 1).map(die))
    assert str(failed.value) == f"Spark job failed: {text}"
    with pytest.raises(RmqError) as failed, translate_errors():
        spark.sparkContext.parallelize([1], 1).map(die).collect()
    assert str(failed.value) == text


@only_in_all
def test_a_java_that_is_killed_is_told(tmp_path: Path) -> None:
    store_of(tmp_path, log_of(["A"]))
    endless = "select sum(a.id % 7 * b.id) from range(10000000) a cross join range(10000000) b"
    done = running(tmp_path, "exec RMQTOOL", "sql", tmp_path / "store", endless)
    while not list(tmp_path.glob("rmqtool-sql-*")):  # Spark runs
        assert done.poll() is None
        time.sleep(0.05)
    (java,) = (
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.read_text().rpartition(")")[2].split()[1] == str(done.pid)
    )
    os.kill(java, 9)
    _out, err = done.communicate(timeout=120)
    assert done.returncode in (3, 6), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
