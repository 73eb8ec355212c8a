"""A folder for what a plan builds, in the system's temporary directory; it goes again, whatever the plan ends with."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rmqtool.store.disk.mapping import MAPPED


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
