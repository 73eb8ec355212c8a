"""A folder for what a plan builds, in the system's temporary directory; it goes again, whatever the plan ends with."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rmqtool.errors import CorruptFile
from rmqtool.store.disk.mapping import MAPPED
from rmqtool.store.disk.segments import list_dir, read_small

_SMALL = 1 << 16


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder of this process's own.

    To remove a folder takes a descriptor. What ends for want of one still holds those that it has while its error is on
    its way, so one is set aside.
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
    """A temporary folder that shows some files of another one, for a library that would write beside what it reads.

    Args:
        path: the other folder.
        linked: which names are shown by links.
        copied: name of a small file that is copied.

    Raises:
        UnreadableStore: the folder is not there, or it or that file cannot be read.
        CorruptFile: that file is not there.
    """
    with temporary_folder() as folder:
        for entry in list_dir(path):
            if linked(entry.name) and entry.is_file():
                os.symlink(os.path.abspath(entry.path), os.path.join(folder, entry.name))
        content = read_small(os.path.join(path, copied), _SMALL)
        if content is None:
            raise CorruptFile(path, None, f"no {copied} in it")
        with open(os.path.join(folder, copied), "xb") as copy:
            copy.write(content)
        yield folder


def _remove(path: str) -> None:
    """Remove a folder with all that is in it, with one descriptor at a time; what cannot be removed stays."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))
        for name in folders:
            with suppress(OSError):
                os.rmdir(os.path.join(folder, name))
    with suppress(OSError):
        os.rmdir(path)
