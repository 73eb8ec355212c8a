"""The broker's own lock: a POSIX record lock on byte 0 of the file ``lock`` (store.DefaultMessageStore.start).

That the file exists means nothing: it is never deleted. Looking asks the kernel and writes nothing.
"""

import errno
import fcntl
import os
import struct

from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.disk.new_files import make_file
from rmqtool.store.disk.remote import place_of

# struct flock of 64-bit Linux: type, whence, start, length, pid
_FLOCK = struct.Struct("hhqqi4x")
# A process does not exclude itself by such a lock, and loses it as soon as it closes any descriptor of the file.
_held_here: set[str] = set()


def holder(root: str) -> int | None:
    """Process id of whoever holds the store's lock; None when it is free. 0 where the holder is not on this machine.

    Raises:
        UnreadableStore: the lock file cannot be opened for reading.
    """
    if place_of(root) is not None:
        return None  # nobody writes to files there
    path = os.path.join(root, "lock")
    if os.path.realpath(path) in _held_here:
        return os.getpid()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    try:
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _whence, _start, _length, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
        return None if kind == fcntl.F_UNLCK else max(pid, 0)
    except OSError as err:
        # a file system without locks cannot be asked; a writer will find out when it tries
        if err.errno in (errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP):
            return None
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    finally:
        os.close(fd)


class StoreLock:
    """Holds the broker's lock while a command writes.

    Raises:
        Refused: a broker, or another of our writers, holds it.
    """

    def __init__(self, root: str) -> None:
        self.path = os.path.join(root, "lock")
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds it."""
        return self._fd is not None

    def __enter__(self) -> "StoreLock":
        if os.path.realpath(self.path) in _held_here:
            raise Refused(f"{self.path}: held by this process")
        try:
            make_file(self.path, b"")
            fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as err:
            raise Refused(f"{self.path}: {os.strerror(err.errno or 0)}: the store cannot be locked") from err
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as err:
            os.close(fd)
            pid = holder(os.path.dirname(self.path))
            who = f"process {pid}" if pid else "another process"
            raise Refused(f"{self.path}: held by {who}: stop the broker first") from err
        self._fd = fd
        _held_here.add(os.path.realpath(self.path))
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._fd is not None:
            _held_here.discard(os.path.realpath(self.path))
            os.close(self._fd)
            self._fd = None
