"""Copy a file and compute its checksum on the way; read a copy again to compare it."""

import hashlib
import os
import time
from typing import NamedTuple

from rmqtool.progress import Stage
from rmqtool.store.backup.manifest import BackupFile
from rmqtool.store.disk.files import make_file, open_file, set_times
from rmqtool.store.disk.sparse import is_zero

_ZEROS = bytes(1 << 20)


class CopyState(NamedTuple):
    """The content of a copy. ``written`` is the offset after its last non-zero byte."""

    written: int
    sha256: str


class RateLimit:
    """Slows copying down to a rate.

    Args:
        rate: bytes per second; None for as fast as possible.
    """

    def __init__(self, rate: int | None) -> None:
        self._rate, self._begun, self._done = rate, time.monotonic(), 0

    def add(self, size: int) -> None:
        """Wait until this many more bytes may have been copied."""
        if self._rate is None:
            return
        self._done += size
        early = self._done / self._rate - (time.monotonic() - self._begun)
        if early > 0:
            time.sleep(early)


class Digest:
    """The checksum of bytes given with their offsets; gaps count as zeros, and zeros at the end are left out."""

    def __init__(self) -> None:
        self._hash, self.end = hashlib.sha256(), 0

    def add(self, at: int, data: bytes) -> bytes:
        """Add bytes; returns them without zeros at their end."""
        content = data.rstrip(b"\0")
        if content:
            gap = at - self.end
            while gap > 0:
                self._hash.update(_ZEROS[:gap])
                gap -= len(_ZEROS)
            self._hash.update(content)
            self.end = at + len(content)
        return content

    def result(self) -> CopyState:
        return CopyState(self.end, self._hash.hexdigest())


def copy_file(
    source: str, target: str, *, length: int | None = None, stop: int | None = None, pace: RateLimit, progress: Stage
) -> CopyState:
    """Copy a file to a new one, with owner, mode and times. It is not synced.

    Args:
        length: of the copy; that of the source by default.
        stop: byte before which the content ends; the rest of the copy is zeros.
    """
    digest = Digest()
    with open_file(source) as original, make_file(target, 0o600) as copy:
        about = original.about()
        size = about.st_size if length is None else length
        for at, data in original.written_parts(0, size if stop is None else min(stop, size)):
            if content := digest.add(at, data):
                copy.write(at, content)
            pace.add(len(data))
            progress.done += len(data)
        copy.cut(size)
        copy.take_after(source)
    set_times(target, about.st_atime_ns, about.st_mtime_ns)
    return digest.result()


def read_copy(path: str, progress: Stage | None = None) -> CopyState:
    """The checksum of a file."""
    digest = Digest()
    with open_file(path, link=False, wait=False) as file:
        for at, data in file.written_parts(0, file.about().st_size):
            digest.add(at, data)
            if progress is not None:
                progress.done += len(data)
    return digest.result()


def difference(path: str, file: BackupFile, progress: Stage | None = None) -> str | None:
    """What differs between a file and its line in the manifest; None if nothing does."""
    if not os.path.isfile(path) or os.path.islink(path):
        return "missing"
    size = os.path.getsize(path)
    if size != file.bytes:
        return f"{size} bytes long instead of {file.bytes}"
    if read_copy(path, progress) != (file.written, file.sha256):
        return "its content differs" if not is_zero(path, 0, size) or not file.written else "its content is zeros"
    return None
