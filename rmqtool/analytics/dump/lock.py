"""One run at a time writes to an output: the holder of the lock may look at what is there and act on it.

On this machine the lock is on directories, and goes with the process that holds it. Object stores and HDFS have no lock
that does: there each run leaves a claim, a small file with a name of its own, and then looks for those of others. Who
sees another's claim steps back, so of two that begin together at most one goes on. A claim is renewed while its run
lives; one that is not renewed any more, or whose process on this machine has gone, is that of a run that was killed.
"""

import fcntl
import json
import os
import platform
import time
import uuid
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from pyarrow import fs

from rmqtool.analytics.dump.names import CLAIM
from rmqtool.analytics.remote.files import Folder

RENEWED = 15.0  # seconds between two renewals of a claim
EXPIRED = 90.0  # seconds without one after which its run counts as killed


class Busy(Exception):
    """Another run holds the output."""


class LocalLock:
    """Locks on directories that exist.

    Raises:
        Busy: another process holds one of them.
        OSError: one cannot be opened, or is a link.
    """

    def __init__(self, *paths: str) -> None:
        self._held: list[int] = []
        try:
            for path in paths:
                self._held.append(_open_locked(path))
        except BaseException:
            self.release()
            raise

    def is_on(self, path: str) -> bool:
        """Whether the directory that now has this name is one of those that are locked."""
        return any(_same(fd, path) for fd in self._held)

    def check(self) -> None:
        """Nothing: such a lock is not lost."""

    def release(self) -> None:
        """Let others have it."""
        while self._held:
            os.close(self._held.pop())


def _open_locked(path: str) -> int:
    while True:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise Busy from None
        except BaseException:
            os.close(fd)
            raise
        if _same(fd, path):
            return fd
        os.close(fd)  # its last holder has renamed or removed it meanwhile: the lock is on another directory


def _same(fd: int, path: str) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


class Claim:
    """A claim on a directory elsewhere.

    Raises:
        Busy: another run has one, and lives.
        OSError: it cannot be written.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder, self._name = folder, f"{CLAIM}{uuid.uuid4().hex}.json"
        self._over, self._renewals = Event(), 0
        self._renewing: Thread | None = None
        folder.make()
        self._write()
        try:
            self._outlive()
        except BaseException:
            self.release()
            raise
        self._renewing = Thread(target=self._renew, daemon=True)
        self._renewing.start()

    def is_on(self, path: str) -> bool:
        """Whether it is for this directory; always."""
        return True

    def check(self) -> None:
        """See that nobody took this run for one that was killed.

        Raises:
            Busy: another run did.
        """
        if self._folder.size(self._name) is None or self._others():
            raise Busy

    def release(self) -> None:
        """Let others have it."""
        self._over.set()
        if self._renewing is not None:
            self._renewing.join()
        with suppress(OSError):
            self._folder.delete(self._name)

    def _write(self) -> None:
        with self._folder.fs.open_output_stream(self._folder.full(self._name)) as stream:
            stream.write(json.dumps({**_me(), "renewed": self._renewals}).encode())

    def _renew(self) -> None:
        while not self._over.wait(RENEWED):
            self._renewals += 1
            with suppress(OSError):
                if self._folder.size(self._name) is None:
                    return  # taken away by who thought this run dead: it must stay so
                self._write()

    def _others(self) -> dict[str, Any]:
        """The claims of others, as they are now."""
        selector = fs.FileSelector(self._folder.path, allow_not_found=True)
        others = {}
        for info in self._folder.fs.get_file_info(selector):
            if info.base_name.startswith(CLAIM) and info.base_name != self._name:
                others[info.base_name] = self._folder.read_json(info.base_name)
        return others

    def _outlive(self) -> None:
        first_seen = {name: (claim, time.monotonic()) for name, claim in self._others().items()}
        while first_seen:
            for name, (claim, since) in list(first_seen.items()):
                alive = _lives(claim)
                if alive or (alive is None and self._folder.read_json(name) != claim):
                    raise Busy
                if alive is False or time.monotonic() - since > EXPIRED:
                    self._folder.delete(name)
                    del first_seen[name]
            if not first_seen:
                break
            time.sleep(1.0)
        if self._others():
            raise Busy  # another run has come meanwhile


def _me() -> dict[str, Any]:
    return {"host": platform.node(), "machine": _machine(), "pid": os.getpid(), "started": _start_of(os.getpid())}


def _lives(claim: Any) -> bool | None:
    """Whether the process of a claim lives; None where that is not known here."""
    machine = _machine()
    if not isinstance(claim, dict) or not machine or claim.get("machine") != machine:
        return None
    pid = claim.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return None
    started = _start_of(pid)
    return started is not None and started == claim.get("started")


def _machine() -> str:
    """What tells this boot of this machine, and this set of process ids, from all others; empty where unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    """When a process began, in ticks since the boot; None without one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
