"""Owner, mode, ACL and extended attributes of what is put into a store: the broker's own user must be able to open it.

A command is often run by root on the store of another user, and under any umask. So a file takes after the one that it
replaces, and a new one after its folder.
"""

import errno
import os
import stat
from contextlib import suppress

_ACL, _DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"
_NOT_THERE = {errno.ENOTSUP, errno.ENODATA, errno.EPERM, errno.EACCES, errno.EINVAL}


def take_after(fd: int, path: str) -> None:
    """Give an open file owner, mode, ACL and extended attributes of the file at a path, or what its folder suggests.

    What this process may not give is left out: only root gives files away.

    Args:
        fd: of a new file, which nobody else uses yet.
        path: where it will be; a file that is there now is its model, else the nearest folder above it.
    """
    try:
        model = os.stat(path)
    except FileNotFoundError:
        take_after_folder(fd, _existing(os.path.dirname(path)))
        return
    _give(fd, model.st_uid, model.st_gid, stat.S_IMODE(model.st_mode))
    for name in _attributes(path):
        with suppress(OSError):
            os.setxattr(fd, name, os.getxattr(path, name))


def give_as(fd: int, folder: str) -> None:
    """Give an open file or directory owner and mode of a folder, and of a store's folder the mode of its messages
    (:func:`find_closed`); a file may not be executed for it, and its owner may always do what it takes to go on with
    it."""
    model, own = os.stat(folder), os.fstat(fd)
    mode = stat.S_IMODE(model.st_mode) & ~find_closed(folder)
    mode = mode | 0o700 if stat.S_ISDIR(own.st_mode) else (mode | 0o600) & 0o666
    _give(fd, model.st_uid, model.st_gid, mode)


def make_folders_as(path: str, model: str) -> list[str]:
    """Make a directory and what is missing above it, with the owner and mode of another.

    Returns:
        Those that were made, outermost first. Their names are not durable yet.
    """
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                give_as(fd, model)
            finally:
                os.close(fd)
    return missing[::-1]


def make_folders(path: str) -> list[str]:
    """Make a directory and what is missing above it, each after the one that it lies in.

    Returns:
        Those that were made, outermost first. Their names are not durable yet.
    """
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        above = os.stat(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder)
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _give(fd, above.st_uid, above.st_gid, stat.S_IMODE(above.st_mode))
            finally:
                os.close(fd)
    return missing[::-1]


def find_closed(path: str) -> int:
    """Find who may not read a file, or the messages of a store: bits for ``os.umask``, 0o070 the group, 0o007 others.

    Of a store its directory, ``commitlog/`` and the first file there count: without the right to search one or to read
    the other nobody gets at a message. What is not there, or is no path here, closes nothing.
    """
    log = os.path.join(path, "commitlog")
    places = [path, log]
    with suppress(OSError, ValueError):
        places += [os.path.join(log, name) for name in sorted(os.listdir(log))[:1]]
    closed = 0
    for place in places:
        with suppress(OSError, ValueError):
            mode = os.stat(place).st_mode
            needed = 0o011 if stat.S_ISDIR(mode) else 0o044
            for everybody in (0o070, 0o007):
                if not mode & needed & everybody:
                    closed |= everybody
    return closed


def _existing(folder: str) -> str:
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def take_after_folder(fd: int, folder: str) -> None:
    """Give an open new file what its folder suggests."""
    above = os.stat(folder)
    _give(fd, above.st_uid, above.st_gid, stat.S_IMODE(above.st_mode) & 0o666)
    with suppress(OSError):  # most folders have none
        os.setxattr(fd, _ACL, os.getxattr(folder, _DEFAULT_ACL))


def _give(fd: int, uid: int, gid: int, mode: int) -> None:
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (uid, gid):
        try:
            os.fchown(fd, uid, gid)
        except PermissionError:
            with suppress(PermissionError):
                os.fchown(fd, -1, gid)  # a group that this process is in
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        os.fchmod(fd, mode)


def _attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path)
    except OSError as err:
        if err.errno in _NOT_THERE:
            return []
        raise
