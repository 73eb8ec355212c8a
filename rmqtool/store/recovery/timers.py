"""The timer of 5.x at a broker's start: truncate its log at the first invalid unit, and make slots point before that.

Two things are done better than by a broker. Units that point beyond the end of the commit log are removed, too. A
broker keeps them, and when their slots are due it reads whatever is there by then: another message, or nothing
readable, at which it stops forever (apache/rocketmq#7480, #10668). And a slot that points beyond the end of the timer
log is cleared. A broker keeps its link, and takes whatever is written there next for the unit, so that the slot's chain
may become a loop. With ``exactly``, neither is done.

Everything else has the same result as in a broker, which changes these bytes in memory: the last units of the log in
the wheel, and the position in the queue after the message of the last unit.

Source: store.timer.TimerMessageStore (load, recover, recoverAndRevise, reviseQueueOffset), MappedFileQueue
(truncateDirtyFiles); store-engine 7.
"""

from collections.abc import Callable
from contextlib import closing

import numpy as np

from formats.endings import Ending
from formats.variants import timer
from rmqtool.store.changes.change import Change
from rmqtool.store.disk import files as disk
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import is_zero
from rmqtool.store.layout.mending import can_go
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.start import StartedWheel, find_beyond_end, message_of_last_unit, read_timer
from rmqtool.store.queues.timer.waiting import find_waiting
from rmqtool.store.recovery.plan import Recovery
from rmqtool.store.recovery.whole_timer import lacks_checkpoint, make_timer
from rmqtool.words import command_line, counted

_LOOKED_BACK = 20_000  # number of queue entries that a broker searches for that of the last message
Say = Callable[[str, str], None]


def prepare_timer(recovery: Recovery, change: Change, say: Say) -> None:
    """Add the truncated timer log, the slots that pointed beyond its end, and the checkpoint to a change."""
    files = TimerFiles(recovery.inputs.layout)
    if not files.present or not recovery.verdict.files:
        return
    whole = recovery.inputs.whole and recovery.inputs.rules.release.has_timer
    if refused := _find_refused(recovery, files):
        foreign = [path for path, _why in refused if path in files.log.foreign and can_go(path)]
        if whole and len(foreign) == len(refused):
            for path in foreign:
                change.remove(path)
                say("remove", path)
            recovery.unloaded += [f"{path}: {why}" for path, why in refused]
        elif whole:
            make_timer(recovery, files, change, say, [f"{path}: {why}" for path, why in refused])
            return
        else:
            recovery.warnings += [
                f"{path}: {why}: a broker does not start, and nothing of the timer is changed here: "
                f"{command_line('rebuild', recovery.inputs.layout.root, 'timer')} makes wheel and timer log from the "
                "messages that wait"
                for path, why in refused
            ]
            return
    start = TimerAtStart(recovery, files, change, say)
    lacks = start.end > 0 and (files.wheel is None or lacks_checkpoint(files))
    if whole and (lacks or start.has_misplaced_slots()):
        make_timer(recovery, files, change, say, [])
    else:
        start.run()


def _find_refused(recovery: Recovery, files: TimerFiles) -> list[tuple[str, str]]:
    """(path, reason) of files because of which a broker does not start."""
    rules = recovery.inputs.rules
    if not rules.release.has_timer:
        return []
    refused, _removed = rules.admit(files.log.files, files.log.foreign, files.file_size, "timer-log")
    if len(files.wheel_bytes) not in (0, timer.WHEEL_SIZE):
        refused.append((files.wheel_path, f"{len(files.wheel_bytes)} bytes long, not {timer.WHEEL_SIZE}"))
    return refused


