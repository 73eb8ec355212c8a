"""The real broker and ours with the same Java clients in one run: rates of sends and of draining, send latencies.

Run as ``python -m tests.bench.serve [--release 4.9.8|5.3.3] [--messages N] [--rounds N]``. Both run all the time, and
each figure is measured on both in turn, so that other load affects both; the median of the rounds counts. Figures are
measured by the clients, on the broker's machine. CPU time of both sides, including clients, is printed too: on a shared
machine, a single-threaded process gets less CPU than a multi-threaded one, and rates mean little.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.interop.broker import VERSIONS, Broker
from tests.interop.serving import Serving

WANTED = {"1 thread": 0.5, "16 threads": 0.5, "64 threads": 0.5, "batches of 100": 1.0, "drain": 0.9}
MOST_P99 = 2.0
_SENDS = {"1 thread": 5_000, "16 threads": 40_000, "64 threads": 40_000}  # messages of a round
Take = Callable[[Broker, int], float]


def _rate(broker: Broker, count: int, threads: int, batch: int = 1) -> float:
    topic = "Batches" if batch > 1 else "Singles"
    told = broker.ask("rate", topic=topic, count=count, threads=threads, batch=batch, size=128)
    assert not told["failed"], told
    return float(told["rate"])


def _used(*pids: int) -> float:
    """CPU seconds used by processes."""
    ticks = 0
    for pid in pids:
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def figures(messages: int) -> dict[str, Take]:
    """Functions that measure one round, numbered from 0: messages per second, or ms for ``p99``."""

    def sends(name: str) -> Take:
        return lambda broker, _round: _rate(broker, _SENDS[name], int(name.split()[0]))

    def drain(broker: Broker, number: int) -> float:
        told = broker.ask("drain", group=f"draining-{number}", topic="Batches", count=messages)
        assert told["all"], told
        return float(told["rate"])

    def paced(broker: Broker, _round: int) -> float:
        return float(broker.ask("paced", topic="Singles", rate=2_000, seconds=10)["p99"])

    return {
        **{name: sends(name) for name in _SENDS},
        "batches of 100": lambda broker, _round: _rate(broker, messages, 4, 100),
        "drain": drain,
        "p99": paced,
    }


def report(release: str, messages: int, rounds: int, only: str = "") -> dict[str, float]:
    """Measure and print both; returns our figures as multiples of the real broker's."""
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-serve-") as work, Broker(release) as real, Broker(release) as ours:
        store = Path(work, "real")
        store.mkdir()
        real.boot(store, {})
        with Serving(Path(work, "ours"), "--create", "--engine", ours.engine) as serving:
            ours.connect(serving.namesrv, serving.broker)
            backlog = 100_000 if only in "batches of 100" else messages  # who only drains has to have it
            for broker in (real, ours):  # what new connections and topics cost is left out
                _rate(broker, 20_000, 16)
                _rate(broker, backlog, 4, 100)
            pids = {"real": (real.pid,), "ours": (ours.pid, serving.process.pid)}
            for name, take in figures(messages).items():
                if only not in name:
                    continue
                taken: dict[str, list[float]] = {"real": [], "ours": []}
                used = dict.fromkeys(taken, 0.0)
                for number in range(rounds):
                    for side, broker in (("real", real), ("ours", ours)):
                        before = _used(*pids[side])
                        taken[side].append(take(broker, number))
                        used[side] += _used(*pids[side]) - before
                wanted, got = (statistics.median(taken[side]) for side in ("real", "ours"))
                ratios[name] = got / wanted
                unit = "ms" if name == "p99" else "/s"
                limit = MOST_P99 if name == "p99" else WANTED[name]
                each = " ".join(f"{o / r:.2f}" for r, o in zip(taken["real"], taken["ours"], strict=True))
                print(
                    f"{name:15}  {wanted:12,.2f}  {got:12,.2f} {unit}  {ratios[name]:6.2f}  (wanted {limit}; {each}; "
                    f"processors {used['ours'] / used['real']:.2f})",
                    flush=True,
                )
            ours.stop()
            real.stop()
            assert serving.end()[0] == 0
    return ratios


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", choices=VERSIONS, default="4.9.8")
    parser.add_argument("--messages", type=int, default=1_000_000, help="that are sent in batches, and drained")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the names of the figures that are taken")
    given = parser.parse_args()
    report(given.release, given.messages, given.rounds, given.only)


if __name__ == "__main__":
    main()
