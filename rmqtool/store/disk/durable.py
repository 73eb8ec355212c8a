"""Writes that last: a name or its bytes are on the medium when these return."""

import errno
import os
import shutil

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # only who writes meets these


def sync(path: str) -> None:
    """Make a file, or the names in a directory, durable."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def move(source: str, target: str) -> None:
    """Rename, or copy, sync and unlink across file systems; never a half file under the target's name."""
    try:
        os.replace(source, target)
    except OSError as err:
        if err.errno != errno.EXDEV:
            raise
        copy_aside(source, target)
        os.unlink(source)


def copy_aside(source: str, target: str) -> None:
    """A durable second copy (or link) of a file, complete as soon as it has its name."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    temporary = target + ".part"
    if os.path.lexists(temporary):
        os.unlink(temporary)  # of a run that was killed; it may be a second name of the source itself
    try:
        os.link(source, temporary)  # the kept file is the old inode itself: no copy, no chance of a torn one
    except OSError:
        shutil.copy2(source, temporary)
        sync(temporary)
    os.replace(temporary, target)
    if os.path.lexists(temporary):
        os.unlink(temporary)  # rename does nothing when both names are one file already
    sync(os.path.dirname(target))
