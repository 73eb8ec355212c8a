"""Tasks take pieces of work from a shared queue: all pieces, each once, whatever happens to a task."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqtool.analytics.dump import tasks
from rmqtool.analytics.dump.dump import _first
from rmqtool.analytics.local.claims import Claims, new_claims
from rmqtool.analytics.ranges.splits import Split, plan
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.errors import MissingRuntime, RmqError
from rmqtool.store.log.commit_log import CommitLog
from tests.analytics.helpers import log_of, store_of


def test_each_piece_is_taken_once() -> None:
    with new_claims() as claims:
        assert not claims.any()
        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(claims.take, [number % 50 for number in range(400)]))
        assert sum(taken) == 50
        assert claims.any()
        assert claims.read_done() == []
        for number in (7, 49):
            claims.end(number)
        assert sorted(claims.read_done()) == [7, 49]
    assert not Path(claims.path).exists()
    claims.end(3)  # a task that outlives the job


class Work:
    """A store with some splits, and a job for them."""

    def __init__(self, folder: Path) -> None:
        log = CommitLog(store_of(folder, *(log_of(["A", "B"], base=0) for _file in range(5))))
        self.splits: list[Split] = plan(log)[0]
        self.out = folder / "out"
        self.out.mkdir()
        self.job = tasks.Job(str(self.out), "run", MessageChoice())
        self.numbers = [split.number for split in self.splits]


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_two_tasks_share_all_splits(work: Work) -> None:
    with new_claims() as claims:
        left, right = (tasks._run_what_is_left(work.job, work.splits, claims, []) for _task in range(2))
        first, second = next(left), next(right)
        rest = [*right, *left]
        outcome = dict([first, second, *rest])
        assert sorted(claims.read_done()) == sorted(outcome) == work.numbers
    assert (first[0], second[0]) == (0, 1)
    assert all(isinstance(result, tasks.Done) for result in outcome.values())


def test_where_one_has_failed_the_others_stop(work: Work) -> None:
    with new_claims() as claims:
        results = tasks._run_what_is_left(work.job, work.splits, claims, [])
        next(results)
        (work.out / tasks._STOP).write_text("")
        assert list(results) == [(1, tasks.SplitFailure("another task has failed", unreadable=False))]
        assert claims.take(2)


class Context:
    """A Spark that does nothing."""

    master = "local[3]"
    defaultParallelism = 3

    def parallelize(self, what: Any, _parts: int) -> "Context":
        self.given = list(what)
        return self

    def mapPartitions(self, function: Callable[..., Any]) -> Any:
        return lambda: list(function(self.given))

    def map(self, function: Callable[..., Any]) -> Any:
        return lambda: [function(item) for item in self.given]

    def statusTracker(self) -> None:
        return None


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(tasks, "_collect", lambda ready, tell=None: ready())
    return Context()


def test_what_a_task_had_taken_that_died_is_read_too(work: Work, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def some_taken() -> Iterator[Claims]:
        with new_claims() as claims:
            assert claims.take(0)
            assert claims.take(3)
            yield claims

    monkeypatch.setattr(tasks, "new_claims", some_taken)
    done = tasks.run_splits(work.job, work.splits, context)
    assert [each.tally.rows for each in done] == [2] * 5


def test_workers_that_do_not_start_are_no_failed_work(
    work: Work, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_ready: Any, _tell: Any = None) -> Any:
        raise RmqError("Spark job failed: no Python")

    def some(ready: Any, _tell: Any = None) -> Any:
        ready()
        raise RmqError("Spark job failed: lost")

    monkeypatch.setattr(tasks, "_collect", none)
    with pytest.raises(MissingRuntime, match="workers do not start: Spark job failed: no Python"):
        tasks.run_splits(work.job, work.splits, context)
    monkeypatch.setattr(tasks, "_collect", some)
    with pytest.raises(RmqError, match=r"^Spark job failed: lost$") as caught:
        tasks.run_splits(work.job, work.splits, context)
    assert not isinstance(caught.value, MissingRuntime)


def test_progress_is_what_was_read(work: Work, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    real = tasks.run_split

    def slow(job: tasks.Job, split: Split) -> Any:
        done = real(job, split)
        deadline = time.monotonic() + 20
        while (not seen or seen[-1][0] < size * split.number) and time.monotonic() < deadline:
            time.sleep(0.01)
        return done

    size = work.splits[0].stop
    monkeypatch.setattr(tasks, "_LOOK", 0.01)
    monkeypatch.setattr(tasks, "run_split", slow)
    tasks.run_splits(work.job, work.splits, context, lambda *told: seen.append(told))
    assert [each for at, each in enumerate(seen) if each not in seen[:at]][:5] == [
        (size * number, 5 * size) for number in range(5)
    ]


@pytest.mark.parametrize(
    ("master", "alone"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[4,2]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://local:7077", False),
        ("yarn", False),
        (None, False),
    ],
)
def test_which_masters_are_this_machine(master: str | None, alone: bool) -> None:
    context: Any = Context()
    context.master = master
    assert tasks.is_local(context) == alone


def test_a_start_lasts_until_something_is_read() -> None:
    def first(*began: float, ready: float) -> float:
        return _first([tasks.Done(SplitTally(), [], each) for each in began], ready, time.monotonic() - 10)

    now = time.time()
    assert first(now - 4, now - 6, ready=1.0) == pytest.approx(4, abs=1)
    assert first(0.0, now - 6, ready=1.0) == pytest.approx(4, abs=1)  # of an earlier run, and of this one
    assert first(ready=2.0) == first(0.0, ready=2.0) == 2.0
    assert first(now - 100, ready=2.0) == 2.0  # another clock
    assert first(now + 100, ready=2.0) == pytest.approx(10, abs=1)
