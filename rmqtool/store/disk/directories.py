"""Directories and small files, local or remote: what is there, and what a small file contains."""

import errno
import os
from collections.abc import Callable, Collection, Iterator
from stat import S_ISREG

from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.store.disk.mapping import retry_after_freeing
from rmqtool.store.disk.remote import RemoteStat, place_of


class DirectoryEntry:
    """A name in a directory; circular and dangling links are neither files nor directories."""

    __slots__ = ("_entry", "name", "path")

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self.name, self.path, self._entry = entry.name, entry.path, entry

    def is_file(self) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self._ask(self._entry.is_file)

    def is_dir(self) -> bool:
        """Whether it is a directory, or a link to one."""
        return self._ask(self._entry.is_dir)

    @property
    def size(self) -> int:
        """Size in bytes, of the target if it is a link."""
        return self._entry.stat().st_size

    @property
    def mtime_ns(self) -> int:
        """Modification time, of the target if it is a link."""
        return self._entry.stat().st_mtime_ns

    @property
    def links(self) -> int:
        """Number of its hard links, of the target if it is a link."""
        return self._entry.stat().st_nlink

    def _ask(self, question: Callable[[], bool]) -> bool:
        try:
            return question()
        except OSError as err:
            if err.errno == errno.ELOOP:
                return False
            raise UnreadableStore(f"{self.path}: {os.strerror(err.errno or 0)}") from err


class RemoteEntry(DirectoryEntry):
    """A name in a directory of a remote store."""

    __slots__ = ("_status",)

    def __init__(self, directory: str, status: RemoteStat) -> None:
        self.name, self.path, self._status = status.name, f"{directory}/{status.name}", status

    def is_file(self) -> bool:
        return not self._status.is_dir

    def is_dir(self) -> bool:
        return self._status.is_dir

    @property
    def size(self) -> int:
        return self._status.size

    @property
    def mtime_ns(self) -> int:
        return self._status.mtime_ns

    @property
    def links(self) -> int:
        return 1


def exists(path: str) -> bool:
    """Like ``os.path.exists``, for local and remote paths."""
    place = place_of(path)
    return os.path.exists(path) if place is None else place.find(path) is not None


def is_dir(path: str) -> bool:
    """Like ``os.path.isdir``, for local and remote paths."""
    place = place_of(path)
    return os.path.isdir(path) if place is None else (status := place.find(path)) is not None and status.is_dir


def file_size(path: str) -> int | None:
    """Size of a local or remote file in bytes; None if it does not exist."""
    place = place_of(path)
    if place is None:
        return os.path.getsize(path) if os.path.isfile(path) else None
    return status.size if (status := place.find(path)) is not None and not status.is_dir else None


def list_dir(path: str) -> list[DirectoryEntry]:
    """Directory entries sorted by name; empty if the directory does not exist.

    Raises:
        UnreadableStore: no permission, or not a directory.
    """
    if (place := place_of(path)) is not None:
        return [RemoteEntry(path, status) for status in place.entries(path)]
    try:
        with retry_after_freeing(lambda: os.scandir(path)) as entries:
            listed = list(map(DirectoryEntry, entries))
        return sorted(listed, key=lambda entry: entry.name) if len(listed) > 1 else listed
    except FileNotFoundError:
        return []
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    except ValueError as err:
        raise UnreadableStore(f"{path!r}: {err}") from err  # a path that contains a NUL


def files_below(path: str) -> tuple[int, int]:
    """(number of files, bytes) below a directory; local directories that cannot be listed are not counted."""
    if place_of(path) is not None:
        counts = [files_below(entry.path) if entry.is_dir() else (1, entry.size) for entry in list_dir(path)]
        return sum(files for files, _size in counts), sum(size for _files, size in counts)
    files = size = 0
    for directory, _subdirs, names in os.walk(path):
        for name in names:
            files += 1
            size += os.lstat(os.path.join(directory, name)).st_size
    return files, size


def each_file(path: str, skipped: Collection[str] = ()) -> Iterator[str]:
    """Paths of the regular files, and of links to them, below a local directory, by name.

    Args:
        skipped: real paths of directories that are left out.
    """
    for folder, inner, names in os.walk(path):
        inner[:] = sorted(name for name in inner if os.path.realpath(os.path.join(folder, name)) not in skipped)
        for name in sorted(names):
            if os.path.isfile(file := os.path.join(folder, name)):
                yield file


def read_small(path: str, limit: int = 64 << 20) -> bytes | None:
    """The contents of a small file; None if it does not exist.

    Raises:
        UnreadableStore: no permission, or not a regular file.
        CorruptFile: larger than ``limit``, which no such file ever is.
    """
    place = place_of(path)
    data = _read_local(path, limit + 1) if place is None else place.read(path, limit + 1)
    if data is not None and len(data) > limit:
        raise CorruptFile(path, limit, f"larger than {limit} bytes")
    return data


def _read_local(path: str, size: int) -> bytes | None:
    try:
        fd = retry_after_freeing(lambda: os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        with open(fd, "rb") as file:
            if not S_ISREG(os.fstat(fd).st_mode):
                raise UnreadableStore(f"{path}: not a regular file")
            return file.read(size)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    except ValueError as err:  # the path contains a NUL
        raise UnreadableStore(f"{path!r}: no path") from err
