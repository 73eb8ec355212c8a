"""A full disk: nothing is changed, or the rest is reported, and the same command completes it."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from rmqtool.store.salvage.carve import Salvage
from tests.amounts import by_turns, some
from tests.conftest import Unpacked
from tests.store.compiled import compiled_way
from tests.store.helpers import conf_of, content

pytestmark = pytest.mark.slow

CASE = "index-deleted"
STEPS = ("pwrite", "ftruncate", "posix_fallocate", "fsync", "replace", "link", "mkdir")
COMMANDS: dict[str, Callable[[StoreLayout], object]] = {
    "recover": recover,
    "rebuild": lambda layout: rebuild(layout, ("consumequeue", "index", "checkpoint")),
}


class Disk:
    """Has space for a number of steps, then none until freed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, self.room = 0, -1
        for name in STEPS:
            patch.setattr(os, name, self._step(getattr(os, name)))

    def _step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if 0 <= self.room < self.count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return None if real is FSYNC else real(*args, **kwargs)

        return step

    def begin(self, room: int = -1) -> None:
        self.count, self.room = 0, room


FSYNC = os.fsync


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def prepared(golden_copy: Unpacked, command: str) -> Path:
    store = golden_copy(CASE)
    if command == "rebuild":
        (store / "abort").unlink()
        shutil.rmtree(store / "consumequeue" / "TopicA")
    return store


@by_turns(13)
@pytest.mark.parametrize("way", ["plain", "compiled"])
@pytest.mark.parametrize("command", COMMANDS)
def test_it_may_be_full_at_any_step(command: str, way: str, golden_copy: Unpacked, disk: Disk) -> None:
    run, conf = COMMANDS[command], conf_of(CASE)
    with compiled_way() if way == "compiled" else nullcontext():
        whole = prepared(golden_copy, command)
        before = content(whole)
        disk.begin()
        run(StoreLayout(str(whole), conf))
        steps, expected = disk.count, content(whole)
        assert expected != before
        messages = set()
        for room in [*range(0, steps, some(11, 1) * (9 if steps > 200 else 1)), *range(steps - 40, steps, some(7, 1))]:
            store = prepared(golden_copy, command)
            disk.begin(room)
            with pytest.raises((Refused, UnreadableStore), match="No space left on device") as told:
                run(StoreLayout(str(store), conf))
            half_done = "half done; when that is mended, the same command continues with it" in str(told.value)
            messages.add(half_done)
            disk.begin()
            if not half_done:
                assert str(told.value).startswith(f"{store}.rmqtool")
                assert "nothing" in str(told.value) or "no place" in str(told.value)
                assert {**content(store), "lock": ""} == {**before, "lock": ""}
                assert not Path(f"{store}.rmqtool").exists()
            run(StoreLayout(str(store), conf))
            assert content(store) == expected, f"room for {room} of {steps} steps"
    assert messages == {False, True}


def test_an_undo_without_room_is_gone_on_with(golden_copy: Unpacked, disk: Disk) -> None:
    store = prepared(golden_copy, "recover")
    before = content(store)
    recover(StoreLayout(str(store), conf_of(CASE)))
    disk.begin(2)
    with pytest.raises(UnreadableStore, match="No space left on device: half done"):
        undo(str(store))
    disk.begin()
    undo(str(store))
    assert content(store) == before


def test_a_plan_names_the_place_that_it_needs(golden_copy: Unpacked, disk: Disk) -> None:
    store = golden_copy(CASE)
    disk.begin(3)
    with pytest.raises(Refused, match=r"No space left on device: nothing was changed .*TMPDIR"):
        plan(StoreLayout(str(store), conf_of(CASE)))


@by_turns(3)
def test_salvage_leaves_nothing_where_there_is_no_room(golden: Unpacked, disk: Disk, tmp_path: Path) -> None:
    new = tmp_path / "new"
    layout = StoreLayout(str(golden(CASE)), conf_of(CASE))
    disk.begin()
    Salvage(layout, str(new)).run()
    steps = disk.count
    shutil.rmtree(new)
    for room in range(0, steps - 1, 5):  # the last one makes the finished store's name durable
        disk.begin(room)
        with pytest.raises(Refused, match=f"{new}: .*No space left on device"):
            Salvage(layout, str(new)).run()
        assert list(tmp_path.iterdir()) == []


@by_turns(2)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="makes a small file system as Linux does")
@pytest.mark.parametrize("size", ["16k", "100k", "300k", "600k"])
def test_a_file_system_that_is_really_full(size: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    """Writing through a mapping without space would kill the process."""
    store, small = golden_copy(CASE), tmp_path / "small"
    small.mkdir()
    before = content(store)
    command = f'mount -t tmpfs -o size={size} none {small} && exec "$@"'
    main = "from rmqtool.main import main; main()"
    asked = [sys.executable, "-c", main, "recover", str(store), "--yes", "--backup", str(small / "kept")]
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    result = subprocess.run([*inside, *asked], check=False, capture_output=True, text=True)
    assert result.returncode == 4, result.stderr
    assert result.stderr.endswith(f"error: {small}/kept: No space left on device: nothing was changed (see --backup)\n")
    assert content(store) == before
