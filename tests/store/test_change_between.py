"""A change is interrupted, and the store is written to before it is continued: nothing of that is lost."""

import os
import shutil
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.errors import Refused
from rmqtool.store.append.live import LiveStore
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.undo import undo
from rmqtool.store.changes.writing import pending_runs
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import recover
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.store.dying import killed
from tests.store.helpers import tree

pytestmark = pytest.mark.slow

SIZES = {
    "mappedFileSizeCommitLog": str(1 << 16),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "1000",
}
MARKER = ".rmqtool-pending"
WRITERS = [
    ["recover", "STORE", "--yes"],
    ["rebuild", "STORE", "index", "--yes"],
    ["dispatch", "STORE"],
    ["clean", "STORE", "--hours", "0", "--yes"],
    ["clean", "STORE", "--hours", "0", "--yes", "--delete"],
    ["truncate", "STORE", "0", "--yes"],
    ["undo", "STORE", "--yes"],
    ["group", "reset", "STORE", "g", "--topic", "t0", "--to-earliest", "--yes"],
]


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), BrokerConf(SIZES))


def fill(store: Path, name: str, count: int) -> None:
    """Append like a broker, which ignores half-done changes."""
    with Store(store, broker_conf=SIZES, write=True) as opened:
        opened.append_many(
            [NewMessage(topic=f"t{n % 3}", body=f"{name}-{n}".encode(), keys=f"{name}{n}") for n in range(count)]
        )


def new_store(folder: Path, count: int, size: int) -> Path:
    """A new store with so many messages of this size."""
    path = folder / "store"
    with Store.create(path, broker_conf=SIZES) as opened:
        opened.append_many([NewMessage(topic="t", body=b"x" * size) for _ in range(count)])
    return path


def bodies(store: Path, name: str) -> int:
    """Number of messages of a kind in the log."""
    walked = CommitLog(layout_of(store)).walk()
    return sum(
        isinstance(located, LocatedRecord) and bytes(located.record.body).startswith(name.encode())
        for located in walked
    )


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()))
    return path


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """The store of a killed broker: its last record is torn."""
    store = tmp_path / "store"
    with Store.create(store, broker_conf=SIZES) as opened:
        opened.append_many([NewMessage(topic=f"t{n % 3}", body=f"old-{n}".encode(), keys=f"k{n}") for n in range(40)])
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"t0@g":{0:3}}}')
    log = store / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    end = len(data.rstrip(b"\0"))
    log.write_bytes(data[: end - 30] + b"\xff" * 30 + bytes(len(data) - end))
    (store / "abort").touch()
    return store


def meanwhile(store: Path, count: int) -> None:
    """Start a broker and store messages: it does not see the backup, and ignores foreign files."""
    home, hidden = Path(f"{store}.rmqtool"), store.parent / "hidden"
    home.rename(hidden)
    if (store / MARKER).exists():
        (store / MARKER).rename(hidden / MARKER)
    recover(layout_of(store), backup=str(store.parent / "broker"))
    fill(store, "new", count)
    if (hidden / MARKER).exists():
        (hidden / MARKER).rename(store / MARKER)
    hidden.rename(home)


@by_turns(13)
@pytest.mark.parametrize("args", WRITERS, ids=lambda args: "-".join(word for word in args[:3:2]))
def test_what_was_written_meanwhile_stays(args: list[str], torn: Path, conf: Path) -> None:
    killed(4, "recover", torn, "--yes", "--broker-conf", conf)
    meanwhile(torn, 50)
    before = tree(torn)
    assert bodies(torn, "new") == 50
    told = rmqtool("recover", torn, "--dry-run", "--broker-conf", conf)
    assert told.code == 1
    assert "cannot be finished" in told.out
    assert f"undo {torn} --forget" in " ".join(told.out.split())
    result = rmqtool(*[str(torn) if word == "STORE" else word for word in args], "--broker-conf", conf)
    assert result.code == 4, result
    assert "bytes were written since" in result.err
    assert f"rmqtool undo {torn} --forget" in result.err
    assert tree(torn) == before
    assert rmqtool("undo", torn, "--dry-run", "--broker-conf", conf).code == 1
    assert rmqtool("undo", torn, "--forget", "--yes", "--broker-conf", conf).code == 0
    assert not (torn / MARKER).exists()
    assert pending_runs(Places.of(layout_of(torn))) == []
    assert rmqtool("recover", torn, "--yes", "--broker-conf", conf).code == 0
    assert (bodies(torn, "old"), bodies(torn, "new")) == (39, 50)
    assert len(list(Path(f"{torn}.rmqtool").glob("*-recover/before/*"))) >= 1  # the backup is still there


