"""The timer of a store that is held open: wheel, log and checkpoint, written where they are.

In memory are the slots that are still to fire. The log grows at its end; slots and checkpoint are written by
:meth:`LiveTimer.sync`, first the log, then the wheel, then the checkpoint that says so. Whoever is killed in between
leaves a log that knows more than the others: the next start puts its last units into the wheel again, as a broker does.

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
from rmqtool.store.queues.timer.waiting import waiting

_BUFFER = 1 << 16


class LiveTimer:
    """The timer of one store.

    Args:
        now: ms since the epoch.
        log_end: of the commit log; units that lead behind it were left by messages that are gone.

    Attributes:
        read_time: of the slot that is read next, ms.
        write_time: of the slot that it is now, ms; what fires before it is delivered without the wheel.
        queue_offset: next of the timer's queue.
        known: physical offsets of messages that the wheel has although the checkpoint does not say so.
        revised: whether units that the checkpoint tells of are gone: where to go on in the queue says the message at
            ``last_offset``.
        last_offset: physical offset of the message that the last unit of the log leads to; -1 without one.
        changed: whether something is to be written.

    Raises:
        Refused: links lead to no unit, or the files have another length than a broker would load.
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
        self._point = files.checkpoint or timer.Checkpoint()
        self._end = files.sound_end(log_end)
        self.revised = self._end < self._point.last_timer_log_flush_position
        self.queue_offset = min(self._point.last_timer_queue_offset, self._point.master_timer_queue_offset)
        self._slots: dict[int, timer.Slot] = {}  # by their time, ms
        self.known: set[int] = set()
        self._load(files)
        self._times = sorted(self._slots)  # a heap
        begin = self._floor(now)
        self.read_time = self._point.last_read_time or min([begin, *self._times[:1]])
        self.write_time = max(begin, self.read_time)
        self.last_offset = self._last_unit()
        self._held = bytearray()  # units that end the log and are not written yet
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
        """The command that tells more."""
        return self.layout.command("check")

    def _load(self, files: TimerFiles) -> None:
        wheel = waiting(files)
        # nothing has expired where the log begins at 0
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
        """Physical offset of the message of the last unit; -1 without a unit."""
        for file in reversed(self._files.log.files):
            if self._end > file.base:
                unit = timer.read_unit(file.view(), self._end - file.base - timer.UNIT_SIZE, file.size)
                if isinstance(unit, timer.LogUnit):
                    return unit.physical_offset
                count = self._files.count(file)  # the end is that of a file: a blank is before it
                if count and self._end == file.end:
                    return int(timer.unit_array(file.view())["physical_offset"][count - 1])
        return timer.NOWHERE

    def _cut_short(self, files: TimerFiles) -> bool:
        """Make zeros of what lies behind the end: the next start would take it for units that follow. Whether any did.

        A cut log leaves slots that lead behind its end: all slots that wait are rewritten then.
        """
        if not files.log.files:
            return False
        at_end = files.log.find(self._end)
        left = [file for file in files.log if file.base > self._end]
        ending = files.ending(at_end).ending if at_end is not None and self._end == files.end else Ending.DAMAGED
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
        """Whether a slot waits."""
        return bool(self._times)

    @property
    def next_time(self) -> int | None:
        """When the next slot can be read, ms; None where none waits."""
        return self._times[0] + self.precision if self._times else None

    def count(self, time: int) -> int:
        """Messages that wait in the slot of a time in ms."""
        slot = self._slots.get(self._floor(time))
        return slot.count if slot is not None else 0

    def due(self, now: int) -> int | None:
        """Time of the first slot that is over; None where none is. Without one, the wheel stands at the present."""
        turned = max(self._floor(now), self.write_time)
        if self._times and self._times[0] < turned:
            return self._times[0]
        self.read_time = self.write_time = turned
        return None

    def units(self, time: int) -> list[timer.LogUnit]:
        """The units of a slot, in the order of the log.

        Raises:
            Refused: a link leads to no unit.
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
        if position + timer.UNIT_SIZE > self._end - len(self._held):
            self._write_held()
        base = position // self._file_size * self._file_size
        if self._reading is None or self._reading[0] != base:
            self.let_go()
            self._reading = base, open_file(self._path(base))
        data = self._reading[1].read(position - base, timer.UNIT_SIZE)
        unit = timer.read_unit(data.ljust(timer.UNIT_SIZE, b"\0"), 0, timer.UNIT_SIZE)
        if not isinstance(unit, timer.LogUnit):
            raise Refused(f"{self._path(base)}: byte {position - base}: {unit.reason}: see {self._check}")
        return unit

    def note_passed(self, time: int) -> None:
        """All of a slot was delivered."""
        del self._slots[time]
        heapq.heappop(self._times)
        self._dirty.discard(time)
        self.read_time = time + self.precision
        self.changed = True

    def put(self, fires: int, magic: int, physical_offset: int, size: int, topic_hash: int) -> None:
        """Put a message into the slot of a time in ms that is not over."""
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
        """Let the last unit lead to the message that was taken last: by it a broker finds where to go on in the queue.

        The unit lies in a slot that is over.
        """
        if physical_offset != self.last_offset:
            self._append(timer.NOWHERE, timer.MAGIC_DEFAULT, self.read_time - self.precision - self.write_time,
                         physical_offset, size, topic_hash)  # fmt: skip

    def _append(self, previous: int, magic: int, delay: int, offset: int, size: int, topic_hash: int) -> int:
        # first, so that nothing has changed where there is no room; and what is held belongs into one file
        if len(self._held) >= _BUFFER or (self._held and not self._end % self._file_size):
            self._write_held()
        left = self._file_size - self._end % self._file_size
        if left < timer.UNIT_SIZE + timer.BLANK_SIZE:
            self._held += timer.build_blank(left).ljust(left, b"\0")
            self._end += left
            self._write_held()
        position = self._end
        unit = timer.LogUnit(timer.UNIT_SIZE, previous, magic, self.write_time, delay, offset, size, topic_hash)
        self._held += timer.build_unit(unit)
        self._end += timer.UNIT_SIZE
        self.last_offset = offset
        self.changed = True
        return position

    # -- files --------------------------------------------------------------------------------------------------------

    def _path(self, base: int) -> str:
        return self.layout.path("timerlog", name_of(base))

    def _write_held(self) -> None:
        """Hand the held units to the system; they all belong into one file."""
        if self._held:
            self._be_told()
            start = self._end - len(self._held)
            base = start // self._file_size * self._file_size
            with open_at_length(self._path(base), self._file_size, self.layout.path("config"), self._names) as file:
                file.write(start - base, bytes(self._held))
            self._touched.add(self._path(base))
            self._held.clear()

    def _be_told(self) -> None:
        """Before the first unit: without a checkpoint nobody knows that nothing was delivered yet."""
        if self._files.checkpoint is None and self._point == timer.Checkpoint():
            self._write_checkpoint(self._point._replace(last_read_time=self.read_time))

    def sync(self, now: int) -> None:
        """Make all of it durable: the log, then the wheel, then the checkpoint.

        Raises:
            OSError, UnreadableStore: as when the disk is full; nothing is forgotten then.
        """
        self._be_told()
        self._write_held()
        for path in sorted(self._touched):
            sync(path)
        for folder in sorted(self._names, reverse=True):
            sync(folder)
        self._touched.clear()
        self._names.clear()
        self._write_wheel()
        point = self._point._replace(
            last_read_time=self.read_time,
            last_timer_log_flush_position=self._end,
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

    def _write_checkpoint(self, point: timer.Checkpoint) -> None:
        path, data = self.layout.path("config", "timercheck"), timer.build_checkpoint(point)
        if not make_file(path, data):
            with open_to_change(path) as file:
                file.write(0, data)
                file.sync()
        self._point = point

    def remove_expired(self, low: int) -> int:
        """Delete files of the log whose messages have expired; how many. Killed in between, the next run goes on.

        Args:
            low: physical offset at which the commit log begins.
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
        """Close the file that is read."""
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None
