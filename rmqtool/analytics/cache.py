"""A directory of this user's own for small generated files (``$XDG_CACHE_HOME/rmqtool``, ``~/.cache/rmqtool``)."""

import atexit
import os
import shutil
import stat
import tempfile
from functools import cache


def cache_dir(*parts: str) -> str:
    """A directory below the cache, created with mode 0700.

    Files in it get executed, so a place that others may write to is not used; then, and where there is no writable
    home, it is a temporary directory that goes when the process does.
    """
    for root in _roots():
        path = os.path.join(root, "rmqtool", *parts)
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError:
            continue
        if all(_is_ours(os.path.join(root, "rmqtool", *parts[:depth])) for depth in range(len(parts) + 1)):
            return path
    path = os.path.join(_temporary(), *parts)
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def _roots() -> list[str]:
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path is to be ignored
    roots = [xdg] if os.path.isabs(xdg) else []
    home = os.path.expanduser("~")
    return [*roots, os.path.join(home, ".cache")] if os.path.isabs(home) else roots


def _is_ours(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    own = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return own and stat.S_ISDIR(status.st_mode) and os.access(path, os.W_OK | os.X_OK)


@cache
def _temporary() -> str:
    path = tempfile.mkdtemp(prefix="rmqtool-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def write_file(path: str, content: str, mode: int = 0o600) -> None:
    """Write a small file so that whoever reads it sees all of it or the one before; nothing when it is so already."""
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
