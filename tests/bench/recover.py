"""Recovery of a crashed store whose queues, index and checkpoint are lost: everything is dispatched anew.

Run as ``python -m tests.bench.recover``. Each round is a process of its own, as the command would be.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import TypedDict

from tests.bench.make_log import write_log
from tests.bench.measure import in_own_process, peak_rss, told

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


def main() -> None:
    """Measure one size."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=2_000_000)
    options.add_argument("--rounds", type=int, default=4, help="the first may have to compile")
    options.add_argument("--folder", help="where the store is made, instead of the system's temporary directory")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        report(Path(folder), chosen.messages, 1 << 30, chosen.rounds)


if __name__ == "__main__":
    main()
