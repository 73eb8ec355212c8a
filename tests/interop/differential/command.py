"""The commands that run many random cases of one kind against an engine of 5.3.3."""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tests.interop.engine import Engine, available


class Compared(Protocol):
    """A case that has run."""

    problems: list[str]
    noted: Counter[str]

    @property
    def text(self) -> str: ...


def options_of(name: str, description: str | None, seed: int) -> argparse.ArgumentParser:
    """The options that each of the commands has."""
    options = argparse.ArgumentParser(prog=f"python -m tests.interop.differential.{name}", description=description)
    options.add_argument("--count", type=int, default=1000, help="cases")
    options.add_argument("--seed", type=int, default=seed, help="of the first; the others count on from there")
    options.add_argument("--folder", type=Path, help="where stores of failed cases stay")
    return options


def report_cases(
    chosen: argparse.Namespace,
    name: str,
    run: Callable[[Path, Engine], Sequence[Compared]],
    passing: str | None = None,
) -> int:
    """Run cases and print the results; returns the exit code.

    Args:
        run: runs them in a directory.
        passing: a directory below it that never stays.
    """
    if reason := available("5.3.3"):
        print(reason, file=sys.stderr)
        return 2
    begin = time.monotonic()
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix=f"rmqtool-{name}-"))
    with Engine("5.3.3") as engine:
        cases = run(folder, engine)
    failed = [case for case in cases if case.problems]
    for case in failed:
        print(case.text)
    noted = sum((case.noted for case in cases), Counter[str]())
    counts = ", ".join(f"{count} {what}" for what, count in noted.most_common())
    print(f"{len(cases)} cases in {time.monotonic() - begin:.0f} s, {len(failed)} failed ({counts})")
    if not failed and not chosen.folder:
        shutil.rmtree(folder, ignore_errors=True)
    elif passing is not None:
        shutil.rmtree(folder / passing, ignore_errors=True)
    return 1 if failed else 0
