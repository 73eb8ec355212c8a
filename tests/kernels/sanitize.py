"""Kernels under AddressSanitizer and UndefinedBehaviorSanitizer: ``python -m tests.kernels.sanitize``.

The tree is copied, its library compiled with both, and the kernels' tests, the golden stores and some fuzzing run there
in processes with the sanitizer's library preloaded. Python allocates each buffer with malloc, so that reads beyond it
are detected. Any report ends the process.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rmqtool.kernels.build.compiler import build, own_compiler

ROOT = Path(__file__).parents[2]
FLAGS = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
TESTS = ["tests/kernels", "tests/store/test_bulk.py"]
LEFT_OUT = "not plain and not build and not sanitize and not recovery and not blocks and not golden_logs_are"
FUZZ_CASES = 12
# a checksum far behind the end of 64 bytes: it must be reported, else nothing here means anything
CONTROL = """
from rmqtool.kernels import crc
from rmqtool.kernels.load.memory import Memory
data = Memory(bytes(range(64)) * 2)
data.length += 500
print(crc.choose_code(crc.Code.COMPILED).crc32(data, True))
"""
FUZZ = """
import resource, sys, tempfile
from pathlib import Path
from tests.fuzz import run
run.MOST_ADDRESSES = resource.RLIM_INFINITY  # the sanitizer takes terabytes of them
run.WAYS = (run.compiled_way,)  # the other one says nothing about what is compiled
with tempfile.TemporaryDirectory() as folder:
    totals = run.Fuzzer(int(sys.argv[1]), Path(folder), every_base=sys.argv[3] == "all").run(0, int(sys.argv[2]))
print(run.tell(totals, 1.0))
sys.exit(bool(totals.failures))
"""
GOLDEN = """
import contextlib, io, sys, tempfile
from pathlib import Path
from random import Random
from rmqtool.errors import RmqError
from rmqtool.store.layout.broker_conf import BrokerConf
from tests import goldens
from tests.fuzz.operations import OPERATIONS
from tests.fuzz.stores import Base
names = sys.argv[1:] or goldens.cases() + goldens.cases_of_5()
for name in names:
    with tempfile.TemporaryDirectory() as folder:
        store = goldens.unpack(name, Path(folder))
        sizes = goldens.about(name)["config"] if goldens.has(name, "about.json") else {}
        base = Base(name, BrokerConf({key: str(value) for key, value in sizes.items()}))
        for asked in ("check", "recover plan", "rebuild plan", "salvage", "either way", "decode either way"):
            with contextlib.suppress(RmqError), contextlib.redirect_stdout(io.StringIO()):
                OPERATIONS[asked][0](Random(1), store, base)
print(len(names), "golden stores")
"""


def runtime() -> str | None:
    """The sanitizer's library; None if the compiler has none."""
    command = own_compiler()
    if command is None or not sys.platform.startswith("linux"):
        return None
    asked = subprocess.run([*command, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    path = asked.stdout.strip()
    return path if os.path.isabs(path) and os.path.exists(path) else None


class Sanitized:
    """A copy of the tree with an instrumented library.

    Args:
        folder: directory for the copy.
        baseline: run the variant for the oldest processors instead of the best one for this machine.
    """

    def __init__(self, folder: Path, *, baseline: bool = False) -> None:
        self._folder = folder
        libraries = shutil.ignore_patterns("*.so", "__pycache__")
        for package in ("rmqtool", "formats"):
            shutil.copytree(ROOT / package, folder / package, ignore=libraries)
        for name in ("tests", "pyproject.toml", "README.md"):
            (folder / name).symlink_to(ROOT / name)
        first, *others = build(folder / "rmqtool" / "kernels" / "c", FLAGS)
        for other in others if baseline else ():
            shutil.copyfile(first, other)

    def run(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """Run Python in the copy."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_"))},
            "PYTHONPATH": str(self._folder),
            "PYTHONMALLOC": "malloc",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_PRELOAD": runtime() or "",
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        return subprocess.run(
            [sys.executable, *args], cwd=self._folder, env=environment, capture_output=True, text=True, check=False
        )

    def control(self) -> "subprocess.CompletedProcess[str]":
        """Run an error that must be reported."""
        return self.run("-c", CONTROL)

    def tests(self) -> "subprocess.CompletedProcess[str]":
        """Run the kernels' tests on compiled code."""
        return self.run("-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-k", LEFT_OUT, *TESTS)

    def golden(self, *cases: str) -> "subprocess.CompletedProcess[str]":
        """Read stores of real engines, including damaged ones; by default all."""
        return self.run("-c", GOLDEN, *cases)

    def fuzz(
        self, seed: int = 1, cases: int = FUZZ_CASES, *, every_base: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run all fuzzing operations on healthy and damaged stores."""
        return self.run("-c", FUZZ, str(seed), str(cases), "all" if every_base else "some")


def main() -> int:
    """Run everything with each variant, and print the results."""
    if runtime() is None:
        print("the compiler has no AddressSanitizer")
        return 2
    failed = 0
    for baseline in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            copy = Sanitized(Path(folder), baseline=baseline)
            print("baseline" if baseline else "best variant")
            reported = "AddressSanitizer" in copy.control().stderr
            print(f"  control: {'reported' if reported else 'NOT REPORTED'}")
            failed += not reported
            runs: dict[str, Callable[[], subprocess.CompletedProcess[str]]] = {
                "tests": copy.tests,
                "golden stores": copy.golden,
                "fuzzing": partial(copy.fuzz, cases=200),
            }
            for name, run in runs.items():
                result = run()
                print(f"  {name}: exit code {result.returncode}\n{result.stdout[-600:]}{result.stderr[-3000:]}")
                failed += result.returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
