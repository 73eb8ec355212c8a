"""Case by case: mutate, ask, compare, put back; what fails is kept."""

import io
import os
import resource
import shutil
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

from rmqtool.errors import BadValue, RmqError
from tests.bench.measure import peak_rss
from tests.fuzz.mutate import mutate
from tests.fuzz.operations import OPERATIONS
from tests.fuzz.stores import Workshop, make_bases

MOST_SECONDS = 20.0  # of one operation
MOST_MEMORY = 448 << 20  # bytes that the process may grow by over what it has once everything was used once
MOST_ADDRESSES = 4 << 30
_EACH = 2  # operations of a case


class Hung(BaseException):
    """Passes every ``except Exception``."""


class _Null(io.TextIOBase):
    """Takes text as a terminal would, and forgets it."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        text.encode("utf-8", "backslashreplace")
        return len(text)


@dataclass
class Failure:
    """One case that did not end as it should."""

    case: int
    base: str
    mutations: list[str]
    operation: str
    what: str
    kept: Path | None = None


@dataclass
class Totals:
    """What a run has shown."""

    cases: int = 0
    mutations: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    slowest: tuple[float, int, str] = (0.0, -1, "")
    seconds: float = 0.0


class Fuzzer:
    """Runs cases one after another in this process.

    Args:
        seed: with a case's number it decides everything about the case.
        folder: where stores are worked on; best in memory.
        keep: where the stores of failures go.
    """

    def __init__(self, seed: int, folder: Path, keep: Path | None = None) -> None:
        self.seed, self.folder, self.keep = seed, folder, keep
        self.totals = Totals()
        bases = make_bases(folder / "bases")
        shutil.rmtree(folder / "bases")
        self.shops = [Workshop(folder, base) for base in bases]
        self._memory = 0

    def run(self, first: int, count: int) -> Totals:
        """Cases first to first + count - 1."""
        start = time.monotonic()
        with _limits():
            if not self._memory:
                self._warm_up()
            for number in range(first, first + count):
                self.case(number)
        self.totals.seconds += time.monotonic() - start
        return self.totals

    def _warm_up(self) -> None:
        """Everything once on sound stores: what is compiled and imported then stays."""
        for shop in self.shops:
            for name in OPERATIONS:
                failed = self._ask(name, Random(0), shop)
                if failed is not None:
                    self.totals.failures.append(Failure(-1, shop.base.name, [], name, failed))
        self._memory = peak_rss()

    def case(self, number: int) -> None:
        """One case."""
        rng = Random(f"{self.seed}/{number}")
        shop = self.shops[number % len(self.shops)]
        done = mutate(rng, shop.store)
        before = shop.stamps()
        names, weights = list(OPERATIONS), [weight for _, weight in OPERATIONS.values()]
        asked = rng.choices(names, weights, k=_EACH)
        self.totals.cases += 1
        self.totals.mutations += len(done)
        for name in asked:
            start = time.monotonic()
            failed = self._ask(name, rng, shop)
            seconds = time.monotonic() - start
            self.totals.slowest = max(self.totals.slowest, (seconds, number, name))
            if failed is None and shop.stamps() != before:
                changed = sorted(dict(set(before.items()) ^ set(shop.stamps().items())))
                failed = f"the store was written to: {', '.join(changed[:5])}"
            if failed is None and self._memory and (peak := peak_rss()) > self._memory + MOST_MEMORY:
                failed = f"memory: {(peak - self._memory) >> 20} MiB more than before"
                self._memory = peak
            if failed is not None:
                self._fail(Failure(number, shop.base.name, done, name, failed), shop)
                break
        shop.restore()

    def _ask(self, name: str, rng: Random, shop: Workshop) -> str | None:
        """Why an operation did not end as it should; None when it did."""
        answer = "ok"
        failed: str | None = None
        nowhere = _Null()
        signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
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
            failed = f"still busy after {MOST_SECONDS:g} s\n{traceback.format_exc()}"
        except Exception:
            failed = traceback.format_exc()
        finally:
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


def _copy_regular(source: str, target: str) -> None:
    if os.path.islink(source) or os.path.isfile(source):
        shutil.copy2(source, target, follow_symlinks=False)


def words_of(failure: Failure) -> str:
    """A failure in words, with all that is needed to see it again."""
    mutations = "".join(f"  {line}\n" for line in failure.mutations)
    return f"case {failure.case}, base {failure.base}, operation {failure.operation}\n{mutations}{failure.what}\n"


@contextmanager
def _limits() -> Iterator[None]:
    """Time, memory and warnings as a failure sees them."""

    def hung(_number: int, _frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, hung)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES if hard < 0 else min(MOST_ADDRESSES, hard), hard))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def tell(totals: Totals) -> str:
    """A run in words."""
    rate = totals.cases / totals.seconds if totals.seconds else 0.0
    answers = ", ".join(f"{count} {name}" for name, count in totals.answers.most_common())
    seconds, case, name = totals.slowest
    did = f"{totals.cases} cases, {totals.mutations} mutations, {totals.operations.total()} operations"
    return (
        f"{did} in {totals.seconds:.1f} s ({rate:.0f} cases a second)\nanswers: {answers}\n"
        f"slowest: {seconds:.2f} s, {name} in case {case}\n{len(totals.failures)} failures"
    )
