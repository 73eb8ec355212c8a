"""Damage stores, recover them with an engine and with rmqtool, and compare; many in parallel.

Environment:

* ``RMQTOOL_DIFFERENTIAL_CASES``: number of cases for both releases together; some hundreds by default.
* ``RMQTOOL_DIFFERENTIAL_SEED``: seed of the first case; the others count up.
* ``RMQTOOL_DIFFERENTIAL_ENGINES``: number of parallel engines of each release.
"""

import hashlib
import os
import queue
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqtool.rules.releases import release_named
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.recovery.report import RecoveryReport
from tests import damage
from tests.amounts import some
from tests.interop.differential.bases import Base
from tests.interop.differential.case import Case
from tests.interop.differential.compare import (
    BOGUS,
    compare,
    displaced,
    engine_entries,
    engine_queues,
    entries,
    excused,
    files,
    hangs,
    is_listed,
)
from tests.interop.engine import Engine
from tests.interop.rocks_recovery import spoil_database
from tests.store.compiled import compiled_way

MARKS = [pytest.mark.interop, pytest.mark.slow, pytest.mark.xdist_group("engine-differential")]
SECOND = ("consumequeue_rocksdb", "consumequeue")
CASES = int(os.environ.get("RMQTOOL_DIFFERENTIAL_CASES", some("130", "300")))
SEED = int(os.environ.get("RMQTOOL_DIFFERENTIAL_SEED", "20261121"))
_HANG_MILLIS = 4_000
_PATIENT_MILLIS = 20_000


def run_case(seed: int, first: str, bases: list[Base], folder: Path, judge: Engine, other: Engine) -> Case:
    """Damage a store, recover it with both, and compare."""
    rng = Random(seed)
    base = rng.choice(bases)
    folder.mkdir(parents=True)
    damaged = folder / "damaged"
    shutil.copytree(base.path, damaged)
    done = [f"add-abort: {damage.add_abort(rng, damaged)}"] if rng.random() < 0.3 else []
    done += damage.damage(rng, damaged, first, rng.choice((0, 0, 0, 1, 1, 2)))
    if base.config.get("rocksdbCQDoubleWriteEnable") and rng.random() < 0.5:
        done.append(spoil_second(rng, damaged))
    case = Case(seed, judge.version, base, done, folder)
    judged, mine = folder / "judged", folder / "mine"
    shutil.copytree(damaged, judged)
    shutil.copytree(damaged, mine)
    try:
        report = recover_and_check_plan(case, mine)
        seen = open_judged(case, judged, judge, report)
        if reason := excused(damaged, seen, report):
            case.excepted.add(reason)
        else:
            known = len(case.problems)
            compare(case, report, seen, judged, mine)
            for _again in range(9):
                if len(case.problems) == known or index_files(judged) >= index_files(mine):
                    break
                # it names them by the clock, and two that are begun in one millisecond become one
                del case.problems[known:]
                shutil.rmtree(judged)
                shutil.copytree(damaged, judged)
                seen = open_judged(case, judged, judge, report)
                compare(case, report, seen, judged, mine)
            if not case.problems and report.loadOk and "error" not in seen:
                come_to_rest(case, report, seen, judged, mine, judge, other)
    except Exception as err:  # any failure must name the seed and the store
        case.problems.append(f"{type(err).__name__}: {err}")
        case.excepted.clear()
    for path in (judged, mine, Path(f"{mine}.rmqtool")):
        shutil.rmtree(path, ignore_errors=True)
    if not case.problems:
        shutil.rmtree(folder)
    return case


def spoil_second(rng: Random, store: Path) -> str:
    """Damage the database that has the queues besides the files."""
    place = next((store / name for name in SECOND if (store / name / "CURRENT").exists()), None)
    if place is None:
        return "no database: it was deleted"
    if rng.random() < 0.3:
        for path in place.iterdir():
            if path.is_file():
                path.unlink()
        return f"{place.name}: the database is gone"
    beside = {path.name: path for path in place.iterdir() if path.is_dir()}
    for path in beside.values():
        path.rename(store / f"beside-{path.name}")
    done = spoil_database(rng, place)
    for name in beside:
        (store / f"beside-{name}").rename(place / name)
    return f"{place.name}: {done}"


def index_files(store: Path) -> int:
    """The number of index files."""
    return len(damage.index_files(store))


