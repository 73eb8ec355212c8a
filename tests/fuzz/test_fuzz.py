"""Some hundred cases in a separate process, and the harness itself."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest

from rmqtool.errors import Refused
from tests.amounts import by_turns, some
from tests.fuzz import operations
from tests.fuzz.jobs import Jobs, Wanted
from tests.fuzz.mutate import MUTATIONS, mutate
from tests.fuzz.run import Fuzzer

COUNT = int(os.environ.get("RMQTOOL_FUZZ_CASES", some("24", "400")))
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits and reads memory as Linux has it")
def test_no_case_fails(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--count", str(COUNT), "--seed", "2026", "--folder", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60 + COUNT, check=False)
    assert result.returncode == 0, result.stderr + result.stdout
    assert f"{COUNT} cases" in result.stdout


@by_turns(13)
def test_a_run_stopped_by_hand_tells_its_totals(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "9", "--jobs", "1", "--folder", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while len(list(tmp_path.glob("*/?/*/store"))) < 6 and running.poll() is None:  # as many as there are bases
            time.sleep(0.05)
        time.sleep(2)
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    assert "SIGTERM: the cases at hand are finished" in err
    cases, mutations = map(int, re.match(r"(\d+) cases, (\d+) mutations", out).groups())  # type: ignore[union-attr]
    assert sum(map(int, re.findall(r"(\d+) [a-z]", out.splitlines()[1]))) == mutations >= cases // 2
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_is_a_failure(tmp_path: Path) -> None:
    jobs = Jobs(Wanted(1, first=40, cases=60), 1, tmp_path, None)
    (worker,) = jobs._workers
    threading.Timer(0.5, worker.process.kill).start()
    (failure,) = jobs.run().failures
    assert failure.what == "the process ended with -9 in cases 40 to 89"


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(5, tmp_path_factory.mktemp("fuzz"), tmp_path_factory.mktemp("keep"))


@by_turns(3)
def test_every_mutation_does_something_and_is_put_back(fuzzer: Fuzzer) -> None:
    for shop in fuzzer.shops:
        before = shop.stamps()
        for name, (mutation, _weight) in MUTATIONS.items():
            changes = [mutation(Random(f"{name}{i}"), shop.store) for i in range(5)]
            assert any(changes), (shop.base.name, name)
            assert shop.stamps() != before
            shop.restore()
            assert shop.stamps() == before
        assert {name: (shop.store / name).read_bytes() for name in shop.base.files} == {
            name: content for name, (content, _mtime) in shop.base.files.items()
        }


def test_a_case_is_the_same_again(fuzzer: Fuzzer) -> None:
    (shop, *_) = fuzzer.shops
    result = []
    for _ in range(2):
        done = mutate(Random("case"), shop.store)
        result.append((done, {p: p.read_bytes() for p in sorted(shop.store.rglob("*")) if p.is_file()}))
        shop.restore()
    assert result[0] == result[1]


def test_only_what_changed_something_counts(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.run.mutate", lambda _rng, _store: [("one", "done"), ("other", None)])
    fuzzer.totals.mutations.clear()
    fuzzer.case(1)
    assert fuzzer.totals.mutations == {"one": 1}


def test_failures_are_seen(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_rng: Random, _store: Path, _base: object) -> None:
        raise ValueError("not documented")

    def write(_rng: Random, store: Path, _base: object) -> None:
        (store / "written").touch()

    def refuse(_rng: Random, _store: Path, _base: object) -> None:
        raise Refused("documented")

    for operation, failures, word in ((crash, 1, "not documented"), (write, 1, "was written to"), (refuse, 0, "")):
        monkeypatch.setattr(operations, "OPERATIONS", {})
        monkeypatch.setitem(operations.OPERATIONS, "it", (operation, 1))
        monkeypatch.setattr("tests.fuzz.run.OPERATIONS", operations.OPERATIONS)
        fuzzer.totals.failures.clear()
        fuzzer.case(3)
        assert len(fuzzer.totals.failures) == failures
        for failure in fuzzer.totals.failures:
            assert word in failure.what
            assert failure.kept is not None
            assert (failure.kept / "store" / "commitlog").exists()
            assert word in (failure.kept / "words.txt").read_text()
