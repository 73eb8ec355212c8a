"""Temporary directories that are cleaned up even if their process is killed.

Each is locked by the process that created it. A killed process leaves its directory unlocked, and the next process
removes it. Because this relies on a lock and not on a process id, it never removes the directory of a living process,
not even of one in another container.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_OURS = re.compile(r"\.?rmqtool-(spark|sql|claims|sort|rows)-[0-9]+-\w{8}")


def usual_place() -> str | None:
    """Return the directory that the user configured for Spark's temporary files; None for the system default."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if first and os.path.isdir(first) else None


class Scratch:
    """A temporary directory that exists until :meth:`remove`.

    Args:
        kind: purpose; part of the name.
        above: parent directory; the usual place by default.
        hidden: whether the name begins with a dot.
    """

    def __init__(self, kind: str, above: str | None = None, *, hidden: bool = False) -> None:
        above = above or usual_place() or tempfile.gettempdir()
        _sweep(above)
        prefix = f"{'.' * hidden}rmqtool-{kind}-{os.getpid()}-"
        while True:
            self.path = tempfile.mkdtemp(prefix=prefix, dir=above)
            self._lock: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.isdir(self.path):
                    return
            except OSError:
                # another process is sweeping and took it for a leftover, or this file system does not support locks
                if os.path.isdir(self.path) and not _has_locks(self._lock):
                    return
            os.close(self._lock)

    def remove(self) -> None:
        """Delete the directory and its content. Never raises and may be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _has_locks(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


@contextmanager
def scratch_dir(kind: str, above: str | None = None, *, hidden: bool = False) -> Iterator[str]:
    """Yield a temporary directory that is removed at the end of the ``with`` block."""
    scratch = Scratch(kind, above, hidden=hidden)
    try:
        yield scratch.path
    finally:
        scratch.remove()


def _sweep(above: str) -> None:
    """Remove directories left by this user's dead processes."""
    try:
        names = [name for name in os.listdir(above) if _OURS.fullmatch(name)]
    except OSError:
        return
    for name in names:
        path = os.path.join(above, name)
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                status = os.fstat(fd)
                if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(fd)
