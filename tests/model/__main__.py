"""``python -m tests.model --seeds N --steps M [--engines]``: exit code 1 if a promise was broken."""

import argparse
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.interop.engine import VERSIONS, Engine
from tests.model.play import play


def main() -> int:
    """Run and print the results."""
    options = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    options.add_argument("--seeds", type=int, default=10, help="stores")
    options.add_argument("--steps", type=int, default=100, help="steps on each")
    options.add_argument("--first", type=int, default=1, help="seed of the first")
    options.add_argument("--engines", action="store_true", help="real engines of both releases take messages between")
    options.add_argument("--random-kills", action="store_true", help="signals at any time too, which no seed repeats")
    options.add_argument("--keep", type=Path, help="where stores of failed runs are kept")
    chosen = options.parse_args()
    total, counts, failures, begun = Counter[str](), Counter[str](), 0, time.monotonic()
    with ExitStack() as stack:
        folder = chosen.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqtool-model-")))
        engines = [stack.enter_context(Engine(version)) for version in VERSIONS] if chosen.engines else []
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            taken, counted, failure = play(
                seed, chosen.steps, folder / str(seed), engines, random_kills=chosen.random_kills
            )
            total += taken
            counts += counted
            print(f"seed {seed}: {taken.total()} steps, {time.monotonic() - begun:.0f} s", flush=True)
            if failure is not None:
                failures += 1
                print(failure, flush=True)
    print(f"{total.total()} steps on {chosen.seeds} stores, {failures} failed, {time.monotonic() - begun:.0f} s")
    for counted in (total, counts):
        print(", ".join(f"{name} {times}" for name, times in sorted(counted.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
