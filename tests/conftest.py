"""Fixtures that every part of the tests uses."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rmqtool.store.disk import lock
from tests import goldens
from tests.amounts import some

os.environ["PAGER"] = "cat"  # nobody turns the pages of a terminal in a test
# no JVM of a test lives long enough to earn what its second compiler costs: two fifths of the time of Spark's
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

Unpacked = Callable[[str], Path]

# a busy machine is no failure; what Hypothesis sets for itself where it sees CI stays
settings.register_profile(
    "rmqtool", settings(max_examples=some(20, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
)
settings.load_profile("rmqtool")


# whoever runs the tests may have defaults of their own
for name in ("OUTPUT", "BODY", "ENGINE", "BROKER_CONF", "TZ"):
    os.environ.pop(f"RMQTOOL_{name}", None)
os.environ["RMQTOOL_CONFIG"] = ""
# under nohup what is started here would not hear that a terminal went away either
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: those that drive real brokers wait most of their time."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.fixture(autouse=True)
def _no_lock_stays() -> Iterator[None]:
    """A store that a test leaves open, as a killed process does, keeps none of the few watches that a user may have."""
    before = set(lock._held)
    yield
    for held in [lock._held[key] for key in lock._held.keys() - before]:
        with suppress(OSError):
            held.__exit__(None, None, None)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """Case name to its unpacked store: one for the whole session, not to be written to."""
    stores: dict[str, Path] = {}

    def unpacked(case: str) -> Path:
        if case not in stores:
            stores[case] = goldens.unpack(case, tmp_path_factory.mktemp(case))
            for path in stores[case].rglob("*"):
                if path.is_file():
                    path.chmod(0o444)  # whoever writes by mistake finds out, unless it is root
        return stores[case]

    return unpacked


@pytest.fixture
def golden_copy(golden: Unpacked, tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """Case name to a fresh, writable copy of its store, each time anew."""

    def copied(case: str) -> Path:
        store = shutil.copytree(golden(case), tmp_path_factory.mktemp(f"{case}-copy") / "store")
        for path in store.rglob("*"):
            if path.is_file():
                path.chmod(0o644)
        return store

    return copied
