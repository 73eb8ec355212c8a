"""Something else in the place of a file, for a while."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random


@contextmanager
def odd_file(path: Path, rng: Random, *, keep: bool = False) -> Iterator[str]:
    """A directory, a FIFO, a link to itself, or what is no content of such a file; the right one is there again behind.

    What was written in the odd one's place meanwhile stays.

    Args:
        keep: it has something that must not be lost: what is in its place is no file.
    """
    aside = path.with_name(f"{path.name}.aside")
    kinds = ["directory", "FIFO", "link to itself", *(() if keep else ("empty file", "file of noise"))]
    kind = rng.choice(kinds)
    if os.path.lexists(path):
        path.rename(aside)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "link to itself":
        path.symlink_to(path.name)
    else:
        path.write_bytes(rng.randbytes(300) if kind == "file of noise" else b"")
    odd = _print(path)
    try:
        yield f"a {kind} as {path.name}"
    finally:
        if _print(path) == odd:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if os.path.lexists(aside):
            if os.path.lexists(path):
                aside.unlink()
            else:
                aside.rename(path)


def _print(path: Path) -> tuple[int, int, int, int] | None:
    """What tells that it is still what was put there."""
    try:
        seen = os.lstat(path)
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns
