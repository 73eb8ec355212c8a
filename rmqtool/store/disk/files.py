"""The calls by which the files of a store on this machine are read and changed.

Who changes a store calls these and nothing of the system's own; each is one step of it, at which a process may end.
Nothing is held back in memory: what was written has reached the system, and a sync takes all of it to the medium.
"""

import mmap
import os
import shutil
from collections.abc import Iterator

from rmqtool.store.disk.ownership import take_after
from rmqtool.store.disk.segments import write_all, write_early
from rmqtool.store.disk.sparse import copy_written, extents, written_parts

_ANYBODY = 0o666  # less what the process's mask takes away


class SyncFailed(OSError):
    """The medium did not take what was to be made durable: pages that it gave up count as written from now on."""


class File:
    """An open file, whose bytes are named by their offset. As a context it is closed at the end.

    Every change raises an OSError that names the file: the disk is full, or broken.

    Args:
        fd: of it, which becomes this one's own.
        path: of it.
    """

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd, self.path = fd, path

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it, synced or not."""
        os.close(self._fd)

    def again(self) -> "File":
        """The same open file by a descriptor of its own, so that either may be closed first."""
        return File(os.dup(self._fd), self.path)

    def about(self) -> os.stat_result:
        """What the system knows of it."""
        return os.fstat(self._fd)

    def read(self, at: int, size: int) -> bytes:
        """Bytes [at, at + size), as far as the file goes; one call may bring less."""
        return os.pread(self._fd, size, at)

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Fill a buffer with the bytes from an offset on; how many there were before the file ended."""
        done = 0
        while done < len(buffer) and (count := os.preadv(self._fd, [buffer[done:]], at + done)):
            done += count
        return done

    def map(self, length: int) -> mmap.mmap:
        """Its first bytes as memory that is written through, and outlives this object."""
        return mmap.mmap(self._fd, length)

    def line(self, most: int) -> bytes:
        """The first line, or as many bytes of it, without reading on to the file's end."""
        with open(self._fd, "rb", closefd=False) as file:
            return file.readline(most)

    def extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """As :func:`rmqtool.store.disk.sparse.extents`."""
        return extents(self._fd, start, stop)

    def written_parts(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """As :func:`rmqtool.store.disk.sparse.written_parts`."""
        return written_parts(self._fd, start, stop)

    def write(self, at: int, data: bytes | memoryview) -> None:
        """All of it, at an offset."""
        try:
            write_all(self._fd, data, at)
        except OSError as err:
            raise self._error(err) from err

    def clear(self, start: int, stop: int) -> None:
        """Make zeros of what is written in [start, stop); holes stay holes, so that no room is needed."""
        while start < stop:
            data = self.read(start, min(mmap.PAGESIZE - start % mmap.PAGESIZE, stop - start))
            if not data:
                return
            if data.strip(b"\0"):
                self.write(start, bytes(len(data)))
            start += len(data)

    def write_early(self, at: int, data: bytes | memoryview) -> None:
        """As :meth:`write`, of what will be synced soon: the medium begins with it now."""
        try:
            write_early(self._fd, data, at)
        except OSError as err:
            raise self._error(err) from err

    def copy_from(self, path: str, stop: int | None = None) -> int:
        """As :func:`rmqtool.store.disk.sparse.copy_written`, into this file, which is empty."""
        return copy_written(path, self._fd, stop)

    def reserve(self, start: int, stop: int) -> None:
        """Have the medium's blocks for a range, where the system can: in a mapping a write without ends the process."""
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._fd, start, stop - start)
            except OSError as err:
                raise self._error(err) from err

    def cut(self, length: int) -> None:
        """Give it a length; what comes new is a hole."""
        os.ftruncate(self._fd, length)

    def take_after(self, path: str) -> None:
        """Owner, mode and attributes of another file become this one's, if there is one."""
        take_after(self._fd, path)

    def sync(self) -> None:
        """Make its bytes durable.

        Raises:
            SyncFailed: the medium did not take them.
        """
        try:
            os.fsync(self._fd)
        except OSError as err:
            raise SyncFailed(err.errno, os.strerror(err.errno or 0), self.path) from err

    def _error(self, err: OSError) -> OSError:
        """The same, with the file's name."""
        return OSError(err.errno, os.strerror(err.errno or 0), self.path)


def open_file(path: str, *, link: bool = True, wait: bool = True) -> File:
    """A file to read.

    Args:
        link: whether a symbolic link is followed; one that is not raises an OSError.
        wait: for who writes into a pipe, or has a lease.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (0 if link else os.O_NOFOLLOW) | (0 if wait else os.O_NONBLOCK)
    return File(os.open(path, flags), path)


def open_to_change(path: str) -> File:
    """A file to read and to write into."""
    return File(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)


def make_file(path: str, mode: int = _ANYBODY) -> File:
    """A new file, to read and to write.

    Raises:
        FileExistsError: there is one.
    """
    return File(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), path)


def remove(path: str) -> None:
    """A file, or a link. It may be there again after a power cut, until its directory is synced."""
    os.unlink(path)


def rename(path: str, target: str) -> None:
    """Another name on the same file system, which is not durable yet."""
    os.rename(path, target)


def set_times(path: str, accessed_ns: int, modified_ns: int) -> None:
    """When a file was read and changed last."""
    os.utime(path, ns=(accessed_ns, modified_ns))


def remove_folder(path: str) -> None:
    """A directory in which nothing is."""
    os.rmdir(path)


def remove_tree(path: str) -> None:
    """A directory and all below it, as far as that can be removed."""
    shutil.rmtree(path, ignore_errors=True)


def list_folder(folder: str) -> list[os.DirEntry[str]]:
    """Names in a directory, in no order; links are not followed unless who asks does so."""
    with os.scandir(folder) as entries:
        return list(entries)


def folders_from(path: str) -> list[str]:
    """A directory and those below it, as far as they can be listed."""
    return [folder for folder, _folders, _files in os.walk(path)]
