"""Files made from a store are never more readable than the store."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rmqtool.store.disk.ownership import find_closed


@contextmanager
def as_private_as(source: object) -> Iterator[None]:
    """Files made inside the context are no more accessible than the source: by the umask, which child processes
    inherit.

    Args:
        source: store or file; several with commas and ``*``, as ``sql`` takes them.
    """
    closed = 0
    for path in {str(source), *str(source).split(",")}:
        for match in glob.glob(path) if glob.has_magic(path) else [path]:
            closed |= find_closed(match)
    before = os.umask(0o077)
    os.umask(before | closed)
    try:
        yield
    finally:
        os.umask(before)
