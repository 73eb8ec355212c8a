"""``python -m tests.model.live --seeds N --steps M``: exit code 1 where a promise was not kept."""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.model.live.play import play


def main() -> int:
    """Play and tell."""
    options = argparse.ArgumentParser(prog="python -m tests.model.live", description=__doc__)
    options.add_argument("--seeds", type=int, default=10, help="worlds")
    options.add_argument("--steps", type=int, default=40, help="steps in each")
    options.add_argument("--first", type=int, default=1, help="seed of the first")
    chosen = options.parse_args()
    counts, failures, begun = Counter[str](), 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rmqtool-live-") as folder:
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            counted, failure = play(seed, chosen.steps, Path(folder) / str(seed))
            counts += counted
            print(f"seed {seed}: {time.monotonic() - begun:.0f} s", flush=True)
            if failure is not None:
                failures += 1
                print(failure, flush=True)
    print(f"{chosen.seeds} worlds, {failures} failed, {time.monotonic() - begun:.0f} s")
    print(", ".join(f"{name} {times}" for name, times in sorted(counts.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
