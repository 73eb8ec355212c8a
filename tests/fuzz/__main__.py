"""``python -m tests.fuzz --count N --seed S``: exit code 1 if a case failed; prints totals even if interrupted."""

import argparse
import os
import signal
import sys
import tempfile
import time
from math import inf
from pathlib import Path
from types import FrameType

from tests.fuzz.jobs import Jobs, Wanted
from tests.fuzz.run import tell

_MEMORY = Path("/dev/shm")


def main() -> int:
    """Run cases and print the results."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("--count", type=int, help="cases; 1000 where nothing else says when to end")
    options.add_argument("--mutations", type=float, default=inf, help="end after so many")
    options.add_argument("--minutes", type=float, default=inf, help="end after so many")
    options.add_argument("--most-failures", type=int, default=20, help="end after so many")
    options.add_argument("--jobs", type=int, default=1, help="processes")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument(
        "--first", type=int, default=0, help="number of the first case; with --count 1 to see one again"
    )
    options.add_argument("--keep", type=Path, help="where stores of failed cases go; they are not kept without it")
    options.add_argument("--folder", type=Path, help="where stores are worked on, instead of memory")
    chosen = options.parse_args()
    endless = min(chosen.mutations, chosen.minutes) == inf
    count = chosen.count if chosen.count is not None else 1000 if endless else inf
    wanted = Wanted(
        chosen.seed, chosen.first, count, chosen.mutations, chosen.minutes * 60, failures=chosen.most_failures
    )
    home = chosen.folder or (_MEMORY if os.access(_MEMORY, os.W_OK) else None)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=home, prefix="rmqtool-fuzz-") as folder:
        jobs = Jobs(wanted, chosen.jobs, Path(folder), chosen.keep)

        def stop(number: int, _frame: FrameType | None) -> None:
            print(f"{signal.Signals(number).name}: the cases at hand are finished", file=sys.stderr, flush=True)
            signal.signal(number, signal.SIG_DFL)  # a second one ends at once
            jobs.stop()

        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        totals = jobs.run()
    print(tell(totals, time.monotonic() - start))
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
