"""Recovery of a crashed store that lost queues, index and checkpoint: everything is dispatched again.

Run as ``python -m tests.bench.recover``. For comparison, the real engine loads and starts the same store; it needs
Maven and a JDK. Each side uses several processes, one after another, and recovers the store several times in each: the
first time cold, like a broker's start or a command, then warm. Both are printed. The start of the JVM and of Python is
not counted.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import TypedDict

from tests.bench.make_log import write_log
from tests.bench.measure import in_own_process, peak_rss, told
from tests.interop.engine import ALL, Engine, available

MIB = 1 << 20
TARGETS = {128: 0.5, 2048: 0.2}  # of the engine's time, by bytes of a body


class Figures(TypedDict):
    """Figures of one process: seconds of each recovery, bytes."""

    messages: int
    keys: int
    seconds: list[float]
    peak_rss: int


def crash(store: Path) -> None:
    """Reduce a store to its commit log, as if the broker had been killed."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name, ignore_errors=True)
    shutil.rmtree(f"{store}.rmqtool", ignore_errors=True)
    for name, content in (("abort", b""), ("lock", b""), ("checkpoint", bytes(4096))):
        (store / name).write_bytes(content)


def measure(store: str, rounds: int, release: str = "4.9.8") -> Figures:
    """Recover a store again and again, by the rules of a release."""
    from rmqtool.rules.releases import release_named
    from rmqtool.store.layout.paths import StoreLayout
    from rmqtool.store.recovery.command import recover

    seconds = []
    for _ in range(rounds):
        crash(Path(store))
        start = time.perf_counter()
        report = recover(StoreLayout(store), release=release_named(release))
        seconds.append(time.perf_counter() - start)
    return Figures(
        messages=report.messagesRedispatched, keys=report.indexEntriesAdded, seconds=seconds, peak_rss=peak_rss()
    )


def report(
    folder: Path,
    messages: int,
    file_size: int,
    processes: int,
    rounds: int,
    body: int = 128,
    release: str = "4.9.8",
) -> list[Figures]:
    """Create a log, recover it repeatedly, and print."""
    store = folder / "store"
    made = write_log(store / "commitlog", body=body, file_size=file_size, messages=messages)
    crash(store)
    figures: list[Figures] = []
    for _ in range(processes):
        figures.append(in_own_process("tests.bench.recover", "measure", str(store), rounds, release))
        assert figures[-1]["messages"] == made, (figures[-1], made)
    print(f"{made} messages of {body} bytes, {figures[0]['keys']} index keys, all dispatched anew")
    _print("recover", [each["seconds"] for each in figures])
    print(f"  peak memory {max(f['peak_rss'] for f in figures) / MIB:.0f} MiB")
    return figures


def _print(who: str, seconds: list[list[float]]) -> None:
    first, warm = _apart(seconds)
    print(f"  {who:11} first {told(first)}")
    if warm:
        print(f"  {'':11} warm  {told(warm)}")


def _apart(seconds: list[list[float]]) -> tuple[list[float], list[float]]:
    """The first recovery of each process, and all others."""
    return [each[0] for each in seconds], [value for each in seconds for value in each[1:]]


def beside(store: Path, processes: int, rounds: int, release: str = "4.9.8") -> list[list[float]]:
    """Seconds for the engine to load and start the equally crashed store."""
    seconds: list[list[float]] = []
    for _ in range(processes):
        seconds.append([])
        with Engine(release) as engine:
            for _ in range(rounds):
                crash(store)
                said = engine.open(store, messages=False, timeout=600, startTimeoutMillis=300_000)
                assert said["dispatchBehind"] == 0, said
                seconds[-1].append((said["loadMillis"] + said["startMillis"]) / 1000)
    _print(release, seconds)
    return seconds


def main() -> None:
    """Measure both sizes of body."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=2_000_000, help="a fifth of them with bodies of 2 KB")
    options.add_argument("--processes", type=int, default=3, help="of each side")
    options.add_argument("--rounds", type=int, default=5, help="recoveries of a process; the very first may compile")
    options.add_argument("--folder", help="where the store is made, instead of the system's temporary directory")
    options.add_argument("--release", choices=ALL, default="4.9.8", help="of the engine, and of the rules")
    chosen = options.parse_args()
    for body, messages in ((128, chosen.messages), (2048, chosen.messages // 5)):
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            figures = report(Path(folder), messages, 1 << 30, chosen.processes, chosen.rounds, body, chosen.release)
            if (reason := available(chosen.release)) is not None:
                print(f"  no engine beside it: {reason}")
                continue
            ours = _apart([each["seconds"] for each in figures])
            theirs = _apart(beside(Path(folder) / "store", chosen.processes, chosen.rounds, chosen.release))
            first, warm = (min(mine) / min(other) for mine, other in zip(ours, theirs, strict=True))
            print(f"  ours takes {first:.2f} of the engine's time first, {warm:.2f} warm; target {TARGETS[body]}")


if __name__ == "__main__":
    main()