@by_turns(2)
@pytest.mark.parametrize("step", [3, 8, 14])
def test_an_undo_does_not_go_on_over_it(step: int, torn: Path, conf: Path) -> None:
    rmqtool("recover", torn, "--yes", "--broker-conf", conf)
    killed(step, "undo", torn, "--yes", "--broker-conf", conf)
    meanwhile(torn, 30)
    before = tree(torn)
    for arguments in (["undo", torn, "--yes"], ["recover", torn, "--yes"]):
        result = rmqtool(*arguments, "--broker-conf", conf)
        assert result.code == 4, result
        assert tree(torn) == before
    assert rmqtool("undo", torn, "--forget", "--yes", "--broker-conf", conf).code == 0
    assert rmqtool("recover", torn, "--yes", "--broker-conf", conf).code == 0
    assert bodies(torn, "new") == 30


@by_turns(2)
@pytest.mark.parametrize("step", [1, 4, 9, 15])
def test_undo_puts_back_what_an_interrupted_run_had_done(step: int, torn: Path, conf: Path) -> None:
    before = tree(torn)
    killed(step, "recover", torn, "--yes", "--broker-conf", conf)
    assert undo(str(torn)).applied
    assert {**tree(torn), "lock": None} == {**before, "lock": None}


def test_force_keeps_what_it_overwrites(torn: Path, conf: Path) -> None:
    rmqtool("recover", torn, "--yes", "--broker-conf", conf)
    fill(torn, "new", 20)
    log = (torn / "commitlog" / f"{0:020d}").read_bytes()
    assert rmqtool("undo", torn, "--yes", "--broker-conf", conf).code == 4
    assert rmqtool("undo", torn, "--yes", "--force", "--broker-conf", conf).code == 0
    assert bodies(torn, "new") == 0
    kept = b"".join(path.read_bytes() for path in sorted(Path(f"{torn}.rmqtool").glob("*/after/replaced/*")))
    assert all(f"new-{n}".encode() in kept for n in range(20))
    assert log.rstrip(b"\0")[-200:] in kept


def test_the_store_itself_says_it_by_any_name(torn: Path, conf: Path, tmp_path: Path) -> None:
    killed(4, "recover", torn, "--yes", "--broker-conf", conf)
    link = tmp_path / "sub" / "link"
    link.parent.mkdir()
    link.symlink_to(torn)
    for name in (torn, link, torn / ".." / "store"):
        (run,) = pending_runs(Places(str(name)))
        assert run.to_finish
        assert run.command == "recover"
    with pytest.raises(Refused, match="a change of it was interrupted"):
        LiveStore(str(link), BrokerConf(SIZES))
    assert rmqtool("recover", link, "--yes", "--broker-conf", conf).code == 0
    assert pending_runs(Places(str(torn))) == []
    assert not (tmp_path / "sub" / "link.rmqtool").exists()


