"""Commands ended by kill -9 at random and run again: the outcome is that of a run that nobody disturbed."""

import shutil
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from rmqtool import Message, Store
from tests.cli.running import RMQTOOL
from tests.store.helpers import content

SIZES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "5000",
}
MESSAGES = 24_000
KILLS = 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several files, closed cleanly."""
    path = tmp_path_factory.mktemp("killed") / "whole"
    with Store.create(path, broker_conf=SIZES) as store:
        for first in range(0, MESSAGES, 2000):
            store.append_many(
                [
                    Message(topic=f"t{n % 3}", queue_id=n % 4, body=b"x" * (n % 150), keys=f"k{n}", born_timestamp=n)
                    for n in range(first, first + 2000)
                ]
            )
    return path


def crash(store: Path) -> None:
    """Lost queues and index, a torn record, and the marker of an unclean stop."""
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    (store / "abort").touch()
    last = sorted((store / "commitlog").iterdir())[-1]
    data = last.read_bytes()
    end = len(data.rstrip(b"\0"))
    last.write_bytes(data[: end - 40] + bytes(len(data) - end + 40))


def hole(store: Path) -> None:
    """Damage in the middle."""
    with open(sorted((store / "commitlog").iterdir())[1], "r+b") as file:
        file.seek(5000)
        file.write(b"\xff" * 100)


def nothing(_store: Path) -> None:
    """A healthy store."""


COMMANDS = {
    "recover": (crash, ["recover", "STORE", "--yes"]),
    "rebuild": (nothing, ["rebuild", "STORE", "consumequeue", "index", "checkpoint", "--yes"]),
    "salvage": (hole, ["salvage", "STORE", "NEW"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_and_run_again(name: str, whole: Path, tmp_path: Path) -> None:
    damage, words = COMMANDS[name]
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()))

    def start(store: Path) -> "subprocess.Popen[bytes]":
        places = {"STORE": str(store), "NEW": f"{store}.new"}
        command = [*RMQTOOL, *[places.get(word, word) for word in words], "--broker-conf", str(conf)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def result(store: Path) -> dict[str, str]:
        found = content(Path(f"{store}.new") if name == "salvage" else store)
        found.pop("lost+found/manifest.json", None)  # names the source
        return found

    calm = tmp_path / "calm"
    shutil.copytree(whole, calm)
    damage(calm)
    begun = time.monotonic()
    done = start(calm)
    _, said = done.communicate()
    assert done.returncode in (0, 1), said
    took = time.monotonic() - begun
    rng, kills = Random(name), 0
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    damage(store)
    for _ in range(KILLS):
        running = start(store)
        time.sleep(rng.uniform(0.1, 0.95) * took)
        kills += running.poll() is None
        running.kill()
        _, said = running.communicate()
        assert running.returncode in (0, 1, -9) or b"exists already" in said, said
    if not Path(f"{store}.new").exists():
        last = start(store)
        _, said = last.communicate()
        assert last.returncode in (0, 1), said
    assert kills > 0
    assert result(store) == result(calm)
    assert not list(tmp_path.glob("*.salvaging"))
