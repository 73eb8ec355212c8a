"""The timer of an open store: wheel, log and checkpoint, written in place.

The slots that have not fired are kept in memory. The log is appended to; :meth:`LiveTimer.sync` writes slots and
checkpoint: first the log, then the wheel, then the checkpoint that refers to them. A kill in between leaves a log that
is ahead of the others: the next start puts its last units into the wheel again, as a broker does.

Source: store.timer.TimerMessageStore (recover, doEnqueue, prepareTimerCheckPoint), TimerLog.append, TimerWheel.putSlot.
"""

import heapq

import numpy as np

from formats.endings import Ending
from formats.variants import timer
from rmqtool.errors import Refused
from rmqtool.store.disk.durable import remove_durably, sync
from rmqtool.store.disk.files import File, open_file, open_to_change
from rmqtool.store.disk.new_files import make_file, open_at_length
from rmqtool.store.disk.segments import name_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.waiting import find_waiting

_BUFFER = 1 << 16


class LiveTimer:
    """The timer of one store.

    Args:
        now: ms since the epoch.
        log_end: end of the commit log; units that point beyond it are left over from messages that are gone.

    Attributes:
        read_time: time of the next slot to read, ms.
        write_time: time of the current slot, ms; earlier messages are delivered without the wheel.
        queue_offset: next queue offset to read from the timer's queue.
        known: physical offsets of messages that are in the wheel already, although after the checkpoint.
        revised: whether units recorded in the checkpoint are gone; the position in the queue then follows from the
            message at ``last_offset``.
        last_offset: physical offset of the message of the log's last unit; -1 without one.
        changed: whether there is something to write.
        caught_up: whether the queue was read as far as the log has its messages. Until then the checkpoint keeps its
            position in the log, by which another start knows what is in the wheel.

    Raises:
        Refused: links point to no unit, or the files do not have the length that a broker would load.
    """

    def __init__(self, layout: StoreLayout, now: int, log_end: int) -> None:
        self.layout = layout
        files = TimerFiles(layout)
        self.precision = files.precision
        self._file_size, self._files = files.file_size, files
        self._check_lengths(files)
        if files.checkpoint is None and (files.log.files or files.wheel is not None):
            raise Refused(
                f"{files.checkpoint_path}: missing or too short: what was delivered is not known: "
                f"{self.layout.command('rebuild', 'timer')} makes it again"
            )
        self._point = files.checkpoint or timer.TimerCheckpoint()
        self._end = files.sound_end(log_end)
        self.revised = self._end < self._point.last_timer_log_flush_position
        self.queue_offset = min(self._point.last_timer_queue_offset, self._point.master_timer_queue_offset)
        self._slots: dict[int, timer.Slot] = {}  # by slot time, ms
        self.known: set[int] = set()
        self._known_from = self._point.last_timer_log_flush_position
        self.caught_up = False
        self._load(files)
        self._times = sorted(self._slots)  # a heap
        begin = self._floor(now)
        self.read_time = self._point.last_read_time or min([begin, *self._times[:1]])
        self.write_time = max(begin, self.read_time)
        self.last_offset = self._last_unit()
        self._buffer = bytearray()  # units at the end of the log, not written yet
        self._dirty: set[int] = set()
        self._touched: set[str] = set()
        self._names: set[str] = set()
        self._reading: tuple[int, File] | None = None
        self.changed = self._cut_short(files)
        self._first = files.log.files[0].base if files.log.files else 0
        files.log.files.clear()

    # -- opening ------------------------------------------------------------------------------------------------------

    def _check_lengths(self, files: TimerFiles) -> None:
        other = [file for file in files.log if file.size != self._file_size]
        if other:
            raise Refused(f"{other[0].path}: {other[0].size} bytes, not {self._file_size}: see {self._check}")
        if files.wheel_path != files.plain_path:
            raise Refused(
                f"{files.wheel_path}: the wheel is a snapshot (timerWheelSnapshotFlush), which is not gone on with: "
                f"{self.layout.command('rebuild', 'timer')} makes a plain one"
            )
        if files.wheel is None and len(files.wheel_bytes):
            raise Refused(
                f"{files.wheel_path}: {len(files.wheel_bytes)} bytes, not {timer.WHEEL_SIZE}: see {self._check}"
            )

    @property
    def _check(self) -> str:
        """The command that reports details."""
        return self.layout.command("check")

    def _load(self, files: TimerFiles) -> None:
        wheel = find_waiting(files)
        # no message can have expired if the log begins at 0
        missing = () if CommitLog(self.layout).min_offset > 0 else wheel.expired
        if lost := len(wheel.outside) + len(wheel.broken) + len(missing):
            raise Refused(
                f"{self.layout.root}: {lost} links of the timer wheel lead to no unit of the timer log: messages may "
                f"be lost: {self.layout.command('rebuild', 'timer')} makes both again"
            )
        sound = wheel.position < self._end
        positions, fires = wheel.position[sound], wheel.slot_time[sound]
        units = wheel.units[sound]
        if len(units):
            counts = np.where(units["magic"] & timer.MAGIC_DELETE, -1, 1)
            times, starts = np.unique(fires, return_index=True)
            ends = np.append(starts[1:], len(fires)) - 1
            columns = times, positions[starts], positions[ends], np.add.reduceat(counts, starts)
            for time, first, last, count in zip(*(column.tolist() for column in columns), strict=True):
                self._slots[time] = timer.Slot(time // self.precision, first, last, count)
        self.known = set(units["physical_offset"][positions >= self._point.last_timer_log_flush_position].tolist())

    def _last_unit(self) -> int:
        """Physical offset of the last unit's message; -1 without units."""
        for file in reversed(self._files.log.files):
            if self._end > file.base:
                unit = timer.read_unit(file.view(), self._end - file.base - timer.UNIT_SIZE, file.size)
                if isinstance(unit, timer.LogUnit):
                    return unit.physical_offset
                count = self._files.count(file)  # the end is a file's end, so a blank is before it
                if count and self._end == file.end:
                    return int(timer.unit_array(file.view())["physical_offset"][count - 1])
        return timer.NOWHERE

    def _cut_short(self, files: TimerFiles) -> bool:
        """Zero what is after the end, as the next start would take it for units; returns whether there was any.

        After a truncation slots may point beyond the end of the log, so all waiting slots are rewritten.
        """
        if not files.log.files:
            return False
        at_end = files.log.find(self._end)
        left = [file for file in files.log if file.base > self._end]
        ending = files.find_ending(at_end).ending if at_end is not None and self._end == files.end else Ending.DAMAGED
        if not left and (at_end is None or ending is Ending.UNWRITTEN):
            return False
        for file in (*([at_end] if at_end is not None else []), *left):
            start = max(self._end - file.base, 0)
            with open_to_change(file.path) as opened:
                opened.cut(start)
                opened.cut(self._file_size)
            self._touched.add(file.path)
        self._dirty.update(self._slots)
        return True

    # -- what happens -------------------------------------------------------------------------------------------------

    def _floor(self, time: int) -> int:
        return time // self.precision * self.precision

    @property
    def pending(self) -> bool:
        """Whether any slot is waiting."""
        return bool(self._times)

    @property
    def next_time(self) -> int | None:
        """Time in ms at which the next slot can be read; None if none is waiting."""
        return self._times[0] + self.precision if self._times else None

    def count(self, time: int) -> int:
        """Number of messages in the slot of a time in ms."""
        slot = self._slots.get(self._floor(time))
        return slot.count if slot is not None else 0

    def due(self, now: int) -> int | None:
        """Time of the first slot that is due; None if none is, in which case the wheel advances to the present."""
        turned = max(self._floor(now), self.write_time)
        if self._times and self._times[0] < turned:
            return self._times[0]
        self.read_time = self.write_time = turned
        return None

    def units(self, time: int) -> list[timer.LogUnit]:
        """The units of a slot, in the order of the log.

        Raises:
            Refused: a link points to no unit.
        """
        chain: list[timer.LogUnit] = []
        at = self._slots[time].last_position
        while at >= self._first:
            unit = self._unit(at)
            chain.append(unit)
            if unit.previous_position >= at:
                raise Refused(f"{self.layout.root}: timer log, {at}: a link leads forward: see {self._check}")
            at = unit.previous_position
        chain.reverse()
        return chain

    def _unit(self, position: int) -> timer.LogUnit:
        if position + timer.UNIT_SIZE > self._end - len(self._buffer):
            self._write_buffer()
        base = position // self._file_size * self._file_size
        if self._reading is None or self._reading[0] != base:
            self.let_go()
            self._reading = base, open_file(self._path(base))
        data = self._reading[1].read(position - base, timer.UNIT_SIZE)
        unit = timer.read_unit(data.ljust(timer.UNIT_SIZE, b"\0"), 0, timer.UNIT_SIZE)
        if not isinstance(unit, timer.LogUnit):
            raise Refused(f"{self._path(base)}: byte {position - base}: {unit.reason}: see {self._check}")
        return unit

    def remove_slot(self, time: int) -> None:
        """Remove a slot whose messages have all been delivered."""
        del self._slots[time]
        heapq.heappop(self._times)
        self._dirty.discard(time)
        self.read_time = time + self.precision
        self.changed = True

    def put(self, fires: int, magic: int, physical_offset: int, size: int, topic_hash: int) -> None:
        """Put a message into the slot of a time in ms, which must not be over."""
        time = self._floor(fires)
        slot = self._slots.get(time)
        last = slot.last_position if slot is not None else timer.NOWHERE
        position = self._append(last, magic, fires - self.write_time, physical_offset, size, topic_hash)
        count = (slot.count if slot is not None else 0) + (-1 if magic & timer.MAGIC_DELETE else 1)
        first = slot.first_position if slot is not None else position
        self._slots[time] = timer.Slot(time // self.precision, first, position, count)
        if slot is None:
            heapq.heappush(self._times, time)
        self._dirty.add(time)

    def take_for_last(self, physical_offset: int, size: int, topic_hash: int) -> None:
        """Make the last unit point to the message read last, by which a broker finds its position in the queue.

        The unit goes to a slot that is over.
        """
        if physical_offset != self.last_offset:
            self._append(timer.NOWHERE, timer.MAGIC_DEFAULT, self.read_time - self.precision - self.write_time,
                         physical_offset, size, topic_hash)  # fmt: skip

    def _append(self, previous: int, magic: int, delay: int, offset: int, size: int, topic_hash: int) -> int:
        # first, so that nothing has changed if the disk is full; the buffer must not span two files
        if len(self._buffer) >= _BUFFER or (self._buffer and not self._end % self._file_size):
            self._write_buffer()
        left = self._file_size - self._end % self._file_size
        if left < timer.UNIT_SIZE + timer.BLANK_SIZE:
            self._buffer += timer.build_blank(left).ljust(left, b"\0")
            self._end += left
            self._write_buffer()
        position = self._end
        unit = timer.LogUnit(timer.UNIT_SIZE, previous, magic, self.write_time, delay, offset, size, topic_hash)
        self._buffer += timer.build_unit(unit)
        self._end += timer.UNIT_SIZE
        self.last_offset = offset
        self.changed = True
        return position

    # -- files --------------------------------------------------------------------------------------------------------

    def _path(self, base: int) -> str:
        return self.layout.path("timerlog", name_of(base))

    def _write_buffer(self) -> None:
        """Write the buffered units, which all belong to one file."""
        if self._buffer:
            self._ensure_checkpoint()
            start = self._end - len(self._buffer)
            base = start // self._file_size * self._file_size
            with open_at_length(self._path(base), self._file_size, self.layout.path("config"), self._names) as file:
                file.write(start - base, bytes(self._buffer))
            self._touched.add(self._path(base))
            self._buffer.clear()

    def _ensure_checkpoint(self) -> None:
        """Write a checkpoint before the first unit: without one, nothing shows that no message was delivered yet."""
        if self._files.checkpoint is None and self._point == timer.TimerCheckpoint():
            self._write_checkpoint(self._point._replace(last_read_time=self.read_time))

    def sync(self, now: int) -> None:
        """Make everything durable: the log, then the wheel, then the checkpoint.

        Raises:
            OSError, UnreadableStore: as when the disk is full; it can be retried.
        """
        self._ensure_checkpoint()
        self._write_buffer()
        for path in sorted(self._touched):
            sync(path)
        for folder in sorted(self._names, reverse=True):
            sync(folder)
        self._touched.clear()
        self._names.clear()
        self._write_wheel()
        point = self._point._replace(
            last_read_time=self.read_time,
            last_timer_log_flush_position=self._end if self.caught_up else min(self._known_from, self._end),
            last_timer_queue_offset=self.queue_offset,
            master_timer_queue_offset=self.queue_offset,
        )
        if point != self._point or self.changed:
            self._write_checkpoint(
                point._replace(version_timestamp=now, version_counter=self._point.version_counter + 1)
            )
        self.changed = False

    def _write_wheel(self) -> None:
        path = self.layout.path("timerwheel")
        with open_at_length(path, timer.WHEEL_SIZE, self.layout.path("config")) as file:
            for time in sorted(self._dirty):
                slot = self._slots[time]
                file.write(timer.slot_index(time, self.precision) * timer.SLOT_SIZE, timer.build_slot(slot))
            if self._dirty:
                file.sync()
        self._dirty.clear()

    def _write_checkpoint(self, point: timer.TimerCheckpoint) -> None:
        path, data = self.layout.path("config", "timercheck"), timer.build_checkpoint(point)
        if not make_file(path, data):
            with open_to_change(path) as file:
                file.write(0, data)
                file.sync()
        self._point = point

    def remove_expired(self, low: int) -> int:
        """Delete log files whose messages have expired; returns their number. If killed, the next run continues.

        Args:
            low: physical offset of the beginning of the commit log.
        """
        files = TimerFiles(self.layout)
        expired = files.find_expired(low)
        for file in expired:
            self.let_go()
            remove_durably(file.path)
            self._touched.discard(file.path)
            self._first = file.end
        return len(expired)

    def let_go(self) -> None:
        """Close the file that is read from."""
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None
