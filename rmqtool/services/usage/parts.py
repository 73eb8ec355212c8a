"""Disk usage of a store's files, by part."""

import errno
import os
from dataclasses import dataclass
from stat import S_ISDIR, S_ISREG

from rmqtool.contract import PlainRow
from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.files import list_folder
from rmqtool.store.layout.paths import StoreLayout

_BLOCK = 512  # bytes, the unit of st_blocks
_NOTHING_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}  # such as a link that leads to itself
COMMIT_LOG = "commitlog"


@dataclass(slots=True, kw_only=True)
class PartUsage(PlainRow):
    """One part: the commit log, or another entry of the store's directory."""

    part: str
    files: int = 0
    bytes: int = 0  # sum of file lengths
    allocated: int = 0  # bytes allocated by the file system; less if files have holes


def measure_parts(layout: StoreLayout) -> list[PartUsage]:
    """All parts, the largest first. Links are followed, as by a broker; no file is counted twice.

    Raises:
        UnreadableStore: the store's directory cannot be listed.
    """
    seen: set[tuple[int, int]] = set()
    log = PartUsage(part=COMMIT_LOG)
    for path in layout.commit_log_paths:
        _add(layout, path, log, seen)
    parts = [log] if log.files else []
    for entry in layout.entries():
        part = PartUsage(part=entry.name)
        _add(layout, layout.path(entry.name), part, seen)
        if part.files:
            parts.append(part)
    return sorted(parts, key=lambda part: (-part.allocated, part.part))


def _add(layout: StoreLayout, path: str, part: PartUsage, seen: set[tuple[int, int]]) -> None:
    """Add a file, or all files below a directory; files deleted meanwhile, and links that lead nowhere, are ignored."""
    paths = [path]
    while paths:
        path = paths.pop()
        try:
            status = os.stat(path)
            identity = status.st_dev, status.st_ino
            if identity in seen:
                continue
            seen.add(identity)
            if S_ISDIR(status.st_mode):
                paths += [entry.path for entry in list_folder(path)]
            elif S_ISREG(status.st_mode):
                part.files += 1
                part.bytes += status.st_size
                part.allocated += status.st_blocks * _BLOCK
        except OSError as err:
            if err.errno not in _NOTHING_THERE:
                unreadable = UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}")
                unreadable.__cause__ = err
                layout.pass_over(path, unreadable)
