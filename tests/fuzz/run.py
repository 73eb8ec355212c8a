"""Run cases: mutate, run operations, compare, restore; failures are kept."""

import io
import os
import resource
import shutil
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from types import FrameType

from rmqtool.errors import BadValue, RmqError
from tests.amounts import ALL
from tests.bench.measure import peak_rss
from tests.fuzz.mutate import mutate
from tests.fuzz.operations import OPERATIONS
from tests.fuzz.stores import Workshop, make_bases, small_wheels
from tests.store.compiled import compiled_way

MOST_SECONDS = 20.0  # of the processor, for one operation
MOST_WAIT = 240.0  # seconds by the clock: a busy machine may let the process wait, a FIFO would for ever
MOST_MEMORY = 448 << 20  # bytes that the process may grow by over what it has once everything was used once
MOST_ADDRESSES = 4 << 30
BOTH_WAYS = "either way"
_EACH = 2  # operations of a case
_Way = Callable[[], AbstractContextManager[object]]
WAYS: tuple[_Way, ...] = (nullcontext, compiled_way)  # of small stores, and of large ones


class Hung(BaseException):
    """Not caught by ``except Exception``."""


class _Null(io.TextIOBase):
    """Encodes text like a terminal, and discards it."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        text.encode("utf-8", "backslashreplace")
        return len(text)


@dataclass
class Failure:
    """A failed case."""

    case: int
    base: str
    mutations: list[tuple[str, str | None]]
    operation: str
    what: str
    kept: Path | None = None


@dataclass
class Totals:
    """Counts of a run."""

    cases: int = 0
    mutations: Counter[str] = field(default_factory=Counter)  # that changed something
    operations: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    slowest: tuple[float, int, str] = (0.0, -1, "")

    def add(self, other: "Totals") -> None:
        """Add the counts of another run, or of another part of this one."""
        self.cases += other.cases
        self.mutations += other.mutations
        self.operations += other.operations
        self.answers += other.answers
        self.failures += other.failures
        self.slowest = max(self.slowest, other.slowest)


class Fuzzer:
    """Runs cases one after another in this process.

    Args:
        seed: together with the case number it determines the case.
        folder: working directory, preferably in memory.
        keep: directory for the stores of failures.
        every_base: first run all operations on every healthy store, otherwise only some on each.

    Attributes:
        stopped: end after the current case.
    """

    def __init__(self, seed: int, folder: Path, keep: Path | None = None, *, every_base: bool = ALL) -> None:
        self.seed, self.folder, self.keep, self._every_base = seed, folder, keep, every_base
        self.totals, self.stopped = Totals(), False
        bases = make_bases(folder / "bases")
        shutil.rmtree(folder / "bases")
        self.shops = [Workshop(folder, base) for base in bases]
        self._memory = 0

    def run(self, first: int, count: int) -> Totals:
        """Run cases first to first + count - 1."""
        with _limits(), small_wheels():
            if not self._memory:
                self._warm_up()
            for number in range(first, first + count):
                if self.stopped:
                    break
                self.case(number)
        return self.totals

    def _warm_up(self) -> None:
        """Run everything once on healthy stores, to import and compile."""
        for number, (name, way) in enumerate(product(OPERATIONS, WAYS)):
            if name == BOTH_WAYS and way is compiled_way:
                continue  # it goes both anyway, and is the slowest
            for shop in self.shops if self._every_base else [self.shops[number % len(self.shops)]]:
                with way():
                    failed = self._ask(name, Random(0), shop)
                if failed is not None:
                    self.totals.failures.append(Failure(-1, shop.base.name, [], name, failed))
        self._memory = peak_rss()

    def case(self, number: int) -> None:
        """Run one case; every third uses the compiled code for large stores."""
        rng = Random(f"{self.seed}/{number}")
        way = WAYS[-1] if Random(number).random() < 1 / 3 else WAYS[0]
        shop = self.shops[number % len(self.shops)]
        done = mutate(rng, shop.store)
        _forget_peak()
        before = shop.stamps()
        names, weights = list(OPERATIONS), [weight for _, weight in OPERATIONS.values()]
        asked = rng.choices(names, weights, k=_EACH)
        self.totals.cases += 1
        self.totals.mutations.update(what for what, change in done if change)
        for name in asked:
            start = time.process_time()
            with way():
                failed = self._ask(name, rng, shop)
            seconds = time.process_time() - start
            self.totals.slowest = max(self.totals.slowest, (seconds, number, name))
            if failed is None and shop.stamps() != before:
                written = sorted(dict(set(before.items()) ^ set(shop.stamps().items())))
                failed = f"the store was written to: {', '.join(written[:5])}"
            if failed is None and self._memory and (peak := peak_rss()) > self._memory + MOST_MEMORY:
                failed = f"memory: {(peak - self._memory) >> 20} MiB more than before"
                _forget_peak()
            if failed is not None:
                self._fail(Failure(number, shop.base.name, done, name, failed), shop)
                break
        shop.restore()

    def _ask(self, name: str, rng: Random, shop: Workshop) -> str | None:
        """Run an operation; returns why it failed, or None."""
        answer = "ok"
        failed: str | None = None
        nowhere = _Null()
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, MOST_WAIT)
        try:
            with redirect_stdout(nowhere), redirect_stderr(nowhere):
                OPERATIONS[name][0](rng, shop.store, shop.base)
        except BadValue:
            failed = traceback.format_exc()  # nothing that was asked is a mistake of usage
        except RmqError as err:
            answer = type(err).__name__
            if not str(err) or "\n" in str(err).strip():
                failed = f"its message is not one line: {err!r}"
        except Hung:
            failed = f"not done: {MOST_SECONDS:g} s of the processor, or {MOST_WAIT:g} s\n{traceback.format_exc()}"
        except Exception:
            failed = traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.totals.operations[name] += 1
        self.totals.answers[answer if failed is None else "failed"] += 1
        return failed

    def _fail(self, failure: Failure, shop: Workshop) -> None:
        self.totals.failures.append(failure)
        if self.keep is None:
            return
        failure.kept = self.keep / f"case-{self.seed}-{failure.case}"
        shutil.rmtree(failure.kept, ignore_errors=True)
        shutil.copytree(shop.store, failure.kept / "store", symlinks=True, copy_function=_copy_regular)
        (failure.kept / "words.txt").write_text(words_of(failure), encoding="utf-8", errors="backslashreplace")


def _forget_peak() -> None:
    """Reset the peak, so that mutations do not count (``clear_refs`` of Linux; a grown heap still counts)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _copy_regular(source: str, target: str) -> None:
    if os.path.islink(source) or os.path.isfile(source):
        shutil.copy2(source, target, follow_symlinks=False)


