"""The broker's lock: inspected without a trace, honoured by all writers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqtool import Store
from rmqtool.errors import Refused
from rmqtool.store.disk.lease import Lease, give_back
from rmqtool.store.disk.lock import Disturbed, StoreLock, held_off, holder
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import recover
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.helpers import conf_of, tree

HOLD = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def held(golden_copy: Unpacked) -> Iterator[tuple[Path, int]]:
    """A crashed store with its lock held by another process, as by a running broker."""
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
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert result.returncode != 0
        assert "Refused" in result.stderr
    with StoreLock(str(store)):
        pass


def run(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run another process."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


TAKE = "import sys\nfrom rmqtool.store.disk.lock import StoreLock\nwith StoreLock(sys.argv[1]): print('in')"
JAVA = (
    "import fcntl, os, sys\nfd = os.open(sys.argv[1], os.O_RDWR)\nfcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
)


def refused(store: Path) -> bool:
    """Whether neither our own writers nor a broker can take the lock."""
    ours, brokers = run(TAKE, store), run(JAVA, store / "lock")
    assert "in" not in ours.stdout
    assert "BlockingIOError" in brokers.stderr
    return "Refused" in ours.stderr


def copied(store: Path, folder: Path) -> None:
    shutil.copytree(store, folder / "copy")


def opened(store: Path, _folder: Path) -> None:
    (store / "lock").read_bytes()


def written(store: Path, _folder: Path) -> None:
    os.close(os.open(store / "lock", os.O_RDWR))


def asked_by_another_name(store: Path, folder: Path) -> None:
    (folder / "other").symlink_to(store)
    assert holder(str(folder / "other")) == os.getpid()
    with pytest.raises(Refused, match="held by this process"):
        StoreLock(str(folder / "other")).__enter__()


def linked(store: Path, folder: Path) -> None:
    other = folder / "linked"
    other.mkdir()
    os.link(store / "lock", other / "lock")
    with pytest.raises(Refused, match="held by this process"):
        StoreLock(str(other)).__enter__()
    holder(str(other))


@by_turns(2)
@pytest.mark.parametrize("touch", [copied, opened, written, asked_by_another_name, linked])
def test_nothing_that_this_process_does_loses_the_lock(
    touch: Callable[[Path, Path], None], golden_copy: Unpacked, tmp_path: Path
) -> None:
    store = golden_copy("clean")
    with Store(str(store), write=True, broker_conf=conf_of("clean").values):
        touch(store, tmp_path)
        assert refused(store)
        asked = "import sys\nfrom rmqtool.store.disk.lock import holder\nprint(holder(sys.argv[1]))"
        assert run(asked, store).stdout.strip() == str(os.getpid())
    assert run(TAKE, store).stdout == "in\n"


def test_a_forked_child_keeps_nothing_locked(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    lock = StoreLock(str(store)).__enter__()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # lives on
        os._exit(0 if not lock.held else 1)
    try:
        assert refused(store)  # the child has not let go of the parent's
        lock.__exit__()
        assert run(TAKE, store).stdout == "in\n"
    finally:
        os.close(writer)
        assert os.waitpid(child, 0)[1] == 0


def test_who_opens_it_waits_while_a_change_is_applied(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    code = "import sys\nprint('begin', flush=True)\nopen(sys.argv[1], 'r+b').close()\nprint('open', flush=True)"
    with StoreLock(str(store)) as lock:
        with (
            held_off(str(store)),
            subprocess.Popen([sys.executable, "-c", code, str(store / "lock")], stdout=subprocess.PIPE) as other,
        ):
            assert other.stdout is not None
            assert other.stdout.readline() == b"begin\n"
            while "BREAKER" not in Path("/proc/locks").read_text():
                assert other.poll() is None
            lock.check()
            assert holder(str(store)) == os.getpid()
            asked = "import sys\nfrom rmqtool.store.disk.lock import holder\nprint(holder(sys.argv[1]))"
            assert run(asked, store).stdout.strip() == str(os.getpid())
            assert other.poll() is None
            give_back_now(lock)
            assert other.stdout.readline() == b"open\n"
        with pytest.raises(Disturbed, match="was started"):
            lock.check()


def give_back_now(lock: StoreLock) -> None:
    """Simulate the kernel's lease timeout."""
    assert lock._fd is not None
    give_back(lock._fd)


def test_somebody_has_it_open_before_and_while_we_hold_it(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    with open(store / "lock", "r+b"), pytest.raises(Refused, match="has it open: is a broker starting"):
        StoreLock(str(store)).__enter__()
    with StoreLock(str(store)) as lock:
        (store / "lock").read_bytes()  # a look is none
        lock.check()
        with open(store / "lock", "r+b"):
            with pytest.raises(Disturbed, match="a broker is starting"):
                lock.check()
            with pytest.raises(Disturbed), held_off(str(store)):
                raise AssertionError("nothing is to be done")


def test_a_lock_that_was_replaced(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    with StoreLock(str(store)) as lock:
        (store / "lock").unlink()
        (store / "lock").touch()
        with pytest.raises(Disturbed, match="replaced"):
            lock.check()


def test_without_leases_a_broker_is_noticed(golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_copy("clean")
    monkeypatch.setattr("rmqtool.store.disk.lock.take", lambda _fd: Lease.UNKNOWN)
    code = "import sys\nwith open(sys.argv[1], 'r+b'): print('open', flush=True); sys.stdin.read()"
    with StoreLock(str(store)) as lock:
        lock.check()
        with subprocess.Popen(
            [sys.executable, "-c", code, str(store / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"open\n"
            with pytest.raises(Disturbed, match=str(other.pid)):
                lock.check()
            other.communicate()
    with StoreLock(str(store)) as lock:
        run("import os, sys\nos.close(os.open(sys.argv[1], os.O_RDWR))", store / "lock")
        with pytest.raises(Disturbed, match="was started"):
            lock.check()
