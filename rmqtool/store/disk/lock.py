"""The broker's own lock: a record lock on byte 0 of the file ``lock`` (store.DefaultMessageStore.start).

The file's existence means nothing, since it is never deleted. Checking the lock asks the kernel and writes nothing.

Two problems make this more than a plain lock:

* A POSIX record lock belongs to a process, which loses it when it closes any descriptor of the file; copying the
    store in the same process is enough. Our lock therefore belongs to an open file description; it still excludes a
    broker's. The kernel does not report who owns such a lock, so we also set a POSIX lock on byte 1 for that.
* A broker opens the file first, then loads the store, which truncates and deletes files, and takes the lock last. A
    writer therefore watches for processes that open the file (:meth:`StoreLock.check`), and keeps them from opening it
    while a change is applied (:func:`held_off`).
"""

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.disk.lease import Lease, give_back, take, writer_waits
from rmqtool.store.disk.remote import place_of

if TYPE_CHECKING:
    from rmqtool.store.disk.openers import FileWatch

# struct flock of 64-bit Linux: type, whence, start, length, pid
_FLOCK = struct.Struct("hhqqi4x")
_LOCK, _WHO = 0, 1  # the bytes of the file
_TRANSIENT = 0.5  # s; backups and readers keep it open for much less
_PAUSE = 0.02  # s
_WAIT = 0.2  # s
_held: dict[tuple[int, int], "StoreLock"] = {}  # locks of this process, by device and inode of the file


class Disturbed(Refused):
    """A broker was started, or another process has the file ``lock`` open, while we write."""


def holder(root: str) -> int | None:
    """Process id of the holder of the store's lock; None if it is free.

    It is 0 if the holder is unknown: on another machine, or in another container.

    Raises:
        UnreadableStore: the lock file cannot be opened for reading.
    """
    if place_of(root) is not None:
        return None  # remote stores are never written to
    path = os.path.join(root, "lock")
    try:
        if _key(os.stat(path)) in _held:
            return os.getpid()
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return _find_owner(path)  # one of our writers holds a lease on the file at the moment
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    try:
        pid = _find_locker(fd, _LOCK)
        if pid is None or pid > 0:
            return pid
        from rmqtool.store.disk.openers import openers

        # the POSIX lock is lost when its process closes another descriptor of the file
        return _find_locker(fd, _WHO) or next((opener.pid for opener in openers(fd) if opener.writes), 0)
    except OSError as err:
        # a file system without locks cannot tell; a writer will find out when it tries
        if err.errno in (errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP):
            return None
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    finally:
        os.close(fd)


