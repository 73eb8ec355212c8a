"""A RocksDB store compared with the real engine: listing all units, a check, the plan of a recovery.

Run as ``python -m tests.bench.rocks``. The engine, which needs Maven and a JDK, fills the store, and then loads and
starts it after a clean stop and after a crash. Its start after a clean stop reads no units, a check reads all of them.
The engine's process has loaded its library of RocksDB and has started on the store before, so a plan is measured like
that, too: once in a new process, and again in the same one. Whole processes are compared with a JVM that does nothing
but start on the store.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.bench.commands import run
from tests.bench.measure import in_own_process, peak_rss, told
from tests.interop.engine import Engine

MIB = 1 << 20
CONFIG = {"storeType": "defaultRocksDB", "mappedFileSizeCommitLog": 256 * MIB}
WAYS = ("list", "check", "plan", "plan again")


def measure(store: str, way: str) -> tuple[float, int, int]:
    """(seconds, peak bytes of memory, number of units, findings or dispatched messages) of one operation."""
    from rmqtool.store.check.run import is_problem
    from rmqtool.store.layout.broker_conf import BrokerConf
    from rmqtool.store.layout.paths import StoreLayout
    from rmqtool.store.queues.rocks_open import rocks_queues_of
    from rmqtool.store.recovery.rocks.command import plan_rocks
    from tests.store.findings import check_store

    conf = BrokerConf({name: str(value) for name, value in CONFIG.items()})
    if way == "plan again":
        plan_rocks(StoreLayout(store, conf))
    layout = StoreLayout(store, conf)
    start = time.perf_counter()
    if way == "list":
        count = sum(len(units) for queue in rocks_queues_of(layout) for _first, units in queue.runs())
    elif way == "check":
        count = sum(is_problem(finding) for finding in check_store(layout))
    else:
        count = plan_rocks(layout).messagesRedispatched
    return time.perf_counter() - start, peak_rss(), count


def _children_seconds() -> float:
    """Processor time of all child processes that have ended, s."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def report(folder: Path, messages: int, rounds: int, release: str = "5.3.3") -> dict[str, list[float]]:
    """Fill a store, measure both sides, and print; returns seconds of each."""
    store = folder / "store"
    seconds: dict[str, list[float]] = {}
    with Engine(release) as engine:
        filled = engine.bench(store, messages, CONFIG, body_size=128, batch=100)
        assert "error" not in filled, filled
        for _ in range(rounds):
            said = engine.open(store, CONFIG, messages=False, timeout=600)
            assert said.get("loadOk"), said
            seconds.setdefault(f"{release} starts", []).append((said["loadMillis"] + said["startMillis"]) / 1000)
        for way in WAYS:
            for _ in range(rounds):
                taken, memory, count = in_own_process("tests.bench.rocks", "measure", str(store), way)
                seconds.setdefault(way, []).append(taken)
            print(f"  {way:13} {told(seconds[way])}, {memory / MIB:.0f} MiB at the most; {count}")
        for _ in range(rounds):
            (store / "abort").touch()
            said = engine.open(store, CONFIG, messages=False, timeout=600)
            taken = (said["loadMillis"] + said["startMillis"]) / 1000
            seconds.setdefault(f"{release} after a crash", []).append(taken)
    for _ in range(rounds):
        begin = _children_seconds()
        with Engine(release) as engine:
            engine.open(store, CONFIG, messages=False, timeout=600)
        seconds.setdefault(f"process of {release}", []).append(_children_seconds() - begin)
        ours = run([str(Path(sys.executable).with_name("rmqtool")), "recover", str(store), "--dry-run"])[1]
        seconds.setdefault("process of recover", []).append(ours)
    start, crash = min(seconds[f"{release} starts"]), min(seconds[f"{release} after a crash"])
    print(f"  {release} starts in {start:.2f} s, after a crash in {crash:.2f} s; {messages} messages")
    for way in WAYS:
        taken = min(seconds[way])
        print(f"  {way} takes {taken / start:.2f} of its start, {taken / crash:.2f} of that after a crash")
    ours, its = median(seconds["process of recover"]), median(seconds[f"process of {release}"])
    print(f"  processor time of whole processes: recover --dry-run takes {ours / its:.2f} of {its:.2f} s")
    return seconds


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", help="where the store is made, instead of the system's temporary directory")
    options.add_argument("--release", choices=("5.3.3", "5.4.0", "5.5.0"), default="5.3.3", help="of the engine")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        report(Path(folder), chosen.messages, chosen.rounds, chosen.release)


if __name__ == "__main__":
    main()
