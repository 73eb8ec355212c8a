"""``python -m tests.fuzz --count N --seed S``: exit code 1 when a case failed."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.run import Fuzzer, tell, words_of

_MEMORY = Path("/dev/shm")


def main() -> int:
    """Run cases and tell."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("--count", type=int, default=1000, help="cases")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument(
        "--first", type=int, default=0, help="number of the first case; with --count 1 to see one again"
    )
    options.add_argument("--keep", type=Path, help="where stores of failed cases go; they are not kept without it")
    options.add_argument("--folder", type=Path, help="where stores are worked on, instead of memory")
    options.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing new after so many")
    options.add_argument("--most-failures", type=int, default=20, help="stop after so many")
    chosen = options.parse_args()
    home = chosen.folder or (_MEMORY if os.access(_MEMORY, os.W_OK) else None)
    with tempfile.TemporaryDirectory(dir=home, prefix="rmqtool-fuzz-") as folder:
        tempfile.tempdir = folder  # plans make their files there too
        os.environ["TMPDIR"] = folder
        fuzzer = Fuzzer(chosen.seed, Path(folder), chosen.keep)
        told = 0
        first, left = chosen.first, chosen.count
        end = time.monotonic() + chosen.seconds
        while left > 0 and len(fuzzer.totals.failures) < chosen.most_failures and time.monotonic() < end:
            part = min(left, 100)
            fuzzer.run(first, part)
            first, left = first + part, left - part
            for failure in fuzzer.totals.failures[told:]:
                print(words_of(failure), file=sys.stderr, flush=True)
            told = len(fuzzer.totals.failures)
        print(tell(fuzzer.totals))
    return 1 if fuzzer.totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