class TimerAtStart:
    """The timer of a store at a broker's start.

    Args:
        recovery: of log and queues.

    Attributes:
        end: end of the timer log.
        low, high: lowest and next queue offset of the timer's queue.
    """

    def __init__(self, recovery: Recovery, files: TimerFiles, change: Change, say: Say) -> None:
        self.recovery, self.files, self.change, self.say = recovery, files, change, say
        self.exactly = recovery.inputs.rules.exactly
        self.end = files.end if self.exactly else files.sound_end(recovery.verdict.end)
        queue = recovery.queues.get((timer.TOPIC, timer.QUEUE_ID))
        self.low, self.high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)

    def run(self) -> None:
        """Add all changes; none if a start finds everything in order."""
        stale = self._find_stale()
        read_back = read_timer(self.files, self.end, exactly=self.exactly)
        behind = self._slots_behind(read_back)
        point = self.files.checkpoint
        gone = self.files.end < self.files.point.last_timer_log_flush_position or len(behind) or len(read_back.dangling)
        new = self._checkpoint(point, gone=bool(gone)) if point is not None else None
        ahead = point is not None and (
            point.last_timer_log_flush_position > self.end or self._find_taken_end(point) > self.high
        )
        if not (stale or len(behind) or ahead):
            return
        if not self.exactly and self._is_lost(read_back):
            if self.recovery.inputs.whole and self.recovery.inputs.rules.release.has_timer:
                make_timer(self.recovery, self.files, self.change, self.say, [])
            else:
                self._warn_of_loss()
            return
        self._cut(stale)
        if len(behind):
            self._put_wheel(read_back, behind)
        if new is not None and new != point:
            self.change.put_content(self.files.checkpoint_path, timer.build_checkpoint(new))
            self.say("replace", self.files.checkpoint_path)
        self._warn(read_back, point)

    def has_misplaced_slots(self) -> bool:
        """Whether slots have times of other slots, and it is certain how times and slots belong together.

        ``timerPrecisionMs`` must be in the settings, or all units in other slots must fit it; otherwise, a warning.
        """
        wheel, queue = self.files.wheel, self.recovery.queues.get((timer.TOPIC, timer.QUEUE_ID))
        if wheel is None or not len(timer.misplaced_slots(wheel["time"])) or queue is None:
            return False
        messages = find_waiting(self.files)
        if not len(messages.misplaced):
            return False  # units at the end of the log put them right
        precision = self.files.precision
        fit = timer.slot_times(messages.units, precision) == messages.slot_time // precision
        if fit.all() and (len(fit) or "timerPrecisionMs" in self.recovery.inputs.layout.conf.sizes):
            return True
        root = self.recovery.inputs.layout.root
        self.recovery.warnings.append(
            f"timerwheel: {counted(len(messages.misplaced), 'slot has', 'slots have')} the time of another slot. They "
            "are left as they are, since nothing proves how many milliseconds a slot has: put timerPrecisionMs into "
            f"the file of --broker-conf, or run {command_line('rebuild', root, 'timer')}, which takes {precision}"
        )
        return False

    def _cut(self, stale: list[tuple[Segment, int]]) -> None:
        for file, start in stale:
            if file.base > self.end:
                self.change.remove(file.path)
                self.say("remove", file.path)
            else:
                self.change.zero(file.path, start, file.size)
                self.say(f"zero bytes {start} to {file.size} of", file.path)

    def _find_stale(self) -> list[tuple[Segment, int]]:
        """(file, position from which on its contents are stale), newest file first."""
        stale = []
        for file in reversed(self.files.log.files):
            start = max(self.end - file.base, 0)
            if file.base > self.end:
                stale.append((file, 0))
            elif start < file.size and not self._is_blank(file) and not is_zero(file.path, start, file.size):
                stale.append((file, start))
        return stale

    def _is_blank(self, file: Segment) -> bool:
        """Whether a file ends with the regular blank, with nothing after it."""
        return self.end == self.files.end and self.files.find_ending(file).ending is Ending.FILLER

    def _slots_behind(self, started: StartedWheel) -> np.ndarray:
        """Numbers of the slots in the wheel file that point beyond the end of the log."""
        wheel = self.files.wheel
        if wheel is None:
            return np.empty(0, np.int64)
        changed = find_beyond_end(self.files, wheel, self.end)
        if self.exactly:  # only those that a broker repairs
            changed = changed[started.slots["last_position"][changed] < self.end]
        return changed

    def _put_wheel(self, wheel: StartedWheel, behind: np.ndarray) -> None:
        staged = self.change.staging()
        with disk.make_file(staged) as file:
            file.copy_from(self.files.wheel_path)
            file.cut(timer.WHEEL_SIZE)
            for number in behind.tolist():
                slot = timer.Slot._make(wheel.slots[number].tolist())
                if slot.last_position >= self.end:
                    slot = timer.Slot(0, 0, 0, 0)
                elif not self.exactly:
                    slot = slot._replace(count=self._count(slot.last_position))
                file.write(number * timer.SLOT_SIZE, timer.build_slot(slot))
        self.change.put(self.files.plain_path, staged)
        self.say("replace", self.files.plain_path)
        for _flag, path in self.files.snapshots:  # a start would load the newest of them
            self.change.remove(path)
            self.say("remove", path)

    def _count(self, position: int) -> int:
        """Number of messages in a chain, without recalled ones."""
        count = 0
        while position >= 0:
            file = self.files.log.find(position)
            unit = timer.read_unit(file.view(), position - file.base, file.size) if file is not None else None
            if not isinstance(unit, timer.LogUnit):
                break
            count += -1 if unit.magic & timer.MAGIC_DELETE else 1
            position = unit.previous_position if unit.previous_position < position else timer.NOWHERE
        return count

    # -- the checkpoint -----------------------------------------------------------------------------------------------

    def _find_taken_end(self, point: timer.TimerCheckpoint) -> int:
        return min(point.last_timer_queue_offset, point.master_timer_queue_offset)

    def _checkpoint(self, point: timer.TimerCheckpoint, *, gone: bool) -> timer.TimerCheckpoint:
        """The corrected checkpoint; with ``gone``, units after the last one are missing."""
        last = self.queue_offset() if gone else point.last_timer_queue_offset
        return point._replace(
            last_timer_log_flush_position=min(point.last_timer_log_flush_position, self.end),
            last_timer_queue_offset=min(last, self.high),
            master_timer_queue_offset=min(point.master_timer_queue_offset, self.high),
        )

    def queue_offset(self) -> int:
        """The queue offset at which a broker continues: after the message of the last unit."""
        point = self.files.point
        message = message_of_last_unit(self.files, self.recovery.inputs.log, self.end, self.recovery.verdict.end)
        offset = point.last_timer_queue_offset if message is None else self._entry_of(*message) + 1
        return min(max(min(offset, point.master_timer_queue_offset), self.low), self.high)

    def _entry_of(self, queue_id: int, queue_offset: int, physical_offset: int, size: int) -> int:
        """Queue offset of a message's entry: of the nearest one that points to it, or else as the message states it."""
        queue = self.recovery.queues.get((timer.TOPIC, queue_id))
        lowest = max(queue_offset - _LOOKED_BACK + 1, 0)
        for file in reversed(queue.files if queue is not None else []):
            base = file.base // file.form.size
            start, stop = max(lowest - base, 0), min(queue_offset + 1 - base, file.wrote // file.form.size)
            if start >= stop:
                continue
            with closing(file.runs(start, stop)) as runs:
                entries = [
                    base + first + int(row)
                    for first, units in runs
                    for row in np.flatnonzero((units["physical_offset"] == physical_offset) & (units["size"] == size))
                ]
            if entries:
                return entries[-1]
        return queue_offset

    def _is_lost(self, wheel: StartedWheel) -> bool:
        """Whether units are missing, and no unit is left from which the position in the queue follows.

        A broker then continues after their messages and delivers none of them, though the files still show that they
        wait.
        """
        gone = self.files.end < self.files.point.last_timer_log_flush_position or len(wheel.dangling)
        log, end = self.recovery.inputs.log, self.recovery.verdict.end
        return bool(gone) and message_of_last_unit(self.files, log, self.end, end) is None

    def _warn_of_loss(self) -> None:
        root = self.recovery.inputs.layout.root
        self.recovery.warnings.append(
            "timerlog: units are gone, and with them the place in the queue where their messages begin: a broker never "
            f"delivers these. Nothing of the timer is changed here: {command_line('rebuild', root, 'timer')} finds "
            "all that wait"
        )

    def _warn(self, wheel: StartedWheel, point: timer.TimerCheckpoint | None) -> None:
        flushed = point.last_timer_log_flush_position if point is not None else 0
        if self.files.end < flushed or len(wheel.dangling):
            root = self.recovery.inputs.layout.root
            self.recovery.warnings.append(
                f"timerlog: ends at {self.files.end}, and the checkpoint says {flushed}; {len(wheel.dangling)} slots "
                "lead after that end: a broker takes messages after the last unit from the queue again, and forgets "
                f"those before it that have lost their units: {command_line('rebuild', root, 'timer')} finds all "
                "that wait"
            )
