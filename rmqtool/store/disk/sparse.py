"""Files with holes: what was never written is neither read nor searched.

Every answer is the same as for a file without holes, which a file system may make of any file: a hole reads as zeros.
"""

import errno
import os
from collections.abc import Iterator

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.mapping import open_to_read
from rmqtool.store.disk.remote import Partial, place_of

_CHUNK = 1 << 20
_FIRST = 1 << 14  # bytes of the first piece of a range whose beginning may be all that is asked for


def extents(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of the parts of a range that are not holes. A file system without holes has one part."""
    at = start
    while at < stop:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as err:
            if err.errno != errno.ENXIO:
                yield at, stop  # holes cannot be asked for here
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
    """:func:`extents` of a file by name; the whole range when it cannot be opened (any more)."""
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
    """(offset, bytes) of the parts of a range that are not holes, in pieces."""
    for at, end in extents(fd, start, stop):
        while at < end:
            data = os.pread(fd, min(_CHUNK, end - at), at)
            if not data:
                return
            yield at, data
            at += len(data)


def written_units(path: str, unit: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """(number of the first, bytes) of the units of a file that do not lie in holes wholly, ascending, in pieces.

    What is left out, or lies behind the end of the file, is zero. Pieces are small at first, so that who needs the
    beginning only does not read much more.

    Args:
        path: of a file of this machine.
        unit: bytes of each; the first one lies at byte 0.
        start, stop: numbers of units.

    Raises:
        UnreadableStore: the file cannot be read.
    """
    fd = open_to_read(path)
    try:
        # units, not bytes: one that lies across the edge of a hole belongs to both its sides
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
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    finally:
        os.close(fd)


def _whole(data: bytes, unit: int) -> bytes:
    """Whole units; a file may end inside one."""
    rest = len(data) % unit
    return data[:-rest] if rest else data


def data_end(path: str, start: int, stop: int) -> int:
    """Offset after the last byte of a range that is not in a hole; ``start`` when all of it is one hole."""
    return max((end for _start, end in extents_of(path, start, stop)), default=start)


def has_bytes(path: str, start: int, stop: int) -> int:
    """Offset after the last byte of a range that is not zero; ``start`` when all are zero."""
    last = start
    for at, data in _written_in(path, start, stop):
        if kept := data.rstrip(b"\0"):
            last = at + len(kept)
    return last


def is_zero(path: str, start: int, stop: int) -> bool:
    """Whether a range holds nothing but zero bytes."""
    return not any(data.strip(b"\0") for _at, data in _written_in(path, start, stop))


def _written_in(path: str, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """:func:`written_parts` of a file by name, wherever it is; UnreadableStore where it cannot be read."""
    if (place := place_of(path)) is None:
        fd = open_to_read(path)
        try:
            yield from written_parts(fd, start, stop)
        except OSError as err:
            raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
        finally:
            os.close(fd)
        return
    if isinstance(mapped := place.map(path), Partial):
        for at in range(start, min(stop, len(mapped)), _CHUNK):
            end = min(at + _CHUNK, stop)
            mapped.need(at, end)
            yield at, mapped[at:end]
            mapped.forget(at, end)


def copy_written(path: str, target: int, stop: int | None = None) -> int:
    """Copy a file to an empty one that is open for writing, except what is zero; the offset after the last byte of it.

    Args:
        stop: where to end; the file's end when None.
    """
    last = 0
    with open(path, "rb", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size
        for at, data in written_parts(file.fileno(), 0, end if stop is None else min(stop, end)):
            if kept := data.rstrip(b"\0"):
                left = memoryview(kept)
                while left:
                    done = os.pwrite(target, left, at)
                    left, at = left[done:], at + done
                last = at
    return last
