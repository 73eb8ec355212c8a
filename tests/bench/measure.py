"""Helpers for benches: separate processes, their peak memory, and formatting of figures."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

ROOT = Path(__file__).parents[2]


def peak_rss() -> int:
    """Peak memory of this process, in bytes.

    On Linux, ``ru_maxrss`` includes the parent's memory before exec, so the kernel's figure for the address space is
    preferred.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def processor_time() -> float:
    """Seconds that this process and all below it have used."""
    fields = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            values = path.read_text().rpartition(")")[2].split()
            fields[int(path.parent.name)] = int(values[1]), sum(map(int, values[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _ticks) in fields.items() if parent in mine} - mine:
        mine |= more
    return sum(fields[pid][1] for pid in mine) / os.sysconf("SC_CLK_TCK")


class Workers:
    """Watches the Python processes started directly or indirectly within a ``with`` block.

    Attributes:
        peak_rss: peak memory of the largest of them, in bytes; 0 if the kernel does not report it.
    """

    def __init__(self) -> None:
        self.peak_rss = 0
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Workers":
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.peak_rss = max(self.peak_rss, *self._each(), 0)

    def _each(self) -> Iterator[int]:
        result: dict[int, dict[str, str]] = {}
        for path in Path("/proc").glob("[0-9]*/status"):
            with suppress(OSError, ValueError):
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                result[int(path.parent.name)] = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        for number, told_of in result.items():
            above = number
            while above in result and above != os.getpid():
                above = int(result[above]["PPid"])
            if above == os.getpid() != number and "python" in told_of["Name"] and "VmHWM" in told_of:
                yield int(told_of["VmHWM"].split()[0]) * 1024


def in_own_process(module: str, function: str, *args: Any) -> Any:
    """Call a function with plain values in a new Python process; returns its result."""
    code = f"import json, sys; from {module} import {function} as f; print(json.dumps(f(*json.loads(sys.argv[1]))))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its modules compiled
    result = subprocess.run(
        [sys.executable, "-c", code, json.dumps(args)], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(result.stdout.splitlines()[-1])


def told(seconds: list[float]) -> str:
    """Best and median."""
    return f"best {min(seconds):.4f} s, median {median(seconds):.4f} s of {len(seconds)}"


def report_logs(
    report: Callable[[Path, int, int, int], object],
    bodies: Iterable[int],
    description: str | None,
    *,
    size: int,
    rounds: int,
) -> None:
    """Measure logs with bodies of several sizes, as the command line asks for.

    Args:
        report: measures one log: directory, bytes of a body, bytes of the log, rounds.
        size: MiB of each log, by default.
        rounds: by default.
    """
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--size", type=int, default=size, help="MiB of each log")
    options.add_argument("--rounds", type=int, default=rounds)
    options.add_argument("--folder", help="where the logs are made, instead of the system's temporary directory")
    chosen = options.parse_args()
    for body in bodies:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            report(Path(folder), body, chosen.size << 20, chosen.rounds)
