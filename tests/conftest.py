"""Fixtures and hooks for all tests."""

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from rmqtool.store.disk import lock
from tests import goldens
from tests.amounts import ALL, DEALT, DEALT_RUNS, FOLDERS_OF_CASES, SLOW_MODULE_RUNS, SLOW_MODULES, TURN, has_turn, some

# thousands of processes start, and each would compile everything again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["PAGER"] = "cat"  # nobody presses keys in a pager during a test
# JVMs of tests are too short-lived for the second compiler, which costs two fifths of Spark's time
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

Unpacked = Callable[[str], Path]

# a busy machine is not a failure; Hypothesis's own settings for CI are kept
settings.register_profile(
    "rmqtool", settings(max_examples=some(20, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
)
settings.load_profile("rmqtool")


# ignore the user's own defaults
for name in ("OUTPUT", "BODY", "ENGINE", "BROKER_CONF", "TZ"):
    os.environ.pop(f"RMQTOOL_{name}", None)
os.environ["RMQTOOL_CONFIG"] = ""
# under nohup, processes started here would ignore SIGHUP too
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: processes that drive real brokers mostly wait."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a module in one process unless its group says otherwise, so that its fixtures are created once.

    In order of directories: Spark and the brokers, whose groups take longest, start early.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByModule(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).partition("::")[0]

    config.option.loadscopereorder = False
    return ByModule(config, log)


_QUICK_FOLDERS = {"cli", "formats", "kernels", "remoting", "rules", "services", "store"}
_QUICK_MODULES = {"test_architecture", "test_docstrings"}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which share of the tests this run was."""
    if not ALL:
        terminalreporter.write_line(
            f"turn {TURN}: RMQTOOL_TURN={TURN} runs the same share again, RMQTOOL_TESTS=all all"
        )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not load what has no quick tests for ``-m quick``."""
    here = collection_path.parent == Path(__file__).parent
    quick = not collection_path.is_dir() or collection_path.name in _QUICK_FOLDERS
    return True if config.option.markexpr == "quick" and here and not quick else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark quick tests, and deselect cases whose turn it is not, unless a test is named."""
    _mark_by_speed(items)
    if ALL or any("::" in argument for argument in config.args):
        return
    seen: Counter[str] = Counter()
    here: list[pytest.Item] = []
    later: list[pytest.Item] = []
    for item in items:
        marker = item.get_closest_marker("turns")
        if marker is None and not any(map(item.get_closest_marker, DEALT)):
            here.append(item)
            continue
        runs, *first = marker.args if marker is not None else (DEALT_RUNS,)
        test = item.nodeid.partition("[")[0].partition("@")[0]
        number = first[0] if first else crc32(test.encode()) + seen[test]
        seen[test] += 1
        (here if has_turn(number, runs) else later).append(item)
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = here


def _mark_by_speed(items: list[pytest.Item]) -> None:
    """Mark tests that use neither Spark nor the real engine, and are not slow; and what takes turns without a mark."""
    here = Path(__file__).parent
    for item in items:
        parts = item.path.relative_to(here).parts
        inside = parts[0] in _QUICK_FOLDERS if len(parts) > 1 else item.path.stem in _QUICK_MODULES
        if any(map(item.get_closest_marker, DEALT)):
            continue
        is_slow = "/".join(parts)[: -len(".py")] in SLOW_MODULES
        if inside and not is_slow:
            item.add_marker(pytest.mark.quick)
        of_folder = FOLDERS_OF_CASES.get(parts[0]) if hasattr(item, "callspec") else None
        runs = SLOW_MODULE_RUNS if is_slow else of_folder
        if runs is not None and item.get_closest_marker("turns") is None:
            item.add_marker(pytest.mark.turns(runs))


@pytest.fixture(autouse=True)
def _no_lock_stays() -> Iterator[None]:
    """Release locks of stores that a test leaves open, as they use up the user's few inotify watches."""
    before = set(lock._held)
    yield
    for held in [lock._held[key] for key in lock._held.keys() - before]:
        with suppress(OSError):
            held.__exit__(None, None, None)


State = list[tuple[str, int, int]]
_stores: dict[str, Path] = {}  # golden stores that this process has unpacked, by case
_states: dict[Path, State] = {}  # their state when unpacked


@pytest.fixture(scope="module", autouse=True)
def _shared_stores_stay_as_they_are() -> Iterator[None]:
    """Fail a module that changes a shared store."""
    yield
    changed = {store: state for store in _states if (state := _state(store)) != _states[store]}
    _states.update(changed)
    assert not changed, f"shared golden stores were written to: {sorted(map(str, changed))}"


def _state(store: Path) -> State:
    """Name, size and modification time of each file."""
    result = []
    for folder, _folders, files in os.walk(store):
        for name in files:
            about = os.lstat(os.path.join(folder, name))
            result.append((f"{folder}/{name}", about.st_size, about.st_mtime_ns))
    return sorted(result)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """Case name → unpacked store, shared by the whole session and read-only."""

    def unpacked(case: str) -> Path:
        if case not in _stores:
            _stores[case] = goldens.unpack(case, tmp_path_factory.mktemp(case))
            for path in _stores[case].rglob("*"):
                if path.is_file():
                    path.chmod(0o444)  # writing by mistake fails, except as root
            _states[_stores[case]] = _state(_stores[case])
        return _stores[case]

    return unpacked


@pytest.fixture
def golden_copy(golden: Unpacked, tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """Case name → fresh, writable copy of its store."""

    def copied(case: str) -> Path:
        store = shutil.copytree(golden(case), tmp_path_factory.mktemp(f"{case}-copy") / "store")
        for path in store.rglob("*"):
            if path.is_file():
                path.chmod(0o644)
        return store

    return copied
