"""Store files that appear with their full length or not at all: a broker refuses a store with a shorter one."""

import os

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.durable import sync

SCRATCH = ".rmqtool-new"


def open_at_length(path: str, length: int, scratch: str) -> int:
    """A descriptor for reading and writing; a file that is not there is made, sparse, at its full length.

    Args:
        scratch: directory on the same file system, in which no broker looks for files.

    Raises:
        UnreadableStore: the file system does not allow it.
    """
    try:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return _make(path, length, os.path.join(scratch, SCRATCH))
        if os.fstat(fd).st_size < length:  # an index file, which brokers lengthen too
            os.ftruncate(fd, length)
    except OSError as err:
        raise UnreadableStore(f"{err.filename or path}: {os.strerror(err.errno or 0)}") from err
    return fd


def _make(path: str, length: int, temporary: str) -> int:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, length)
        os.fsync(fd)
        os.replace(temporary, path)
        sync(os.path.dirname(path))
    except BaseException:
        os.close(fd)
        raise
    return fd


def drop_scratch(folder: str) -> None:
    """Remove what a killed process may have left."""
    try:
        os.unlink(os.path.join(folder, SCRATCH))
    except FileNotFoundError:
        return
