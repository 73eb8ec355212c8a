"""Files with holes: what was never written is neither read nor searched."""

import os
from collections.abc import Iterator

from rmqtool.store.disk.remote import Partial, place_of

_CHUNK = 1 << 20


def extents(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of the parts of a range that are not holes. A file system without holes has one part."""
    at = start
    while at < stop:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return  # no data after here
        if at >= stop:
            return
        end = min(os.lseek(fd, at, os.SEEK_HOLE), stop)
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


def written(fd: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of the parts of a range that are not holes, in pieces."""
    for at, end in extents(fd, start, stop):
        while at < end:
            data = os.pread(fd, min(_CHUNK, end - at), at)
            if not data:
                return
            yield at, data
            at += len(data)


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
    """:func:`written` of a file by name, wherever it is."""
    if (place := place_of(path)) is None:
        with open(path, "rb") as file:
            yield from written(file.fileno(), start, stop)
        return
    if isinstance(mapped := place.map(path), Partial):
        for at in range(start, min(stop, len(mapped)), _CHUNK):
            end = min(at + _CHUNK, stop)
            mapped.need(at, end)
            yield at, mapped[at:end]
            mapped.forget(at, end)


def copy_written(path: str, target: int) -> None:
    """Copy a file to an empty one that is open for writing, except what is zero."""
    with open(path, "rb") as file:
        for at, data in written(file.fileno(), 0, os.fstat(file.fileno()).st_size):
            if data.strip(b"\0"):
                os.pwrite(target, data, at)
