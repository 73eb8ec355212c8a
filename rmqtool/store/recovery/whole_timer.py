"""A timer that a broker does not start on, or that has lost units, made again from the messages that wait.

That needs to know how far the wheel has turned. Where ``config/timercheck`` does not say it, the last unit of the timer
log does, which was written then or before: what was delivered since is delivered once more. Where nothing says it, the
timer's files go, and a broker reads the timer's queue from its beginning.

Source: store.timer.TimerMessageStore (recover), TimerCheckpoint.
"""

import os
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from formats.layouts.derived import TIMER_CHECKPOINT
from formats.variants import timer
from rmqtool.store.builders.timer import TimerBuilder
from rmqtool.store.changes.change import Change
from rmqtool.store.disk.remote import exists
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.recovery.plan import Recovery
from rmqtool.store.recovery.whole_log import can_go

Units = np.ndarray[Any, np.dtype[Any]]
Say = Callable[[str, str], None]


class StagedTimerQueue:
    """The timer's queue as it will be after recovery, for who makes a timer from it."""

    def __init__(self, queue: QueueBuilder) -> None:
        self._queue = queue

    @property
    def max_offset(self) -> int:
        """Queue offset after the last entry."""
        return self._queue.max_offset

    def min_offset(self, min_physical_offset: int) -> int:
        """Lowest queue offset."""
        return self._queue.min_offset

    def runs(self, start: int) -> Generator[tuple[int, Units], None, None]:
        """(queue offset of the first, entries) from a queue offset on."""
        self._queue.hand_over()
        for file in self._queue.files:
            base, count = file.base // file.form.size, file.wrote // file.form.size
            first = max(start - base, 0)
            if first < count:
                for number, units in file.runs(first, count):
                    yield base + number, units


def make_timer(recovery: Recovery, files: TimerFiles, change: Change, say: Say, why: list[str]) -> None:
    """Hand over a timer with all messages that wait.

    Args:
        why: what is wrong with the one that is there.
    """
    queue = recovery.queues.get((timer.TOPIC, timer.QUEUE_ID))
    point = files.point
    if queue is None or point.last_read_time <= 0:
        _take_away(recovery, files, change, say)
        return
    for path in filter(can_go, files.log.foreign):
        change.remove(path)
        say("remove", path)
    builder = TimerBuilder(recovery.inputs.layout, StagedTimerQueue(queue))
    for action in builder.prepare(change):
        verb, _, name = action.partition(" ")
        say(verb, recovery.inputs.layout.path(name))
    recovery.unloaded += why
    recovery.warnings += builder.warnings


def _take_away(recovery: Recovery, files: TimerFiles, change: Change, say: Say) -> None:
    paths = [*(file.path for file in files.log), *(path for path in files.log.foreign if os.path.isfile(path))]
    paths += [path for path in (files.wheel_path, files.checkpoint_path) if exists(path)]
    for path in paths:
        change.remove(path)
        say("remove", path)
    recovery.warnings.append(
        "timer: nothing says how far the wheel had turned: its files go, and a broker reads the timer's queue from its "
        "beginning: messages that it has delivered and the log still has are delivered once more, none is lost"
    )


def last_turn(files: TimerFiles, end: int) -> int:
    """Time of the last unit in front of the end of the timer log, ms; 0 without any."""
    file = files.log.find(end - timer.UNIT_SIZE)
    unit = None
    if file is not None:
        unit = timer.read_unit(file.view(), end - timer.UNIT_SIZE - file.base, file.size)
        file.release()
    return unit.write_time if isinstance(unit, timer.LogUnit) else 0


def lacks_checkpoint(files: TimerFiles) -> bool:
    """Whether the checkpoint is missing, too short or zero."""
    data = files.checkpoint_bytes or b""
    return len(data) < TIMER_CHECKPOINT.size or files.point.last_read_time <= 0
