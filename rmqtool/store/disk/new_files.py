"""Store files that appear whole or not at all, with their full length, owner and mode, and never over another file.

A broker refuses a store with a file that is too short, and one with a foreign file in its commit log. So a new file is
made without a name in the directory where it will be, and gets its name when it is complete. Several threads and
processes may do so at once, and the directory may be a file system of its own. Where a file system knows no files
without names, the file is made under a name of its own in a directory whose foreign files a broker passes over; where
that is another file system, in its place, as a broker makes it.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.files import File
from rmqtool.store.disk.ownership import make_folders, take_after

PREFIX = ".rmqtool-new-"
_NOT_HERE = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS}  # no files without names
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOENT}  # or /proc is not there
_number = count()

Fill = Callable[[int], None]
"""Gives an empty file, by its descriptor, what it is to hold."""


def open_at_length(path: str, length: int, scratch: str, names: set[str] | None = None) -> File:
    """Open a file for reading and writing; one that is not there is made, sparse, at its full length.

    Args:
        scratch: directory, on the same file system where there is one, in which a broker passes over foreign files.
        names: called with the directories that got a name, to be synced by the caller; where it is None that is done
            here.

    Raises:
        UnreadableStore: the file system does not allow it, or another process makes the same file.
    """
    try:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return File(_make(path, lambda new: os.ftruncate(new, length), scratch, names), path)
        if os.fstat(fd).st_size < length:  # an index file, which brokers lengthen too
            try:
                os.ftruncate(fd, length)
            except BaseException:
                os.close(fd)
                raise
    except FileExistsError as err:
        raise UnreadableStore(f"{path}: another process has just made it, and writes to this store") from err
    except OSError as err:
        raise UnreadableStore(f"{err.filename or path}: {os.strerror(err.errno or 0)}") from err
    return File(fd, path)


def make_file(path: str, data: bytes) -> bool:
    """Make a small file with what it holds, durably; False where one is there, which stays as it is.

    Its directory is one in which a broker passes over foreign files.

    Raises:
        OSError: it cannot be made.
    """
    if os.path.lexists(path):
        return False

    def fill(fd: int) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]

    try:
        os.close(_make(path, fill, os.path.dirname(path), None))
    except FileExistsError:
        return False
    return True


def make_root(folder: str) -> None:
    """The directory of a new store, and what is missing above it, for whom the one above belongs to."""
    os.makedirs(folder)
    give_away(folder)


def give_away(folder: str) -> None:
    """Root gives a new store's directory to whom the one above belongs, since a broker is to use it."""
    if os.geteuid() == 0:
        above = os.stat(os.path.dirname(folder))
        os.chown(folder, above.st_uid, above.st_gid)


def sweep(scratch: str, folder: str | None = None) -> None:
    """Remove what killed processes left in a directory; nobody else may write to the store.

    Args:
        folder: what was to go there only; needed where the scratch directory is not the store's alone.
    """
    prefix = PREFIX
    if folder is not None:
        try:
            prefix = _prefix(folder)
        except FileNotFoundError:
            return
    with suppress(FileNotFoundError), os.scandir(scratch) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(prefix)]
        for path in left:
            os.unlink(path)


def _prefix(folder: str) -> str:
    # by inode: a store has many names, and stores may share the directory above their logs
    return f"{PREFIX}{os.stat(folder).st_ino:x}-"


def _make(path: str, fill: Fill, scratch: str, names: set[str] | None) -> int:
    """A new file, open.

    Raises:
        FileExistsError: there is one already.
    """
    folder = os.path.dirname(path)
    changed = {os.path.dirname(path_made) for path_made in make_folders(folder)} | {folder}
    fd = _nameless(path, fill)
    if fd is None:
        fd = _beside(path, fill, os.path.join(scratch, f"{_prefix(folder)}{os.getpid()}-{next(_number)}"))
    if fd is None:
        fd = _in_place(path, fill)
    if names is not None:
        names |= changed
        return fd
    try:
        for directory in sorted(changed, reverse=True):
            sync(directory)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _nameless(path: str, fill: Fill) -> int | None:
    """By O_TMPFILE and a link; None where that cannot be done."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        fd = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as err:
        if err.errno in _NOT_HERE:
            return None
        raise
    try:
        _complete(fd, path, fill)
        # with a directory's descriptor this is linkat, which follows the link in /proc; alone it would not
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)  # the first one goes on saying that it has no name
    except OSError as err:
        if err.filename2 is not None and err.errno in _NO_LINK:
            return None
        raise
    finally:
        os.close(fd)


def _beside(path: str, fill: Fill, temporary: str) -> int | None:
    """Under another name first; None where that name cannot become the other."""
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _complete(fd, path, fill)
        os.link(temporary, path)
    except BaseException as err:
        os.close(fd)
        if isinstance(err, OSError) and err.filename2 is not None and err.errno in _NO_LINK:
            return None
        raise
    finally:
        os.unlink(temporary)
    return fd


def _in_place(path: str, fill: Fill) -> int:
    """As a broker does it: for a moment the file is there, and too short."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fill(fd)
        # not after this file itself, which is there already
        take_after(fd, os.path.join(os.path.dirname(path), f"{PREFIX}{os.getpid()}"))
        os.fsync(fd)
    except BaseException:
        os.close(fd)
        os.unlink(path)
        raise
    return fd


def _complete(fd: int, path: str, fill: Fill) -> None:
    fill(fd)
    take_after(fd, path)
    os.fsync(fd)
