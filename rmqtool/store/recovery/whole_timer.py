"""Rebuild a timer on which a broker does not start, or that has lost units, from the waiting messages.

This needs the position of the wheel, which is only in ``config/timercheck``. Without it, the timer's files are
removed, and a broker reads the timer's queue from its beginning.

Source: store.timer.TimerMessageStore (recover), TimerCheckpoint.
"""

from collections.abc import Callable, Generator

from formats.arrays import Units
from formats.layouts.derived import TIMER_CHECKPOINT
from formats.variants import timer
from rmqtool.store.builders.timer import TimerBuilder, remove_timer
from rmqtool.store.changes.change import Change
from rmqtool.store.layout.mending import can_go
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.recovery.plan import Recovery

Say = Callable[[str, str], None]


class StagedTimerQueue:
    """The timer's queue in its state after recovery, with the interface needed to rebuild a timer."""

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
        """(queue offset of the first entry, entries) in runs, from a queue offset on."""
        self._queue.hand_over()
        for file in self._queue.files:
            base, count = file.base // file.form.size, file.wrote // file.form.size
            first = max(start - base, 0)
            if first < count:
                for number, units in file.runs(first, count):
                    yield base + number, units


def make_timer(recovery: Recovery, files: TimerFiles, change: Change, say: Say, why: list[str]) -> None:
    """Add a timer with all waiting messages to a change.

    Args:
        why: what is wrong with the existing one.
    """
    queue = recovery.queues.get((timer.TOPIC, timer.QUEUE_ID))
    point = files.point
    if queue is None or point.last_read_time <= 0:
        actions, warning = remove_timer(files, change)
        _say_all(recovery, actions, say)
        recovery.warnings.append(warning)
        return
    for path in filter(can_go, files.log.foreign):
        change.remove(path)
        say("remove", path)
    last = recovery.verdict.last_store_timestamp
    builder = TimerBuilder(recovery.inputs.layout, StagedTimerQueue(queue), last)
    _say_all(recovery, builder.prepare(change), say)
    recovery.unloaded += why
    recovery.warnings += builder.warnings


def _say_all(recovery: Recovery, actions: list[str], say: Say) -> None:
    for action in actions:
        verb, _, name = action.partition(" ")
        say(verb, recovery.inputs.layout.path(name))


def lacks_checkpoint(files: TimerFiles) -> bool:
    """Whether the checkpoint is missing, too short or zero."""
    data = files.checkpoint_bytes or b""
    return len(data) < TIMER_CHECKPOINT.size or files.point.last_read_time <= 0
