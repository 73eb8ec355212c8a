"""The state of a store's files before a change was planned; a starting broker modifies them without the lock."""

import os
import stat
from collections.abc import Iterable

from formats.variants.timer import snapshot_flag
from rmqtool.store.disk.files import list_folder
from rmqtool.store.layout.paths import StoreLayout

_FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "config", "timerlog", "compaction")
_FILES = ("checkpoint", "abort", "timerwheel")
_Seen = tuple[int, int]  # length, time of modification in ns


class Snapshot:
    """Lengths and modification times of all files that a change may touch.

    Args:
        named: files outside the store to include.
    """

    def __init__(self, layout: StoreLayout, named: Iterable[str] = ()) -> None:
        self._seen: dict[str, _Seen] = {}
        wheels = (entry.path for entry in layout.entries() if snapshot_flag(entry.name) >= 0)
        self._alone = [*(layout.path(name) for name in _FILES), *wheels, *named]
        self._logs = list(layout.commit_log_paths)
        for folder in (*self._logs, *map(layout.path, _FOLDERS)):
            self._walk(folder)
        for path in self._alone:
            self._look(path)

    def _walk(self, folder: str, depth: int = 0) -> None:
        try:
            for entry in list_folder(folder):
                if entry.is_dir() and depth < 4:
                    self._walk(entry.path, depth + 1)
                else:
                    status = entry.stat(follow_symlinks=False)
                    self._seen[entry.path] = status.st_size, status.st_mtime_ns
        except OSError:
            return  # a reader of the files will report it

    def _look(self, path: str) -> None:
        if (now := _now(path)) is not None:
            self._seen[path] = now

    def find_changed(self, paths: Iterable[str]) -> list[str]:
        """Those of the given paths and of the log's files that have changed."""
        log = []
        for folder in self._logs:
            try:
                log += [entry.path for entry in list_folder(folder) if not entry.is_dir()]
            except OSError:
                continue
        log += [path for path in self._seen if os.path.dirname(path) in self._logs]
        return [path for path in dict.fromkeys((*log, *self._alone, *paths)) if _now(path) != self._seen.get(path)]


def _now(path: str) -> _Seen | None:
    """The state of a file or link; None for a directory, which no change touches."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return None
    return status.st_size, status.st_mtime_ns
