"""Recovery killed at every step of its writing ends, run again, in the same state."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import Refused
from rmqtool.store.layout import StoreLayout
from rmqtool.store.recover import plan, recover
from tests.conftest import Unpacked
from tests.store.helpers import conf_of, content, tree

# every way in which a transaction changes something or makes it last
STEPS = ("replace", "link", "unlink", "fsync", "pwrite", "makedirs", "utime")


class Killed(BaseException):
    """The process is gone: nothing may catch it and go on writing."""


class Seam:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.stop_at = -1
        self.dead = False
        for name in STEPS:
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Killed
            self.count += 1
            if self.count == self.stop_at:
                self.dead = True
                raise Killed
            return real(*args, **kwargs)

        return step


@pytest.fixture
def seam(monkeypatch: pytest.MonkeyPatch) -> Seam:
    return Seam(monkeypatch)


@pytest.mark.parametrize("case", ["torn-last-record", "one-queue-deleted", "clean-exit-torn-last-record"])
def test_killed_anywhere_and_run_again(case: str, golden_copy: Unpacked, seam: Seam) -> None:
    conf = conf_of(case)
    whole = golden_copy(case)
    before = content(whole)
    seam.count = 0
    recover(StoreLayout(str(whole), conf))
    steps, expected = seam.count, content(whole)
    assert steps > 20
    assert expected != before
    outcomes = set()
    for stop in range(1, steps + 1):
        store = golden_copy(case)
        seam.count, seam.stop_at = 0, stop
        with pytest.raises(Killed):
            recover(StoreLayout(str(store), conf))
        seam.stop_at, seam.dead = -1, False
        outcomes.add("before" if content(store) == before else "after" if content(store) == expected else "between")
        recover(StoreLayout(str(store), conf))
        assert content(store) == expected, f"killed at step {stop} of {steps}"
        assert plan(StoreLayout(str(store), conf)).actions == []
    assert outcomes == {"before", "between", "after"}


def test_a_plan_says_that_a_run_was_interrupted(golden_copy: Unpacked, seam: Seam) -> None:
    store, other = golden_copy("torn-last-record"), golden_copy("torn-last-record")
    conf = conf_of("torn-last-record")
    seam.count = 0
    recover(StoreLayout(str(other), conf))
    seam.stop_at, seam.count = seam.count - 6, 0
    with pytest.raises(Killed):
        recover(StoreLayout(str(store), conf))
    seam.stop_at, seam.dead = -1, False
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
    """4.9 chooses the file of a time search, and the files that retention deletes, by modification time."""
    store = golden_copy("torn-last-record")
    log = store / "commitlog" / "00000000000000147456"
    before = log.stat().st_mtime_ns
    recover(StoreLayout(str(store), conf_of("torn-last-record")))
    assert log.stat().st_mtime_ns == before
