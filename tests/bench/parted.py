"""dump-to-parquet partitioned by many topics, or by bucket, compared with the unpartitioned dump and the cost of files.

Run as ``python -m tests.bench.parted``. The floor is pyarrow alone: as many directories, each with one file written by
:func:`pyarrow.parquet.write_table` with default options, by as many processes as the dump has, then one ``sync``. No
layout with a directory per topic is cheaper with pyarrow. Each round is a separate process, and the start of Spark is
not counted.
"""

import argparse
import os
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from formats.layouts.derived import HEAD_V4_V4
from formats.message.build import build_blank, compose, pack
from tests.bench.measure import Workers, in_own_process, told

CORES = 2
MIB = 1 << 20
MASTER = f"local[{CORES}]"
_CHUNK = 50_000  # messages made at once
_SPREAD = 7919  # a prime: neighbours in the log have topics that are far apart


class Figures(TypedDict):
    """Figures of one run; peak_rss is that of the largest Python worker."""

    rows: int
    files: int
    seconds: float
    peak_rss: int


def write_store(folder: Path, messages: int, topics: int, body: int = 200) -> None:
    """One commit-log file of messages, the n-th of topic ``n * 7919 % topics``."""
    numbers = np.arange(messages, dtype=np.int64)
    record = np.frombuffer(
        pack(
            compose(
                topic=b"T%08d" % 0, queue_id=0, queue_offset=0, physical_offset=0, body=os.urandom(body),
                properties=b"KEYS\x01k00000000\x02TAGS\x01paid\x02", born_timestamp=1_700_000_000_000,
                born_address=bytes([192, 0, 2, 10]), born_port=51234, store_timestamp=1_700_000_000_002,
                store_address=bytes([198, 51, 100, 7]), store_port=10911,
            )
        ),
        np.uint8,
    )  # fmt: skip
    name, key = (record.tobytes().index(mark) + 1 for mark in (b"T00000000", b"k00000000"))
    log = folder / "commitlog"
    log.mkdir(parents=True)
    with (log / f"{0:020d}").open("wb") as file:
        for first in range(0, messages, _CHUNK):
            some = numbers[first : first + _CHUNK]
            made = np.tile(record, (len(some), 1))
            for field, values in (("queue_offset", some // topics), ("physical_offset", some * len(record))):
                at = HEAD_V4_V4.offsets[field]
                made[:, at : at + 8] = values.astype(">i8").view(np.uint8).reshape(-1, 8)
            for at, values in ((name, some * _SPREAD % topics), (key, some)):
                for digit in range(8):
                    made[:, at + digit] = ord("0") + values // 10 ** (7 - digit) % 10
            file.write(made.data)
        file.write(build_blank(4096))


def dump(store: str, out: str, by: str) -> Figures:
    """dump-to-parquet through Spark."""
    from rmqtool.analytics.dump.dump import dump_to_parquet
    from rmqtool.analytics.dump.report import DumpOptions
    from rmqtool.store.layout.paths import StoreLayout

    begun = time.perf_counter()
    options = DumpOptions(master=MASTER, partition_by=(by,) if by else ())
    with Workers() as workers:
        report = dump_to_parquet(StoreLayout(store), out, options)
    seconds = time.perf_counter() - begun - report.startup_seconds
    return Figures(rows=report.rows, files=report.files, seconds=seconds, peak_rss=workers.peak_rss)


def floor(store: str, out: str, topics: int) -> Figures:
    """Write only directories and files with some rows each; rows are read and sorted before."""
    import pyarrow as pa

    from rmqtool.analytics.ranges.splits import plan
    from rmqtool.analytics.table.arrow import batches
    from rmqtool.analytics.table.choice import MessageChoice
    from rmqtool.analytics.table.tally import SplitTally
    from rmqtool.store.layout.paths import StoreLayout
    from rmqtool.store.log.commit_log import CommitLog

    splits, _none = plan(CommitLog(StoreLayout(store)))
    table = pa.Table.from_batches(
        [batch for split in splits for batch in batches(split, MessageChoice(), SplitTally())]
    )
    each = max(table.num_rows // topics, 1)
    some = table.slice(0, 10_000 * each).combine_chunks()
    Path(out).mkdir()
    del table
    begun = time.perf_counter()
    workers = Workers()
    pools = ProcessPoolExecutor(CORES, get_context("fork"), initializer=_keep, initargs=(some, each))
    with workers, pools as pool:
        list(pool.map(_write, [(out, first, min(first + 1000, topics)) for first in range(0, topics, 1000)]))
    os.sync()
    return Figures(rows=each * topics, files=topics, seconds=time.perf_counter() - begun, peak_rss=workers.peak_rss)


_kept: Any = None


def _keep(*value: Any) -> None:
    global _kept
    _kept = value


def _write(job: tuple[str, int, int]) -> None:
    import pyarrow.parquet as pq

    rows, each = _kept
    out, first, stop = job
    for topic in range(first, stop):
        folder = f"{out}/topicDir=T{topic:08d}"
        os.mkdir(folder)
        at = topic * each % (rows.num_rows - each + 1)
        pq.write_table(rows.slice(at, each), f"{folder}/part-{0:020d}.parquet", compression="zstd")


def report(folder: Path, messages: int, topics: int, rounds: int) -> dict[str, list[Figures]]:
    """Create a store, measure and print."""
    store, out = folder / "store", folder / "out"
    write_store(store, messages, topics)
    ways: dict[str, tuple[str, Any]] = {
        "unparted": ("dump", ""),
        "topics": ("dump", "topic"),
        "buckets": ("dump", "bucket"),
        "floor": ("floor", topics),
    }
    figures: dict[str, list[Figures]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (function, argument) in ways.items():
            made: Figures = in_own_process("tests.bench.parted", function, str(store), str(out), argument)
            figures[way].append(made)
            shutil.rmtree(out)
            os.sync()
    print(f"{messages} messages of {topics} topics")
    for way, each in figures.items():
        print(f"  {way:10}{told([row['seconds'] for row in each])}, {each[0]['files']} files,", end=" ")
        print(f"largest worker {max(row['peak_rss'] for row in each) / MIB:.0f} MiB")
    best = {way: min(row["seconds"] for row in each) for way, each in figures.items()}
    print(f"  by buckets: {best['buckets'] / best['unparted']:.1f} times as long as unparted")
    print(f"  by topics: {best['topics'] / best['unparted']:.1f} times as long as unparted,", end=" ")
    print(f"{best['topics'] / best['floor']:.2f} times as long as the files alone")
    return figures


def main() -> None:
    """Measure according to the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--topics", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--folder", help="where stores are made, instead of the system's temporary directory")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        report(Path(folder), chosen.messages, chosen.topics, chosen.rounds)


if __name__ == "__main__":
    main()
