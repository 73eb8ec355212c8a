"""Mutual exclusion for outputs: only the run that holds the lock may inspect an output and act on it.

Locally the lock is a file lock on directories, which ends with its process. Object stores and HDFS have no such lock;
there, each run writes a claim, a small file with a unique name, and then lists the claims of others. A run that sees
another claim backs off, so of two concurrent runs at most one continues. A claim is renewed while its run is alive; a
claim that is no longer renewed, or whose local process has ended, belongs to a run that was killed.
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

RENEWED = 15.0  # seconds between renewals of a claim
EXPIRED = 90.0  # seconds without a renewal after which a run is considered killed


class Busy(Exception):
    """Another run holds the output."""


class LocalLock:
    """Locks on existing directories.

    Raises:
        Busy: another process holds a lock on one of them.
        OSError: a directory cannot be opened or is a symbolic link.
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
        """Return whether the directory that currently has this name is locked."""
        return any(_same(fd, path) for fd in self._held)

    def check(self) -> None:
        """Do nothing: file locks cannot be lost."""

    def release(self) -> None:
        """Release the locks."""
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
        os.close(fd)  # the previous holder renamed or removed it, so the lock is on another directory


def _same(fd: int, path: str) -> bool:
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


class Claim:
    """A claim on a remote directory.

    Raises:
        Busy: another living run has a claim.
        OSError: the claim cannot be written.
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
        """Return whether the claim is for this directory; always true."""
        return True

    def check(self) -> None:
        """Verify that no other run has considered this one killed.

        Raises:
            Busy: another run has.
        """
        if self._folder.size(self._name) is None or self._others():
            raise Busy

    def release(self) -> None:
        """Remove the claim."""
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
                    return  # removed by a run that considered this one killed; do not write it again
                self._write()

    def _others(self) -> dict[str, Any]:
        """Return the current claims of other runs."""
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
            raise Busy  # another run has started in the meantime


def _me() -> dict[str, Any]:
    return {"host": platform.node(), "machine": _machine(), "pid": os.getpid(), "started": _start_of(os.getpid())}


def _lives(claim: Any) -> bool | None:
    """Return whether the process of a claim is alive; None if that cannot be determined here."""
    machine = _machine()
    if not isinstance(claim, dict) or not machine or claim.get("machine") != machine:
        return None
    pid = claim.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return None
    started = _start_of(pid)
    return started is not None and started == claim.get("started")


def _machine() -> str:
    """Return an id of this boot of this machine and its PID namespace; empty if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    """Return the start time of a process in ticks since boot; None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
