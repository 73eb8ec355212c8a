"""Sparse files: read and search them without touching their holes.

The results are the same as for a file without holes, since a hole reads as zeros.
"""

import errno
import os
from collections.abc import Iterator

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.mapping import open_to_read
from rmqtool.store.disk.remote import Partial, place_of

_CHUNK = 1 << 20
_FIRST = 1 << 14  # bytes of the first piece, as the caller may need only the beginning


def extents(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of the parts of a range that are not holes; one part on a file system without holes."""
    at = start
    while at < stop:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as err:
            if err.errno != errno.ENXIO:
                yield at, stop  # SEEK_DATA is not supported here
            return  # no data after here
        if at >= stop:
            return
        try:
            end = min(os.lseek(fd, at, os.SEEK_HOLE), stop)
        except OSError:
            end = stop
        yield at, end
        at = end


def extents_of(path: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """:func:`extents` of a file by path; the whole range if it cannot be opened (any more)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield start, stop
        return
    try:
        yield from extents(fd, start, stop)
    finally:
        os.close(fd)


def written_parts(fd: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of the parts of a range that are not holes, piece by piece."""
    for at, end in extents(fd, start, stop):
        while at < end:
            data = os.pread(fd, min(_CHUNK, end - at), at)
            if not data:
                return
            yield at, data
            at += len(data)


def written_units(path: str, unit: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """(number of the first unit, bytes) of the units of a file that are not entirely in holes, ascending, in pieces.

    Everything omitted is zero or after the end of the file. The first pieces are small, so that a caller who needs
    only the beginning reads little more.

    Args:
        path: of a local file.
        unit: bytes per unit; the first one is at byte 0.
        start, stop: unit numbers.

    Raises:
        UnreadableStore: the file cannot be read.
    """
    fd = open_to_read(path)
    try:
        # counted in units, not bytes: one that crosses the edge of a hole belongs to both extents
        at, most = start, max(_FIRST // unit, 1)
        for first, last in extents(fd, start * unit, stop * unit):
            at, end = max(at, first // unit), -(-last // unit)
            while at < end:
                data = _whole(os.pread(fd, min(most, end - at) * unit, at * unit), unit)
                if not data:
                    return
                yield at, data
                at += len(data) // unit
                most = min(2 * most, max(_CHUNK // unit, 1))
    except OSError as err:
        err.filename = path
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    finally:
        os.close(fd)


def _whole(data: bytes, unit: int) -> bytes:
    """Cut off a partial unit at the end."""
    rest = len(data) % unit
    return data[:-rest] if rest else data


def data_end(path: str, start: int, stop: int) -> int:
    """Offset after the last byte of a range that is not in a hole; ``start`` if the range is one hole."""
    return max((end for _start, end in extents_of(path, start, stop)), default=start)


def has_bytes(path: str, start: int, stop: int) -> int:
    """Offset after the last non-zero byte of a range; ``start`` if all are zero."""
    for at, data in _written_in(path, start, stop, backwards=True):
        if kept := data.rstrip(b"\0"):
            return at + len(kept)
    return start


def is_zero(path: str, start: int, stop: int) -> bool:
    """Whether all bytes of a range are zero."""
    return not any(data.strip(b"\0") for _at, data in _written_in(path, start, stop))


def _written_in(path: str, start: int, stop: int, *, backwards: bool = False) -> Iterator[tuple[int, bytes]]:
    """:func:`written_parts` of a local or remote file by path; raises UnreadableStore if it cannot be read.

    Args:
        backwards: the last part comes first; of a file that is full, no more than its end is read.
    """
    if (place := place_of(path)) is None:
        fd = open_to_read(path)
        try:
            yield from (_parts_backwards if backwards else written_parts)(fd, start, stop)
        except OSError as err:
            raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
        finally:
            os.close(fd)
        return
    if isinstance(mapped := place.map(path), Partial):
        pieces = range(start, min(stop, len(mapped)), _CHUNK)
        for at in reversed(pieces) if backwards else pieces:
            end = min(at + _CHUNK, stop)
            mapped.need(at, end)
            yield at, mapped[at:end]
            mapped.forget(at, end)


def _parts_backwards(fd: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    for begin, end in reversed([*extents(fd, start, stop)]):
        for at in reversed(range(begin, end, _CHUNK)):
            yield at, os.pread(fd, min(_CHUNK, end - at), at)


def copy_written(path: str, target: int, stop: int | None = None) -> int:
    """Copy the non-zero parts of a file into an empty one; returns the offset after the last non-zero byte.

    Args:
        stop: where to stop; None means the end of the file.
    """
    last = 0
    with open(path, "rb", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size
        for at, data in written_parts(file.fileno(), 0, end if stop is None else min(stop, end)):
            if content := data.rstrip(b"\0"):
                rest = memoryview(content)
                while rest:
                    done = os.pwrite(target, rest, at)
                    rest, at = rest[done:], at + done
                last = at
    return last
