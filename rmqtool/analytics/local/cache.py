"""A private per-user directory for small generated files (``$XDG_CACHE_HOME/rmqtool``, ``~/.cache/rmqtool``)."""

import atexit
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache


def cache_dir(*parts: str) -> str:
    """Return a directory below the cache, creating it with mode 0700.

    Files in it are executed, so a location writable by others is not used. In that case, or without a writable home
    directory, a temporary directory is returned that is removed when the process exits.
    """
    for root in _roots():
        try:
            os.makedirs(root, exist_ok=True)
            path = _descend(root, ("rmqtool", *parts)) if _is_out_of_reach(root) else None
        except OSError:
            continue
        if path is not None:
            return path
    path = _descend(_temporary(), parts)
    assert path is not None, "our own temporary directory"
    return path


def _descend(path: str, parts: tuple[str, ...]) -> str | None:
    """Return a directory below ``path``, creating missing levels; None if a level is not exclusively ours."""
    for part in parts:
        path = os.path.join(path, part)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        if not _is_ours(path):
            return None
    return path


def _roots() -> list[str]:
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification says to ignore relative paths
    roots = [xdg] if os.path.isabs(xdg) else []
    home = os.path.expanduser("~")
    return [*roots, os.path.join(home, ".cache")] if os.path.isabs(home) else roots


def _is_out_of_reach(path: str) -> bool:
    """Return whether only this user and root can replace this directory or one of its parents."""
    path = os.path.realpath(path)
    while True:
        status = os.lstat(path)
        others = status.st_mode & (stat.S_IWOTH if status.st_gid == os.getegid() else stat.S_IWOTH | stat.S_IWGRP)
        if status.st_uid not in (0, os.geteuid()) or (others and not status.st_mode & stat.S_ISVTX):
            return False
        above = os.path.dirname(path)
        if above == path:
            return True
        path = above


def _is_ours(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    own = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return own and stat.S_ISDIR(status.st_mode) and os.access(path, os.W_OK | os.X_OK)


@cache
def _temporary() -> str:
    path = tempfile.mkdtemp(prefix="rmqtool-cache-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def write_file(path: str, content: str, mode: int = 0o600) -> None:
    """Write a small file atomically; does nothing if it already has this content and mode."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == content and stat.S_IMODE(os.stat(path).st_mode) == mode:
                return
    except (OSError, UnicodeDecodeError):
        pass
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
