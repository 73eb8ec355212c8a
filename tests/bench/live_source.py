"""The live source of Spark beside Java's client over the same topic of a real broker: messages a second.

Run as ``python -m tests.bench.live_source [--release 4.9.8|5.3.3] [--messages N] [--size BYTES]``. Java's push consumer
drains the topic; Spark, with two cores, reads all columns of all messages and writes them nowhere. Spark runs before
the clock does. Compared are the time on the clock, and the processor time of all processes, the broker's too, which
decides on a machine that others use.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtool.analytics.spark.session import session_of, spark_context
from tests.bench.measure import processor_time
from tests.interop.broker import VERSIONS, Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WANTED = 0.7
_ROUNDS = 3


def read_all(spark: "SparkSession", namesrv: str, messages: int) -> float:
    """Messages a second of the source."""
    frame = spark.read.format("rocketmq").options(namesrv=namesrv, subscribe="Backlog", minPartitions="8").load()
    begun = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - begun
    return messages / seconds


def report(release: str, messages: int, size: int) -> float:
    """Measure both in turn and print; returns the best ratio of a round."""
    best = 0.0
    with (
        tempfile.TemporaryDirectory(prefix="bench-live-") as work,
        Broker(release) as broker,
        spark_context("local[2]") as context,
    ):
        spark = session_of(context)
        broker.boot(Path(work, "store"), {})
        sent = broker.ask("rate", topic="Backlog", count=messages, threads=4, batch=100, size=size)
        assert not sent["failed"], sent
        frame = spark.read.format("rocketmq").options(namesrv=broker.namesrv, subscribe="Backlog").load()
        assert frame.count() == messages
        for turn in range(_ROUNDS):
            begun = processor_time()
            java = broker.ask("drain", group=f"java-{turn}", topic="Backlog", count=messages)
            assert java["all"], java
            between = processor_time()
            ours = read_all(spark, broker.namesrv, messages)
            used = [(between - begun) / messages * 1e6, (processor_time() - between) / messages * 1e6]
            ratio = used[0] / used[1]
            best = max(best, ratio)
            print(
                f"{release}  java {java['rate']:>9,.0f}/s, {used[0]:.1f} us of the processor a message  "
                f"ours {ours:>9,.0f}/s, {used[1]:.1f} us  {ratio:.2f} by the processor (wanted {WANTED}; "
                f"load {os.getloadavg()[0]:.1f})",
                flush=True,
            )
        broker.stop()
    return best


def main() -> int:
    """Run and print the result."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live_source", description=__doc__)
    parser.add_argument("--release", choices=VERSIONS, help="of the broker and the Java client; else both")
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=300)
    chosen = parser.parse_args()
    result = [
        report(release, chosen.messages, chosen.size) for release in ([chosen.release] if chosen.release else VERSIONS)
    ]
    return 0 if min(result) >= WANTED else 1


if __name__ == "__main__":
    raise SystemExit(main())
