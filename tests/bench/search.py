"""``grep`` for a fixed text that one message has, and ``du``, beside ripgrep or GNU grep over the same files;
``diff`` of two equal stores beside ``cmp``.

Run as ``python -m tests.bench.search``. All are whole processes on one core over files in the page cache; what is
printed is their processor time, start included, and what that is in bytes and messages a second.
"""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.make_log import write_log
from tests.bench.measure import report_logs

MIB = 1 << 20
BODIES = (128, 2048)  # bytes


def other_grep() -> list[str]:
    """The program that is compared with: it prints the byte offset of each match."""
    if shutil.which("rg"):
        return [
            "rg",
            "--text",
            "--only-matching",
            "--byte-offset",
            "--fixed-strings",
            "--threads",
            "1",
            "--no-filename",
        ]
    return ["grep", "--text", "--only-matching", "--byte-offset", "--fixed-strings", "--recursive", "--no-filename"]


def seconds(args: Sequence[str], matches: int | None) -> float:
    """Processor time of a process, and its output checked."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(args, stdout=subprocess.PIPE, check=True, env=os.environ | {"LC_ALL": "C"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert matches is None or len(result.stdout.splitlines()) == matches, result.stdout[:200]
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def report(folder: Path, body: int, size: int, rounds: int) -> dict[str, float]:
    """Make a store, measure and print; seconds by name."""
    messages = write_log(folder / "commitlog", body=body, file_size=size, files=1)
    copy = folder.with_name(f"{folder.name}-copy")
    shutil.copytree(folder, copy)
    key = f"order-{messages - 1:08d}"
    rmqtool = [sys.executable, "-m", "rmqtool.main"]
    runs: dict[str, tuple[list[str], int | None]] = {
        "grep": ([*rmqtool, "grep", str(folder), key, "--fixed", "--output", "ndjson"], 1),
        "du": ([*rmqtool, "du", str(folder), "--output", "ndjson"], None),
        "diff": ([*rmqtool, "diff", str(folder), str(copy), "--output", "json"], None),
        "cmp": (["cmp", *(str(next((each / "commitlog").iterdir())) for each in (folder, copy))], 0),
        f"another {other_grep()[0]}": ([*other_grep(), key, str(folder / "commitlog")], None),
    }
    best = {name: min(seconds(*run) for _ in range(rounds)) for name, run in runs.items()}
    shutil.rmtree(copy)
    print(f"{size / MIB:.0f} MiB of {body}-byte bodies, {messages} messages")
    for name, time in best.items():
        rates = f"{size / time / 1e9:5.2f} GB/s, {messages / time / 1e6:5.2f} million messages/s"
        print(f"  {name:12} {time:6.2f} s of the processor, {rates}")
    return best


def main() -> None:
    """Measure both kinds of log."""
    report_logs(report, BODIES, __doc__, size=512, rounds=3)


if __name__ == "__main__":
    main()
