"""Recovery fixes log files that a broker would not load, and loses nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.rules.releases import RELEASES, V5_3
from rmqtool.store.changes.undo import undo
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import plan, recover
from tests import damage
from tests.amounts import by_turns
from tests.store.crashes import Killed, Seam
from tests.store.findings import check_store
from tests.store.helpers import content, tree
from tests.whole import ENGINES, Base, faults_of, make_bases

pytestmark = pytest.mark.slow

Damage = Callable[[Path], None]
GAPS = {"log-ordinal-gap", "cq-no-message"}  # what tells of messages that no file has


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """A store with eleven log files."""
    return next(
        made_base for made_base in make_bases(tmp_path_factory.mktemp("bases")) if made_base.name == "clean-small"
    )


def length(number: int, change: int | float) -> Damage:
    """Set a log file to a fraction of its length, or change it by a number of bytes."""

    def resize(store: Path) -> None:
        path = damage.log_files(store)[number]
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.truncate(int(size * change) if isinstance(change, float) else size + change)

    return resize


def foreign(store: Path) -> None:
    (store / "commitlog/nohup.out").write_bytes(b"?")


def copy_beside(store: Path) -> None:
    first = damage.log_files(store)[0]
    shutil.copy(first, f"{first}.bak")


def empty_next(store: Path) -> None:
    files = damage.log_files(store)
    files[-1].with_name(f"{int(files[-1].name) + files[-1].stat().st_size:020d}").touch()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """A release."""
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["stopped", "abort"])
def abort(request: pytest.FixtureRequest) -> bool:
    """Whether the broker was killed."""
    return bool(request.param)


WHOLE = {
    "first a byte short": length(0, -1),
    "middle a byte short": length(5, -1),
    "last a byte short": length(-1, -1),
    "last without its second half": length(-1, 0.5),
    "last empty": length(-1, 0.0),
    "first empty": length(0, 0.0),
    "first a byte long": length(0, 1),
    "middle twice as long": length(5, 2.0),
    "last twice as long": length(-1, 2.0),
    "a foreign file": foreign,
    "a copy of a file": copy_beside,
    "an empty file behind the last": empty_next,
}
GAPPED = {
    "first half": length(0, 0.5), "second empty": length(1, 0.0), "second half": length(1, 0.5),
    "last but one half": length(-2, 0.5), "last but one empty": length(-2, 0.0),
}  # fmt: skip


def intact(store: Path, base: Base) -> set[bytes]:
    """Bodies and queue offsets of all messages in the log."""
    log = CommitLog(StoreLayout(str(store), base.conf))
    located = (item.record for item in log.walk() if isinstance(item, LocatedRecord))
    return {b"%s %d %d " % (r.topic, r.queue_id, r.queue_offset) + r.body for r in located}


def damaged(base: Base, store: Path, damage: Damage, *, abort: bool) -> set[bytes]:
    """Copy and damage the store; returns the remaining messages."""
    shutil.copytree(base.path, store)
    damage(store)
    if abort:
        (store / "abort").touch()
    return intact(store, base)


@by_turns(13)
@pytest.mark.parametrize("name", WHOLE)
def test_the_store_is_whole(name: str, abort: bool, engine: str, base: Base, tmp_path: Path) -> None:
    store = tmp_path / "store"
    left, before = damaged(base, store, WHOLE[name], abort=abort), tree(store)
    report = recover(StoreLayout(str(store), base.conf), release=RELEASES[engine])
    assert not report.destroys
    assert faults_of(store, base.conf, engine) == []
    assert intact(store, base) == left
    undo(str(store))
    assert tree(store) == before


@by_turns(13)
@pytest.mark.parametrize("name", GAPPED)
def test_messages_behind_a_short_file_stay(name: str, abort: bool, engine: str, base: Base, tmp_path: Path) -> None:
    store = tmp_path / "store"
    left = damaged(base, store, GAPPED[name], abort=abort)
    layout, before = StoreLayout(str(store), base.conf), tree(store)
    report = recover(layout, release=RELEASES[engine])
    assert report.unloaded
    assert any("are missing, with what was in them" in warning for warning in report.warnings)
    assert not report.destroys
    assert not report.lost
    assert intact(store, base) == left
    assert {finding.code for finding in check_store(layout) if is_problem(finding)} <= GAPS
    assert plan(layout, release=RELEASES[engine]).clean
    undo(str(store))
    assert tree(store) == before


def test_exactly_a_broker_refuses_it(base: Base, tmp_path: Path) -> None:
    store = tmp_path / "store"
    damaged(base, store, WHOLE["last a byte short"], abort=False)
    report = plan(StoreLayout(str(store), base.conf), release=V5_3, exactly=True)
    assert not report.loadOk
    assert not report.actions


def test_a_longer_file_that_holds_messages_is_not_cut(base: Base, tmp_path: Path) -> None:
    """Then the assumed length of the files is doubtful."""
    store = tmp_path / "store"
    shutil.copytree(base.path, store)
    first, second = damage.log_files(store)[:2]
    first.write_bytes(first.read_bytes() + second.read_bytes())
    before = tree(store)
    report = recover(StoreLayout(str(store), base.conf))
    assert [why for why in report.refusals if str(first) in why]
    assert any("longer than the others" in step for step in report.nextSteps)
    assert tree(store) == before


@by_turns(13)
@pytest.mark.parametrize("name", ["last but one half", "middle twice as long"])
def test_killed_anywhere_and_run_again(name: str, base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = (WHOLE | GAPPED)[name]
    seam = Seam(monkeypatch)

    def make(number: int) -> Path:
        store = tmp_path / str(number) / "store"
        damaged(base, store, change, abort=True)
        return store

    whole = make(0)
    seam.begin()
    recover(StoreLayout(str(whole), base.conf))
    steps, expected = seam.count, content(whole)
    for stop in range(1, steps + 1, 3):
        store = make(stop)
        seam.begin(stop)
        with pytest.raises(Killed):
            recover(StoreLayout(str(store), base.conf))
        seam.begin()
        recover(StoreLayout(str(store), base.conf))
        assert content(store) == expected, f"killed at step {stop} of {steps}"
        shutil.rmtree(store.parent)
