"""Three equal copies of a store: compared, salvaged together, and served as one.

Run as ``python -m tests.bench.replicas``. Comparing two copies is measured in bytes of one log a second of one core;
salvage of three copies beside salvage of one. Processor time is counted, so that other work on the machine does not
matter. Each measurement has a process of its own, whose peak memory is printed.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import TypedDict

from tests.bench.make_log import write_log
from tests.bench.measure import in_own_process, peak_rss

MIB = 1 << 20
COPIES = 3
COMPARED = 1000 * MIB  # bytes a second
MERGED = 1.5  # times salvage of one copy
MEMORY = 300 * MIB


class Figures(TypedDict):
    """Seconds of one core, and bytes."""

    seconds: float
    peak_rss: int


def compare(first: str, second: str) -> Figures:
    """Compare two logs."""
    from rmqtool.store.layout.paths import StoreLayout
    from rmqtool.store.log.commit_log import CommitLog
    from rmqtool.store.log.comparison import compare_logs

    start = time.process_time()
    compared = compare_logs(CommitLog(StoreLayout(first)), CommitLog(StoreLayout(second)))
    assert not compared.differing
    assert not compared.runs
    return Figures(seconds=time.process_time() - start, peak_rss=peak_rss())


def salvage(new: str, *stores: str) -> Figures:
    """Salvage one or several copies."""
    from rmqtool.store.layout.paths import StoreLayout
    from rmqtool.store.salvage.carve import Salvage

    layouts = [StoreLayout(store) for store in stores]
    start = time.process_time()
    report = Salvage(layouts[0], new, others=layouts[1:]).run()
    assert not report.lostRangeCount
    return Figures(seconds=time.process_time() - start, peak_rss=peak_rss())


def unite(*stores: str) -> Figures:
    """Open several copies as one."""
    from rmqtool.services.open_store.union import Union
    from rmqtool.store.layout.paths import StoreLayout

    def warn(text: str) -> None:
        raise AssertionError(text)

    start = time.process_time()
    union = Union([StoreLayout(store) for store in stores], warn)
    assert sum(union.messages) > 0
    return Figures(seconds=time.process_time() - start, peak_rss=peak_rss())


def report(folder: Path, size: int, file_size: int, body: int) -> dict[str, Figures]:
    """Make copies with logs of about ``size`` bytes, measure, and print."""
    first = folder / "copy-0"
    messages = size // (body + 300)
    write_log(first / "commitlog", body=body, file_size=file_size, messages=messages)
    stores = [str(first)]
    for number in range(1, COPIES):
        shutil.copytree(first, folder / f"copy-{number}")
        stores.append(str(folder / f"copy-{number}"))
    made = sum(path.stat().st_size for path in (first / "commitlog").iterdir())
    figures = {"compare": in_own_process("tests.bench.replicas", "compare", *stores[:2])}
    for name, chosen in (("one", stores[:1]), ("merged", stores)):
        figures[name] = in_own_process("tests.bench.replicas", "salvage", str(folder / "new"), *chosen)
        shutil.rmtree(folder / "new")
    figures["union"] = in_own_process("tests.bench.replicas", "unite", *stores)
    _print(figures, made, messages, body)
    return figures


def _print(figures: dict[str, Figures], made: int, messages: int, body: int) -> None:
    speed = {name: made / each["seconds"] for name, each in figures.items()}
    memory = {name: f"peak memory {each['peak_rss'] / MIB:.0f} MiB" for name, each in figures.items()}
    ratio = figures["merged"]["seconds"] / figures["one"]["seconds"]
    print(f"{COPIES} copies of {made / MIB:.0f} MiB, {messages} messages of {body} bytes")
    print(f"comparing two   {speed['compare'] / MIB:.0f} MiB/s (target {COMPARED / MIB:.0f}), {memory['compare']}")
    print(f"salvage of one  {speed['one'] / MIB:.0f} MiB/s, {memory['one']}")
    print(
        f"salvage of all  {speed['merged'] / MIB:.0f} MiB/s, {ratio:.2f} of one (target {MERGED}), {memory['merged']}"
    )
    print(f"opened as one   {speed['union'] / MIB:.0f} MiB/s, {memory['union']}")
    print(f"memory: target below {MEMORY / MIB:.0f} MiB")


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.replicas", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--mib", type=int, default=1024, help="size of each log")
    parser.add_argument("--body", type=int, default=2048, help="bytes of a body")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder), options.mib * MIB, 64 * MIB, options.body)


if __name__ == "__main__":
    main()
