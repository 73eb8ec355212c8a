"""Writes that last: a name or its bytes are on the medium when these return.

What is moved or copied keeps owner, mode, ACL, extended attributes, times and holes.
"""

import ctypes
import errno
import os
import platform
import re
import stat
from contextlib import suppress
from functools import cache
from typing import Any

from rmqtool.store.disk.files import SyncFailed
from rmqtool.store.disk.ownership import give_as, make_folders, take_after
from rmqtool.store.disk.sparse import copy_written

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # only who writes meets these
_LACKING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}  # what may be there again later


# of struct statfs: file systems on which syncfs makes all of it durable. Others (overlays, FUSE) may take a part of it,
# or say nothing of errors
_WHOLE = {0xEF53: "ext", 0x58465342: "xfs", 0x9123683E: "btrfs", 0xF2F52010: "f2fs", 0x01021994: "tmpfs"}
_SYNCFS = (5, 8)  # release of Linux from which on syncfs tells that something could not be written


def is_lacking(error: BaseException | None) -> bool:
    """Whether an error, or one that it comes from, says that room on a disk or a descriptor is lacking for now.

    A sync that failed is none, whatever its reason: what it gave up is not written by the next one.
    """
    while error is not None and not isinstance(error, SyncFailed):
        if isinstance(error, OSError) and error.errno in _LACKING:
            return True
        error = error.__cause__
    return False


def sync(path: str) -> None:
    """Make a file, or the names in a directory, durable.

    Raises:
        SyncFailed: the medium did not take it.
        OSError: it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as err:
        raise SyncFailed(err.errno, os.strerror(err.errno or 0), path) from None
    finally:
        os.close(fd)


def sync_names(folders: set[str]) -> None:
    """Make the names in several directories durable, the innermost first."""
    for folder in sorted(folders, reverse=True):
        sync(folder)


def sync_all(folders: set[str]) -> None:
    """Make the names in several directories durable; those that are gone need it no more."""
    for folder in sorted(folders):
        if os.path.isdir(folder):
            sync(folder)


class Barrier:
    """Makes all that is written to a file system from now on durable in one go, where that is reliable.

    For many small files this is far cheaper than to sync each.

    Args:
        folder: a directory on it, which exists.
    """

    def __init__(self, folder: str) -> None:
        self._fd = -1
        if _libc() is None:
            return
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if _file_system(fd) in _WHOLE:
            self._fd = fd
        else:
            os.close(fd)

    def sync(self) -> bool:
        """Whether it was done; where not, each file must be synced.

        Raises:
            OSError: something that was written since this was made could not be.
        """
        if self._fd < 0:
            return False
        if _libc().syncfs(self._fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return True

    def close(self) -> None:
        """Give its descriptor back; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@cache
def _libc() -> Any:
    """The C library; None where syncfs is missing or says nothing of errors."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if platform.system() != "Linux" or release is None or (int(release[1]), int(release[2])) < _SYNCFS:
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syncfs, libc.fstatfs  # noqa: B018  looked up here, for they may be missing
    except (OSError, AttributeError):
        return None
    return libc


def _file_system(fd: int) -> int:
    """What the kernel calls the kind of a file system; -1 when it does not say."""
    stats = ctypes.create_string_buffer(256)  # struct statfs, which begins with the kind as a long
    return -1 if _libc().fstatfs(fd, stats) else ctypes.c_long.from_buffer(stats).value & 0xFFFFFFFF


def move(source: str, target: str) -> None:
    """Rename, or copy, sync and unlink across file systems; never a half file under the target's name."""
    try:
        os.replace(source, target)
    except OSError as err:
        if err.errno != errno.EXDEV:
            raise
        copy_aside(source, target)
        os.unlink(source)


def link_aside(source: str, target: str) -> None:
    """A second name of a file or link, or else a copy, complete as soon as it is there. The names in the target's
    directory are not durable yet."""
    temporary = target + ".part"
    if os.path.lexists(temporary):
        os.unlink(temporary)  # of a run that was killed; it may be a second name of the source itself
    try:
        os.link(source, temporary)  # the kept file is the old inode itself: no copy, no chance of a torn one
    except OSError:
        _copy(source, temporary)
    os.replace(temporary, target)
    if os.path.lexists(temporary):
        os.unlink(temporary)  # rename does nothing when both names are one file already


def copy_aside(source: str, target: str) -> None:
    """A durable second copy (or link) of a file, complete as soon as it has its name."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    link_aside(source, target)
    sync(os.path.dirname(target))


def write_durably(path: str, data: bytes, *, like: str) -> None:
    """A small file, the old one or the new one after a power cut.

    Args:
        like: folder whose owner it takes, and whose mode without the right to execute.
    """
    temporary = path + ".tmp"
    if os.path.lexists(temporary):
        os.unlink(temporary)  # of a run that was killed
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        give_as(fd, like)
        os.fsync(fd)
    os.replace(temporary, path)
    sync(os.path.dirname(path))


def replace_file(path: str, data: bytes, *, keep: bool, closed: int = 0) -> None:
    """A file takes the place of the one before, with its owner and mode; the old or the new one after a power cut.

    Args:
        keep: the one before becomes ``.bak``, as a broker's own config files do.
        closed: bits of the mode that a file does not get where there was none (:func:`find_closed`).
    """
    closed = 0 if os.path.lexists(path) else closed
    for folder in make_folders(os.path.dirname(path)):
        sync(os.path.dirname(folder))
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.pwrite(fd, left, len(data) - len(left)) :]
            take_after(fd, path)
            if closed:
                os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & ~closed)
            os.fsync(fd)
        finally:
            os.close(fd)
        if keep and os.path.lexists(path):
            link_aside(path, path + ".bak")  # whose name is durable with the other one; each of both is whole
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)  # a full disk is not to be filled by what comes to nothing
        raise
    os.replace(temporary, path)
    sync(os.path.dirname(path))


def remove_durably(path: str) -> None:
    """A file that is not there after a power cut either."""
    if os.path.lexists(path):
        os.unlink(path)
        sync(os.path.dirname(path))


def _copy(source: str, target: str) -> None:
    status = os.lstat(source)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
        return
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        copy_written(source, fd)
        os.ftruncate(fd, status.st_size)
        take_after(fd, source)
        os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fsync(fd)
    finally:
        os.close(fd)
