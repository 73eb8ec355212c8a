"""Check wheel, timer log, timer queue and commit log against each other.

Source: store.timer.TimerMessageStore (recover, enqueue, dequeue).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from formats.message.properties import UNIQ_KEY, parse
from formats.variants import timer
from formats.variants.message_store import PLACE
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.timer.files import check_timer_files
from rmqtool.store.log.commit_log import LocatedRecord
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.message_store import Timeline, timeline_of
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.queues.rocks import RocksQueue, built_up_to, queue_database
from rmqtool.store.queues.rocks_open import open_rocks_queue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.messages import TimerMessage, in_the_wheel, not_in_the_wheel, records_at, start_of
from rmqtool.store.queues.timer.waiting import Waiting, find_waiting

if TYPE_CHECKING:
    from formats.arrays import Array

_TOPIC = timer.TOPIC.encode()


def check_timer(ctx: Context, *, queues: bool) -> None:
    """Check everything of the timer.

    Args:
        queues: whether consume queues are files.
    """
    files = TimerFiles(ctx.layout)
    queue = open_queue(ctx.layout, timer.TOPIC, timer.QUEUE_ID) if queues else _in_database(ctx)
    if not files.present or ctx.log_seen.absent:
        return
    try:
        timeline = _timeline(ctx)
        if timeline is None:
            _Check(ctx, files, queue).run()
        elif queue is not None:
            _check_timeline(ctx, timeline, queue)
    except UnreadableStore as err:
        ctx.found.add("file-unreadable", "timerlog", actual=str(err))


def _timeline(ctx: Context) -> Timeline | None:
    """The timeline if a broker keeps waiting messages in RocksDB, in which case wheel and timer log are unused."""
    try:
        return timeline_of(ctx.layout)
    except (CorruptFile, MissingRuntime):
        return None  # reported by the check of the database


def _check_timeline(ctx: Context, timeline: Timeline, queue: PlainQueue) -> None:
    if timeline.scanned > queue.max_offset:
        ctx.found.add(
            "timer-checkpoint-ahead",
            PLACE,
            expected=f"queue offset: at most {queue.max_offset}",
            actual=timeline.scanned,
        )
    elif behind := queue.max_offset - max(timeline.scanned, queue.min_offset(ctx.log.min_offset)):
        ctx.found.add("timer-behind", PLACE, count=behind, topic=timer.TOPIC, queueId=0)


def _in_database(ctx: Context) -> RocksQueue | None:
    """The timer's queue in RocksDB; None if it cannot be read, or lacks units that the next start will add."""
    try:
        database = queue_database(ctx.layout)
        if database is None or built_up_to(database) < ctx.log_seen.end:
            return None
        return open_rocks_queue(ctx.layout, timer.TOPIC, timer.QUEUE_ID)
    except (CorruptFile, MissingRuntime, UnreadableStore):
        return None  # reported by the check of the database


