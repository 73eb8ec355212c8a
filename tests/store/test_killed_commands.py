"""Commands killed at random with kill -9 and run again: the outcome equals that of an undisturbed run."""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from rmqtool import NewMessage, Store
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.recovery.command import recover
from tests.amounts import by_turns, some
from tests.cli.running import RMQTOOL
from tests.store.helpers import content

pytestmark = pytest.mark.slow

SIZES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "5000",
}
MESSAGES = 24_000
KILLS = some(2, 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several files, closed cleanly."""
    path = tmp_path_factory.mktemp("killed") / "whole"
    with Store.create(path, broker_conf=SIZES) as store:
        for first in range(0, MESSAGES, 2000):
            store.append_many(
                [
                    NewMessage(topic=f"t{n % 3}", queue_id=n % 4, body=b"x" * (n % 150), keys=f"k{n}", born_timestamp=n)
                    for n in range(first, first + 2000)
                ]
            )
    return path


def crash(store: Path) -> None:
    """Lose queues and index, tear a record, and mark an unclean stop."""
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    (store / "abort").touch()
    last = sorted((store / "commitlog").iterdir())[-1]
    data = last.read_bytes()
    end = len(data.rstrip(b"\0"))
    last.write_bytes(data[: end - 40] + bytes(len(data) - end + 40))


def hole(store: Path) -> None:
    """Damage the log in the middle."""
    with open(sorted((store / "commitlog").iterdir())[1], "r+b") as file:
        file.seek(5000)
        file.write(b"\xff" * 100)


def nothing(_store: Path) -> None:
    """Leave the store healthy."""


def lost_topic(store: Path) -> None:
    """Remove parts of queues and index."""
    shutil.rmtree(store / "consumequeue" / "t1")
    shutil.rmtree(store / "index")


def lost_queues(store: Path) -> None:
    """Remove all queues."""
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")


def recovered(store: Path) -> None:
    """Create a run to undo."""
    crash(store)
    assert recover(StoreLayout(str(store), BrokerConf(SIZES))).applied


COMMANDS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "recover": (crash, ["recover", "STORE", "--yes"]),
    "dispatch": (lost_queues, ["dispatch", "STORE"]),
    "truncate": (nothing, ["truncate", "STORE", "CUT", "--yes"]),
    "rebuild": (lost_topic, ["rebuild", "STORE", "consumequeue", "index", "checkpoint", "--yes"]),
    "salvage": (hole, ["salvage", "STORE", "NEW"]),
    "export": (nothing, ["export", "STORE", "NEW"]),
    "undo": (recovered, ["undo", "STORE", "--yes"]),
    "clean": (nothing, ["clean", "STORE", "--hours", "0", "--yes"]),
}
COPIES = ("salvage", "export")
OVER = {"undo": b"nothing to undo", **dict.fromkeys(COPIES, b"exists already")}  # what a run after the last one says


def writes(store: Path, name: str) -> bool:
    """Whether a running command has begun to write, to its own directory and then to the store."""
    if name == "undo":
        return any('"undoing"' in path.read_text() for path in Path(f"{store}.rmqtool").glob("*/manifest.json"))
    return Path(f"{store}.new.salvaging" if name in COPIES else f"{store}.rmqtool").exists()


@by_turns(13)
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_and_run_again(name: str, whole: Path, tmp_path: Path) -> None:
    damage, args = COMMANDS[name]
    success = int(name == "salvage")  # not all of a damaged store can be read
    over = OVER.get(name, b"(nothing of the kind)")
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()))
    offsets = [located.physical_offset for located in CommitLog(StoreLayout(str(whole), BrokerConf(SIZES))).walk()]

    def start(store: Path) -> "subprocess.Popen[bytes]":
        places = {"STORE": str(store), "NEW": f"{store}.new", "CUT": str(offsets[MESSAGES // 3])}
        command = [*RMQTOOL, *[places.get(word, word) for word in args], "--broker-conf", str(conf)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def result(store: Path) -> dict[str, str]:
        state = content(Path(f"{store}.new") if name in COPIES else store)
        state.pop("lost+found/manifest.json", None)  # names the source
        return state

    calm = tmp_path / "calm"
    shutil.copytree(whole, calm)
    damage(calm)
    before = result(calm)
    begun = time.monotonic()
    done = start(calm)
    written: float | None = None
    while done.poll() is None:
        if written is None and writes(calm, name):
            written = time.monotonic() - begun
        time.sleep(0.001)
    _, stderr = done.communicate()
    assert done.returncode == success, stderr
    took = time.monotonic() - begun
    assert result(calm) != before
    rng, kills = Random(name), 0
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    damage(store)
    for number in range(3 * KILLS):  # on a busy machine some are through before they can be killed
        if kills == KILLS:
            break
        running = start(store)
        if number % 2:  # anywhere
            time.sleep(rng.uniform(0.1, 0.95) * took)
        else:  # where it writes
            while running.poll() is None and not writes(store, name):
                time.sleep(0.0005)
            time.sleep(rng.uniform(0, 0.9) * (took - (written or took)) if number else 0)
        kills += running.poll() is None
        running.kill()
        _, stderr = running.communicate()
        assert running.returncode in (success, -9) or over in stderr, stderr
    last = start(store)
    _, stderr = last.communicate()
    assert last.returncode == success or over in stderr, stderr
    assert kills > 0
    assert result(store) == result(calm)
    assert not list(tmp_path.glob("*.salvaging"))
