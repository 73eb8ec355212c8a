"""The real broker and ours, by the same Java clients, in one run: rates of sends and of draining, times of sends.

Run as ``python -m tests.bench.serve [--release 4.9.8|5.3.3] [--messages N]``. Each figure is taken where the clients
are, which share the machine with the broker.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.interop.broker import VERSIONS, Broker
from tests.interop.serving import Serving

WANTED = {"1 thread": 0.5, "16 threads": 0.5, "64 threads": 0.5, "batches of 100": 1.0, "drain": 0.9}
MOST_P99 = 2.0


def measured(broker: Broker, messages: int) -> dict[str, float]:
    """Messages a second of each kind, and ms under ``p50`` and ``p99``."""

    def rate(count: int, threads: int, batch: int = 1) -> float:
        topic = "Batches" if batch > 1 else "Singles"
        given: dict[str, Any] = {"topic": topic, "count": count, "threads": threads, "batch": batch, "size": 128}
        broker.ask("rate", **{**given, "count": count // 10})  # what a new connection and a new topic cost is left out
        told = broker.ask("rate", **given)
        assert not told["failed"], told
        return float(told["rate"])

    found = {
        f"{threads} thread{'s' * (threads > 1)}": rate(5_000 * min(threads, 8), threads) for threads in (1, 16, 64)
    }
    found["batches of 100"] = rate(messages, 4, 100)
    told = broker.ask("drain", group="draining", topic="Batches", count=messages + messages // 10)
    assert told["all"], told
    found["drain"] = float(told["rate"])
    paced = broker.ask("paced", topic="Singles", rate=2_000, seconds=10)
    return found | {"p50": float(paced["p50"]), "p99": float(paced["p99"])}


def report(release: str, messages: int) -> dict[str, float]:
    """Measure both and print; our figures as multiples of the real broker's."""
    with tempfile.TemporaryDirectory(prefix="bench-serve-") as work, Broker(release) as broker:

        def real() -> dict[str, float]:
            store = Path(work, "real")
            store.mkdir()
            broker.boot(store, {})
            return measured(broker, messages)

        def ours() -> dict[str, float]:
            with Serving(Path(work, "ours"), "--create", "--engine", broker.engine) as serving:
                broker.connect(serving.namesrv, serving.broker)
                found = measured(broker, messages)
                broker.stop()
                assert serving.end()[0] == 0
                return found

        sides: list[Callable[[], dict[str, float]]] = [real, ours]
        wanted, got = (side() for side in sides)
    ratios = {name: got[name] / wanted[name] for name in wanted}
    for name, ratio in ratios.items():
        unit = "ms" if name.startswith("p") else "/s"
        limit = MOST_P99 if name == "p99" else WANTED.get(name, 0)
        print(f"{name:15}  {wanted[name]:12,.2f}  {got[name]:12,.2f} {unit}  {ratio:6.2f}  (wanted {limit or '-'})")
    return ratios


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", choices=VERSIONS, default="4.9.8")
    parser.add_argument("--messages", type=int, default=1_000_000, help="that are sent in batches, and drained")
    given = parser.parse_args()
    report(given.release, given.messages)


if __name__ == "__main__":
    main()
