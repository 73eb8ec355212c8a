"""What the benches share: processes of their own, their peak memory, and how figures are told."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]


def peak_rss() -> int:
    """Most memory that this process ever had, in bytes.

    Linux counts what a parent had before it started this program into ``ru_maxrss``, so the kernel's own figure of the
    address space is asked first.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def in_own_process(module: str, function: str, *args: Any) -> Any:
    """What a function of plain values gives, called in a fresh Python."""
    code = f"import json, sys; from {module} import {function} as f; print(json.dumps(f(*json.loads(sys.argv[1]))))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its modules compiled
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(args)], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def told(seconds: list[float]) -> str:
    """Best and median."""
    return f"best {min(seconds):.4f} s, median {median(seconds):.4f} s of {len(seconds)}"
