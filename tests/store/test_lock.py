"""The broker's lock: looked at without a trace, honoured by whoever writes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.errors import Refused
from rmqtool.store.disk.lock import StoreLock, holder
from rmqtool.store.layout import StoreLayout
from rmqtool.store.recover import recover
from tests.conftest import Unpacked
from tests.store.helpers import tree

HOLD = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def held(golden_copy: Unpacked) -> Iterator[tuple[Path, int]]:
    """A crashed store whose lock another process holds, as a running broker does."""
    store = golden_copy("crash")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store / "lock")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield store, process.pid
        process.kill()


def test_a_free_lock_is_free_whether_its_file_exists_or_not(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    before = tree(store)
    assert (store / "lock").exists()
    assert holder(str(store)) is None
    assert tree(store) == before
    (store / "lock").unlink()
    assert holder(str(store)) is None
    assert not (store / "lock").exists()


def test_the_holder_is_named(held: tuple[Path, int]) -> None:
    store, pid = held
    assert holder(str(store)) == pid


def test_a_held_store_is_not_written(held: tuple[Path, int]) -> None:
    store, pid = held
    before = tree(store.parent)
    with pytest.raises(Refused, match=f"held by process {pid}"):
        recover(StoreLayout(str(store)))
    assert tree(store.parent) == before


def test_our_own_writers_exclude_each_other(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    with StoreLock(str(store)):
        code = f"from rmqtool.store.disk.lock import StoreLock\nwith StoreLock({str(store)!r}): pass"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "Refused" in done.stderr
    with StoreLock(str(store)):
        pass
