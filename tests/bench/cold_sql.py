"""A query on a small store from a cold start: ``rmqtool sql`` compared with default Spark on the same store.

Run as ``python -m tests.bench.cold_sql``. Each run is a complete process, including the start of Python; both take
turns. Default Spark is ``SparkSession.builder.getOrCreate()`` on the same Java, reading the store through the data
source. ``--warm-up`` first creates the class archive of ``rmqtool warm-up``.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rmqtool.analytics.spark.java import find_java
from tests.bench.make_log import write_log
from tests.bench.measure import ROOT, told

_RMQTOOL = str(Path(sys.executable).with_name("rmqtool"))
TARGET = 0.6  # of Spark's time
_QUERY = "SELECT topic, count(*) FROM messages GROUP BY topic ORDER BY topic"
_STOCK = f"""
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.read.format("rocketmq").load(sys.argv[1]).createOrReplaceTempView("messages")
for row in spark.sql("{_QUERY}").collect():
    print(row[0], row[1], sep=",")
spark.stop()
"""


def report(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Create a store, measure and print."""
    store = folder / "store"
    write_log(store / "commitlog", body=128, file_size=4 << 20, files=1)
    ways = {
        "rmqtool sql": [_RMQTOOL, "sql", str(store), _QUERY, "--output", "csv"],
        "Spark as it comes": [sys.executable, "-c", _STOCK, str(store)],
    }
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAVA_HOME": find_java().home,
        "PYSPARK_PYTHON": sys.executable,
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    answers = set()
    for _ in range(rounds):
        for way, command in ways.items():
            start = time.perf_counter()
            result = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
            seconds[way].append(time.perf_counter() - start)
            answers.add("\n".join(line for line in result.stdout.splitlines() if line.rpartition(",")[2].isdecimal()))
    assert len(answers) == 1, answers
    for way, each in seconds.items():
        print(f"  {way:18}{told(each)}")
    ours, stock = map(min, seconds.values())
    print(f"  ours takes {ours / stock:.2f} of the time, target {TARGET}")
    return seconds


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--warm-up", action="store_true")
    chosen = options.parse_args()
    if chosen.warm_up:
        subprocess.run([_RMQTOOL, "warm-up"], check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder), chosen.rounds)


if __name__ == "__main__":
    main()
