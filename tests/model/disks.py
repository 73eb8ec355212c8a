"""A separate file system for a model's store, which can be filled up."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.model.steps import append, clean, dispatch, group_reset, rebuild, recover, salvage, serve, truncate, undo
from tests.model.world import World

_SIZE = 512 << 20
_PAGE = 4096
_STEPS = (append, append, serve, recover, dispatch, rebuild, truncate, clean, group_reset, undo, salvage)


@contextmanager
def disk(path: Path) -> Iterator[bool]:
    """A tmpfs mounted at a path within the context; yields False if mounting is not permitted."""
    path.mkdir(parents=True, exist_ok=True)
    args = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(path)]
    mounted = not os.geteuid() and subprocess.run(args, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", path], check=True)
        shutil.rmtree(path, ignore_errors=True)


def full_disk(world: World, rng: Random) -> None:
    """Run a command on a disk with a few free pages, or none."""
    if not world.own_disk:
        return
    left = rng.choice((0, 1, 2, 4, 8, 16, 30))
    fill(world.home, left)
    world.counts["full disk"] += 1
    world.history.append(f"a disk with room for {left} pages:")
    try:
        rng.choice(_STEPS)(world, rng)
    finally:
        empty(world.home)


def fill(path: Path, left: int) -> None:
    """Leave this many free pages on the disk of a path."""
    for _ in range(100):  # what neighbours of the last step have not ended yet may take a page meanwhile
        used = os.statvfs(path)
        if _resize(path, (used.f_blocks - used.f_bfree + left) * _PAGE):
            return
        time.sleep(0.02)
    raise OSError(f"{path}: cannot be made small")


def empty(path: Path) -> None:
    """Restore the size of a path's disk."""
    _resize(path, _SIZE)


def _resize(path: Path, size: int) -> bool:
    """Resize it; returns whether that worked: it cannot be smaller than its content."""
    top = path if os.path.ismount(path) else path.parent
    args = ["mount", "-o", f"remount,size={max(size, _PAGE)}", str(top)]
    return subprocess.run(args, check=False, capture_output=True).returncode == 0
