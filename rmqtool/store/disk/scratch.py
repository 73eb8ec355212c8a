"""A temporary directory for files built while planning; always removed at the end."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.store.disk.directories import list_dir, read_small
from rmqtool.store.disk.mapping import MAPPED

_SMALL = 1 << 16
_ODD = {errno.EIO, errno.ELOOP, errno.EISDIR, errno.ENXIO}  # of the file itself


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Create a temporary directory for this process.

    Removing a directory takes a descriptor. If the body fails because none is left, the descriptors it has are still
    open while its error propagates, so one is kept in reserve.
    """
    path = tempfile.mkdtemp(prefix="rmqtool-")
    spare = -1
    try:
        spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        yield path
    finally:
        MAPPED.clear()
        if spare >= 0:
            os.close(spare)
        _remove(path)


@contextmanager
def folder_of_links(path: str, linked: Callable[[str], bool], *, copied: str) -> Iterator[str]:
    """A temporary directory with links to some files of another one, for a library that writes next to what it reads.

    Args:
        path: the other directory.
        linked: whether a file of this name is linked.
        copied: name of a small file that is copied instead.

    Raises:
        UnreadableStore: the directory does not exist, or this user may not read it or that file.
        CorruptFile: that file does not exist, or something else is in its place.
    """
    with temporary_folder() as folder:
        for entry in list_dir(path):
            if linked(entry.name) and entry.is_file():
                os.symlink(os.path.abspath(entry.path), os.path.join(folder, entry.name))
        try:
            content = read_small(os.path.join(path, copied), _SMALL)
        except UnreadableStore as err:
            if err.__cause__ is None or getattr(err.__cause__, "errno", None) in _ODD:
                raise CorruptFile(path, None, str(err).replace(f"{path}{os.sep}", "")) from err
            raise
        if content is None:
            raise CorruptFile(path, None, f"no {copied} in it")
        with open(os.path.join(folder, copied), "xb") as copy:
            copy.write(content)
        yield folder


def _remove(path: str) -> None:
    """Remove a directory tree with one descriptor at a time; what cannot be removed stays."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))
        for name in folders:
            with suppress(OSError):
                os.rmdir(os.path.join(folder, name))
    with suppress(OSError):
        os.rmdir(path)
