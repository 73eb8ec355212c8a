"""dump-to-parquet on two cores compared with two alternatives on one store; the start of Spark is reported separately.

Run as ``python -m tests.bench.dump``. The alternatives: one process that writes our batches with pyarrow, and Spark's
``binaryFile`` with a Python function on the file content, as one would write it without rmqtool. Each round is a
separate process; imports and start-up before reading are not counted.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from tests.bench.make_log import write_log
from tests.bench.measure import ROOT, in_own_process, peak_rss, told

MIB = 1 << 20
BODIES = (128, 2048)
TARGETS = {"writer": 1.7, "udf": 5.0}  # how many times as long they take at least
MASTER = "local[2]"


class Figures(TypedDict):
    """Figures of one run: seconds, rows, bytes of memory of the driver's Python."""

    rows: int
    startup: float
    seconds: float
    peak_rss: int


def dump(store: str, out: str) -> Figures:
    """dump-to-parquet through Spark."""
    from rmqtool.analytics.dump.dump import dump_to_parquet
    from rmqtool.analytics.dump.report import DumpOptions
    from rmqtool.store.layout.paths import StoreLayout

    begun = time.perf_counter()
    report = dump_to_parquet(StoreLayout(store), out, DumpOptions(master=MASTER))
    seconds = time.perf_counter() - begun - report.startup_seconds  # until Spark is gone
    return Figures(rows=report.rows, startup=report.startup_seconds, seconds=seconds, peak_rss=peak_rss())


def writer(store: str, out: str) -> Figures:
    """One process: our batches, a ParquetWriter, nothing else."""
    begun = time.perf_counter()
    import pyarrow as pa
    import pyarrow.parquet as pq

    from rmqtool.analytics.dump.parquet import ROW_GROUP_BYTES, WRITER_OPTIONS
    from rmqtool.analytics.ranges.splits import plan
    from rmqtool.analytics.table.arrow import batches
    from rmqtool.analytics.table.choice import MessageChoice
    from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
    from rmqtool.analytics.table.tally import SplitTally
    from rmqtool.store.layout.paths import StoreLayout
    from rmqtool.store.log.commit_log import CommitLog

    splits, _none = plan(CommitLog(StoreLayout(store)))
    start = time.perf_counter()
    rows = 0
    Path(out).mkdir()
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 3, **WRITER_OPTIONS}
    with pq.ParquetWriter(f"{out}/all.parquet", MESSAGE_SCHEMA, **options) as file:
        waiting: list[pa.RecordBatch] = []
        size = 0
        for split in splits:
            for batch in batches(split, MessageChoice(), SplitTally()):
                waiting.append(batch)
                rows += batch.num_rows
                size += batch.nbytes
                if size >= ROW_GROUP_BYTES:
                    file.write_table(pa.Table.from_batches(waiting))
                    waiting, size = [], 0
        if waiting:
            file.write_table(pa.Table.from_batches(waiting))
    return Figures(rows=rows, startup=start - begun, seconds=time.perf_counter() - start, peak_rss=peak_rss())


def messages_in(content: bytes) -> Iterator[dict[str, Any]]:
    """The messages of a commit-log file, read like in a simple script."""
    from formats.message.read import Record, read
    from rmqtool.contract import message_row

    at = 0
    while isinstance(record := read(content, at, len(content)), Record):
        row = message_row(record, at, "none")
        yield {name: row[name] for name in _UDF_FIELDS} | {"body": record.body}
        at += record.total_size


_UDF_FIELDS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "sysFlag", "flag", "bodyCrc", "bornTimestamp",
    "storeTimestamp", "bornHost", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "offsetMsgId", "msgId",
    "tags", "keys", "properties", "bodyLength",
)  # fmt: skip
_UDF_TYPE = (
    "array<struct<topic string, queueId int, queueOffset long, physicalOffset long, storeSize int, sysFlag int, "
    "flag int, bodyCrc int, bornTimestamp long, storeTimestamp long, bornHost string, storeHost string, "
    "reconsumeTimes int, preparedTransactionOffset long, offsetMsgId string, msgId string, tags string, "
    "keys array<string>, properties map<string, string>, bodyLength int, body binary>>"
)


def udf(store: str, out: str) -> Figures:
    """Spark reads whole files, a Python function parses them, Spark writes."""
    begun = time.perf_counter()
    from pyspark.sql.functions import explode
    from pyspark.sql.functions import udf as function

    from rmqtool.analytics.spark.session import spark_session

    settings = {"spark.driver.memory": "6g", "spark.executorEnv.PYTHONPATH": str(ROOT)}
    with spark_session(MASTER, settings=settings) as spark:
        start = time.perf_counter()
        take_apart = function(lambda content: list(messages_in(bytes(content))), _UDF_TYPE)
        files = spark.read.format("binaryFile").load(f"{store}/commitlog").repartition(2)
        rows = files.select(explode(take_apart("content")).alias("message")).select("message.*")
        rows.write.parquet(out)
        seconds = time.perf_counter() - start
        return Figures(
            rows=spark.read.parquet(out).count(), startup=start - begun, seconds=seconds, peak_rss=peak_rss()
        )


def run(way: str, store: Path, messages: int) -> Figures:
    """Run one alternative in a separate process, with its own output directory."""
    out = store.parent / "out"
    figures: Figures = in_own_process("tests.bench.dump", way, str(store), str(out))
    shutil.rmtree(out)
    assert figures["rows"] == messages, (way, figures, messages)
    return figures


def report(folder: Path, body: int, size: int, rounds: int, udf_size: int) -> dict[str, list[Figures]]:
    """Create logs, measure and print."""
    store, small = folder / "store", folder / "small" / "store"
    messages = write_log(store / "commitlog", body=body, file_size=size, files=1)
    # two files, one for each core: binaryFile knows no parts of a file
    fewer = write_log(small / "commitlog", body=body, file_size=udf_size // 2, files=2)
    figures: dict[str, list[Figures]] = {"dump": [], "writer": [], "udf": []}
    for _ in range(rounds):
        for way in ("dump", "writer"):
            figures[way].append(run(way, store, messages))
    figures["udf"].append(run("udf", small, fewer))
    print(f"{size / MIB:.0f} MiB of {body}-byte bodies, {messages} messages")
    for way, name in (("dump", "dump-to-parquet"), ("writer", "one process")):
        print(f"  {name:16}{told([each['seconds'] for each in figures[way]])}", end="")
        print(f", started in {min(each['startup'] for each in figures[way]):.2f} s", end="")
        print(f", peak memory {max(each['peak_rss'] for each in figures[way]) / MIB:.0f} MiB")
    slow = figures["udf"][0]["seconds"]
    print(f"  binaryFile + UDF {slow:.1f} s for {udf_size / MIB:.0f} MiB, {fewer} messages")
    mine = min(each["seconds"] for each in figures["dump"])
    for way, seconds in (
        ("writer", min(each["seconds"] for each in figures["writer"])),
        ("udf", slow * messages / fewer),
    ):
        print(f"  {way:8} takes {seconds / mine:.2f} times as long, target {TARGETS[way]}")
    return figures


def main() -> None:
    """Measure both kinds of store."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", type=int, default=1024, help="MiB of each store")
    options.add_argument("--udf-size", type=int, default=128, help="MiB of the store that the slow way gets")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", help="where stores are made, instead of the system's temporary directory")
    chosen = options.parse_args()
    for body in BODIES:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            report(Path(folder), body, chosen.size * MIB, chosen.rounds, chosen.udf_size * MIB)


if __name__ == "__main__":
    main()
