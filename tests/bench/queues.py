"""Stores with very many queues: cost of reading, checking, recovering, rebuilding and appending.

Run as ``python -m tests.bench.queues``. Queue files have the broker's default size and a few entries each, as in a
broker with many topics: each is mostly a hole. Every command runs in a separate process; its wall-clock time and peak
memory are printed.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from formats.checkpoint import Checkpoint, build
from formats.layouts.derived import CQ_ENTRY
from formats.message.build import build_blank, compose, pack
from formats.queues.consume import build as build_entries
from tests.bench.measure import ROOT

MIB = 1 << 20
QUEUE_SIZE = 6_000_000  # the broker's default
_BORN = 1_700_000_000_000
_PER_TOPIC = 8


class Cost(NamedTuple):
    """Cost of one command."""

    seconds: float
    peak_rss: int  # bytes
    code: int
    stdout: str
    stderr: str


def write_store(
    store: Path,
    queues: int,
    *,
    messages: int = 2,
    queue_size: int = QUEUE_SIZE,
    log_size: int = 64 * MIB,
    per_topic: int = _PER_TOPIC,
    sparse: bool = True,
) -> None:
    """A cleanly stopped store; messages have neither keys nor ids, so there is no index.

    Args:
        messages: number per queue; queues take turns in the log.
        per_topic: number of queues per topic.
        sparse: leave holes in queue files instead of writing zeros.
    """
    entries: list[list[tuple[int, int, int]]] = [[] for _ in range(queues)]
    log = bytearray()
    (store / "commitlog").mkdir(parents=True)
    base = 0
    for number in range(queues * messages):
        queue = number % queues
        record = compose(
            topic=topic_of(queue, per_topic).encode(),
            queue_id=queue % per_topic,
            queue_offset=number // queues,
            physical_offset=base + len(log),
            body=b"%08d" % number,
            properties=b"",
            born_timestamp=_BORN,
            born_address=bytes([192, 0, 2, 10]),
            born_port=51234,
            store_timestamp=_BORN + number,
            store_address=bytes([198, 51, 100, 7]),
            store_port=10911,
        )
        packed = pack(record)
        if len(log) + len(packed) + 8 > log_size:
            log += build_blank(log_size - len(log))
            _write(store / "commitlog" / f"{base:020d}", bytes(log), log_size)
            base, log = base + log_size, bytearray()
            packed = pack(record._replace(physical_offset=base))
        entries[queue].append((base + len(log), len(packed), 0))
        log += packed
    _write(store / "commitlog" / f"{base:020d}", bytes(log), log_size)
    for queue, rows in enumerate(entries):
        folder = store / "consumequeue" / topic_of(queue, per_topic) / str(queue % per_topic)
        folder.mkdir(parents=True)
        content = build_entries(rows)
        _write(folder / f"{0:020d}", content if sparse else content.ljust(queue_size, b"\0"), queue_size)
    last = _BORN + queues * messages - 1
    (store / "checkpoint").write_bytes(build(Checkpoint(last, last, 0, 0, 0)))
    (store / "lock").write_bytes(b"")


def topic_of(queue: int, per_topic: int = _PER_TOPIC) -> str:
    """The topic of the queue with this number."""
    return f"wide-{queue // per_topic:06d}"


def _write(path: Path, content: bytes, size: int) -> None:
    with path.open("wb", buffering=0) as file:
        file.write(content)
        file.truncate(size)


def run(*args: str, text: str = "", descriptors: int | None = None) -> Cost:
    """Run a command in a separate process.

    Args:
        text: its stdin.
        descriptors: limit of open descriptors.
    """

    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    code = (
        "import atexit, os, sys; from tests.bench.measure import peak_rss\n"
        "atexit.register(lambda: sys.stderr.write(f'\\npeak {peak_rss()}'))\n"
        "from rmqtool.main import main; main()"
    )
    start = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-c", code, *args],
        input=text,
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=limit,
        check=False,
    )
    seconds = time.perf_counter() - start
    output, _, peak = result.stderr.rpartition("\npeak ")
    return Cost(seconds, int(peak or 0), result.returncode, result.stdout, output)


def report(folder: Path, queues: int) -> list[Cost]:
    """Create a store, run the commands and print."""
    store = folder / "store"
    write_store(store, queues)
    name = str(store)
    costs = []
    print(f"{queues} queues, 2 messages each, queue files of {QUEUE_SIZE} bytes")
    message = json.dumps({"topic": topic_of(0), "queueId": 0, "body": "x"}) + "\n"
    for arguments, args, text in (
        ("info", ("info", name), ""),
        ("check", ("check", name), ""),
        ("recover --dry-run", ("recover", name, "--dry-run"), ""),
        ("append of one message", ("append", name), message),
        ("rebuild consumequeue", ("rebuild", name, "consumequeue", "--yes"), ""),
    ):
        cost = run(*args, text=text)
        assert cost.code == 0, (args, cost)
        print(f"  {arguments:22} {cost.seconds:7.2f} s, {cost.peak_rss / MIB:6.0f} MiB", flush=True)
        costs.append(cost)
        if arguments == "recover --dry-run":
            costs.append(report_one_damaged(store, queues // 2))
    return costs


def report_one_damaged(store: Path, queue: int) -> Cost:
    """Recover a store with one damaged queue; only that queue is written."""
    (file,) = (store / "consumequeue" / topic_of(queue) / str(queue % _PER_TOPIC)).iterdir()
    with file.open("r+b") as opened:
        opened.write(bytes(CQ_ENTRY.size))
    before = _seen(store)
    cost = run("recover", str(store), "--yes")
    after = _seen(store)
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    assert (cost.code, changed) == (0, [str(file)]), (cost, changed[:9])
    kept = Path(f"{store}.rmqtool")
    written = sum(path.stat().st_blocks * 512 for path in (file, *kept.rglob("*")) if path.is_file())
    print(f"  {'recover one queue':22} {cost.seconds:7.2f} s, {cost.peak_rss / MIB:6.0f} MiB, {written} bytes written")
    return cost


def _seen(store: Path) -> dict[str, tuple[int, int]]:
    result = ((str(path), path.stat()) for path in store.rglob("*") if path.is_file())
    return {path: (status.st_ino, status.st_mtime_ns) for path, status in result}


def main() -> None:
    """Measure stores of both sizes."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queues", type=int, nargs="*", default=[10_000, 100_000])
    options.add_argument("--folder", help="where the stores are made, instead of the system's temporary directory")
    chosen = options.parse_args()
    for queues in chosen.queues:
        folder = tempfile.mkdtemp(dir=chosen.folder)
        try:
            report(Path(folder), queues)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