class _Check:
    def __init__(self, ctx: Context, files: TimerFiles, queue: PlainQueue | None) -> None:
        self.ctx, self.files, self.queue = ctx, files, queue

    def run(self) -> None:
        files = self.files
        wheel = files.wheel
        turned = wheel is not None and bool(wheel["time"].any())
        used = bool(turned or files.end or (self.queue is not None and self.queue.max_offset))
        check_timer_files(self.ctx, files, used=used)
        in_wheel = find_waiting(files)
        self._check_slots(in_wheel)
        self._check_messages(in_wheel)
        if self.queue is not None:
            self._check_queue(in_wheel, self.queue)

    def _check_slots(self, waiting_units: Waiting) -> None:
        add = self.ctx.found.many
        wheel = self.files.wheel

        def slot(numbers: "Array", i: int) -> dict[str, Any]:
            number = int(numbers[i])
            actual = str(wheel[number]["last_position"]) if wheel is not None else "a position"
            return {"offset": 32 * number, "expected": f"a unit before byte {self.files.end}", "actual": actual}

        add("timer-slot-outside", "timerwheel", len(waiting_units.outside), lambda i: slot(waiting_units.outside, i))
        add(
            "timer-slot-misplaced",
            "timerwheel",
            len(waiting_units.misplaced),
            lambda i: {"offset": 32 * int(waiting_units.misplaced[i])},
        )
        add("timer-expired", "timerwheel", len(waiting_units.expired), lambda i: slot(waiting_units.expired, i))
        for code, positions in (("timer-chain", waiting_units.broken), ("timer-expired", waiting_units.gone)):
            for position in positions.tolist():
                name, at = self._place(position)
                self.ctx.found.add(code, name, offset=at, expected="the unit before it in its slot")

    def _place(self, position: int) -> tuple[str, int]:
        """(file, position in it) of a position in the timer log."""
        file = self.files.log.find(position)
        assert file is not None  # a unit has been read there
        return self.ctx.name(file.path), position - file.base

    def _check_messages(self, waiting_units: Waiting) -> None:
        good = np.zeros(len(waiting_units.position), bool)
        rolled, overdue = waiting_units.rolled, waiting_units.units["delay"] <= 0
        for number, message in in_the_wheel(self.ctx.log, waiting_units):
            good[number] = True
            position, due = int(waiting_units.position[number]), bool(overdue[number])
            self._check_message(message, position, rolled=bool(rolled[number]), overdue=due)
        for number in np.flatnonzero(~good).tolist():
            self._report_no_message(waiting_units, number)
        offsets = waiting_units.units["physical_offset"]
        order = np.argsort(offsets, kind="stable")
        twice = order[1:][offsets[order][1:] == offsets[order][:-1]]
        for number in np.sort(twice).tolist():
            name, at = self._place(int(waiting_units.position[number]))
            self.ctx.found.add("timer-twice", name, offset=at, actual=f"physical offset {offsets[number]}")

    def _check_message(self, message: TimerMessage, position: int, *, rolled: bool, overdue: bool) -> None:
        """Check a message of the wheel.

        Args:
            overdue: its time had come when it was put into the wheel, so it is in the slot of that time.
        """
        reason, time = message.unusable, message.deliver_time
        if reason is not None:
            self._report_unusable(message, reason)
        elif time is None or (overdue and time < message.fires):
            return
        elif time < message.fires if rolled else self._slot(time) != message.fires:
            name, at = self._place(position)
            self.ctx.found.add("timer-deliver-time", name, offset=at, expected=time, actual=message.fires)

    def _slot(self, time: int) -> int:
        return time // self.files.precision * self.files.precision

    def _report_unusable(self, message: TimerMessage, reason: str) -> None:
        file = self.ctx.log.segments.find(message.physical_offset)
        assert file is not None  # the message has been read there
        self.ctx.found.add(
            "timer-properties",
            self.ctx.name(file.path),
            offset=message.physical_offset - file.base,
            topic=timer.TOPIC,
            queueId=message.record.queue_id,
            queueOffset=message.record.queue_offset,
            actual=reason,
        )

    def _report_no_message(self, waiting_units: Waiting, number: int) -> None:
        unit = waiting_units.units[number]
        offset, size = int(unit["physical_offset"]), int(unit["message_size"])
        there = self.ctx.log.look(offset, crc=False)
        name, at = self._place(int(waiting_units.position[number]))
        if isinstance(there, LocatedRecord):
            topic = there.record.topic.decode("utf-8", "replace")
            expected, actual = f"{timer.TOPIC}, {size} bytes", f"{topic}, {there.record.total_size} bytes"
            self.ctx.found.add("timer-other-message", name, offset=at, expected=expected, actual=actual)
        elif 0 <= offset < self.ctx.log.min_offset:
            self.ctx.found.add("timer-expired", name, offset=at, actual=f"physical offset {offset}")
        else:
            actual = f"physical offset {offset}: {there.reason}"
            self.ctx.found.add("timer-no-message", name, offset=at, expected="a message", actual=actual)

    def _check_queue(self, waiting_units: Waiting, queue: PlainQueue) -> None:
        files, point = self.files, self.files.checkpoint
        if point is not None and point.last_timer_queue_offset > queue.max_offset:
            self.ctx.found.add(
                "timer-checkpoint-ahead",
                "config/timercheck",
                offset=16,
                expected=f"queue offset: at most {queue.max_offset}",
                actual=point.last_timer_queue_offset,
            )
        if point is None or not point.last_read_time:
            return  # it is unknown which messages were delivered
        coming: set[str | None] = set()
        behind = 0
        for message in not_in_the_wheel(self.ctx.log, queue, files, waiting_units):
            behind += 1
            coming.add(message.key)
            if (reason := message.unusable) is not None:
                self._report_unusable(message, reason)
        if behind:
            self.ctx.found.add(
                "timer-behind", "config/timercheck", offset=16, count=behind, topic=timer.TOPIC, queueId=0
            )
        self._report_lost(waiting_units, queue, point, coming)

    def _report_lost(
        self, waiting_units: Waiting, queue: PlainQueue, point: timer.TimerCheckpoint, coming: set[str | None]
    ) -> None:
        """Report future messages that were in the wheel and that nothing refers to any more.

        Messages that were overdue when they were read were delivered at once; their time is before that in the
        checkpoint.
        """
        known = np.unique(waiting_units.units["physical_offset"])
        later = max(point.last_read_time, point.version_timestamp)
        lost: dict[str | None, tuple[int, int]] = {}
        for first, units in queue.runs(
            queue.min_offset(self.ctx.log.min_offset), start_of(self.ctx.log, queue, self.files)
        ):
            offsets = units["physical_offset"]
            rows = np.flatnonzero(~np.isin(offsets, known))
            # a rolled message appears again with the same key
            for number, record in records_at(self.ctx.log, offsets[rows].tolist()):
                properties = parse(record.properties)
                message = TimerMessage(0, record, properties, 0, 0)
                time = message.deliver_time
                # one that no broker can deliver is reported with the messages that block the timer
                if record.topic != _TOPIC or time is None or time <= later or message.mark or message.unusable:
                    lost.pop(properties.get(UNIQ_KEY), None)
                    continue
                lost[message.key] = (first + int(rows[number]), int(offsets[rows[number]]))
        if not lost:
            return
        keys = {message.key for _number, message in in_the_wheel(self.ctx.log, waiting_units)} | coming
        for key, (queue_offset, physical) in lost.items():
            if key is None or key not in keys:
                self.ctx.found.add(
                    "timer-lost",
                    "timerwheel",
                    topic=timer.TOPIC,
                    queueId=0,
                    queueOffset=queue_offset,
                    actual=f"message {key} at physical offset {physical}",
                )
