"""The directories that a running store writes to: free space, and clean-up after a killed writer."""

import os
import time

from rmqtool.errors import NoRoom
from rmqtool.store.disk.new_files import sweep
from rmqtool.store.layout.paths import StoreLayout

_SPARE = 64 << 20  # bytes that each file system must keep free, so that it does not fill up inside a message,
_SHARE = 8  # or this part of a small one
_SECONDS, _BYTES = 1.0, 8 << 20  # check again after this time, or after this much was appended


class WritePlaces:
    """Directories of one store, each possibly on a file system of its own.

    Args:
        logs: directories in which commit-log files are created.
    """

    def __init__(self, layout: StoreLayout, logs: list[str]) -> None:
        parts = [layout.path(name) for name in ("consumequeue", "index", "consumequeue_ext", "batchconsumequeue")]
        self._layout, self._places = layout, [layout.root, *logs, *parts]
        self._short = True  # until the first check
        self._looked_at, self._end = 0.0, 0

    def need_space(self, end: int) -> None:
        """Check, now and then, that there is space for what may be written before the next check.

        Args:
            end: end of the log.

        Raises:
            NoRoom: there is not enough.
        """
        now = time.monotonic()
        if not self._short and now - self._looked_at < _SECONDS and end - self._end < _BYTES:
            return
        for place in self._places:
            try:
                free = os.statvfs(place)
            except FileNotFoundError:
                continue  # it will be created on the file system of the others
            left, spare = free.f_bavail * free.f_frsize, min(_SPARE, free.f_blocks * free.f_frsize // _SHARE)
            if left < spare:
                self._short = True
                raise NoRoom(f"{place}: less than {spare >> 10} KiB left on its file system")
        self._short, self._looked_at, self._end = False, time.monotonic(), end

    def sweep(self) -> None:
        """Remove unfinished files of a killed writer."""
        for place in self._places:
            if place in self._layout.commit_log_paths:
                sweep(os.path.dirname(place), place)
            else:
                sweep(place, place if place == self._layout.root else None)
