"""Memory-map files, or read parts of them, within a limited number of open files whatever the store's size.

A mapping takes a file descriptor (Python keeps one) and counts against the process's limit of mappings. A store with
many queues has more files than either limit allows.
"""

import errno
import mmap
import os
from _thread import RLock  # threading itself takes time to load
from _weakref import ref  # as weakref has it, which takes time to load
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.remote import Partial, place_of

T = TypeVar("T")
MOST_MAPPED = 96  # files kept mapped for the next reader
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # out of descriptors or mappings


class Entries(mmap.mmap):
    """A read-only mapping of a file of a DLedger log, in which an entry header precedes every record."""


class Releasable(Protocol):
    """An object that keeps a file mapped."""

    def let_go(self) -> bool:
        """Drop the mapping unless views of it exist; returns whether it is gone."""


class Mapped:
    """The mapped segments, oldest first, limited in number.

    A store has more files than a process may have descriptors or mappings. So a new mapping drops the oldest one,
    unless views of it still exist, since dropping it would then free nothing. Files of remote stores are exempt:
    their contents would have to be fetched again.
    """

    def __init__(self) -> None:
        self._segments: dict[int, ref[Releasable]] = {}
        self._lock = RLock()  # re-entrant: a weakref callback may run in the same thread

    def add(self, segment: "Releasable") -> None:
        """Register a segment as mapped."""
        key = id(segment)
        with self._lock:
            self._segments[key] = ref(segment, lambda _gone: self.drop(key))
            if len(self._segments) > MOST_MAPPED:
                self._shrink(MOST_MAPPED)

    def drop(self, key: int) -> None:
        """Unregister the segment with this ``id()``."""
        self._segments.pop(key, None)

    def clear(self) -> bool:
        """Drop all mappings without views; returns whether there were any."""
        with self._lock:
            before = len(self._segments)
            self._shrink(0)
            return len(self._segments) < before

    def _shrink(self, most: int) -> None:
        for _ in range(len(self._segments)):
            if len(self._segments) <= most:
                break
            key = next(iter(self._segments))
            weak = self._segments.pop(key)
            segment = weak()
            if segment is not None and not segment.let_go():
                self._segments[key] = weak  # to the end, after those more likely to be unused


MAPPED = Mapped()


def retry_after_freeing(take: Callable[[], T]) -> T:
    """Run ``take``, which needs a descriptor or a mapping; if none is left, drop unused mappings and retry.

    Raises:
        OSError: ``take`` failed, for whatever reason.
    """
    try:
        return take()
    except OSError as err:
        if err.errno not in _SCARCE or not MAPPED.clear():
            raise
        return take()


def raise_open_files(wanted: int) -> None:
    """Raise the limit of open files of this process and its children to ``wanted``, or as far as allowed."""
    import resource  # few need it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def need(view: memoryview, start: int, stop: int) -> None:
    """Fetch bytes [start, stop) of a mapped remote file, up to its end; does nothing for a local one.

    Args:
        view: the whole file.

    Raises:
        UnreadableStore: they cannot be fetched.
    """
    if isinstance(mapped := view.obj, Partial):
        mapped.need(start, stop)


def need_all(view: memoryview, ranges: Iterable[tuple[int, int]]) -> None:
    """Like :func:`need`, for many ranges in ascending order."""
    if isinstance(mapped := view.obj, Partial):
        mapped.need_all(ranges)


def is_partial(view: memoryview) -> bool:
    """Whether bytes may be missing unless :func:`need` has been called for them."""
    return isinstance(view.obj, Partial)


def forget(view: memoryview, start: int, stop: int) -> None:
    """Like :meth:`Segment.forget` for the view of a whole file; does nothing if that is not a mapping."""
    mapped = view.obj
    if isinstance(mapped, mmap.mmap):
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        if stop > start:
            mapped.madvise(mmap.MADV_DONTNEED, start, stop - start)
            if isinstance(mapped, Partial):
                mapped.forget(start, stop)


def map_file(path: str, *, size: int | None = None, whole: bool = True, entries: bool = False) -> mmap.mmap | bytes:
    """Map a whole file read-only; ``b""`` for an empty one.

    Args:
        size: of a remote file, when the store was listed; it may have grown since.
        whole: False if the caller announces what it reads with :func:`need`.
        entries: whether it is a file of a DLedger log.

    Raises:
        UnreadableStore: missing, no permission, or not a regular file.
    """
    if (place := place_of(path)) is not None:
        mapped = place.map(path, size)
        if whole and isinstance(mapped, Partial):
            mapped.need_whole()
        return mapped
    kind = Entries if entries else mmap.mmap
    fd = open_to_read(path)
    try:
        about = os.fstat(fd)
        if not about.st_size:
            return b""
        if _lacks_room_for_holes(fd, about):
            return _copy(kind(-1, about.st_size), fd)
        return retry_after_freeing(lambda: kind(fd, about.st_size, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as err:
        raise UnreadableStore(f"{path}: cannot be mapped: {err}") from err
    finally:
        os.close(fd)


def _lacks_room_for_holes(fd: int, about: os.stat_result) -> bool:
    """Whether a file is on a tmpfs that has no space for the file's holes.

    Reading a hole of a tmpfs file through a mapping allocates a page; if none is left, the process is killed
    (SIGBUS). Other file systems map holes without allocation.
    """
    holes = about.st_size - about.st_blocks * 512
    if holes <= 0 or os.major(about.st_dev):
        return False
    space = os.fstatvfs(fd)
    if not space.f_blocks or space.f_bavail * space.f_frsize >= holes:  # no blocks: a tmpfs without a limit
        return False
    device = f"{os.major(about.st_dev)}:{os.minor(about.st_dev)}"
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        return any(line.split()[2] == device and " - tmpfs " in line for line in mounts)
    return False


def _copy(copy: mmap.mmap, fd: int) -> mmap.mmap:
    """Read a file into anonymous memory; its holes take no memory until they are read."""
    at, size = 0, len(copy)
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as err:
            if err.errno == errno.ENXIO:
                break  # no data after here
            raise
        end = min(os.lseek(fd, at, os.SEEK_HOLE), size)
        while at < end:
            at += os.preadv(fd, [memoryview(copy)[at:end]], at) or size
    return copy


def open_to_read(path: str) -> int:
    """Open a file for reading and return its descriptor.

    Raises:
        UnreadableStore: missing, or no permission.
    """
    try:
        return retry_after_freeing(lambda: os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err


def read_at(path: str, at: int, size: int) -> bytes:
    """Bytes [at, at + size) of a file, up to its end, read without mapping it.

    Raises:
        UnreadableStore: they cannot be read.
    """
    if (place := place_of(path)) is not None:
        view = memoryview(place.map(path))
        need(view, at, at + size)
        return bytes(view[at : at + size])
    fd = open_to_read(path)
    try:
        return os.pread(fd, size, at)
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    finally:
        os.close(fd)
