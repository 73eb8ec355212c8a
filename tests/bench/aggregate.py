"""An aggregate that needs two columns beside the same one over all of them; the start of Spark is told apart.

Run as ``python -m tests.bench.aggregate``. Once as ``rmqtool sql`` answers it, which finds out by itself what the query
needs, beside the same with that taken away; and once by the data source, which Spark asks for the columns of the schema
that it is given, beside no schema. Each way has processes of its own. A process starts Spark and answers the query over
a small store first: what is only paid once, for a store of any size, is not counted. Then it is asked several times:
the first time Java has yet to compile what many rows go through, from the second on it is warm. Both are told.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from tests.bench.make_log import write_log
from tests.bench.measure import in_own_process, peak_rss, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
BODIES = (128, 2048)
TARGET = 3.0  # how many times as long it takes over all columns at least
MASTER = "local[2]"
_SMALL = 4 * MIB
NAMES = {
    "pruned": "sql",
    "unpruned": "sql, all columns",
    "schema": "data source",
    "whole": "data source, all columns",
}
_PAIRS = (("pruned", "unpruned"), ("schema", "whole"))
_QUERY = "SELECT topic, count(*), sum(bodyLength) FROM messages GROUP BY topic ORDER BY topic"


class Figures(TypedDict):
    """Of one process.

    (topic, messages, bytes of bodies) of each topic; seconds, of each time that it was asked; bytes of memory of the
    driver's Python.
    """

    rows: list[list[Any]]
    startup: float
    seconds: list[float]
    peak_rss: int


def pruned(store: str, small: str, times: int) -> Figures:
    """As ``rmqtool sql`` does it."""
    return _measured(_answer, store, small, times)


def unpruned(store: str, small: str, times: int) -> Figures:
    """With every column decoded."""
    from rmqtool.analytics.sql import query as sql

    needs = vars(sql)["needs"]

    def all_columns(*args: Any) -> Any:
        return {table: replace(need, columns=None) for table, need in needs(*args).items()}

    vars(sql)["needs"] = all_columns
    return pruned(store, small, times)


def schema(store: str, small: str, times: int) -> Figures:
    """By the data source, told which columns."""
    return _measured(partial(_read, columns="topic string, bodyLength int"), store, small, times)


def whole(store: str, small: str, times: int) -> Figures:
    """By the data source as it is loaded."""
    return _measured(_read, store, small, times)


def _answer(_spark: "SparkSession", store: str) -> list[list[Any]]:
    from rmqtool.analytics.source.plan import request_of
    from rmqtool.analytics.sql.query import answer

    with answer(request_of({"path": store}), _QUERY) as answered:
        return [list(row) for row in answered.rows()]


def _read(spark: "SparkSession", store: str, columns: str | None = None) -> list[list[Any]]:
    reader = spark.read.format("rocketmq")
    (reader.schema(columns) if columns else reader).load(store).createOrReplaceTempView("messages")
    return [list(row) for row in spark.sql(_QUERY).collect()]


def _measured(ask: "Callable[[SparkSession, str], list[list[Any]]]", store: str, small: str, times: int) -> Figures:
    begun = time.perf_counter()
    from rmqtool.analytics.dump import daemon
    from rmqtool.analytics.spark.session import session_of, spark_context

    seconds = []
    # as ``sql`` starts it for a store of this size, and as data sources are read: Java compiles what it runs often
    with spark_context(MASTER, worker_daemon=daemon.__name__, brief=False) as context:
        spark = session_of(context)
        ask(spark, small)
        started = time.perf_counter()
        for _ in range(times):
            start = time.perf_counter()
            rows = ask(spark, store)
            seconds.append(time.perf_counter() - start)
    return Figures(rows=rows, startup=started - begun, seconds=seconds, peak_rss=peak_rss())


def run(way: str, store: Path, small: Path, times: int, messages: int) -> Figures:
    """One way, in a process of its own."""
    figures: Figures = in_own_process("tests.bench.aggregate", way, str(store), str(small), times)
    assert sum(row[1] for row in figures["rows"]) == messages, (way, figures, messages)
    return figures


def report(folder: Path, body: int, size: int, processes: int, times: int) -> dict[str, list[Figures]]:
    """Make a log with its queues, measure and print."""
    from rmqtool.store.layout.paths import StoreLayout
    from rmqtool.store.recovery.command import recover

    store, small = folder / "store", folder / "small" / "store"
    messages = write_log(store / "commitlog", body=body, file_size=size, files=1)
    write_log(small / "commitlog", body=body, file_size=_SMALL, files=1)
    for made in (store, small):
        recover(StoreLayout(str(made)))
    figures: dict[str, list[Figures]] = {way: [] for way in NAMES}
    for _ in range(processes):
        for way, runs in figures.items():
            runs.append(run(way, store, small, times, messages))
    assert len({str(each["rows"]) for runs in figures.values() for each in runs}) == 1
    print(f"{size / MIB:.0f} MiB of {body}-byte bodies, {messages} messages: {_QUERY}")
    for way, name in NAMES.items():
        first, warm = _apart(figures[way])
        print(f"  {name:25} first {told(first)}")
        if warm:
            print(f"  {'':25} warm  {told(warm)}")
        print(f"  {'':25} started in {min(each['startup'] for each in figures[way]):.2f} s", end="")
        print(f", peak memory {max(each['peak_rss'] for each in figures[way]) / MIB:.0f} MiB")
    for few, every in _PAIRS:
        first_ratio, *warm_ratios = (
            min(each) / min(fewer)
            for each, fewer in zip(_apart(figures[every]), _apart(figures[few]), strict=True)
            if fewer
        )
        told_warm = f"{warm_ratios[0]:.2f} times as long warm and " if warm_ratios else ""
        print(f"  {NAMES[every]} takes {told_warm}{first_ratio:.2f} times as long at first, target {TARGET}")
    return figures


def _apart(runs: list[Figures]) -> tuple[list[float], list[float]]:
    """The seconds of the first time of each process, and of all others."""
    return [each["seconds"][0] for each in runs], [
        seconds_later for each in runs for seconds_later in each["seconds"][1:]
    ]


def main() -> None:
    """Measure both kinds of store."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", type=int, default=1024, help="MiB of each store")
    options.add_argument("--body", type=int, action="append", help="bytes of a body; 128 and 2048 without it")
    options.add_argument("--processes", type=int, default=1, help="of each way")
    options.add_argument("--rounds", type=int, default=20, help="times that a process is asked")
    options.add_argument("--folder", help="where stores are made, instead of the system's temporary directory")
    chosen = options.parse_args()
    for body in chosen.body or BODIES:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            report(Path(folder), body, chosen.size * MIB, chosen.processes, chosen.rounds)


if __name__ == "__main__":
    main()
