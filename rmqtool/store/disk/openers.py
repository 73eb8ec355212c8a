"""Find out who opens a file: by watching it (inotify), or by looking through the processes (/proc)."""

import os
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

OPENED, WRITER_LEFT, GONE = 0x20, 0x08, 0x400 | 0x800 | 0x8000 | 0x2000
_WATCHED = OPENED | WRITER_LEFT | 0x400 | 0x800  # IN_OPEN, IN_CLOSE_WRITE, IN_DELETE_SELF, IN_MOVE_SELF
_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of a name (0 for a watched file)
_BUFFER = 64 << 10


class FileWatch:
    """Records what other processes on this machine do with a file from now on.

    Attributes:
        works: False if the kernel does not report: too many watches, or no inotify.
    """

    def __init__(self, path: str) -> None:
        import ctypes  # only writers need it

        self._fd = -1
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None, use_errno=True)
            fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), _WATCHED) < 0:
                os.close(fd)
                fd = -1
            self._fd = fd

    @property
    def works(self) -> bool:
        """Whether events are reported at all."""
        return self._fd >= 0

    def take_events(self) -> int:
        """The events since the last call: OPENED, WRITER_LEFT (a writer closed the file), GONE."""
        masks = 0
        while self._fd >= 0:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                _watch, mask, _cookie, length = _EVENT.unpack_from(data, at)
                masks |= mask
                at += _EVENT.size + length
        # after an overflow anything may have happened
        return masks | OPENED | WRITER_LEFT if masks & _OVERFLOW else masks

    def close(self) -> None:
        """Stop watching."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Opener(NamedTuple):
    """A process that has a file open."""

    pid: int
    name: str
    writes: bool

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"


def openers(fd: int) -> list[Opener]:
    """Other processes that have the file open, as far as this one may inspect them."""
    status = os.fstat(fd)
    return [opener for opener, _file in _openers_of({(status.st_dev, status.st_ino)})]


def writers_below(folders: Iterable[str], linked: Iterable[str] = ()) -> Iterator[tuple[Opener, str]]:
    """Other processes that have a file below directories open for writing, each with the file's path.

    Only processes are seen that this one may inspect.

    Args:
        folders: directories whose files all count.
        linked: directories of which only files count that have another hard link.
    """
    files: dict[tuple[int, int], str] = {}
    for links, tops in ((1, folders), (2, linked)):
        for top in tops:
            for above, _folders, names in os.walk(top):
                for path in (os.path.join(above, name) for name in names):
                    with suppress(OSError):  # gone, or a link that leads nowhere
                        status = os.stat(path)
                        if status.st_nlink >= links:
                            files[status.st_dev, status.st_ino] = path
    if files:
        yield from ((opener, files[file]) for opener, file in _openers_of(files) if opener.writes)


def _openers_of(files: Collection[tuple[int, int]]) -> Iterator[tuple[Opener, tuple[int, int]]]:
    """Other processes that have one of the files (device, inode) open, with that file."""
    for pid in map(int, filter(str.isdecimal, _names("/proc"))):
        if pid == os.getpid():
            continue
        for number in _names(f"/proc/{pid}/fd"):
            with suppress(OSError, ValueError, StopIteration):
                status = os.stat(f"/proc/{pid}/fd/{number}")
                if (file := (status.st_dev, status.st_ino)) in files:
                    with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as info:
                        flags = next(int(line.split()[1], 8) for line in info if line.startswith("flags:"))
                    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
                        yield Opener(pid, comm.read().strip(), flags & os.O_ACCMODE != os.O_RDONLY), file


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # the process is gone, or we may not inspect it
