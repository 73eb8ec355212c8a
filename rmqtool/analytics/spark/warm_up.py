"""Stores Spark's loaded and verified Java classes in an archive (:mod:`rmqtool.analytics.spark.archive`)."""

import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtool.analytics.ranges.splits import Split
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.spark.archive import archive_of
from rmqtool.analytics.spark.failure import failure
from rmqtool.analytics.spark.java import find_java, need_bash
from rmqtool.analytics.spark.session import StartedSpark, session_of
from rmqtool.analytics.spark.where import SparkCondition
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.errors import MissingRuntime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Result of a warm-up. Times are in seconds, sizes in bytes.

    Attributes:
        java: the Java that Spark runs on.
        archive: path of the archive.
        start_before: time from the start of Spark to the end of a first small job, without the archive.
        start_after: the same with the archive.
    """

    java: str
    archive: str
    bytes: int
    start_before: float
    start_after: float


def warm_up() -> WarmUp:
    """Create the archive for the Java that Spark uses, and measure its effect.

    Raises:
        MissingRuntime: there is no suitable Java, Spark does not start, or this Java cannot create archives.
    """
    java = find_java()
    need_bash()
    path = archive_of(java)
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".new")
    os.close(descriptor)
    os.unlink(temporary)  # the JVM creates it
    try:
        without = _timed_start([])
        reason = _run_and_keep(temporary)
        if not os.path.exists(temporary):
            raise MissingRuntime(f"{java} cannot write an archive of classes: {reason}")
        os.chmod(temporary, 0o600)
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return WarmUp(str(java), path, os.path.getsize(path), without, _timed_start(None))


def _timed_start(java_options: list[str] | None) -> float:
    began = time.monotonic()
    started = StartedSpark("local[1]", {}, brief=True, java_options=java_options)
    try:
        started.running.parallelize([0], 1).count()
        return time.monotonic() - began
    finally:
        started.stop()


def _run_and_keep(path: str) -> str:
    """Load most of the classes that commands use; the JVM writes the archive at exit. Return what it printed last."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    started = StartedSpark("local[1]", {}, brief=True, java_options=[f"-XX:ArchiveClassesAtExit={path}"])
    try:
        _use(session_of(started.running), started.jvm.work_dir)
    except (Py4JError, PySparkException) as err:
        raise MissingRuntime(f"Spark does not work: {failure(err)}") from err
    finally:
        reason = started.finish()
    return reason


def _use(spark: "SparkSession", folder: str) -> None:
    spark.sparkContext.parallelize([0], 1).count()
    everything = SparkCondition(
        spark, "length(topic) > 0 and storeTimestamp > '2020-01-01' and properties['a'] is null"
    )
    log = os.path.join(folder, f"{0:020d}")
    with open(log, "wb") as file:
        file.write(bytes(4096))
    split = Split(0, log, 0, 4096, 0, 4096, last=True, exact=True)
    everything.select([split], MessageChoice(), Folder(os.path.join(folder, "selected")))
    frame = spark.range(1000).selectExpr("id % 7 as a", "cast(id as string) as b", "timestamp_millis(id) as c")
    frame.write.parquet(os.path.join(folder, "frame"))
    frame = spark.read.parquet(os.path.join(folder, "frame"))
    frame.createOrReplaceTempView("frame")
    frame.groupBy("a").count().join(spark.sql("select a, max(c) from frame group by a"), "a").orderBy("a").collect()
    hours = "select date_trunc('hour', c) h, count(*) n, collect_set(b) s from frame group by 1 having n > 1 order by n"
    spark.sql(hours).collect()
