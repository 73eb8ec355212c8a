"""Create store files atomically: complete, with full length, owner and mode, and never over an existing file.

A broker refuses a store with a file that is too short, or with a foreign file in its commit log. So a new file is
created without a name (O_TMPFILE) in its target directory and linked when it is complete. Several threads and processes
may do so at once, and the directory may be a file system of its own. If the file system has no unnamed files, the file
is created under a temporary name in a directory whose foreign files a broker ignores; if that is on another file
system, it is created in place, as a broker does.
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
_NOT_HERE = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS}  # no unnamed files here
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOENT}  # or /proc is not there
_number = count()

Fill = Callable[[int], None]
"""Writes the contents of an empty file, given its descriptor."""


def open_at_length(path: str, length: int, scratch: str, names: set[str] | None = None) -> File:
    """Open a file for reading and writing; if it does not exist, create it sparse and at full length.

    Args:
        scratch: a directory, on the same file system if possible, in which a broker ignores foreign files.
        names: a set that receives the directories with a new name, to be synced by the caller; if None, they are synced
            here.

    Raises:
        UnreadableStore: the file system does not allow it, or another process is creating the same file.
    """
    try:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return File(_make(path, lambda new: os.ftruncate(new, length), scratch, names), path)
        if os.fstat(fd).st_size < length:  # an index file; brokers extend those too
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
    """Create a small file durably with the given contents; False if it exists, in which case it is left alone.

    It must be in a directory in which a broker ignores foreign files.

    Raises:
        OSError: it cannot be created.
    """
    if os.path.lexists(path):
        return False

    def fill(fd: int) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]

    try:
        os.close(_make(path, fill, os.path.dirname(path), None))
    except FileExistsError:
        return False
    return True


def make_root(folder: str) -> None:
    """Create the directory of a new store and its missing parents, owned like the directory above."""
    os.makedirs(folder)
    give_away(folder)


def give_away(folder: str) -> None:
    """If run by root, give a new store's directory to the owner of the directory above, for use by a broker."""
    if os.geteuid() == 0:
        above = os.stat(os.path.dirname(folder))
        os.chown(folder, above.st_uid, above.st_gid)


def sweep(scratch: str, folder: str | None = None) -> None:
    """Remove temporary files of killed processes; no other process may be writing to the store.

    Args:
        folder: remove only files meant for this directory; needed if other stores share the scratch directory.
    """
    prefix = PREFIX
    if folder is not None:
        try:
            prefix = _prefix(folder)
        except FileNotFoundError:
            return
    with suppress(FileNotFoundError), os.scandir(scratch) as entries:
        remains = [entry.path for entry in entries if entry.name.startswith(prefix)]
        for path in remains:
            os.unlink(path)


def _prefix(folder: str) -> str:
    # by inode: a store can have many paths, and stores may share the directory above their logs
    return f"{PREFIX}{os.stat(folder).st_ino:x}-"


def _make(path: str, fill: Fill, scratch: str, names: set[str] | None) -> int:
    """Create a new file and return its descriptor.

    Raises:
        FileExistsError: the file exists.
    """
    folder = os.path.dirname(path)
    changed = {os.path.dirname(created) for created in make_folders(folder)} | {folder}
    fd = _create_unnamed(path, fill)
    if fd is None:
        fd = _create_aside(path, fill, os.path.join(scratch, f"{_prefix(folder)}{os.getpid()}-{next(_number)}"))
    if fd is None:
        fd = _create_in_place(path, fill)
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


def _create_unnamed(path: str, fill: Fill) -> int | None:
    """Create it with O_TMPFILE and link it; None if that is not supported."""
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
        # src_dir_fd makes this a linkat that follows the symlink in /proc; without it, link would not
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)  # the first descriptor still refers to an unnamed file
    except OSError as err:
        if err.filename2 is not None and err.errno in _NO_LINK:
            return None
        raise
    finally:
        os.close(fd)


def _create_aside(path: str, fill: Fill, temporary: str) -> int | None:
    """Create it under a temporary name and link it; None if it cannot be linked to its name."""
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


def _create_in_place(path: str, fill: Fill) -> int:
    """Create it in place, as a broker does: for a moment the file exists but is too short."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fill(fd)
        # not modelled on the file itself, which exists already
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
