"""A power cut at any step of a dump: an output that claims to be complete is, and the same command finishes it."""

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqtool.analytics.dump import parquet
from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.output import SUCCESS, DumpOutput, manifest_of
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.analytics.remote.files import Folder
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.amounts import by_turns, every, some
from tests.analytics.helpers import log_of, rows_of, store_of
from tests.store.crashes import Killed

SIZE = 1500  # of a commit-log file
STEPS = ((Folder, "move"), (Folder, "delete"), (Folder, "delete_dir"), (DumpOutput, "discard"), (os, "rename"))
STEPS += ((os, "fsync"), (os, "rmdir"), (shutil, "rmtree"))


class Disk:
    """A directory that keeps only what was synced. Tracked by inode, as Arrow writes and renames without Python.

    Files are held open, so that inode numbers are not reused.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._held: dict[int, int] = {}
        self.steps, self.stop_at, self.dead = 0, -1, False
        for owner, name in STEPS:
            monkeypatch.setattr(owner, name, self._wrap(name, getattr(owner, name)))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Killed
            self.steps += 1
            if self.steps == self.stop_at:
                self.dead = True
                raise Killed
            done = real(*args, **kwargs)
            if name == "fsync":
                self._sync(Path(os.readlink(f"/proc/self/fd/{args[0]}")))
            return done

        return step

    def _inode(self, path: Path) -> int:
        inode = path.stat().st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
        return inode

    def _sync(self, path: Path) -> None:
        if path.is_dir():
            self._names[self._inode(path)] = {entry.name: self._inode(entry) for entry in path.iterdir()}
        else:
            self._contents[self._inode(path)] = path.read_bytes()

    def begin(self, stop_at: int = -1) -> None:
        """Make everything durable, and cut the power at a step."""
        self.close()
        self.steps, self.stop_at, self.dead = 0, stop_at, False
        for path in (self._root, *self._root.rglob("*")):
            self._sync(path)

    def cut(self, chance: Random | None) -> None:
        """Lose what was not synced: everything including names, or the content of random files."""
        self.dead, self.stop_at = False, -1
        if chance is None:
            tree = self._lasting(self._inode(self._root))
            shutil.rmtree(self._root)
            self._make(self._root, tree)
            return
        for path in sorted(self._root.rglob("*")):
            if path.is_file() and chance.random() < 0.5:
                path.write_bytes(self._contents.get(path.stat().st_ino, b""))

    def _lasting(self, inode: int) -> Any:
        """Durable content: of a file, or of a directory by name."""
        if os.path.isdir(f"/proc/self/fd/{self._held[inode]}"):
            return {name: self._lasting(child) for name, child in self._names.get(inode, {}).items()}
        return self._contents.get(inode, b"")

    def _make(self, path: Path, content: Any) -> None:
        if isinstance(content, bytes):
            path.write_bytes(content)
            return
        path.mkdir()
        for name, inner in content.items():
            self._make(path / name, inner)

    def close(self) -> None:
        """Close all files."""
        for fd in self._held.values():
            os.close(fd)
        for known in (self._held, self._contents, self._names):
            known.clear()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk", monkeypatch)
    yield made
    made.close()


def a_store(folder: Path, files: int) -> tuple[StoreLayout, list[int]]:
    """A store, and the positions of its messages."""
    layout = store_of(folder, *(log_of(["A", "B"] * 2, base=SIZE * number) for number in range(files)), size=SIZE)
    return layout, [item.physical_offset for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]


def seen(out: Path) -> list[int] | None:
    """The rows that a reader finds; None if there is no complete output. Checks its manifest, too."""
    manifest = manifest_of(str(out))
    for file in manifest["files"] if manifest else []:
        assert (out / file["path"]).stat().st_size == file["bytes"]
    if not (out / SUCCESS).exists():
        return None
    assert manifest is not None
    rows = [row["physicalOffset"] for row in rows_of(out)]
    assert sum(file["rows"] for file in manifest["files"]) == len(rows)
    if manifest["position"] is not None:
        assert all(offset < manifest["position"]["next"] for offset in rows)
        assert rows[-1] == manifest["position"]["last"]
    return rows


@by_turns(7)
@pytest.mark.parametrize(
    ("options", "before", "lost", "spill"),
    every(3, list(product([{"overwrite": True}, {"since_last": True}], [False, True], ["all", "some"], [False, True]))),
)
def test_the_power_goes_at_any_step(
    options: dict[str, Any],
    before: bool,
    lost: str,
    spill: bool,
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if spill:  # rows of these few partitions are put aside, too
        monkeypatch.setattr(parquet, "_FEW", 0)
    old, new = a_store(tmp_path / "old", 1), a_store(tmp_path / "new", 2)
    root = tmp_path / "disk"
    out = root / "a" / "out"
    chosen = DumpOptions(runner="local", partition_by=("topic",), **options)

    def run(layout: StoreLayout, stop_at: int = -1) -> None:
        disk.begin(stop_at)
        dump_to_parquet(layout, str(out), chosen)

    resumed = 0
    for step in range(1, 1000, some(3, 1)):
        root.mkdir()
        if before:
            run(old[0])
        try:
            run(new[0], step)
        except Killed:
            pass
        else:
            break
        disk.cut(Random(step) if lost == "some" else None)
        disk.begin()
        state = seen(out)
        assert state in ([old[1], new[1], None] if before else [new[1], None])
        resumed += dump_to_parquet(new[0], str(out), chosen).resumed
        assert seen(out) == new[1]
        assert os.listdir(out.parent) == ["out"]
        assert not [name for name in os.listdir(out) if name.startswith("_") and name not in (SUCCESS, "_rmqtool.json")]
        shutil.rmtree(root)
    disk.cut(Random(0) if lost == "some" else None)
    assert seen(out) == new[1]
    assert step > 25
    assert (resumed > 0) == (lost == "some")