def recover_and_check_plan(case: Case, mine: Path) -> RecoveryReport:
    """Check that a plan matches what is done and changes nothing, and that nothing is left to do afterwards."""
    conf, before = case.base.conf, snapshot(mine)
    planned = plan(StoreLayout(str(mine), conf), release=release_named(case.release), exactly=True)
    case.same("store after a plan", snapshot(mine), before)
    report = recover(StoreLayout(str(mine), conf), release=release_named(case.release), exactly=True)
    case.same("plan against deed", comparable(planned), comparable(report))
    if report.loadOk:
        case.again = plan(StoreLayout(str(mine), conf), release=release_named(case.release), exactly=True)
    else:
        case.same("store that is refused", snapshot(mine), before)
    return report


def comparable(report: RecoveryReport) -> dict[str, Any]:
    """The part of a report that a plan has too, without names of index files, which depend on the clock."""
    fields = report.to_dict()
    del fields["applied"], fields["backup"]
    fields["actions"] = [re.sub(r"create index/\d+", "create index/*", action) for action in fields["actions"]]
    return fields


def snapshot(store: Path) -> dict[str, Any]:
    """Time and content of every file."""
    result: dict[str, Any] = dict.fromkeys(map(str, store.rglob("*")))
    for name in result:
        if os.path.isfile(name):
            result[name] = os.stat(name).st_mtime_ns, hashlib.sha1(Path(name).read_bytes()).hexdigest()
    return result


def open_judged(case: Case, judged: Path, engine: Engine, report: RecoveryReport) -> dict[str, Any]:
    """Open the engine's copy. An unexpected hang may be due to a slow machine, so it is retried once."""
    fresh = judged.with_name("fresh")
    shutil.copytree(judged, fresh)
    seen = engine.open(judged, case.base.config, keys=case.base.keys, startTimeoutMillis=_HANG_MILLIS)
    if "hangs" in seen.get("error", "") and not hangs(report):
        shutil.rmtree(judged)
        shutil.copytree(fresh, judged)
        seen = engine.open(judged, case.base.config, keys=case.base.keys, startTimeoutMillis=_PATIENT_MILLIS)
    shutil.rmtree(fresh)
    return seen


def come_to_rest(
    case: Case, report: RecoveryReport, seen: dict[str, Any], judged: Path, mine: Path, judge: Engine, other: Engine
) -> None:
    """Check that nothing is left to do after one recovery, and that an engine sees the same store."""
    problems = len(case.problems)
    assert case.again is not None
    if case.engine != "4.9" and case.again.actions and displaced(StoreLayout(str(mine), case.base.conf)):
        # by their claim some are never known to a queue, and so are dispatched at every start
        case.excepted.add("a record that claims another position, in 5.3")
    else:
        case.same("actions of a second recovery", case.again.actions, [])
    reopen(case, report, mine, judge, other)
    if len(case.problems) > problems:
        if BOGUS in case.excepted:
            # It comes and goes with the units that a cut leaves behind in the engine's own store, and that we zero.
            del case.problems[problems:]
            return
        if reason := foreseen(case, report):
            del case.problems[problems:]
            case.excepted.add(reason)
            return
        if emptied(report, case.again):
            # Without files when queues are cut, a queue says of itself that it has all of the log, and so gets nothing
            # back at this start. In the engine's store the units that the cut left behind make the next start cut
            # again; ours it fills.
            del case.problems[problems:]
            case.excepted.add("a queue that has no files after a cut")
            return
        # The engine itself may see something else at its next start, because one start's state is in memory only: a
        # first unit that is none, a queue's end when its last file went, older files that are checked once the newest
        # are gone (store-engine 4.3, 4.4, 4.6). Then there is nothing to be compared with.
        following = judge.open(judged, case.base.config, messages=False, startTimeoutMillis=_PATIENT_MILLIS)
        states = [{**seen[name], "queues": engine_queues(seen[name])} for name in ("afterStart",)]
        states += [{**following[n], "queues": engine_queues(following[n])} for n in ("afterLoad", "afterStart")]
        if states[0] != states[1] or states[1] != states[2]:
            del case.problems[problems:]
            case.excepted.add("an engine that is not at rest after one start")


def foreseen(case: Case, report: RecoveryReport) -> str | None:
    """Why the next start of 5.3 does more on our store than on its own: there, units left by a cut still claim that
    queues cover the log; in our store they are zero.
    """
    assert case.again is not None
    if case.engine == "4.9":
        return None
    if any("where this start does not look" in warning for warning in report.warnings):
        return "damage that the next start finds, as we say"
    if case.again.messagesRedispatched and any(queue.entriesCut for queue in report.queues):
        return "a queue that a cut leaves behind the log"
    return None


