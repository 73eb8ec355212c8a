"""Build a directory under a temporary name and rename it when it is complete.

Each run removes what an earlier killed run left there, and nothing else: a mark file next to the directory, locked
while a run works, identifies by device and inode the directory that we created.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from hashlib import sha256

from rmqtool.errors import Refused
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.files import write_all

_MARK = ".mark"
_PURPOSE = 16  # characters of a digest
_MARK_SIZE = 256  # bytes of a mark, padded with blanks: it is overwritten in one write, never truncated first


class WorkFolder:
    """Context manager: creates the directory empty, and removes it at the end unless it has been renamed.

    Args:
        path: of the directory; its parent must exist.
        holds: names that a run creates in it. Inode numbers are reused soon, but such a directory has other contents.
        takes_back: a directory that an interrupted run may already have moved out; it is then removed.
        purpose: what it is made for: only a run for the same takes it back.

    Raises:
        Refused: on entering, if something is there that rmqtool did not leave, or another run is active.
        OSError: it cannot be created.
    """

    def __init__(self, path: str, holds: Collection[str], takes_back: str | None = None, purpose: str = "") -> None:
        self._purpose = sha256(purpose.encode("utf-8", "surrogateescape")).hexdigest()[:_PURPOSE] if purpose else ""
        self.path, self._mark, self._taken_back = path, path + _MARK, takes_back
        self._holds = frozenset(holds)
        self._fd = -1

    def __enter__(self) -> "WorkFolder":
        self._fd = self._lock_mark()
        try:
            self._clear()
            os.mkdir(self.path)
            self._write_mark({"folder": _identity(self.path)})
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(self, kind: object, *_exc: object) -> None:
        try:
            if kind is not None and self._taken_back is not None and self._mark_matches("moved", self._taken_back):
                shutil.rmtree(self._taken_back, ignore_errors=True)
            if self._is_ours():
                shutil.rmtree(self.path, ignore_errors=True)
        finally:
            self._let_go()

    def _lock_mark(self) -> int:
        while True:
            fd = os.open(self._mark, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(fd), os.stat(self._mark)):
                        return fd
            except OSError as err:
                os.close(fd)
                raise Refused(f"{self.path}: another run is at work there") from err
            os.close(fd)  # the other run has just ended and removed its mark

    def move_out(self, inner: str, target: str) -> None:
        """Rename something built here to its final name before the rest is done; the next run may undo that."""
        self._write_mark({"folder": _identity(self.path), "moved": _identity(inner)})
        os.rename(inner, target)

    def become(self, target: str) -> None:
        """Rename the directory to its final name, durably.

        Raises:
            Refused: something was created there in the meantime.
        """
        try:
            os.rename(self.path, target)
        except OSError as err:
            raise Refused(f"{target}: {os.strerror(err.errno or 0)}") from err
        sync(os.path.dirname(target))

    def _write_mark(self, mark: dict[str, list[int]]) -> None:
        data = json.dumps({**mark, "for": self._purpose} if self._purpose else mark).encode()
        write_all(self._fd, data.ljust(_MARK_SIZE), 0)
        os.fsync(self._fd)

    def _mark_matches(self, name: str, path: str) -> bool:
        """Whether the mark records the file or directory at a path under this name."""
        try:
            content = json.loads(os.pread(self._fd, _MARK_SIZE, 0))
            if not isinstance(content, dict) or content.get("for", "") != self._purpose:
                return False
            return bool(content.get(name) == _identity(path)) and not os.path.islink(path)
        except (OSError, ValueError):
            return False

    def _clear(self) -> None:
        if self._taken_back is not None and self._mark_matches("moved", self._taken_back):
            shutil.rmtree(self._taken_back)
        if not os.path.lexists(self.path):
            return
        if self._is_ours():
            shutil.rmtree(self.path)
            return
        try:
            os.rmdir(self.path)  # empty: a run was killed before it could mark the directory as its own
        except OSError:
            text = "exists, and no interrupted run has left it: move it away, or give another name"
            raise Refused(f"{self.path}: {text}") from None

    def _is_ours(self) -> bool:
        if not self._mark_matches("folder", self.path):
            return False
        return all(name in self._holds or name.startswith(".rmqtool") for name in os.listdir(self.path))

    def _let_go(self) -> None:
        # a mark that we did not write stays next to the directory it describes
        fd, self._fd = self._fd, -1
        try:
            if not os.path.lexists(self.path) or not os.fstat(fd).st_size:
                with suppress(OSError):
                    os.unlink(self._mark)
        finally:
            os.close(fd)


def _identity(path: str) -> list[int]:
    there = os.lstat(path)
    return [there.st_dev, there.st_ino]


def refuse_existing(path: str) -> None:
    """Check that the place of a new store is free.

    Raises:
        Refused: it is not.
    """
    if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise Refused(f"{path}: exists already: give another name, or move it away")


def prepare_target(path: str) -> None:
    """Check that a new directory can be renamed to a path, and create the directory above it.

    Raises:
        Refused: something exists there, or a file system is mounted there.
    """
    refuse_existing(path)
    if os.path.ismount(path):
        raise Refused(f"{path}: is a mount point, which nothing can be renamed to: give a directory below it")
    os.makedirs(os.path.dirname(path), exist_ok=True)
