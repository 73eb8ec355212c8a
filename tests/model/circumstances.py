"""Circumstances of stores: location, path, user who runs commands, and system limits."""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.model.commands import Done, run

OTHER_USER = 12345


@dataclass
class Place:
    """The location of a store, and how commands are run on it."""

    store: Path
    name: str | None = None  # as the command is given it
    limits: dict[int, int] = field(default_factory=dict)
    before: Callable[[], object] | None = None
    after: Callable[[Path], None] | None = None

    def run(self, *args: str, stdin: bytes = b"", instead: Callable[[], int] | None = None) -> Done:
        """Run a command of the scenario."""
        told = [word.replace("STORE", self.name or str(self.store)) for word in args]
        return run(*told, stdin=stdin, limits=self.limits, before=self.before, instead=instead)


@contextmanager
def tmpfs(path: Path) -> Iterator[Path]:
    """Another file system."""
    path.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", path], check=False).returncode:
        pytest.skip("no right to mount")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@contextmanager
def named(name: str, whole: Path, tmp: Path) -> Iterator[Place]:
    """A path that is difficult to quote."""
    (tmp / name).parent.mkdir(parents=True, exist_ok=True)
    yield Place(shutil.copytree(whole, tmp / name))


@contextmanager
def by_a_link(whole: Path, tmp: Path) -> Iterator[Place]:
    """A store reached through a symbolic link."""
    store = shutil.copytree(whole, tmp / "real")
    (tmp / "link").symlink_to(store)
    yield Place(store, name=str(tmp / "link"))


@contextmanager
def parts_elsewhere(how: str, parts: tuple[str, ...], whole: Path, tmp: Path) -> Iterator[Place]:
    """Directories of the store on another file system, by links or mounts."""
    store = shutil.copytree(whole, tmp / "store")
    if how == "link":
        with tmpfs(tmp / "disk") as disk:
            for part in parts:
                shutil.move(store / part, disk / part)
                (store / part).symlink_to(disk / part)
            yield Place(store)
        return
    (part,) = parts
    shutil.move(store / part, tmp / "aside")
    with tmpfs(store / part):
        shutil.copytree(tmp / "aside", store / part, dirs_exist_ok=True)
        yield Place(store)


@contextmanager
def few_descriptors(whole: Path, tmp: Path) -> Iterator[Place]:
    """Few descriptors, fewer than services usually get."""
    yield Place(shutil.copytree(whole, tmp / "store"), limits={resource.RLIMIT_NOFILE: 32})


@contextmanager
def of_another_user(whole: Path, tmp: Path) -> Iterator[Place]:
    """Root runs the commands on a broker's store with a restrictive umask; the broker's user must keep access."""
    if os.geteuid():
        pytest.skip("needs root")
    store = shutil.copytree(whole, tmp / "store")
    for path in (store, *store.rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER)

    def owned(folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            status = path.stat()
            assert (status.st_uid, status.st_gid) == (OTHER_USER, OTHER_USER), path
            wanted = 0o700 if path.is_dir() else 0o600
            assert status.st_mode & wanted == wanted, path
            assert status.st_mode & 0o044 == 0o044, path

    yield Place(store, before=lambda: os.umask(0o077), after=owned)


def compaction_elsewhere(whole: Path, tmp: Path) -> Any:
    """The compaction directory elsewhere; only for 5.x stores."""
    return parts_elsewhere("link", ("compaction",), whole, tmp)


CIRCUMSTANCES: dict[str, Callable[[Path, Path], Any]] = {
    "hard-to-quote": lambda whole, tmp: named("a b'c\"d$(x) `y`\ntwo lines/商店-Ω-\u202e 100%s\\n{}", whole, tmp),
    "no-utf8": lambda whole, tmp: named(os.fsdecode(b"\xff\xfe"), whole, tmp),
    "long": lambda whole, tmp: named("/".join(["x" * 200] * 8), whole, tmp),
    "link": by_a_link,
    "log-elsewhere": lambda whole, tmp: parts_elsewhere("link", ("commitlog",), whole, tmp),
    "queues-elsewhere": lambda whole, tmp: parts_elsewhere("link", ("consumequeue",), whole, tmp),
    "index-and-config-elsewhere": lambda whole, tmp: parts_elsewhere("link", ("index", "config"), whole, tmp),
    "log-mounted": lambda whole, tmp: parts_elsewhere("mount", ("commitlog",), whole, tmp),
    "index-mounted": lambda whole, tmp: parts_elsewhere("mount", ("index",), whole, tmp),
    "few-descriptors": few_descriptors,
    "another-user": of_another_user,
}
