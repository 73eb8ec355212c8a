"""Fingerprints of files and byte ranges, by which a later run recognizes changes.

Holes and zeros are equivalent: a copy of a store may have one where the original has the other.
"""

import os
import stat
import struct
from hashlib import blake2b
from typing import NamedTuple

from rmqtool.store.disk.files import File, open_file

_BLOCK = 64 << 10
_PIECE = struct.Struct(">QQ")
_SMALL = 8 << 20  # files up to this size on disk are hashed; larger ones are compared by length and time
_SECOND = 1_000_000_000


class Print(NamedTuple):
    """The fingerprint of a file or symbolic link."""

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
            if content := data.rstrip(b"\0"):
                digest.update(_PIECE.pack(at - start, len(content)))
                digest.update(content)
            at += len(data)
        done = max(at, done)
    return digest.hexdigest()


def digest_before(file: File, at: int) -> str:
    """Digest of the bytes before a position; it identifies a file that only changes after it."""
    return digest_of(file, max(at - _BLOCK, 0), at)


def print_of(path: str) -> Print | None:
    """The fingerprint of what is at a path; None if nothing is. Other than files and links have size -1."""
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


def same(actual: Print | None, wanted: Print | None) -> bool:
    """Whether two fingerprints match: by content if both have a digest, else by length and time."""
    if actual is None or wanted is None:
        return actual is wanted
    if (actual.size, actual.link) != (wanted.size, wanted.link) or actual.size < 0:
        return False
    if actual.digest is not None and wanted.digest is not None:
        return actual.digest == wanted.digest
    return _same_time(actual.mtime_ns, wanted.mtime_ns)


def is_still(path: str, wanted: Print | None) -> bool:
    """Whether the file at a path matches a fingerprint."""
    return same(print_of(path), wanted)


def _same_time(one: int, other: int) -> bool:
    """Whether two times match; some file systems, and therefore copies, keep whole seconds only."""
    whole = not one % _SECOND or not other % _SECOND
    return one == other or (whole and one // _SECOND == other // _SECOND)
