"""The data source over a store beside Spark over the Parquet dump of the same store, and a dump through it.

Run as ``python -m tests.bench.source [--messages N] [--body BYTES] [--rounds N]``. One Spark on two cores does all of
it, by turns, after each query has run once: a query of one column; all columns read and written nowhere; and the store
written to Parquet by the data source, beside Spark copying the dump, and beside ``dump-to-parquet``. Compared are the
time on the clock and the processor time of all processes, which decides on a machine that others use.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import rmqtool
from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.analytics.spark.session import session_of, spark_context
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import recover
from tests.bench.make_log import write_log
from tests.bench.measure import processor_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WANTED = 1.3
_FILE = 1 << 30
Figures = dict[str, list[tuple[float, float]]]
"""By what was measured: (seconds, processor seconds) of each round."""


def count_topics(frame: "DataFrame") -> None:
    """A query of one column."""
    frame.groupBy("topic").count().collect()


def read_all(frame: "DataFrame") -> None:
    """All columns of all rows."""
    frame.write.format("noop").mode("overwrite").save()


def report(folder: Path, messages: int, body: int, rounds: int) -> Figures:
    """Make a store and its dump, measure all in turn and print the ratios."""
    store, dumped = folder / "store", folder / "dumped"
    made = write_log(store / "commitlog", body=body, file_size=_FILE, messages=messages)
    layout = StoreLayout(str(store))
    recover(layout)
    written = DumpOptions(overwrite=True, codec="snappy")  # as Spark writes
    with spark_context("local[2]", brief=False) as context:
        spark = session_of(context)
        rmqtool.register(spark)
        dump_to_parquet(layout, str(dumped), written)
        source = spark.read.format("rocketmq").load(str(store))
        parquet = spark.read.parquet(str(dumped))
        assert source.count() == parquet.count() == made
        out = str(folder / "written")
        pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "one column": (lambda: count_topics(source), lambda: count_topics(parquet)),
            "all columns": (lambda: read_all(source), lambda: read_all(parquet)),
            "to Parquet, beside Spark's copy": (
                lambda: source.write.mode("overwrite").parquet(out),
                lambda: parquet.write.mode("overwrite").parquet(out),
            ),
            "to Parquet, beside a dump": (
                lambda: source.write.mode("overwrite").parquet(out),
                lambda: dump_to_parquet(layout, str(folder / "again"), written),
            ),
        }
        figures: Figures = {}
        for turn in range(rounds + 1):
            for name, ways in pairs.items():
                for side, way in zip(("source", "beside"), ways, strict=True):
                    taken = _measured(way)
                    if turn:
                        figures.setdefault(f"{name}, {side}", []).append(taken)
    for name in pairs:
        seconds, used = (
            [median(taken[which] for taken in figures[f"{name}, {side}"]) for side in ("source", "beside")]
            for which in (0, 1)
        )
        print(
            f"{made} messages of {body} bytes, {name}: {seconds[0]:.2f} s beside {seconds[1]:.2f} s, "
            f"{seconds[0] / seconds[1]:.2f} by the clock; processor {used[0]:.2f} s beside {used[1]:.2f} s, "
            f"{used[0] / used[1]:.2f} (wanted {WANTED}; load {os.getloadavg()[0]:.1f})",
            flush=True,
        )
    return figures


def _measured(way: Callable[[], object]) -> tuple[float, float]:
    begun, used = time.perf_counter(), processor_time()
    way()
    return time.perf_counter() - begun, processor_time() - used


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.source", description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--body", type=int, default=300, help="bytes of a body")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", help="where the store is made, instead of the system's temporary directory")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        report(Path(folder), chosen.messages, chosen.body, chosen.rounds)


if __name__ == "__main__":
    main()
