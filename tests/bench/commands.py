"""Durations of the most used commands on a small store: complete processes, best of ten, with a limit of 0.3 s.

Run as ``python -m tests.bench.commands [NAME ...]``. CPU time, user and system together, is printed too, as it depends
less on other load. Writing commands get a new copy of the store each time.

pandas is hidden: the tests install it for Spark Connect, rmqtool does not require it, but PyArrow loads it if present.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import goldens
from tests.interop.serving import Serving

LIMIT = 0.3  # s
RUNS = 10
COMMANDS = {
    "help": "--help", "info": "info S", "check": "check S", "explain": "explain cq-missing", "trace": "trace S KEYED",
    "topic list": "topic list S", "topic show": "topic show S Orders", "topic unused": "topic unused S",
    "query-key": "query-key S Orders order-1", "query-id": "query-id S KEYED",
    "query-offset": "query-offset S Orders 0 0", "query-time": "query-time S Orders 0 2026-11-20",
    "commitlog dump": "commitlog dump S --limit 20", "consumequeue dump": "consumequeue dump S --limit 20",
    "index dump": "index dump S --limit 20", "checkpoint": "checkpoint S", "offsets": "offsets S",
    "config": "config S topics.json", "recover --dry-run": "recover S --dry-run", "recover": "recover S --yes",
    "salvage": "salvage S NEW", "rebuild": "rebuild S index --yes", "clean": "clean S --dry-run",
    "init": "init NEW", "append": "append S LINES", "group list": "group list S", "group lag": "group lag S",
    "group reset": "group reset S lab-consumer --to-earliest --dry-run", "delay list": "delay list S",
    "dlq list": "dlq list S", "retry list": "retry list S", "report traffic": "report traffic S",
    "report lag": "report lag S", "report sizes": "report sizes S", "sql": "sql S SELECT_1", "export": "export S NEW",
    "evidence": "evidence S NEW", "retention": "retention S", "du": "du S", "grep": "grep S order",
}  # fmt: skip
WRITE = {"recover", "rebuild", "append"}
COMPLETION = "completion"  # of a topic's name, from a live cluster


def run(args: list[str], **more: str) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a process; ``more`` is added to its environment."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    result = subprocess.run(
        args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **more}, check=False
    )
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.returncode not in (0, 1):
        sys.exit(f"{' '.join(args)}: {result.stderr.decode()}")
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(command: str, store: Path, folder: Path) -> tuple[float, float]:
    """The best wall-clock and CPU times of all runs."""
    rmqtool = str(Path(sys.executable).with_name("rmqtool"))
    lines = folder / "lines.ndjson"
    lines.write_text('{"topic": "Orders", "body": "x"}\n')
    unique = "KEYED" in command and _some_id(rmqtool, store)
    given = {"LINES": str(lines), "NEW": str(folder / "new"), "KEYED": unique or "", "S": str(store)}
    given["SELECT_1"] = "SELECT 1"
    result = []
    for _ in range(RUNS + 1):
        if command.split()[0] in WRITE and "--dry-run" not in command:
            given["S"] = str(folder / "copy")
            shutil.rmtree(folder / "copy", ignore_errors=True)
            shutil.rmtree(folder / "copy.rmqtool", ignore_errors=True)
            subprocess.run(["cp", "-r", "--sparse=always", store, folder / "copy"], check=True)
        shutil.rmtree(folder / "new", ignore_errors=True)
        (folder / "new").unlink(missing_ok=True)  # the file of evidence
        result.append(run([rmqtool, *(given.get(word, word) for word in command.split())]))
    return min(wall for wall, _ in result[1:]), min(processor for _, processor in result[1:])


def measure_completion(store: Path) -> tuple[float, float]:
    """The best times of completing a topic's name of a cluster in Bash."""
    rmqtool = str(Path(sys.executable).with_name("rmqtool"))
    with Serving(store, "--read-only") as running:
        line = f"rmqtool topic show rocketmq://{running.namesrv} Ord"
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_RMQTOOL_COMPLETE": "complete_bash"}
        result = [run([rmqtool], **asked) for _ in range(RUNS + 1)]
    return min(wall for wall, _ in result[1:]), min(processor for _, processor in result[1:])


def _some_id(rmqtool: str, store: Path) -> str:
    args = [rmqtool, "commitlog", "dump", str(store), "--topic", "Orders", "--limit", "1", "-o", "csv"]
    args += ["--columns", "msgId"]
    return subprocess.run(args, capture_output=True, text=True, check=True).stdout.split()[-1]


def main() -> None:
    """Print the times; exit code 1 if one exceeds the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these commands")
    names = parser.parse_args().names or [*COMMANDS, COMPLETION]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    slow = 0
    with tempfile.TemporaryDirectory() as folder:
        hidden = Path(folder, "hidden")
        hidden.mkdir()
        Path(hidden, "pandas.py").write_text("raise ImportError('hidden')\n")
        os.environ["PYTHONPATH"] = str(hidden)
        store = goldens.unpack("broker", Path(folder))
        for name in names:
            if name == COMPLETION:
                wall, processor = measure_completion(store)
            else:
                wall, processor = measure(COMMANDS[name], store, Path(folder))
            slow += min(wall, processor) > LIMIT
            mark = "  above the limit" if min(wall, processor) > LIMIT else ""
            print(f"{name:18} {wall:6.3f} s  {processor:6.3f} s of the processor{mark}", flush=True)
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
