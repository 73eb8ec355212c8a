"""How much lies below a directory that is only recognised, not read."""

import os

from rmqtool.store.disk.remote import place_of
from rmqtool.store.disk.segments import list_dir


def files_below(path: str) -> tuple[int, int]:
    """(files, bytes) below a directory; what cannot be listed here is not counted."""
    if place_of(path) is not None:
        counts = [files_below(entry.path) if entry.is_dir() else (1, entry.size) for entry in list_dir(path)]
        return sum(files for files, _size in counts), sum(size for _files, size in counts)
    files = size = 0
    for directory, _subdirs, names in os.walk(path):
        for name in names:
            files += 1
            size += os.lstat(os.path.join(directory, name)).st_size
    return files, size
