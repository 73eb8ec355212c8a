"""A command lists each directory of a store once, and again only before it writes there."""

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.rules.releases import V4_9, V5_3
from rmqtool.store.append.live import LiveStore
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from tests.store.findings import check_store

SIZES = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "200"}
CONF = SIZES | {"maxHashSlotNum": "8", "maxIndexNum": "9"}
QUEUES = 12
_watching: list[Counter[str]] = []


def _hook(event: str, args: tuple[object, ...]) -> None:
    if event in ("os.scandir", "os.listdir") and _watching:
        _watching[0][str(args[0])] += 1


sys.addaudithook(_hook)


@contextmanager
def listings() -> Iterator[Counter[str]]:
    """Count directory listings meanwhile."""
    seen: Counter[str] = Counter()
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.clear()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with Store.create(path, broker_conf=CONF) as opened:
        opened.append_many(
            [NewMessage(topic=f"t{n % 4}", queue_id=n % QUEUES, body=b"x", keys="k") for n in range(200)]
        )
    return path


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), BrokerConf(CONF))


def of_5_3(store: Path) -> None:
    (store / "timerwheel").write_bytes(b"")


COMMANDS: dict[str, Callable[[Path], object]] = {
    "recover --dry-run": lambda store: plan(layout_of(store)),
    "rebuild --dry-run": lambda store: rebuild(layout_of(store), ("consumequeue", "index", "checkpoint"), dry_run=True),
    "check": lambda store: list(check_store(layout_of(store))),
    "append": lambda store: LiveStore(str(store), BrokerConf(CONF)).close(),
}


@pytest.mark.parametrize("release", ["4.9", "5.3"])
@pytest.mark.parametrize("command", COMMANDS)
def test_each_directory_is_listed_once(command: str, release: str, store: Path) -> None:
    if release == "5.3":
        of_5_3(store)
    with listings() as seen:
        COMMANDS[command](store)
    queues = list(store.glob("consumequeue/*/*"))
    assert len(queues) == QUEUES
    # a few queues say whether the settings fit; how many there are does not count
    assert len([path for path in queues if seen[str(path)] != 1]) <= 6
    assert len([path for path in store.glob("consumequeue/*") if seen[str(path)] != 1]) <= 6
    assert seen[str(store / "commitlog")] <= 7  # role, settings and hard links are looked at before the lock
    assert seen[str(store / "index")] <= 5
    assert seen[str(store / "consumequeue")] <= 6  # which form queues have is a role, too


def test_a_layout_remembers_only_when_it_is_told_to(store: Path) -> None:
    layout = layout_of(store)
    remembering = layout.listed_once()
    before = remembering.queue_dirs()
    shutil.rmtree(store / "consumequeue" / "t1")
    assert remembering.queue_dirs() == before
    assert len(layout.queue_dirs()) == len(before) - QUEUES // 4
    assert layout.listed_once().queue_dirs() == layout.queue_dirs()


def test_a_change_is_made_by_a_fresh_look(store: Path) -> None:
    """A plan's cached listings are not used to carry it out."""
    layout = layout_of(store).listed_once()
    assert plan(layout).clean
    shutil.rmtree(store / "consumequeue" / "t1")
    queue = next((store / "consumequeue" / "t0").glob("0/*"))
    (store / "abort").write_bytes(b"")
    (store / "checkpoint").write_bytes(bytes(4096))
    report = recover(layout)
    assert report.applied
    assert (store / "consumequeue" / "t1" / "1").is_dir()
    assert queue.exists()
    assert [f.code for f in check_store(layout_of(store)) if f.severity == "error"] == []


def test_the_release_that_recovery_goes_by_is_the_one_that_is_written_for(tmp_path: Path) -> None:
    """Only the first record's version shows it here."""
    path = tmp_path / "store"
    with Store.create(path, broker_conf=CONF, release=V5_3) as opened:
        assert opened.append(NewMessage(topic="%RETRY%" + "x" * 200, body=b"a long topic needs a V2 record")).ok
        assert opened.append(NewMessage(topic="t")).ok
    assert plan(layout_of(path)).engine == "5.3"
    with Store(path, write=True, broker_conf=CONF) as opened:
        assert opened.live.release is V5_3
        assert opened.append(NewMessage(topic="%RETRY%" + "y" * 200)).ok
    with Store(path, write=True, broker_conf=CONF, release=V4_9) as opened:
        assert opened.live.release is V4_9
