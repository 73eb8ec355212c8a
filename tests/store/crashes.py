"""Simulate kills and power cuts at any step of writing."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

# every way in which a file changes, or its change is made to last
STEPS = (
    *("replace", "rename", "link", "unlink", "mkdir", "makedirs", "rmdir"),
    *("pwrite", "ftruncate", "utime", "fsync"),
)


class Killed(BaseException):
    """The process was killed: must not be caught."""


class Seam:
    """Counts disk operations, kills at one of them, and records what was durable by then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: tuple[str, ...] = STEPS) -> None:
        self.count = 0
        self.stop_at = -1
        self.dead = False
        self.durable: dict[str, bytes] = {}
        self._nameless: dict[int, bytes] = {}  # by inode: what a file without a name had when it was synced
        self._named: dict[str, bytes] = {}  # the same for those whose name is not durable yet
        for name in steps:
            monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Killed
            self.count += 1
            if self.count == self.stop_at:
                self.dead = True
                raise Killed
            if name == "link" and str(args[0]).startswith("/proc/self/fd/"):
                real(*args, **kwargs)
                self._named[str(args[1])] = self._nameless.get(os.stat(args[1]).st_ino, b"")
                return None
            if name != "fsync":
                return real(*args, **kwargs)
            # the disk is not waited for, thousands of times: what counts as durable is kept here
            path = os.readlink(f"/proc/self/fd/{args[0]}")
            if os.path.isfile(path):
                self.durable[path] = Path(path).read_bytes()
            elif os.path.isdir(path):
                for made in [made for made in self._named if os.path.dirname(made) == path]:
                    self.durable.setdefault(made, self._named.pop(made))
            else:
                self._nameless[os.fstat(args[0]).st_ino] = Path(f"/proc/self/fd/{args[0]}").read_bytes()
            return None

        return step

    def begin(self, stop_at: int = -1) -> None:
        """Restart, counting from the first step."""
        self.count, self.stop_at, self.dead = 0, stop_at, False

    def begin_with(self, folder: Path, stop_at: int) -> None:
        """Restart; the files of a folder are durable."""
        self.durable = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.begin(stop_at)

    def end(self, ending: str, folder: Path, seed: int) -> None:
        """End the process as named: ``killed``, ``power cut``, or ``power cut here and there``, of random files."""
        self.begin()
        if ending != "killed":
            self.cut_power(folder, Random(seed) if "here" in ending else None)

    def cut_power(self, folder: Path, rng: Random | None) -> None:
        """Remove what was not durable from the files: all of it, or that of random files."""
        for path in sorted(folder.rglob("*")):
            if path.is_file() and (rng is None or rng.random() < 0.5):
                kept = self.durable.get(str(path))
                if kept is None:
                    path.unlink()
                elif kept != path.read_bytes():
                    path.write_bytes(kept)


class Medium(Seam):
    """A seam that also tracks the worst-case content of the medium after a power cut: names not synced with their
    directory are missing, names removed without a sync are back, and files have the bytes of their last sync.
    """

    def begin_on(self, folder: Path, stop_at: int = -1) -> None:
        """Restart; everything in a folder is now durable."""
        self._names: dict[int, dict[str, tuple[int, str]]] = {}
        self._data: dict[int, bytes] = {}
        self._times: dict[int, int] = {}
        self._folder = folder
        for directory in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            self._see_names(directory)
        for path in folder.rglob("*"):
            if path.is_file():
                self._see_data(path)
        self.begin(stop_at)

    def _see_names(self, directory: Path) -> None:
        result = {}
        for entry in os.scandir(directory):
            kind = "link" if entry.is_symlink() else "folder" if entry.is_dir() else "file"
            result[entry.name] = entry.inode(), kind
        self._names[directory.stat().st_ino] = result

    def _see_data(self, path: Path) -> None:
        about = path.stat()
        self._data[about.st_ino], self._times[about.st_ino] = path.read_bytes(), about.st_mtime_ns

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        step = super()._wrap(name, real)

        def seen(*args: Any, **kwargs: Any) -> Any:
            done = step(*args, **kwargs)
            if name == "fsync" and hasattr(self, "_names"):
                path = Path(os.readlink(f"/proc/self/fd/{args[0]}"))
                if path.is_dir():
                    self._see_names(path)
                elif path.is_file():
                    self._see_data(path)
            return done

        return seen

    def left(self, target: Path) -> None:
        """Write the content of the medium to a new folder."""
        self._make(self._folder.stat().st_ino, target)

    def _make(self, inode: int, target: Path) -> None:
        target.mkdir()
        for name, (child, kind) in self._names.get(inode, {}).items():
            if kind == "folder":
                self._make(child, target / name)
            elif kind == "file":
                (target / name).write_bytes(self._data.get(child, b""))
                os.utime(target / name, ns=(0, self._times.get(child, 0)))
