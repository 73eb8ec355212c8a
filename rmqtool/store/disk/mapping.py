"""Files that are mapped or read a little of, and how few of them are held at a time, whatever the store.

A mapping takes a descriptor (Python keeps one) and one of the mappings that a process may have. A store with many
queues has more files than there are of either.
"""

import errno
import mmap
import os
from _thread import RLock  # threading itself takes time to load
from _weakref import ref  # as weakref has it, which takes time to load
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.remote import Entries, Partial, need, place_of

T = TypeVar("T")
MOST_MAPPED = 96  # files that stay mapped for the next reader
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # no descriptor, or no mapping, is left


class Releasable(Protocol):
    """What keeps a file mapped."""

    def let_go(self) -> bool:
        """Drop the mapping unless views of it exist; whether it is gone."""


class Mapped:
    """The segments that are mapped, in the order in which they were. Only some of them may stay so.

    A store has more files than a process may have descriptors or mappings. So the oldest mapping goes when a new one is
    made, unless views of it still exist, in which case nothing would be gained. Files of a store elsewhere
    are left alone: what was fetched of them would have to be fetched again.
    """

    def __init__(self) -> None:
        self._segments: dict[int, ref[Releasable]] = {}
        self._lock = RLock()  # of segments that are forgotten meanwhile the same thread may be called back

    def add(self, segment: "Releasable") -> None:
        """Note that a segment is mapped now."""
        key = id(segment)
        with self._lock:
            self._segments[key] = ref(segment, lambda _gone: self.drop(key))
            if len(self._segments) > MOST_MAPPED:
                self._shrink(MOST_MAPPED)

    def drop(self, key: int) -> None:
        """Note that the segment with this ``id()`` is not mapped any more."""
        self._segments.pop(key, None)

    def clear(self) -> bool:
        """Let go of all that nobody looks at; whether there was anything."""
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
                self._segments[key] = weak  # behind the others, which are more likely to go


MAPPED = Mapped()


def freeing(take: Callable[[], T]) -> T:
    """Take a descriptor or a mapping; where none is left, mappings that nobody looks at make room.

    Raises:
        OSError: it cannot be had, of whatever kind it is.
    """
    try:
        return take()
    except OSError as err:
        if err.errno not in _SCARCE or not MAPPED.clear():
            raise
        return take()


def raise_open_files(wanted: int) -> None:
    """Let this process, and those that it starts, open that many files at a time, or as many as they may."""
    import resource  # few need it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def forget(view: memoryview, start: int, stop: int) -> None:
    """As :meth:`Segment.forget`, for the view of a whole file; nothing where that is no mapping."""
    mapped = view.obj
    if isinstance(mapped, mmap.mmap):
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        if stop > start:
            mapped.madvise(mmap.MADV_DONTNEED, start, stop - start)
            if isinstance(mapped, Partial):
                mapped.forget(start, stop)


def map_file(path: str, *, whole: bool = True, entries: bool = False) -> mmap.mmap | bytes:
    """The whole file, mapped read-only; ``b""`` for an empty one.

    Args:
        whole: False for those who say by :func:`rmqtool.store.disk.remote.need` what they look at.
        entries: it is a file of a DLedger log.

    Raises:
        UnreadableStore: missing, no permission, or not a regular file.
    """
    if (place := place_of(path)) is not None:
        mapped = place.map(path)
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
        return freeing(lambda: kind(fd, about.st_size, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as err:
        raise UnreadableStore(f"{path}: cannot be mapped: {err}") from err
    finally:
        os.close(fd)


def _lacks_room_for_holes(fd: int, about: os.stat_result) -> bool:
    """Whether a file lies on a tmpfs without room for its holes.

    A tmpfs takes a page of its own for each page of a hole that is read through a mapping; where it has none, the
    process ends (SIGBUS). Other file systems map holes without that.
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
    """A file in memory that belongs to no file; its holes take none as long as nobody reads them."""
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
    """A descriptor.

    Raises:
        UnreadableStore: missing, or no permission.
    """
    try:
        return freeing(lambda: os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err


def read_at(path: str, at: int, size: int) -> bytes:
    """Bytes [at, at + size) of a file, as far as it goes: for the little that is not worth a mapping.

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
