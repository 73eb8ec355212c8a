"""Determine what can be read of a file on a failing disk, piece by piece, before anything is mapped.

Touching a bad sector through a mapping kills the process, while a read returns an error. So before messages are
carved out of such a disk, each file is read once. A fully readable file is used in place (it is in the page cache now);
of any other file, the readable parts are copied, with holes in place of the bad sectors.
"""

import errno
import os
from collections.abc import Callable
from typing import IO, NamedTuple

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.disk.sparse import extents

_PIECE = 1 << 20  # bytes per read
_SMALLEST = 1 << 12  # a failing piece is halved down to this size; each failure may take the disk seconds
_BROKEN = {errno.EIO, errno.EREMOTEIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA}


class Unreadable(NamedTuple):
    """A range of a file that the disk cannot read."""

    path: str
    start: int
    stop: int
    reason: str


def is_fully_readable(path: str, size: int) -> bool:
    """Whether every byte of a file can be read; stops at the first one that cannot.

    Raises:
        UnreadableStore: it cannot be read, and not because of the disk.
    """
    return not _read_pieces(path, size, lambda _at, _data: None, give_up=True)


def need_readable(segments: Segments) -> None:
    """Read every byte of the files before they are mapped.

    Raises:
        UnreadableStore: one of them cannot be read.
    """
    for file in segments:
        if not is_fully_readable(file.path, file.size):
            raise UnreadableStore(f"{file.path}: {os.strerror(errno.EIO)}")


def copy_readable(path: str, size: int, copy: IO[bytes]) -> list[Unreadable]:
    """Copy the readable parts of a file to the same offsets of another; returns the unreadable ranges in order.

    Raises:
        UnreadableStore: it cannot be read, and not because of the disk.
        OSError: the copy cannot be written.
    """

    from rmqtool.store.disk.files import write_all  # a look-up starts sooner without it

    def take(at: int, data: memoryview) -> None:
        if any(data):
            write_all(copy.fileno(), data, at)

    return _read_pieces(path, size, take)


def _read_pieces(
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
    unreadable: list[Unreadable],
    give_up: bool,
) -> None:
    buffer = bytearray(_PIECE)
    pending = [(start, stop)]
    while pending:
        at, end = pending.pop()
        # pieces start at multiples of their size, so that halving them ends at sector boundaries
        part = min((at // _PIECE + 1) * _PIECE, end)
        if part < end:
            pending.append((part, end))
        try:
            count = _read_piece(fd, buffer, at, part)
        except OSError as err:
            if err.errno not in _BROKEN:
                raise UnreadableStore(f"{path}: byte {at}: {os.strerror(err.errno or 0)}") from err
            if part - at > _SMALLEST and not give_up:
                middle = at + (part - at) // 2 // _SMALLEST * _SMALLEST
                middle = middle if middle > at else min(at + _SMALLEST, part)
                pending += [(middle, part), (at, middle)]
            elif unreadable and unreadable[-1].stop == at:
                unreadable[-1] = unreadable[-1]._replace(stop=part)
            else:
                unreadable.append(Unreadable(path, at, part, os.strerror(err.errno or 0)))
            if give_up:
                return
            continue
        take(at, memoryview(buffer)[:count])


def _read_piece(fd: int, buffer: bytearray, at: int, stop: int) -> int:
    """Read into the buffer; returns the number of bytes, fewer than requested if the file ends."""
    count = 0
    with memoryview(buffer) as room:
        while at + count < stop:
            done = os.preadv(fd, [room[count : stop - at]], at + count)
            if not done:
                break
            count += done
    return count


class Readable:
    """Files of a log, replaced by copies where needed so that they can be mapped safely.

    Attributes:
        unreadable: the ranges missing in the copies, in order.
    """

    def __init__(self) -> None:
        self.unreadable: list[Unreadable] = []
        self._copies: dict[str, tuple[str, IO[bytes]]] = {}

    def take(self, segments: Segments) -> Segments:
        """Return the files, with copies in place of those that are not fully readable.

        Raises:
            UnreadableStore: a file cannot be opened, or there is no space for a copy.
        """
        files = (file if is_fully_readable(file.path, file.size) else self._copy(file) for file in segments)
        return Segments(list(files), segments.foreign)

    def name(self, path: str) -> str:
        """The original file of a path that may be a copy's."""
        return self._copies[path][0] if path in self._copies else path

    def _copy(self, file: Segment) -> Segment:
        import tempfile  # a look-up starts sooner without it

        # an unnamed file disappears with this process, however that ends
        copy = tempfile.TemporaryFile(prefix="rmqtool-")  # noqa: SIM115 - lives as long as this object
        path = f"/proc/self/fd/{copy.fileno()}"
        self._copies[path] = file.path, copy
        try:
            os.ftruncate(copy.fileno(), file.size)
            self.unreadable += copy_readable(file.path, file.size, copy)
        except OSError as err:
            text = f"no room for a copy of what can be read of {file.path}; TMPDIR names another place"
            raise UnreadableStore(f"{tempfile.gettempdir()}: {os.strerror(err.errno or 0)}: {text}") from err
        return Segment(path, file.base, file.size, file.mtime_ns, entries=file.entries, whole_pages=file.whole_pages)

    def describe(self) -> list[str]:
        """One sentence for each missing range."""
        return [
            f"{piece.path}: bytes {piece.start} to {piece.stop} cannot be read: {piece.reason}"
            for piece in self.unreadable
        ]
