"""Owner, mode, ACL and extended attributes of files put into a store: the broker's user must be able to open them.

A command is often run by root on another user's store, and under any umask. So a replacement takes these attributes
from the file it replaces, and a new file from its directory.
"""

import errno
import os
import stat
from contextlib import suppress

_ACL, _DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"
_NOT_THERE = {errno.ENOTSUP, errno.ENODATA, errno.EPERM, errno.EACCES, errno.EINVAL}


def take_after(fd: int, path: str) -> None:
    """Give an open file owner, mode, ACL and extended attributes of the file at a path, or else of its directory.

    What this process is not permitted to set is left out: only root can give files away.

    Args:
        fd: a new file that no other process uses yet.
        path: its future path; a file there is the model, otherwise the nearest existing directory above.
    """
    try:
        model = os.stat(path)
    except FileNotFoundError:
        take_after_folder(fd, _find_existing(os.path.dirname(path)))
        return
    _give(fd, model.st_uid, model.st_gid, stat.S_IMODE(model.st_mode))
    for name in _attributes(path):
        with suppress(OSError):
            os.setxattr(fd, name, os.getxattr(path, name))


def give_as(fd: int, folder: str) -> None:
    """Give an open file or directory the owner and mode of a directory.

    If that is a store, the mode is restricted like that of its messages (:func:`find_closed`). Execute bits of files
    are dropped, and the owner always keeps the permissions needed to continue.
    """
    model, own = os.stat(folder), os.fstat(fd)
    mode = stat.S_IMODE(model.st_mode) & ~find_closed(folder)
    mode = mode | 0o700 if stat.S_ISDIR(own.st_mode) else (mode | 0o600) & 0o666
    _give(fd, model.st_uid, model.st_gid, mode)


def _find_missing(path: str) -> list[str]:
    """A directory and its parents, as far as they do not exist, outermost first."""
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def make_folders_as(path: str, model: str) -> list[str]:
    """Create a directory and its missing parents with the owner and mode of another directory.

    Returns:
        The created directories, outermost first. Their names are not durable yet.
    """
    missing = _find_missing(path)
    for folder in missing:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                give_as(fd, model)
            finally:
                os.close(fd)
    return missing


def make_folders(path: str) -> list[str]:
    """Create a directory and its missing parents, each with the owner and mode of its parent.

    Returns:
        The created directories, outermost first. Their names are not durable yet.
    """
    missing = _find_missing(path)
    for folder in missing:
        above = os.stat(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder)
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _give(fd, above.st_uid, above.st_gid, stat.S_IMODE(above.st_mode))
            finally:
                os.close(fd)
    return missing


def find_closed(path: str) -> int:
    """Permission bits, as for ``os.umask``, of those who may not read a file or a store's messages: 0o070, 0o007.

    For a store its directory, ``commitlog/`` and the first file there count: without search permission on the
    directories or read permission on the file, nobody can read a message. Missing files do not restrict anything.
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
            for everyone in (0o070, 0o007):
                if not mode & needed & everyone:
                    closed |= everyone
    return closed


def _find_existing(folder: str) -> str:
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def take_after_folder(fd: int, folder: str) -> None:
    """Give an open new file the owner, mode and default ACL of its directory."""
    above = os.stat(folder)
    _give(fd, above.st_uid, above.st_gid, stat.S_IMODE(above.st_mode) & 0o666)
    with suppress(OSError):  # most directories have none
        os.setxattr(fd, _ACL, os.getxattr(folder, _DEFAULT_ACL))


def _give(fd: int, uid: int, gid: int, mode: int) -> None:
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (uid, gid):
        try:
            os.fchown(fd, uid, gid)
        except PermissionError:
            with suppress(PermissionError):
                os.fchown(fd, -1, gid)  # works if this process is in the group
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        os.fchmod(fd, mode)


def _attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path)
    except OSError as err:
        if err.errno in _NOT_THERE:
            return []
        raise
