"""Every writing command, killed at any step and run again, ends in the same state."""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rmqtool.errors import Refused
from rmqtool.store.changes import change, steps
from rmqtool.store.disk import durable
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import dispatch, plan, recover, truncate
from rmqtool.store.repair.expiry import clean
from rmqtool.store.repair.rebuild import rebuild
from tests.amounts import by_turns, some
from tests.conftest import Unpacked
from tests.store.compiled import compiled_way
from tests.store.crashes import Killed, Seam
from tests.store.helpers import conf_of, content, cut_queues, tree

pytestmark = pytest.mark.slow


@pytest.fixture
def seam(monkeypatch: pytest.MonkeyPatch) -> Seam:
    return Seam(monkeypatch)


COMMANDS: dict[str, Callable[[StoreLayout], object]] = {
    "recover": recover,
    "dispatch": dispatch,
    "truncate": lambda layout: truncate(layout, 166_574),  # a message near the end
    "rebuild": lambda layout: rebuild(layout, ("consumequeue", "index", "checkpoint")),
    "clean": lambda layout: clean(layout, reserved_hours=0),
}


def nothing(_store: Path) -> None:
    """Do nothing: the golden store already has work for the other commands."""


def lose_some(store: Path) -> None:
    """Remove what rebuild has to build."""
    shutil.rmtree(store / "consumequeue" / "TopicA")
    shutil.rmtree(store / "index")


def lose_last(store: Path) -> None:
    """Remove what dispatch has to add."""
    cut_queues(StoreLayout(str(store), conf_of("clean")), 4)


LOSE: dict[str, Callable[[Path], None]] = {"rebuild": lose_some, "dispatch": lose_last}


@by_turns(13)
@pytest.mark.parametrize(
    ("command", "case"),
    [
        ("recover", "torn-last-record"),
        ("recover", "one-queue-deleted"),
        ("recover", "clean-exit-torn-last-record"),
        ("dispatch", "clean"),
        ("truncate", "clean"),
        ("rebuild", "clean"),
        ("clean", "clean"),
    ],
)
def test_killed_anywhere_and_run_again(command: str, case: str, golden_copy: Unpacked, seam: Seam) -> None:
    kill_anywhere_and_run_again(command, case, golden_copy, seam)


@by_turns(13)
@pytest.mark.parametrize(("command", "case"), [("recover", "index-deleted"), ("dispatch", "clean")])
def test_killed_anywhere_in_what_threads_do(command: str, case: str, golden_copy: Unpacked, seam: Seam) -> None:
    with compiled_way() as gone:
        kill_anywhere_and_run_again(command, case, golden_copy, seam)
    assert gone["keys"]


def kill_anywhere_and_run_again(command: str, case: str, golden_copy: Unpacked, seam: Seam) -> None:
    conf, run = conf_of(case), COMMANDS[command]
    whole = golden_copy(case)
    LOSE.get(command, nothing)(whole)
    before = content(whole)
    seam.begin()
    run(StoreLayout(str(whole), conf))
    steps, expected = seam.count, content(whole)
    assert steps > 20
    assert expected != before
    outcomes = set()
    for stop in [*range(1, steps, 1 + steps // some(16, 60)), steps]:
        store = golden_copy(case)
        LOSE.get(command, nothing)(store)
        seam.begin(stop)
        with suppress(Killed):
            run(StoreLayout(str(store), conf))
            assert not seam.dead  # threads do not always need as many steps as they did
        seam.begin()
        outcomes.add("before" if content(store) == before else "after" if content(store) == expected else "between")
        run(StoreLayout(str(store), conf))
        assert content(store) == expected, f"killed at step {stop} of {steps}"
        assert plan(StoreLayout(str(store), conf)).actions == []
    assert outcomes == {"before", "between", "after"}


def test_a_plan_says_that_a_run_was_interrupted(golden_copy: Unpacked, seam: Seam) -> None:
    store, other = golden_copy("torn-last-record"), golden_copy("torn-last-record")
    conf = conf_of("torn-last-record")
    seam.begin()
    recover(StoreLayout(str(other), conf))
    seam.begin(seam.count - 6)
    with pytest.raises(Killed):
        recover(StoreLayout(str(store), conf))
    seam.begin()
    assert plan(StoreLayout(str(store), conf)).actions[0].startswith("finish the interrupted run")


def test_across_file_systems_files_are_copied(golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    store, plain = golden_copy("torn-last-record"), golden_copy("torn-last-record")
    conf = conf_of("torn-last-record")
    recover(StoreLayout(str(plain), conf))
    real = os.replace

    def replace(source: str, target: str) -> None:
        if Path(source).parts[-2] == "after" or ("before" in Path(target).parts and not source.endswith(".part")):
            raise OSError(errno.EXDEV, "cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "link", _no_link)
    recover(StoreLayout(str(store), conf))
    assert content(store) == content(plain)


def _no_link(*_args: object) -> None:
    raise OSError(errno.EXDEV, "cross-device link")


def test_the_backup_can_be_elsewhere(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("torn-last-record")
    report = recover(StoreLayout(str(store), conf_of("torn-last-record")), backup=str(tmp_path / "kept"))
    assert report.backup is not None
    assert Path(report.backup).parent == tmp_path / "kept"
    assert not Path(f"{store}.rmqtool").exists()


def test_no_place_for_a_backup_is_a_refusal(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("torn-last-record")
    (tmp_path / "file").write_text("in the way")
    before = tree(store)
    with pytest.raises(Refused, match="no place for a backup"):
        recover(StoreLayout(str(store)), backup=str(tmp_path / "file" / "kept"))
    assert tree(store) == before


def test_modification_times_survive_zeroing(golden_copy: Unpacked) -> None:
    """4.9 selects files by modification time, for a search by time and for retention."""
    store = golden_copy("torn-last-record")
    log = store / "commitlog" / "00000000000000147456"
    before = log.stat().st_mtime_ns
    recover(StoreLayout(str(store), conf_of("torn-last-record")))
    assert log.stat().st_mtime_ns == before


def test_what_was_put_is_durable_before_anything_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut that reverted queues but not the removal of the abort file would look like a clean stop."""
    store, told = tmp_path / "s", list[tuple[str, str]]()
    store.mkdir()
    (store / "abort").write_bytes(b"")
    made = change.Change(str(store), "test")
    for name in ("consumequeue/T/0/00", "consumequeue/T/1/00"):
        staged = made.staging()
        Path(staged).write_bytes(b"x")
        made.put(str(store / name), staged)
    made.remove(str(store / "abort"))
    move, sync = steps.move, durable.sync

    def moved(source: str, target: str) -> None:
        told.append(("move", os.path.relpath(source, tmp_path)))
        move(source, target)

    def synced(path: str) -> None:
        told.append(("sync", os.path.relpath(path, tmp_path)))
        sync(path)

    monkeypatch.setattr(steps, "move", moved)
    monkeypatch.setattr(durable, "sync", synced)
    made.commit()
    removed = told.index(("move", "s/abort"))
    for folder in ("s/consumequeue/T/0", "s/consumequeue/T/1", "s/consumequeue/T", "s/consumequeue", "s"):
        assert ("sync", folder) in told[:removed]
    assert ("sync", "s") in told[removed:]
