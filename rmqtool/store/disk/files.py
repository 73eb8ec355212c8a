"""The system calls that read and change the files of a local store.

Code that changes a store uses only these calls; each is one step at which the process may die. Nothing is buffered:
written data has reached the OS, and a sync puts all of it on the medium.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress

from rmqtool.store.disk.ownership import take_after
from rmqtool.store.disk.sparse import copy_written, extents, written_parts

_DEFAULT_MODE = 0o666  # before the process's umask
_EARLY = 1 << 16  # bytes; smaller writes are not worth a call
_AT_ONCE = 2 << 20  # bytes per write, copied while the medium writes the previous ones


class SyncFailed(OSError):
    """The medium did not accept data; the kernel counts the pages it dropped as written from now on."""


def write_all(fd: int, data: bytes | memoryview, at: int) -> None:
    """Write all of ``data`` at an offset, in as many calls as it takes."""
    rest = memoryview(data)
    while rest:
        done = os.pwrite(fd, rest, at)
        rest, at = rest[done:], at + done


def write_early(fd: int, data: bytes | memoryview, at: int) -> None:
    """Like :func:`write_all`, for data that will be synced soon: starts writeback at once."""
    rest = memoryview(data)
    while rest:
        part, rest = rest[:_AT_ONCE], rest[_AT_ONCE:]
        write_all(fd, part, at)
        if len(part) >= _EARLY and hasattr(os, "posix_fadvise"):
            # DONTNEED starts writeback of dirty pages; those being written stay in memory
            with suppress(OSError):  # only advice
                os.posix_fadvise(fd, at, len(part), os.POSIX_FADV_DONTNEED)
        at += len(part)


class File:
    """An open file with reads and writes at offsets; a context manager that closes it.

    Failed changes raise an OSError that names the file: the disk is full or broken.

    Args:
        fd: its descriptor, which this object then owns.
        path: its path, for messages.
    """

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd, self.path = fd, path

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, synced or not."""
        os.close(self._fd)

    def again(self) -> "File":
        """The same open file with a duplicated descriptor, so that either may be closed first."""
        return File(os.dup(self._fd), self.path)

    def about(self) -> os.stat_result:
        """The result of fstat."""
        return os.fstat(self._fd)

    def read(self, at: int, size: int) -> bytes:
        """Read bytes [at, at + size) up to the end of the file; like pread, it may return less."""
        return os.pread(self._fd, size, at)

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Fill a buffer from an offset on; returns the number of bytes read before the file ended."""
        done = 0
        while done < len(buffer) and (count := os.preadv(self._fd, [buffer[done:]], at + done)):
            done += count
        return done

    def map(self, length: int) -> mmap.mmap:
        """Map the first ``length`` bytes read-write; the mapping outlives this object."""
        return mmap.mmap(self._fd, length)

    def line(self, most: int) -> bytes:
        """Read the first line, at most ``most`` bytes of it, without reading to the end of the file."""
        with open(self._fd, "rb", closefd=False) as file:
            return file.readline(most)

    def extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """See :func:`rmqtool.store.disk.sparse.extents`."""
        return extents(self._fd, start, stop)

    def written_parts(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """See :func:`rmqtool.store.disk.sparse.written_parts`."""
        return written_parts(self._fd, start, stop)

    def write(self, at: int, data: bytes | memoryview) -> None:
        """Write all of ``data`` at an offset."""
        try:
            write_all(self._fd, data, at)
        except OSError as err:
            raise self._error(err) from err

    def clear(self, start: int, stop: int) -> None:
        """Zero what is written in [start, stop); holes stay holes, so no disk space is needed."""
        while start < stop:
            data = self.read(start, min(mmap.PAGESIZE - start % mmap.PAGESIZE, stop - start))
            if not data:
                return
            if data.strip(b"\0"):
                self.write(start, bytes(len(data)))
            start += len(data)

    def write_early(self, at: int, data: bytes | memoryview) -> None:
        """Like :meth:`write`, for data that will be synced soon: starts writeback at once."""
        try:
            write_early(self._fd, data, at)
        except OSError as err:
            raise self._error(err) from err

    def copy_from(self, path: str, stop: int | None = None) -> int:
        """See :func:`rmqtool.store.disk.sparse.copy_written`; this file must be empty."""
        return copy_written(path, self._fd, stop)

    def reserve(self, start: int, stop: int) -> None:
        """Allocate disk blocks for a range, where supported: a write to a mapping without blocks kills the process."""
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._fd, start, stop - start)
            except OSError as err:
                raise self._error(err) from err

    def cut(self, length: int) -> None:
        """Set the length; new space is a hole."""
        os.ftruncate(self._fd, length)

    def take_after(self, path: str) -> None:
        """Take over owner, mode and attributes of another file, if it exists."""
        take_after(self._fd, path)

    def sync(self) -> None:
        """Make its bytes durable.

        Raises:
            SyncFailed: the medium did not accept them.
        """
        try:
            os.fsync(self._fd)
        except OSError as err:
            raise SyncFailed(err.errno, os.strerror(err.errno or 0), self.path) from err

    def _error(self, err: OSError) -> OSError:
        """The same error with the file's name."""
        return OSError(err.errno, os.strerror(err.errno or 0), self.path)


def open_file(path: str, *, link: bool = True, wait: bool = True) -> File:
    """Open a file for reading.

    Args:
        link: whether to follow a symbolic link; if not, opening one raises an OSError.
        wait: whether to block until a pipe has a writer or another process gives up its lease.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (0 if link else os.O_NOFOLLOW) | (0 if wait else os.O_NONBLOCK)
    return File(os.open(path, flags), path)


def open_to_change(path: str) -> File:
    """Open a file for reading and writing."""
    return File(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)


def make_file(path: str, mode: int = _DEFAULT_MODE) -> File:
    """Create a new file, open for reading and writing.

    Raises:
        FileExistsError: the file exists.
    """
    return File(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), path)


def remove(path: str) -> None:
    """Unlink a file or link. It may reappear after a power cut until its directory is synced."""
    os.unlink(path)


def rename(path: str, target: str) -> None:
    """Rename within a file system; not durable until the directory is synced."""
    os.rename(path, target)


def set_times(path: str, accessed_ns: int, modified_ns: int) -> None:
    """Set the access and modification times."""
    os.utime(path, ns=(accessed_ns, modified_ns))


def remove_folder(path: str) -> None:
    """Remove an empty directory."""
    os.rmdir(path)


def remove_tree(path: str) -> None:
    """Remove a directory and everything below it, ignoring errors."""
    import shutil  # a look-up, which reads with this module's functions, starts sooner without it

    shutil.rmtree(path, ignore_errors=True)


def list_folder(folder: str) -> list[os.DirEntry[str]]:
    """The entries of a directory, unordered; links are not followed by default."""
    with os.scandir(folder) as entries:
        return list(entries)


def folders_from(path: str) -> list[str]:
    """A directory and all directories below it that can be listed."""
    return [folder for folder, _folders, _files in os.walk(path)]
