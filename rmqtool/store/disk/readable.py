"""What can be read of a file on a broken disk: found out piece by piece, before anything is mapped.

A mapping of a bad sector ends the process; a read of it is an error that says so. Whoever carves messages out of such
a disk first has each file read once. One that reads as a whole is used where it is (what was read just now is in the
page cache); of another one, what can be read is copied, and the copy has holes where the bad sectors are.
"""

import errno
import os
import tempfile
from collections.abc import Callable
from typing import IO, NamedTuple

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.segments import Segment, Segments, write_all
from rmqtool.store.disk.sparse import extents

_PIECE = 1 << 20  # bytes at a time
_SMALLEST = 1 << 12  # a piece that fails is halved down to this, since each failure may take a disk seconds
_BROKEN = {errno.EIO, errno.EREMOTEIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA}


class Unreadable(NamedTuple):
    """Bytes of a file that the disk does not give."""

    path: str
    start: int
    stop: int
    reason: str


def reads_as_a_whole(path: str, size: int) -> bool:
    """Whether every byte of a file can be read; it is read up to the first that cannot.

    Raises:
        UnreadableStore: it cannot be read for another reason than the disk's.
    """
    return not _each_piece(path, size, lambda _at, _data: None, give_up=True)


def need_readable(segments: Segments) -> None:
    """Have every byte of files read before they are mapped.

    Raises:
        UnreadableStore: one cannot be read.
    """
    for file in segments:
        if not reads_as_a_whole(file.path, file.size):
            raise UnreadableStore(f"{file.path}: {os.strerror(errno.EIO)}")


def copy_readable(path: str, size: int, copy: IO[bytes]) -> list[Unreadable]:
    """Copy what can be read of a file to the same places of another one; returns what cannot, in order.

    Raises:
        UnreadableStore: it cannot be read for another reason than the disk's.
        OSError: the copy cannot be written.
    """

    def take(at: int, data: memoryview) -> None:
        if any(data):
            write_all(copy.fileno(), data, at)

    return _each_piece(path, size, take)


def _each_piece(
    path: str, size: int, take: Callable[[int, memoryview], None], *, give_up: bool = False
) -> list[Unreadable]:
    unreadable: list[Unreadable] = []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        if err.errno in _BROKEN:
            return [Unreadable(path, 0, size, os.strerror(err.errno or 0))]
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    try:
        for start, stop in extents(fd, 0, size):
            _read(fd, path, start, stop, take, unreadable, give_up)
            if unreadable and give_up:
                break
    finally:
        os.close(fd)
    return unreadable


def _read(
    fd: int,
    path: str,
    start: int,
    stop: int,
    take: Callable[[int, memoryview], None],
    found: list[Unreadable],
    give_up: bool,
) -> None:
    buffer = bytearray(_PIECE)
    waiting = [(start, stop)]
    while waiting:
        at, end = waiting.pop()
        # pieces lie at their own multiples, so that halving one ends at the borders of sectors
        part = min((at // _PIECE + 1) * _PIECE, end)
        if part < end:
            waiting.append((part, end))
        try:
            count = _read_piece(fd, buffer, at, part)
        except OSError as err:
            if err.errno not in _BROKEN:
                raise UnreadableStore(f"{path}: byte {at}: {os.strerror(err.errno or 0)}") from err
            if part - at > _SMALLEST and not give_up:
                middle = at + (part - at) // 2 // _SMALLEST * _SMALLEST
                middle = middle if middle > at else min(at + _SMALLEST, part)
                waiting += [(middle, part), (at, middle)]
            elif found and found[-1].stop == at:
                found[-1] = found[-1]._replace(stop=part)
            else:
                found.append(Unreadable(path, at, part, os.strerror(err.errno or 0)))
            if give_up:
                return
            continue
        take(at, memoryview(buffer)[:count])


def _read_piece(fd: int, buffer: bytearray, at: int, stop: int) -> int:
    """Bytes read into the buffer; fewer than asked for where the file ends."""
    count = 0
    with memoryview(buffer) as room:
        while at + count < stop:
            done = os.preadv(fd, [room[count : stop - at]], at + count)
            if not done:
                break
            count += done
    return count


class Readable:
    """Files of a log in a form that can be mapped without fear.

    Attributes:
        unreadable: what is missing in them, in order.
    """

    def __init__(self) -> None:
        self.unreadable: list[Unreadable] = []
        self._copies: dict[str, tuple[str, IO[bytes]]] = {}

    def take(self, segments: Segments) -> Segments:
        """The files, or copies of those that do not read as a whole.

        Raises:
            UnreadableStore: a file cannot be opened, or there is no room for a copy.
        """
        files = (file if reads_as_a_whole(file.path, file.size) else self._copy(file) for file in segments)
        return Segments(list(files), segments.foreign)

    def name(self, path: str) -> str:
        """The file that a path stands for."""
        return self._copies[path][0] if path in self._copies else path

    def _copy(self, file: Segment) -> Segment:
        # without a name it goes when this process goes, however that ends
        copy = tempfile.TemporaryFile(prefix="rmqtool-")  # noqa: SIM115 - as long as this object
        path = f"/proc/self/fd/{copy.fileno()}"
        self._copies[path] = file.path, copy
        try:
            os.ftruncate(copy.fileno(), file.size)
            self.unreadable += copy_readable(file.path, file.size, copy)
        except OSError as err:
            text = f"no room for a copy of what can be read of {file.path}; TMPDIR names another place"
            raise UnreadableStore(f"{tempfile.gettempdir()}: {os.strerror(err.errno or 0)}: {text}") from err
        return Segment(path, file.base, file.size, file.mtime_ns, entries=file.entries)

    def words(self) -> list[str]:
        """What is missing, for people."""
        return [
            f"{piece.path}: bytes {piece.start} to {piece.stop} cannot be read: {piece.reason}"
            for piece in self.unreadable
        ]
