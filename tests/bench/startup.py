"""Start-up cost of the command, as ratios to ``python -c pass``: whole processes, alternating runs, medians.

Once with Python's bytecode cache, as an installed package has it, and once without writing bytecode, where rmqtool is
compiled at each run if it has none yet. Run: ``python tests/bench/startup.py [RUNS]``.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests import goldens

RUNS = 101
UNCOUNTED = 3  # first runs fill the file cache and write bytecode
LIMITS = {"rmqtool --help": 3.0, "rmqtool query-key": 6.0}


def measure(commands: dict[str, list[str]], environment: dict[str, str], runs: int) -> dict[str, float]:
    """Median milliseconds of every command; they take turns, so that a busy moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + UNCOUNTED):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            if number >= UNCOUNTED:
                times[name].append((time.perf_counter() - start) * 1000)
    return {name: median(taken) for name, taken in times.items()}


def main() -> None:
    """Print medians and ratios."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    query = next(query for query in goldens.queries("clean") if query["physicalOffsets"])
    rmqtool = str(Path(sys.executable).with_name("rmqtool"))
    with tempfile.TemporaryDirectory() as folder:
        store = str(goldens.unpack("clean", Path(folder)))
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "rmqtool --help": [rmqtool, "--help"],
            "rmqtool query-key": [rmqtool, "query-key", store, query["topic"], query["key"], "--output", "ndjson"],
        }
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for title, more in (
            ("with bytecode cache", {"PYTHONPYCACHEPREFIX": f"{folder}/cache"}),
            ("PYTHONDONTWRITEBYTECODE=1", {"PYTHONDONTWRITEBYTECODE": "1"}),
        ):
            print(title)
            medians = measure(commands, plain | more, runs)
            for name, taken in medians.items():
                limit = f"  (limit {LIMITS[name]:.0f})" if name in LIMITS else ""
                print(f"  {name:18} {taken:7.1f} ms  {taken / medians['python -c pass']:5.2f} x{limit}")


if __name__ == "__main__":
    main()