def emptied(report: RecoveryReport, again: RecoveryReport) -> bool:
    """Whether the cut emptied a queue, or only queues without entries are filled."""
    assert report.afterStart is not None
    empty = {(q.topic, q.queueId) for q in report.afterStart.queues if not q.maxOffset}
    cut = {(q.topic, q.queueId) for q in report.queues if q.entriesCut}
    filled = {(q.topic, q.queueId) for q in again.queues}
    return bool(cut & empty) or (bool(cut) and bool(filled) and filled <= empty)


def reopen(case: Case, report: RecoveryReport, mine: Path, judge: Engine, other: Engine) -> None:
    """Check that the engine loses nothing of the recovered store, nor 5.3 of one recovered by the rules of 4.9.

    4.9 is not tried after recovery by the rules of 5.3: it checks more files, and so finds damage that 5.3 leaves.
    """
    assert report.afterStart is not None
    expected = {(q.topic, q.queueId): q.maxOffset for q in report.afterStart.queues if is_listed(q.topic, q.maxOffset)}
    low = {(q.topic, q.queueId): q.minOffset for q in report.afterStart.queues}
    rows = entries(case, StoreLayout(str(mine), case.base.conf), report.afterStart)
    for engine in (judge, other) if case.engine == "4.9" else (judge,):
        is_5 = engine.version[0] == "5"
        if is_5 and case.engine == "4.9" and displaced(StoreLayout(str(mine), case.base.conf)):
            # 5.3 goes by the positions that records claim when it looks for what is not dispatched yet
            case.excepted.add("a record that claims another position, in 5.3")
            continue
        copy = mine.with_name(f"reopened-{engine.version}")
        shutil.copytree(mine, copy)
        seen = engine.open(copy, case.base.config, startTimeoutMillis=_PATIENT_MILLIS)
        made = {name for name, _size in set(files(copy)) - set(files(mine)) if name.startswith("consumequeue/")}
        unwritten = [name for name in made if not any((copy / name).read_bytes())]
        shutil.rmtree(copy)
        name = f"recovered store in {engine.version}"
        if is_5 and unwritten and not seen.get("loadOk", True):
            # 5.3 too makes the next file of a full queue for a message that the queue has, and then trips over it
            case.excepted.add("a last queue file that 5.3 makes and does not load")
            continue
        if "error" in seen or not seen["loadOk"]:
            case.problems.append(f"{name}: {seen.get('error', 'load refused')}")
            continue
        case.same(f"{name}, end of the log", report.afterStart.maxPhyOffset, seen["afterStart"]["maxPhyOffset"])
        ends = {key: end for key, (_low, end) in engine_queues(seen["afterStart"]).items()}
        case.same(f"{name}, ends of queues", expected, ends)
        # the releases do not agree on a queue's lowest offset (5.3 also finds it behind the first file)
        lowest = {key: begin for key, (begin, _end) in engine_queues(seen["afterStart"]).items()}
        visible = [row for row in rows if row[2] >= lowest.get(row[:2], 0)]
        theirs = [row for row in engine_entries(seen) if row[2] >= low.get(row[:2], 0)]
        case.same(f"{name}, entries", visible, theirs)


class Pool:
    """Engines of two releases, a pair per thread."""

    def __init__(self, pairs: int, newer: str = "5.3.3") -> None:
        self._idle: queue.Queue[tuple[Engine, Engine]] = queue.Queue()
        self.pairs = [(Engine("4.9.8"), Engine(newer)) for _ in range(pairs)]
        for pair in self.pairs:
            self._idle.put(pair)

    @contextmanager
    def pair(self) -> Iterator[tuple[Engine, Engine]]:
        """A pair for exclusive use."""
        pair = self._idle.get()
        try:
            yield pair
        finally:
            self._idle.put(pair)

    def close(self) -> None:
        """Stop all engines."""
        for pair in self.pairs:
            for engine in pair:
                engine.close()


def assert_agreement(release: str, verb: str, count: int, bases: list[Base], folder: Path, pool: Pool) -> None:
    """Check that recovery by the rules of a release does what its engine does, in a verb's share of the cases.

    Every second case uses the compiled code for large stores.
    """
    verbs = list(damage.VERBS)
    number = verbs.index(verb)
    seeds = range(SEED + number, SEED + count, len(verbs))
    assert len(seeds), "a case of each kind at least"

    def one(seed: int) -> Case:
        with pool.pair() as pair:
            judge, other = pair if release == pair[0].version else pair[::-1]
            return run_case(seed, verb, bases, folder / str(seed), judge, other)

    with ThreadPoolExecutor(len(pool.pairs)) as threads:
        cases = list(threads.map(one, seeds[number % 2 :: 2]))
        with compiled_way():
            cases += threads.map(one, seeds[1 - number % 2 :: 2])
    failed = [case.text for case in cases if case.problems]
    assert not failed, "\n" + "\n".join(failed)
