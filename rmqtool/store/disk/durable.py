"""Durable writes: when these functions return, the name or the bytes are on the medium.

Moves and copies keep owner, mode, ACL, extended attributes, times and holes.
"""

import ctypes
import errno
import os
import platform
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from rmqtool.store.disk.files import SyncFailed
from rmqtool.store.disk.ownership import give_as, make_folders, take_after
from rmqtool.store.disk.sparse import copy_written

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # errors that only writers get
_LACKING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}  # these may go away by themselves


# f_type of struct statfs: file systems on which syncfs makes everything durable. Others (overlays, FUSE) may sync only
# a part, or report no errors
_WHOLE = {0xEF53: "ext", 0x58465342: "xfs", 0x9123683E: "btrfs", 0xF2F52010: "f2fs", 0x01021994: "tmpfs"}
_SYNCFS = (5, 8)  # first release of Linux in which syncfs reports write errors


def is_lacking(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is a temporary lack of disk space or file descriptors.

    A failed sync never counts, whatever its cause: the next sync does not write the pages that it dropped.
    """
    while error is not None and not isinstance(error, SyncFailed):
        if isinstance(error, OSError) and error.errno in _LACKING:
            return True
        error = error.__cause__
    return False


def sync(path: str) -> None:
    """Make a file, or the names in a directory, durable.

    Raises:
        SyncFailed: the medium did not accept it.
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
    """Make the names in several directories durable, innermost first."""
    for folder in sorted(folders, reverse=True):
        sync(folder)


def sync_all(folders: set[str]) -> None:
    """Make the names in several directories durable; directories that no longer exist are skipped."""
    for folder in sorted(folders):
        if os.path.isdir(folder):
            sync(folder)


class Barrier:
    """Makes everything written to a file system from now on durable in one call, where that is reliable.

    For many small files this is far cheaper than syncing each.

    Args:
        folder: an existing directory on that file system.
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
        """Sync the file system; False if that is not reliable here, so that each file must be synced.

        Raises:
            OSError: something written since this object was created could not be stored.
        """
        if self._fd < 0:
            return False
        if _libc().syncfs(self._fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return True

    def close(self) -> None:
        """Close its descriptor; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@cache
def _libc() -> Any:
    """The C library; None if syncfs is missing or does not report errors."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if platform.system() != "Linux" or release is None or (int(release[1]), int(release[2])) < _SYNCFS:
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syncfs, libc.fstatfs  # noqa: B018  a look-up, since they may be missing
    except (OSError, AttributeError):
        return None
    return libc


def _file_system(fd: int) -> int:
    """The kernel's magic number of a file system; -1 if unknown."""
    stats = ctypes.create_string_buffer(256)  # struct statfs, which begins with the kind as a long
    return -1 if _libc().fstatfs(fd, stats) else ctypes.c_long.from_buffer(stats).value & 0xFFFFFFFF


def move(source: str, target: str) -> None:
    """Rename; across file systems copy, sync and unlink. The target is never visible half written."""
    try:
        os.replace(source, target)
    except OSError as err:
        if err.errno != errno.EXDEV:
            raise
        copy_aside(source, target)
        os.unlink(source)


def link_aside(source: str, target: str) -> None:
    """Give a file or link a second name, or copy it if that fails; the target appears complete. The names in the
    target's directory are not durable yet."""
    temporary = target + ".part"
    if os.path.lexists(temporary):
        os.unlink(temporary)  # left by a killed run; it may be a hard link to the source itself
    try:
        os.link(source, temporary)  # keeps the old inode itself: no copy that could be torn
    except OSError:
        _copy(source, temporary)
    os.replace(temporary, target)
    if os.path.lexists(temporary):
        os.unlink(temporary)  # rename does nothing if both are links to the same file


def copy_aside(source: str, target: str) -> None:
    """Make a durable copy of a file (or a hard link to it); the target appears complete."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    link_aside(source, target)
    sync(os.path.dirname(target))


def write_durably(path: str, data: bytes, *, like: str) -> None:
    """Write a small file atomically: after a power cut there is the old or the new one.

    Args:
        like: directory whose owner and mode (without execute permission) the file gets.
    """
    temporary = path + ".tmp"
    if os.path.lexists(temporary):
        os.unlink(temporary)  # left by a killed run
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        give_as(fd, like)
        os.fsync(fd)
    os.replace(temporary, path)
    sync(os.path.dirname(path))


def replace_file(path: str, data: bytes, *, keep: bool, closed: int = 0) -> None:
    """Replace a file atomically and durably, keeping its owner and mode.

    Args:
        keep: keep the previous file as ``.bak``, as a broker does for its config files.
        closed: mode bits to withhold from a file that did not exist before (:func:`find_closed`).

    Raises:
        OSError: it cannot be written, or what is there is no file.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)  # a pipe or device, maybe behind a link
    closed = 0 if os.path.lexists(path) else closed
    for folder in make_folders(os.path.dirname(path)):
        sync(os.path.dirname(folder))
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.pwrite(fd, rest, len(data) - len(rest)) :]
            take_after(fd, path)
            if closed:
                os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & ~closed)
            os.fsync(fd)
        finally:
            os.close(fd)
        if keep and os.path.lexists(path):
            link_aside(path, path + ".bak")  # made durable by the sync below; both files are complete
        os.replace(temporary, path)
    except OSError as err:
        err.filename = err.filename or path
        with suppress(OSError):
            os.unlink(temporary)  # do not leave a useless file on a full disk
        raise
    sync(os.path.dirname(path))


def write_named(path: str, data: bytes) -> None:
    """Write a file that a user has named: replace a file atomically, and write through a link or into a stream.

    Replacing ``/dev/stdout`` would take it from every process of the machine.
    """
    if os.path.islink(path) or (os.path.lexists(path) and not os.path.isfile(path)):
        with open(path, "wb") as out:
            out.write(data)
    else:
        replace_file(path, data, keep=False)


def remove_durably(path: str) -> None:
    """Remove a file so that it does not reappear after a power cut."""
    if os.path.lexists(path):
        os.unlink(path)
        sync(os.path.dirname(path))


def remove_in_order(paths: Sequence[str]) -> None:
    """Remove files one after the other so that they do not reappear, syncing each directory after its last one."""
    for number, path in enumerate(paths):
        with suppress(FileNotFoundError):
            os.unlink(path)
        if number + 1 == len(paths) or os.path.dirname(paths[number + 1]) != os.path.dirname(path):
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