@by_turns(2)
@pytest.mark.parametrize("way", ["there", "gone", "named"])
def test_a_backup_elsewhere(way: str, torn: Path, conf: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    killed(4, "recover", torn, "--yes", "--backup", kept, "--broker-conf", conf)
    if way == "gone":
        kept.rename(tmp_path / "away")
        before = tree(torn)
        for arguments in (["recover", torn, "--yes"], ["undo", torn, "--yes"], ["clean", torn, "--yes"]):
            result = rmqtool(*arguments, "--broker-conf", conf)
            assert result.code == 4, result
            assert "which is not there: bring it back" in result.err
        assert "not there" in rmqtool("recover", torn, "--dry-run", "--broker-conf", conf).out.replace("\n", " ")
        assert tree(torn) == before
        assert rmqtool("undo", torn, "--forget", "--yes", "--broker-conf", conf).code == 0
    extra = ["--backup", kept] if way == "named" else []
    assert rmqtool("recover", torn, "--yes", *extra, "--broker-conf", conf).code == 0
    assert pending_runs(Places.of(layout_of(torn))) == []
    assert not (torn / "abort").exists()
    assert bodies(torn, "old") == 39


def test_a_plan_that_is_no_more_true_is_not_carried_out(torn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's start changes files before it takes the lock."""
    from rmqtool.store.recovery import command as module

    real = module.prepare

    def slow(*args: object) -> list[str]:
        with open(torn / "commitlog" / f"{0:020d}", "r+b") as log:
            log.seek(60_000)
            log.write(b"a broker was here")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "prepare", slow)
    with pytest.raises(Refused, match="has changed while this was planned"):
        recover(layout_of(torn))
    assert (torn / "abort").exists()
    assert not os.path.exists(f"{torn}.rmqtool")
    shutil.rmtree(torn)


def test_another_store_at_the_same_path(torn: Path, conf: Path, tmp_path: Path) -> None:
    """A store was removed and another created at its path, but the directory of an interrupted run is still there."""
    assert rmqtool("recover", torn, "--yes", "--broker-conf", conf).code == 0
    shutil.rmtree(torn / "consumequeue")
    shutil.rmtree(f"{torn}.rmqtool")
    killed(1, "rebuild", torn, "consumequeue", "--yes", "--broker-conf", conf)  # before its mark
    home = Path(f"{torn}.rmqtool").rename(tmp_path / "away")
    shutil.rmtree(torn)
    with Store.create(torn, broker_conf=SIZES) as opened:
        opened.append(NewMessage(topic="other", body=b"another"))
    home.rename(f"{torn}.rmqtool")
    before = tree(torn)
    result = rmqtool("rebuild", torn, "index", "--yes", "--broker-conf", conf)
    assert result.code == 4, result
    assert "or another log" in result.err
    assert f"rmqtool undo {torn} --forget" in result.err
    assert {**tree(torn), "lock": None} == {**before, "lock": None}
    assert rmqtool("undo", torn, "--forget", "--yes").code == 0
    assert rmqtool("rebuild", torn, "index", "--yes", "--broker-conf", conf).code == 0
    assert not (torn / "consumequeue" / "t0").exists()
    assert bodies(torn, "another") == 1


def test_an_undo_out_of_turn_leaves_no_gap(torn: Path, conf: Path, tmp_path: Path) -> None:
    """A run kept elsewhere cut the log further back, and messages were appended: the first cut was beyond that."""
    assert rmqtool("recover", torn, "--yes", "--broker-conf", conf).code == 0
    places = [
        located.physical_offset for located in CommitLog(layout_of(torn)).walk() if isinstance(located, LocatedRecord)
    ]
    for at, where in ((places[30], []), (places[20], ["--backup", tmp_path / "elsewhere"])):
        assert rmqtool("truncate", torn, at, "--yes", *where, "--broker-conf", conf).code == 0
    fill(torn, "new", 1)
    before = tree(torn)
    result = rmqtool("undo", torn, "--yes", "--broker-conf", conf)
    assert result.code == 4, result
    assert "cut farther back since" in result.err
    assert tree(torn) == before
    assert bodies(torn, "new") == 1
    assert rmqtool("recover", torn, "--dry-run", "--broker-conf", conf).code == 0