def words_of(failure: Failure) -> str:
    """A description of a failure, with everything needed to reproduce it."""
    mutations = "".join(f"  {name}: {change or 'nothing of that kind'}\n" for name, change in failure.mutations)
    return f"case {failure.case}, base {failure.base}, operation {failure.operation}\n{mutations}{failure.what}\n"


@contextmanager
def _limits() -> Iterator[None]:
    """Limit time and memory, and turn warnings into failures."""

    def hung(_number: int, _frame: FrameType | None) -> None:
        raise Hung

    before = [(number, signal.signal(number, hung)) for number in (signal.SIGALRM, signal.SIGPROF)]
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES if hard < 0 else min(MOST_ADDRESSES, hard), hard))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in before:
            signal.signal(number, handler)


def tell(totals: Totals, seconds: float) -> str:
    """Totals of a run of ``seconds`` as text."""
    slowest, case, name = totals.slowest
    did = f"{totals.cases} cases, {totals.mutations.total()} mutations, {totals.operations.total()} operations"
    return (
        f"{did} in {seconds:.1f} s ({totals.cases / seconds:.0f} cases a second)\n"
        f"mutations: {_counts(totals.mutations)}\nanswers: {_counts(totals.answers)}\n"
        f"slowest: {slowest:.2f} s, {name} in case {case}\n{len(totals.failures)} failures"
    )


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())