def _find_locker(fd: int, byte: int) -> int | None:
    """Process id of the holder of a lock on a byte; 0 if unknown, None if it is not locked."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind, _whence, _start, _length, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def _find_owner(path: str) -> int:
    """Process id of the holder of a file that cannot be opened now, from /proc/locks; 0 if not listed."""
    status = os.stat(path)
    name = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as lines:
            for fields in map(str.split, lines):
                if len(fields) > 5 and fields[1] in ("POSIX", "LEASE") and fields[5] == name:
                    return max(int(fields[4]), 0)
    except (OSError, ValueError):
        return 0
    return 0


class StoreLock:
    """Holds the broker's lock while a command writes.

    A forked child does not have it: the child closes its copy, and this process keeps the lock.

    Raises:
        Refused: a broker or another of our writers holds it, or is about to start.
    """

    def __init__(self, root: str) -> None:
        self.path = os.path.join(root, "lock")
        self._fd: int | None = None
        self._watch: FileWatch | None = None
        self._alone = False  # whether the lease is held, so that others cannot open it
        self._disturbed: str | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds it."""
        return self._fd is not None

    def __enter__(self) -> "StoreLock":
        import random  # only writers need it

        give_up = time.monotonic() + _TRANSIENT
        while not self._try_take():
            if time.monotonic() > give_up:
                raise Refused(f"{self.path}: {self._name_openers()} has it open: is a broker starting? Stop it first")
            time.sleep(random.uniform(_PAUSE / 2, 2 * _PAUSE))  # random, so that two writers do not keep colliding
        return self

    def _try_take(self) -> bool:
        """Take the lock; False if another process has the file open without locking it.

        The lock is taken while no other process can open the file. A process that is loading the store already is
        noticed here, and one that opens the file later by :meth:`check`.
        """
        from rmqtool.store.disk.openers import FileWatch, openers

        self._refuse_if_held()
        try:
            fd = _open(self.path)
        except BlockingIOError:
            return False
        except OSError as err:
            raise Refused(f"{self.path}: {os.strerror(err.errno or 0)}: the store cannot be locked") from err
        watch = FileWatch(self.path)
        try:
            lease = take(fd)
            free = not any(opener.writes for opener in openers(fd)) if lease is Lease.UNKNOWN else lease is Lease.TAKEN
            if free:
                self._lock(fd)
                give_back(fd)
                self._fd, self._watch, self._disturbed = fd, watch, None
                watch.take_events()  # drop our own events
                _held[_key(os.fstat(fd))] = self
        finally:
            if self._fd is None:
                watch.close()
                os.close(fd)
        return free

    def _refuse_if_held(self) -> None:
        try:
            pid = holder(os.path.dirname(self.path))
        except UnreadableStore:
            return  # a process without read permission may still be able to write
        if pid is not None:
            self._refuse(pid)

    def _refuse(self, pid: int | None) -> None:
        if pid == os.getpid():
            raise Refused(f"{self.path}: held by this process")
        raise Refused(f"{self.path}: held by {f'process {pid}' if pid else 'another process'}: stop the broker first")

    def _lock(self, fd: int) -> None:
        if _key(os.fstat(fd)) in _held:
            self._refuse(os.getpid())
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _LOCK, 1, 0)
        try:
            try:
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
            except OSError as err:
                if err.errno != errno.EINVAL:
                    raise
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LOCK)  # a kernel without OFD locks
        except (BlockingIOError, PermissionError):
            self._refuse(_find_locker(fd, _LOCK) or _find_locker(fd, _WHO))
        except OSError as err:
            raise Refused(f"{self.path}: {os.strerror(err.errno or 0)}: the store cannot be locked") from err
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _WHO)
        except OSError:
            return  # the holder will then be unknown to others

    def _name_openers(self) -> str:
        from rmqtool.store.disk.openers import openers

        try:
            fd = self._fd if self._fd is not None else os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return "another process"
        try:
            return ", ".join(map(str, openers(fd))) or "another process"
        finally:
            if fd != self._fd:
                os.close(fd)

    def __exit__(self, *_exc: object) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            if self._watch is not None:
                self._watch.close()
            _held.pop(_key(os.fstat(fd)), None)
            os.close(fd)

    def check(self) -> None:
        """Check that no other process has interfered; cheap enough to call several times a second.

        Raises:
            Disturbed: another process has kept the file ``lock`` open for longer than a check takes, or has closed it
                after opening it for writing, or the file was replaced. Once raised, it is raised by every later call.
        """
        if self._fd is not None and self._disturbed is None:
            self._disturbed = self._find_disturbance(self._fd)
        if self._disturbed is not None:
            raise Disturbed(f"{self.path}: {self._disturbed}")

    def _find_disturbance(self, fd: int) -> str | None:
        """A description of the interference; None if there is none."""
        from rmqtool.store.disk.openers import GONE, OPENED, WRITER_LEFT

        try:
            replaced = _key(os.stat(self.path)) != _key(os.fstat(fd))
        except OSError:
            replaced = True
        happened = self._take_events()
        if replaced or happened & GONE:
            return "was moved, removed or replaced while we held it"
        if happened & OPENED or self._watch is None or not self._watch.works:
            if not self._is_alone(fd, _TRANSIENT):
                return f"{self._name_openers()} has opened it: a broker is starting"
            happened |= self._take_events()
        if happened & WRITER_LEFT:
            return "another process has opened and closed it: a broker was started"
        return None

    def _take_events(self) -> int:
        return self._watch.take_events() if self._watch is not None else 0

    def _is_alone(self, fd: int, seconds: float) -> bool:
        """Whether no other process has it open, waiting for some time; without leases, whether no writer is seen."""
        from rmqtool.store.disk.openers import openers

        give_up = time.monotonic() + seconds
        while (lease := take(fd)) is Lease.BUSY and time.monotonic() < give_up:
            time.sleep(_PAUSE)
        if lease is Lease.UNKNOWN:
            return not any(opener.writes for opener in openers(fd))
        if lease is Lease.TAKEN and not self._alone:
            give_back(fd)
        return lease is Lease.TAKEN

    @contextmanager
    def alone(self, *, configs: bool = False) -> Iterator[None]:
        """Keep other processes from opening the file inside the ``with`` block, so that a broker waits before it loads.

        A broker waits for 45 s at most; in longer blocks call :meth:`check` between the steps. If the kernel or the
        file system has no leases, or the file belongs to another user, a broker is not held off, only noticed.

        Args:
            configs: the change affects files that a broker reads before it opens the file ``lock``.

        Raises:
            Disturbed: another process has the file open, or has had since it was locked; raised before anything is
                done. With ``configs`` also at the end, if a broker waits by then: what it has read is out of date.
        """
        from rmqtool.store.disk.openers import OPENED

        self.check()
        fd = self._fd
        if fd is None or self._alone:
            yield
            return
        self._alone = True
        try:
            if not self._is_alone(fd, _TRANSIENT):
                self._disturbed = f"{self._name_openers()} has it open: is a broker starting?"
            self.check()
            yield
            if configs and (writer_waits(fd) or self._take_events() & OPENED) and take(fd) is not Lease.TAKEN:
                raise Disturbed(
                    f"{self.path}: it is done, but a broker was started meanwhile. It may have read the config files "
                    "before, and will write them back: stop it, look, and do it again"
                )
        finally:
            self._alone = False
            give_back(fd)

    def wait(self) -> None:
        """Wait until no other process has the file open.

        A broker that loaded the store before an append must not get the lock: it would write at the old end of the log,
        over the appended messages.
        """
        while self._fd is not None and not self._is_alone(self._fd, 0):
            time.sleep(_WAIT)


def lock_of(root: str) -> StoreLock | None:
    """The lock of a store if this process holds it."""
    try:
        return _held.get(_key(os.stat(os.path.join(root, "lock"))))
    except OSError:
        return next((lock for lock in _held.values() if lock.path == os.path.join(root, "lock")), None)


@contextmanager
def held_off(root: str, *, configs: bool = False) -> Iterator[None]:
    """Apply :meth:`StoreLock.alone` to the lock that this process holds on a store; does nothing if it holds none."""
    lock = lock_of(root)
    if lock is None:
        yield
    else:
        with lock.alone(configs=configs):
            yield


def check_alone(root: str) -> None:
    """Apply :meth:`StoreLock.check` to the lock that this process holds on a store; does nothing if it holds none.

    Raises:
        Disturbed: a broker has opened the store.
    """
    if (lock := lock_of(root)) is not None:
        lock.check()


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        fd = os.open(path, flags | os.O_CREAT, 0o644)
        from rmqtool.store.disk.ownership import take_after_folder

        take_after_folder(fd, os.path.dirname(path))
        return fd


def _close_inherited() -> None:
    """Close inherited locks in a child, which would keep the store locked for as long as it lives."""
    for lock in list(_held.values()):
        lock.__exit__()
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)
