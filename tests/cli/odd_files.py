"""Other things in place of a store's files."""

import os
import shutil
from pathlib import Path


def replace_by(path: Path, kind: str) -> None:
    """Replace a file or a directory by a fifo, a directory, a link to itself, or a link to a full device."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        (path / "below").mkdir(parents=True)
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.symlink_to("/dev/full")
