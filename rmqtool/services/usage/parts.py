"""What the files of a store take on disk, part by part."""

import os
from dataclasses import asdict, dataclass
from stat import S_ISDIR, S_ISREG
from typing import Any

from rmqtool.store.disk.files import list_folder
from rmqtool.store.layout.paths import StoreLayout

_BLOCK = 512  # bytes, in which stat counts
COMMIT_LOG = "commitlog"


@dataclass(slots=True, kw_only=True)
class PartUsage:
    """One part: the commit log, or what else lies in the store's directory by its name."""

    part: str
    files: int = 0
    bytes: int = 0  # as the files' lengths say
    allocated: int = 0  # that the file system gives them; less where files have holes

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


def measure_parts(layout: StoreLayout) -> list[PartUsage]:
    """Every part, the one that takes most first. Links are followed, as a broker does; nothing counts twice.

    Raises:
        UnreadableStore: the store's directory cannot be listed.
    """
    seen: set[tuple[int, int]] = set()
    log = PartUsage(part=COMMIT_LOG)
    for path in layout.commit_log_paths:
        _add(path, log, seen)
    parts = [log] if log.files else []
    for entry in layout.entries():
        part = PartUsage(part=entry.name)
        _add(layout.path(entry.name), part, seen)
        if part.files:
            parts.append(part)
    return sorted(parts, key=lambda part: (-part.allocated, part.part))


def _add(path: str, part: PartUsage, seen: set[tuple[int, int]]) -> None:
    """Count a file, or all files below a directory; what goes away meanwhile counts as nothing."""
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
        except FileNotFoundError:
            continue
