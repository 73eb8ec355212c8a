"""What a file or a range of bytes is known by, so that a later run can tell whether it is still the same.

Holes and zero bytes count alike: a copy of a store may have the one where the original has the other.
"""

import os
import stat
import struct
from hashlib import blake2b
from typing import NamedTuple

from rmqtool.store.disk.files import File, open_file

_BLOCK = 64 << 10
_PIECE = struct.Struct(">QQ")
_SMALL = 8 << 20  # bytes on the disk up to which a whole file is read to know it; larger ones go by length and time
_SECOND = 1_000_000_000


class Print(NamedTuple):
    """A file, or a symbolic link."""

    size: int
    mtime_ns: int
    digest: str | None = None
    link: str | None = None


def digest_of(file: File, start: int, stop: int) -> str:
    """Digest of bytes [start, stop) of an open file."""
    digest, done = blake2b(digest_size=16), start
    for first, end in file.extents(start, stop):
        at = max(start + (first - start) // _BLOCK * _BLOCK, done)
        while at < end:
            data = file.read(at, min(_BLOCK, stop - at))
            if not data:
                break
            if kept := data.rstrip(b"\0"):
                digest.update(_PIECE.pack(at - start, len(kept)))
                digest.update(kept)
            at += len(data)
        done = max(at, done)
    return digest.hexdigest()


def digest_before(file: File, at: int) -> str:
    """Digest of the bytes in front of one, by which a file is known that is only written behind it."""
    return digest_of(file, max(at - _BLOCK, 0), at)


def print_of(path: str) -> Print | None:
    """What is at a path now; None when nothing is. Something that is neither file nor link has no size."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        return Print(0, 0, None, os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return Print(-1, 0)
    digest = None
    if status.st_blocks * 512 <= _SMALL:
        with open_file(path, link=False) as file:
            digest = digest_of(file, 0, status.st_size)
    return Print(status.st_size, status.st_mtime_ns, digest)


def same(found: Print | None, wanted: Print | None) -> bool:
    """Whether a file is the one that is wanted: by its content where that is known, else by length and time."""
    if found is None or wanted is None:
        return found is wanted
    if (found.size, found.link) != (wanted.size, wanted.link) or found.size < 0:
        return False
    if found.digest is not None and wanted.digest is not None:
        return found.digest == wanted.digest
    return _same_time(found.mtime_ns, wanted.mtime_ns)


def is_still(path: str, wanted: Print | None) -> bool:
    """As :func:`same`, of a file that is there now."""
    return same(print_of(path), wanted)


def _same_time(one: int, other: int) -> bool:
    """Some file systems keep seconds only, which a copy then has."""
    whole = not one % _SECOND or not other % _SECOND
    return one == other or (whole and one // _SECOND == other // _SECOND)
