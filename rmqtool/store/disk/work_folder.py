"""A directory beside a target in which something is made that gets its own name when it is whole.

What a killed run left there is removed by the next one, but nothing else: a file beside the directory, held locked
while a run works, says by device and inode which directory it was that a run of ours has made.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Collection
from contextlib import suppress

from rmqtool.errors import Refused
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.segments import write_all

_MARK = ".mark"
_SAID = 256  # bytes of a mark, the rest blanks: it is written over at once, never cut first


class WorkFolder:
    """Use as a context: the directory is there and empty inside, and gone behind, unless it was renamed meanwhile.

    Args:
        path: of the directory; the directory above it exists.
        holds: names that a run makes in it. An inode's number is soon given to another directory, which has others.
        takes_back: a directory that an interrupted run may have moved out already; it is removed then.

    Raises:
        Refused: on entering, where something lies there that no run of ours has left, or another run is at work.
        OSError: it cannot be made.
    """

    def __init__(self, path: str, holds: Collection[str], takes_back: str | None = None) -> None:
        self.path, self._mark, self._taken_back = path, path + _MARK, takes_back
        self._holds = frozenset(holds)
        self._fd = -1

    def __enter__(self) -> "WorkFolder":
        self._fd = self._lock_mark()
        try:
            self._clear()
            os.mkdir(self.path)
            self._say({"folder": _identity(self.path)})
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(self, kind: object, *_exc: object) -> None:
        try:
            if kind is not None and self._taken_back is not None and self._says("moved", self._taken_back):
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
            os.close(fd)  # who was at work has just ended

    def move_out(self, inner: str, target: str) -> None:
        """Give something that was made here its own name, before all is done: the next run may take it away again."""
        self._say({"folder": _identity(self.path), "moved": _identity(inner)})
        os.rename(inner, target)

    def become(self, target: str) -> None:
        """The directory gets its own name, durably.

        Raises:
            Refused: something was made there meanwhile.
        """
        try:
            os.rename(self.path, target)
        except OSError as err:
            raise Refused(f"{target}: {os.strerror(err.errno or 0)}") from err
        sync(os.path.dirname(target))

    def _say(self, words: dict[str, list[int]]) -> None:
        data = json.dumps(words).encode()
        write_all(self._fd, data.ljust(_SAID), 0)
        os.fsync(self._fd)

    def _says(self, name: str, path: str) -> bool:
        """Whether the mark says this of what lies at a path."""
        try:
            content = json.loads(os.pread(self._fd, _SAID, 0))
            return isinstance(content, dict) and content.get(name) == _identity(path) and not os.path.islink(path)
        except (OSError, ValueError):
            return False

    def _clear(self) -> None:
        if self._taken_back is not None and self._says("moved", self._taken_back):
            shutil.rmtree(self._taken_back)
        if not os.path.lexists(self.path):
            return
        if self._is_ours():
            shutil.rmtree(self.path)
            return
        try:
            os.rmdir(self.path)  # empty: a run was killed before it could say that it had made it
        except OSError:
            text = "exists, and no interrupted run has left it: move it away, or give another name"
            raise Refused(f"{self.path}: {text}") from None

    def _is_ours(self) -> bool:
        if not self._says("folder", self.path):
            return False
        return all(name in self._holds or name.startswith(".rmqtool") for name in os.listdir(self.path))

    def _let_go(self) -> None:
        # a mark that was not ours to write stays with what it is about
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
    """Where a new store is to be, nothing may be.

    Raises:
        Refused: something is.
    """
    if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise Refused(f"{path}: exists already: give another name, or move it away")


def make_room(path: str) -> None:
    """Where a new directory is to get its name: nothing is there, and the directory above it is.

    Raises:
        Refused: something is there, or a file system is mounted there.
    """
    refuse_existing(path)
    if os.path.ismount(path):
        raise Refused(f"{path}: is a mount point, which nothing can be renamed to: give a directory below it")
    os.makedirs(os.path.dirname(path), exist_ok=True)
