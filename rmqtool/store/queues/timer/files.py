"""The files of the timer: wheel, log and checkpoint.

Source: store.timer.TimerWheel, TimerLog, TimerCheckpoint.
"""

import os
from functools import cached_property
from typing import TYPE_CHECKING

from formats.endings import Ending, UnitEnd
from formats.layouts.derived import TIMER_CHECKPOINT
from formats.variants import timer
from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.directories import exists
from rmqtool.store.disk.mapping import map_file
from rmqtool.store.disk.segments import Segment, Segments, common_size
from rmqtool.store.layout.paths import StoreLayout

if TYPE_CHECKING:
    from formats.arrays import Array


class TimerFiles:
    """The timer of one store. Files are read on demand.

    Attributes:
        log: files of the timer log.
        precision: ms per slot of the wheel.
    """

    def __init__(self, layout: StoreLayout) -> None:
        self.layout = layout
        self.log: Segments = layout.files_in(layout.path("timerlog"))
        self.precision = layout.conf.timer_precision
        self._counts: dict[int, int] = {}  # by a file's base

    @property
    def plain_path(self) -> str:
        """Where the wheel is, or would be, where it is no snapshot."""
        return self.layout.path(timer.WHEEL)

    @property
    def wheel_path(self) -> str:
        """Path of the wheel that the next start loads, whether it exists or not."""
        return self.snapshots[-1][1] if self._loads_snapshot else self.plain_path

    @cached_property
    def snapshots(self) -> list[tuple[int, str]]:
        """(end of the timer log then, path) of each snapshot of the wheel, the newest last.

        A broker of 5.4 or later writes them if ``timerWheelSnapshotFlush`` is on, and loads the one with the greatest
        number (TimerWheel.getMaxSnapshotFlag).
        """
        flags = ((timer.snapshot_flag(entry.name), entry.path) for entry in self.layout.entries())
        return sorted((flag, path) for flag, path in flags if flag >= 0)

    @cached_property
    def _loads_snapshot(self) -> bool:
        """Whether the next start loads a snapshot; without the setting, whichever wheel was written last."""
        if not self.snapshots:
            return False
        if self.layout.conf.text("timerWheelSnapshotFlush") is not None:
            return self.layout.conf.flag("timerWheelSnapshotFlush", False)
        times = {entry.name: entry.mtime_ns for entry in self.layout.entries()}
        return times[os.path.basename(self.snapshots[-1][1])] >= times.get(timer.WHEEL, 0)

    @property
    def checkpoint_path(self) -> str:
        """Path of the checkpoint, whether it exists or not."""
        return self.layout.path("config", "timercheck")

    @property
    def present(self) -> bool:
        """Whether the store has any file of a timer."""
        return bool(self.log.files) or exists(self.wheel_path) or exists(self.checkpoint_path)

    @cached_property
    def wheel(self) -> "Array | None":
        """The slots of the wheel, of shape (SLOTS,); None if it does not exist or has a wrong length.

        Raises:
            UnreadableStore: it exists and cannot be read.
        """
        data = self.wheel_bytes
        return timer.slot_array(data) if len(data) == timer.WHEEL_SIZE else None

    @cached_property
    def wheel_bytes(self) -> memoryview:
        """The contents of the wheel; empty if it does not exist.

        Raises:
            UnreadableStore: see :attr:`wheel`.
        """
        try:
            return memoryview(map_file(self.wheel_path) if exists(self.wheel_path) else b"")
        except UnreadableStore as err:
            self.layout.pass_over(self.wheel_path, err)
            return memoryview(b"")

    @cached_property
    def checkpoint_bytes(self) -> bytes | None:
        """The contents of the checkpoint; None if it does not exist.

        Raises:
            UnreadableStore: it exists and cannot be read.
        """
        return self.layout.small("config", "timercheck")

    @property
    def checkpoint(self) -> timer.TimerCheckpoint | None:
        """The parsed checkpoint; None if it does not exist or is too short."""
        data = self.checkpoint_bytes
        return timer.parse_checkpoint(data) if data and len(data) >= TIMER_CHECKPOINT.size else None

    @property
    def point(self) -> timer.TimerCheckpoint:
        """The checkpoint as a broker's start reads it: a short or missing file is padded with zeros.

        If a snapshot is loaded, the timer log was flushed as far as the snapshot says.
        """
        point = timer.parse_checkpoint(self.checkpoint_bytes or b"")
        if self._loads_snapshot and self.snapshots[-1][0] > 0:
            point = point._replace(last_timer_log_flush_position=self.snapshots[-1][0])
        return point

    @cached_property
    def file_size(self) -> int:
        """Bytes per file of the timer log: configured, that of the files, or the default."""
        return self.layout.conf.sizes.get("mappedFileSizeTimerLog") or common_size(self.log) or timer.LOG_FILE_SIZE

    def count(self, file: Segment) -> int:
        """Number of units in a file before the first invalid element."""
        if file.base not in self._counts:
            self._counts[file.base] = timer.valid_prefix(timer.unit_array(file.view()), self.precision)
        return self._counts[file.base]

    def find_ending(self, file: Segment) -> UnitEnd:
        """Kind of data after the units of a file."""
        view = file.view()
        at = self.count(file) * timer.UNIT_SIZE
        end = timer.read_unit(view, at, len(view))
        if isinstance(end, UnitEnd):
            return end
        return UnitEnd(Ending.DAMAGED, at, f"unit that fires at {end.deliver_time}")  # no slot has such a time

    @cached_property
    def recovery(self) -> tuple[int, int]:
        """(number of the first file that the next start reads, position at which it ends the timer log).

        The start goes back from the flush position in the checkpoint by the length of one file, and reads that file
        from its beginning; the first invalid element ends the log, and everything after it is truncated.
        """
        files = self.log.files
        if files and not files[-1].size:  # a broker deletes it first
            files = files[:-1]
        if not files:
            return 0, 0
        begin = max(self.point.last_timer_log_flush_position - files[-1].size, 0)
        first = max((number for number, file in enumerate(files) if file.base <= begin), default=0)
        end = files[first].base
        for file in files[first:]:
            end = file.base + self.count(file) * timer.UNIT_SIZE
            if end < file.end and self.find_ending(file).ending is not Ending.FILLER:
                break
        return first, end

    @property
    def end(self) -> int:
        """Position after the last unit, in the state after the next start."""
        return self.recovery[1]

    def find_expired(self, low: int) -> list[Segment]:
        """The log files that a broker deletes: those before the first whose last unit's message still exists.

        The last file is never deleted. Source: MappedFileQueue.deleteExpiredFileByOffsetForTimerLog.

        Args:
            low: physical offset of the beginning of the commit log.
        """
        last = (self.file_size - timer.BLANK_SIZE) // timer.UNIT_SIZE * timer.UNIT_SIZE - timer.UNIT_SIZE
        expired: list[Segment] = []
        for file in self.log.files[:-1]:
            unit = timer.read_unit(file.view(), last, file.size) if 0 <= last < file.size else None
            file.release()
            if not isinstance(unit, timer.LogUnit) or unit.physical_offset >= low:
                break
            expired.append(file)
        return expired

    def sound_end(self, log_end: int) -> int:
        """Position after the last unit before the first that points beyond the end of the commit log.

        Such units are left over from messages that were truncated; usually there are none, and this is the end.
        """
        import numpy as np

        end = self.end
        for file in reversed(self.log.files):
            count = min(self.count(file), max(end - file.base, 0) // timer.UNIT_SIZE)
            units = timer.unit_array(file.view())[:count]
            beyond = np.flatnonzero(units["physical_offset"].astype(np.int64) + units["message_size"] > log_end)
            if len(beyond):
                end = file.base + timer.UNIT_SIZE * int(beyond[0])
            elif count:
                break
        return end
