"""Parts that recover, rebuild and truncate write besides log and queues, killed at every step and run again.

Timer, compaction logs, queue extensions, config files from their ``.bak``, index, log files that a broker would not
load, and the ends of queues without messages.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.recovery.command import plan, recover, truncate
from rmqtool.store.repair.rebuild import rebuild
from tests import damage
from tests.amounts import by_turns, some
from tests.conftest import Unpacked
from tests.store import test_check_compaction, test_cut_timer, test_truncate, test_whole_extension
from tests.store.crashes import Killed, Seam
from tests.store.helpers import conf_of, content

pytestmark = pytest.mark.slow

TIMER, SMALL = BrokerConf(test_cut_timer.CONF), BrokerConf(test_truncate.SIZES)


def with_timer(_golden: Unpacked, folder: Path) -> Path:
    return test_cut_timer.laid(folder)[0]


def without_wheel(golden: Unpacked, folder: Path) -> Path:
    store = with_timer(golden, folder)
    test_cut_timer.no_wheel(store)
    return store


def without_checkpoint(golden: Unpacked, folder: Path) -> Path:
    store = with_timer(golden, folder)
    test_cut_timer.no_checkpoint(store)
    return store


def without_head(_golden: Unpacked, folder: Path) -> Path:
    return test_truncate.expired(folder / "s", 60)


def harmed(name: str, harm: Callable[[Path], object]) -> Callable[[Unpacked, Path], Path]:
    def make(golden: Unpacked, _folder: Path) -> Path:
        store = golden(name)
        harm(store)
        return store

    return make


def settings(store: Path) -> None:
    for name in ("topics.json", "subscriptionGroup.json"):
        path = store / "config" / name
        shutil.copy2(path, f"{path}.bak")
        path.write_bytes(path.read_bytes()[:40])


def index(store: Path) -> None:
    first = damage.index_files(store)[0]
    data = bytearray(first.read_bytes())
    data[-500:-480] = b"\xa5" * 20
    first.write_bytes(data)


def files(store: Path) -> None:
    first, *_, last = damage.log_files(store)
    for path in (first, last):
        path.write_bytes(path.read_bytes()[:3000])
    (store / "commitlog" / "note.txt").write_text("?")


def cut_at(number: int) -> Callable[[StoreLayout], object]:
    """The offset refers to the store before anything is cut."""
    offsets: list[int] = []

    def cut(layout: StoreLayout) -> object:
        if not offsets:
            offsets.extend(item.physical_offset for item in CommitLog(layout).walk())
        return truncate(layout, offsets[number])

    return cut


class Case(NamedTuple):
    make: Callable[[Unpacked, Path], Path]
    conf: BrokerConf
    run: Callable[[StoreLayout], object]


def rebuilding(part: str) -> Callable[[StoreLayout], object]:
    return lambda layout: rebuild(layout, (part,))


COMPACTION, EXTENSION, BROKER, CLEAN = map(conf_of, ("compaction-5.3.3", "queue-ext", "broker", "clean"))
half_compacted = harmed("compaction-5.3.3", test_check_compaction.queue_file_gone)
CASES = {
    "recover without a wheel": Case(without_wheel, TIMER, recover),
    "recover without a timer's checkpoint": Case(without_checkpoint, TIMER, recover),
    "rebuild timer": Case(without_wheel, TIMER, rebuilding("timer")),
    "truncate with a timer": Case(with_timer, TIMER, cut_at(23)),
    "recover compaction": Case(half_compacted, COMPACTION, recover),
    "rebuild compaction": Case(half_compacted, COMPACTION, rebuilding("compaction")),
    "recover extension": Case(harmed("queue-ext", test_whole_extension.garbage), EXTENSION, recover),
    "recover settings": Case(harmed("broker", settings), BROKER, recover),
    "rebuild config": Case(harmed("broker", settings), BROKER, rebuilding("config")),
    "recover index": Case(harmed("clean", index), CLEAN, recover),
    "rebuild files": Case(harmed("clean", files), CLEAN, rebuilding("files")),
    "truncate all messages of queues": Case(without_head, SMALL, cut_at(2)),
}


def seen(store: Path) -> dict[str, str]:
    """Content of every file, without the write count in the timer's checkpoint."""
    state = content(store)
    if (point := TimerFiles(StoreLayout(str(store))).checkpoint) is not None:
        state["config/timercheck"] = str(point._replace(version_counter=0))
    return state


@by_turns(13)
@pytest.mark.parametrize("name", CASES)
def test_killed_anywhere_and_run_again(
    name: str, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    (tmp_path / "made").mkdir()
    made = case.make(golden_copy, tmp_path / "made")
    before, seam = seen(made), Seam(monkeypatch)

    def copy(number: int) -> Path:
        folder = tmp_path / str(number)
        folder.mkdir()
        return Path(shutil.copytree(made, folder / "store"))

    whole = copy(0)
    seam.begin()
    case.run(StoreLayout(str(whole), case.conf))
    steps, expected = seam.count, seen(whole)
    assert expected != before
    outcomes = set()
    for stop in sorted({*range(1, steps, 1 + steps // some(16, 1000)), steps}):
        store = copy(stop)
        seam.begin(stop)
        with suppress(Killed):
            case.run(StoreLayout(str(store), case.conf))
        seam.begin()
        outcomes.add("before" if seen(store) == before else "after" if seen(store) == expected else "between")
        case.run(StoreLayout(str(store), case.conf))
        assert seen(store) == expected, f"killed at step {stop} of {steps}"
        if name.startswith("recover"):
            assert plan(StoreLayout(str(store), case.conf)).actions == []
        shutil.rmtree(store.parent)
    assert outcomes >= {"before", "after"}
