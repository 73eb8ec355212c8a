"""Recovery of a crashed store whose queues, index and checkpoint are lost: everything is dispatched anew.

Run as ``python -m tests.bench.recover``. Each round is a process of its own, as the command would be. Beside it the
real engine loads and starts the same store, in a JVM that is warm from the second round on; it needs Maven and a JDK.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import TypedDict

from tests.bench.make_log import write_log
from tests.bench.measure import in_own_process, peak_rss, told
from tests.interop.engine import Engine, available

MIB = 1 << 20


class Figures(TypedDict):
    """Of one recovery; bytes and seconds."""

    messages: int
    keys: int
    imports: float
    recover: float
    cpu: float
    peak_rss: int


def crash(store: Path) -> None:
    """Leave of a store its commit log only, as if the broker had been killed."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name, ignore_errors=True)
    shutil.rmtree(f"{store}.rmqtool", ignore_errors=True)
    for name, content in (("abort", b""), ("lock", b""), ("checkpoint", bytes(4096))):
        (store / name).write_bytes(content)


def measure(store: str) -> Figures:
    """Recover a store."""
    start = time.perf_counter()
    from rmqtool.store.layout import StoreLayout
    from rmqtool.store.recover import recover

    imported = time.perf_counter()
    report = recover(StoreLayout(store))
    done = time.perf_counter()
    return Figures(
        messages=report.messagesRedispatched,
        keys=report.indexEntriesAdded,
        imports=imported - start,
        recover=done - imported,
        cpu=time.process_time(),
        peak_rss=peak_rss(),
    )


def report(folder: Path, messages: int, file_size: int, rounds: int, body: int = 128) -> list[Figures]:
    """Make a log, recover it again and again, and print."""
    store = folder / "store"
    made = write_log(store / "commitlog", body=body, file_size=file_size, messages=messages)
    figures: list[Figures] = []
    for _ in range(rounds):
        crash(store)
        figures.append(in_own_process("tests.bench.recover", "measure", str(store)))
        assert figures[-1]["messages"] == made, (figures[-1], made)
    print(f"{made} messages of {body} bytes, {figures[0]['keys']} index keys, all dispatched anew")
    print(f"  recover     {told([f['recover'] for f in figures])}")
    print(f"  imports     {told([f['imports'] for f in figures])}")
    print(f"  processor   {told([f['cpu'] for f in figures])} (the whole process)")
    print(f"  peak memory {max(f['peak_rss'] for f in figures) / MIB:.0f} MiB")
    return figures


def beside(store: Path, rounds: int) -> float:
    """Seconds in which the engine loads and starts the store that was crashed likewise; the best round."""
    times: list[float] = []
    with Engine("4.9.8") as engine:
        for _ in range(rounds):
            crash(store)
            said = engine.open(store, messages=False, timeout=600, startTimeoutMillis=300_000)
            assert said["dispatchBehind"] == 0, said
            times.append((said["loadMillis"] + said["startMillis"]) / 1000)
    print(f"  the engine  {told(times)}: load and start of 4.9.8")
    return min(times)


def main() -> None:
    """Measure both sizes of body."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=2_000_000, help="a fifth of them with bodies of 2 KB")
    options.add_argument("--rounds", type=int, default=4, help="the first may have to compile")
    options.add_argument("--folder", help="where the store is made, instead of the system's temporary directory")
    chosen = options.parse_args()
    for body, messages in ((128, chosen.messages), (2048, chosen.messages // 5)):
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            figures = report(Path(folder), messages, 1 << 30, chosen.rounds, body)
            if (reason := available("4.9.8")) is None:
                theirs = beside(Path(folder) / "store", chosen.rounds)
                print(f"  ours takes {min(f['recover'] for f in figures) / theirs:.2f} of the engine's time")
            else:
                print(f"  no engine beside it: {reason}")


if __name__ == "__main__":
    main()
