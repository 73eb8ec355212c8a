"""Deliver timer messages of 5.x: put new ones into the wheel, and deliver them to their topics when their slots end.

A delivered message keeps all its stored properties; as in a broker, the times when the timer enqueued and dequeued it,
and the number of times it was re-inserted because it was beyond the wheel's range, are added. Delivered messages are
durable before the checkpoint passes their slot, and a slot in progress is finished before the store is closed. After a
kill, those already delivered of a slot are found in the log, whereas a broker delivers them again.

If the clock was set back, a broker's wheel stands still until the clock has caught up. This one keeps turning, ahead of
the clock, so that delays keep their length. New messages get the time that the wheel will show when they are due; a
message with an absolute time from a correct clock is not delivered before that time.

Source: store.timer.TimerMessageStore (enqueue, doEnqueue, dequeue, convert, doPut, maybeMoveWriteTime), TimerMetrics.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from formats.config.files_of_5 import Metric, TimerMetrics
from formats.message.properties import REAL_QID, REAL_TOPIC, parse
from formats.message.read import java_int
from formats.primitives import java_hash
from formats.variants import timer
from rmqtool.services.delays.delivery import Delivered
from rmqtool.services.lookup.configs import Warn, look_at_config
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending.copies import EarlierCopies, copy_of
from rmqtool.store.disk.durable import replace_file
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.live import LiveTimer
from rmqtool.store.queues.timer.messages import TimerMessage, recalls_by_topic, records_at

LEVEL = 0  # stands for the timer among the delay levels
_METRICS = "timermetrics"
_NEVER = 2**63 - 1  # enqueue time of a message that was already due, and so never was in the wheel

_MISSES = 10_000  # messages that come too late for a slot, of which none was delivered before
_JITTER = 2  # slots; the clock may be this far behind the wheel
_JUMP = 10_000  # ms; if more has passed since the clock was last read, it was set forward, or nobody read it

Stop = Callable[[], bool]


class _Due(NamedTuple):
    """A message whose slot has ended."""

    unit: timer.LogUnit
    message: TimerMessage


class TimerService:
    """The timer of a store that is open for writing. Its files are created when the first message arrives.

    Args:
        warn: called for each message that cannot be delivered.

    Attributes:
        stuck: whether it is blocked by a message that a broker could not enqueue either.
    """

    def __init__(self, store: Store, warn: Warn) -> None:
        self.store, self.warn = store, warn
        self.precision = store.layout.conf.timer_precision
        self._window = store.layout.conf.timer_window * self.precision
        self.stuck = False
        self._caught_up = False  # whether messages stored before the store was opened are enqueued
        self._timer: LiveTimer | None = None
        self._slot: int | None = None  # time of the slot being delivered
        self._due: deque[_Due] = deque()
        self._read_end = -1  # end of the log when the queue was last read
        self._ahead = 0  # ms by which the wheel is ahead of the clock
        self._last: tuple[int, int, int] | None = None  # physical offset, size, topic hash enqueued last
        self._counts: TimerCounts | None = None
        # what a killed process has moved: from slots, in their order, and from the queue, in any order
        self._earlier = EarlierCopies(store, store.live.end)
        self._earlier_late = EarlierCopies(store, store.live.end, misses=_MISSES)

    # -- when ---------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether there are waiting messages that can be delivered."""
        behind = not self.stuck and self._read_end != self.store.live.end
        return behind or self._slot is not None or (self._timer is not None and self._timer.pending)

    @property
    def next_time(self) -> int | None:
        """Time of the next action, ms; 0 for at once, None for never."""
        if self._slot is not None or (not self.stuck and self._read_end != self.store.live.end):
            return 0
        time = self._timer.next_time if self._timer is not None else None
        return time - self._ahead if time is not None else None

    def clock_moved(self, millis: int) -> None:
        """Record by how many ms the clock moved since it was last read; negative if it was set back."""
        if millis < 0 and self._timer is not None:
            self._set_ahead(self._ahead - millis)
        elif self._ahead and millis > _JUMP:
            self._set_ahead(max(self._ahead - millis, 0))

    def _set_ahead(self, millis: int) -> None:
        self._ahead = millis
        if (rules := self.store.live.timer_rules) is not None:
            rules.ahead = millis

    def look_again(self) -> None:
        """Try again to enqueue the message that blocked the timer."""
        self.stuck, self._read_end = False, -1

    # -- what is due --------------------------------------------------------------------------------------------------

    def step(
        self,
        now: int,
        stop: Stop = lambda: False,
        *,
        done: Delivered | None = None,
        after_each: Callable[[], None] = lambda: None,
    ) -> Delivered:
        """Deliver due messages, then enqueue new ones.

        Args:
            stop: called before each message; true ends the step.
            done: updated as work is done, so that it is right after an error.
            after_each: called after each message.

        Raises:
            Refused: the timer's files are damaged.
        """
        done = Delivered() if done is None else done
        live = self._open_timer(now)
        if live is None:
            return done
        now += self._ahead
        if not self._caught_up:  # a recall that arrived last may cancel a message due by now
            self._caught_up = live.caught_up = self._enqueue_new(live, stop, done, after_each)
            if not self._caught_up:
                return done
        while not stop() and (self._slot is not None or (slot := live.due(now)) is not None):
            if self._slot is None:
                assert slot is not None
                self._read_slot(live, slot, done)
            if not self._deliver_slot(live, stop, done, after_each):
                return done
        if not stop() and live.due(now) is None:
            self._enqueue_new(live, stop, done, after_each)
        if self.stuck:
            done.stuck.append(LEVEL)
        return done

    def _open_timer(self, now: int) -> LiveTimer | None:
        """The timer's files; None as long as there are neither files nor timer messages."""
        if self._timer is None:
            if self._read_end == self.store.live.end:
                return None
            self.store.dispatch()
            layout = self.store.layout
            if not TimerFiles(layout).present and open_queue(layout, timer.TOPIC, timer.QUEUE_ID) is None:
                self._read_end = self.store.live.end
                return None
            self._timer = LiveTimer(layout, now, self.store.live.end)
            self._counts = TimerCounts(self.store, self.warn)
            # nobody else shortens the log while it is open, so once is as good as every 30 s
            self._timer.remove_expired(CommitLog(layout).min_offset)
            if self._timer.revised:
                self._go_back_to_last_unit(self._timer)
            if (rules := self.store.live.timer_rules) is not None:
                rules.count = self._timer.count
            behind = self._timer.write_time - now // self.precision * self.precision
            if behind > _JITTER * self.precision:
                self.warn(
                    f"{timer.TOPIC}: the clock is {behind} ms behind the timer wheel, which turns on all the same"
                )
                self._set_ahead(behind)
        return self._timer

    def _go_back_to_last_unit(self, live: LiveTimer) -> None:
        """The timer log lacks units that the checkpoint covers: continue after the message of its last unit."""
        last = CommitLog(self.store.layout).read(live.last_offset, crc=False) if live.last_offset >= 0 else None
        behind = last.record.queue_offset + 1 if last is not None and last.record.topic.decode() == timer.TOPIC else 0
        live.queue_offset = min(live.queue_offset, behind)

    def _read_slot(self, live: LiveTimer, slot: int, done: Delivered) -> None:
        """Read the messages of a slot, without recalled ones."""
        # a message may be there twice: a process was killed, and the next one while it read the queue again
        first: dict[int, timer.LogUnit] = {}
        for unit in live.units(slot):
            first.setdefault(unit.physical_offset, unit)
        units = list(first.values())
        log = CommitLog(self.store.layout)
        recalled: dict[str, TimerMessage] = {}
        kept: list[_Due] = []
        by_topic = recalls_by_topic(self.store.layout)
        marks = 0
        for number, record in records_at(log, (unit.physical_offset for unit in units)):
            unit = units[number]
            if record.topic.decode() != timer.TOPIC or record.total_size != unit.message_size:
                continue
            message = TimerMessage(unit.physical_offset, record, parse(record.properties), slot, unit.magic)
            rolls = unit.magic & timer.MAGIC_ROLL
            if unit.magic & timer.MAGIC_DELETE and not rolls:
                marks += 1
                if message.mark is not None:
                    recalled[message.mark] = message
            else:
                kept.append(_Due(unit, message))
        done.skipped += len(units) - marks - len(kept)
        lost = dict(recalled)
        for due in kept:
            key = due.message.recall_key(by_topic=by_topic)
            if key is not None and key in recalled:
                lost.pop(key, None)
                done.recalled += 1
            else:
                self._due.append(due)
        assert self._counts is not None
        for message in lost.values():  # marks whose message does not exist
            self._counts.add(message.properties, 1)
        self._slot = slot

    def _deliver_slot(self, live: LiveTimer, stop: Stop, done: Delivered, after_each: Callable[[], None]) -> bool:
        """Deliver the current slot; False if stopped before its end."""
        while self._due:
            if stop():
                return False
            due = self._due[0]
            self._deliver_message(due.message, due.unit.write_time, bool(due.unit.magic & timer.MAGIC_ROLL), done)
            self._due.popleft()
            live.changed = True
            after_each()
        assert self._slot is not None
        live.remove_slot(self._slot)
        self._slot = None
        return True

    def _deliver_message(self, message: TimerMessage, taken: int, rolls: bool, done: Delivered) -> None:
        properties, now = dict(message.properties), self.store.live.clock()
        waiting = dict(properties)
        properties[timer.ENQUEUE_MS] = str(taken)
        properties[timer.DEQUEUE_MS] = str(now)
        topic, queue_id = properties.get(REAL_TOPIC, ""), java_int(properties.get(REAL_QID, "")) or 0
        if rolls:
            times = java_int(properties.get(timer.ROLL_TIMES, "0"))
            properties[timer.ROLL_TIMES] = str((times or 0) + 1)
            topic, queue_id = timer.TOPIC, timer.QUEUE_ID
        elif message.mark is not None:
            self._count_down(waiting, taken)
            return  # the recall came too late
        elif (named := self._absolute_time(message)) is not None and named > now + _JITTER * self.precision:
            properties[timer.OUT_MS] = str((named + self._ahead) // self.precision * self.precision)
            topic, queue_id, rolls = timer.TOPIC, timer.QUEUE_ID, True
        reason = message.unusable
        if reason is None and topic == timer.TOPIC and not rolls:
            reason = f"its {REAL_TOPIC} is {timer.TOPIC}: it would come back for ever"
        earlier = self._earlier_late if taken == _NEVER else self._earlier
        added = {name: properties[name] for name in [timer.ROLL_TIMES] if rolls and name in properties}
        if reason is None and earlier.take(message.record, topic, queue_id, added):
            self._count_down(waiting, taken)
            done.skipped += 1
            return
        if reason is None:
            reason = self.store.append(copy_of(message.record, topic, queue_id, properties)).reason
        self._count_down(waiting, taken)
        if reason:
            done.discarded += 1
            self.warn(
                f"{timer.TOPIC}: the message at queue offset {message.record.queue_offset} cannot be delivered "
                f"({reason}): passed over, as a broker does it"
            )
        elif rolls:
            done.rolled += 1
        else:
            done.delivered += 1

    def _absolute_time(self, message: TimerMessage) -> int | None:
        """The absolute delivery time in ms, if the sender set one by a correct clock; None for a relative delay.

        Also None if the clock was not set back: then the wheel's time is right.
        """
        if not self._ahead or message.record.born_timestamp > self.store.live.clock():
            return None
        properties = message.properties
        if timer.DELAY_SEC in properties or timer.DELAY_MS in properties:
            return None
        return java_int(properties.get(timer.DELIVER_MS, ""), 64)

    def _count_down(self, properties: dict[str, str], taken: int) -> None:
        """Count one waiting message less."""
        assert self._counts is not None
        self._counts.add(properties, -1, taken)

    # -- what has come ------------------------------------------------------------------------------------------------

    def _enqueue_new(self, live: LiveTimer, stop: Stop, done: Delivered, after_each: Callable[[], None]) -> bool:
        """Put new messages into the wheel; False if stopped before the end."""
        end = self.store.live.end
        if end == self._read_end or self.stuck:
            return True
        self.store.dispatch()
        queue = open_queue(self.store.layout, timer.TOPIC, timer.QUEUE_ID)
        if queue is not None:
            log = CommitLog(self.store.layout)
            start = min(max(live.queue_offset, queue.min_offset(log.min_offset)), queue.max_offset)
            if start != live.queue_offset:
                live.queue_offset, live.changed = start, True
            for first, units in queue.runs(start):
                for number, record in records_at(log, units["physical_offset"].tolist()):
                    if stop():
                        return False
                    offset = int(units["physical_offset"][number])
                    message = TimerMessage(offset, record, parse(record.properties), 0, 0)
                    if record.topic.decode() == timer.TOPIC and not self._enqueue(live, message, done):
                        return True
                    live.queue_offset, live.changed = first + number + 1, True
                    after_each()
                if live.queue_offset < first + len(units):
                    live.queue_offset, live.changed = first + len(units), True
        self._read_end = end
        return True

    def _enqueue(self, live: LiveTimer, message: TimerMessage, done: Delivered) -> bool:
        """Put a message into the wheel, or deliver it at once; False if neither is possible."""
        out = message.deliver_time
        if message.unusable is not None or out is None:
            self.stuck = True
            self.warn(
                f"{timer.TOPIC}: the message at queue offset {message.record.queue_offset} cannot be taken up "
                f"({message.unusable}); it holds up all after it, as in a broker"
            )
            return False
        offset, size = message.physical_offset, message.record.total_size
        topic_hash = java_hash(message.properties[REAL_TOPIC])
        self._last = offset, size, topic_hash
        if offset in live.known:
            return True
        if (other := self._corrected_time(message, out, live)) is not None:
            properties = {**message.properties, timer.OUT_MS: str(other)}
            return self.store.append(copy_of(message.record, timer.TOPIC, timer.QUEUE_ID, properties)).ok
        if out < live.read_time:
            self._deliver_message(message, _NEVER, False, done)
            return True
        magic, fires = timer.MAGIC_DEFAULT, out
        ahead = out - live.write_time
        if ahead >= self._window:
            magic |= timer.MAGIC_ROLL
            slots = self._window // self.precision
            # avoid a short last stretch
            near = ahead - self._window < slots // 3 * self.precision
            fires = live.write_time + (slots // 2 * self.precision if near else self._window)
        if message.mark is not None:
            magic |= timer.MAGIC_DELETE
        live.put(fires, magic, offset, size, topic_hash)
        assert self._counts is not None
        self._counts.add(message.properties, -1 if message.mark is not None else 1)
        return True

    def _corrected_time(self, message: TimerMessage, out: int, live: LiveTimer) -> int | None:
        """The corrected delivery time of a message whose time was computed by a different clock; None for others.

        The message is stored again with that time, like one that is re-inserted.
        """
        clock, stored = self.store.live.clock(), message.record.store_timestamp
        jitter = _JITTER * self.precision
        if message.mark is not None:
            return None
        if self._ahead and out < live.read_time and out > clock + jitter:  # computed before the wheel was ahead
            return (out + self._ahead) // self.precision * self.precision
        if not self._ahead and stored > clock + jitter:  # the clock was set back before the message was enqueued
            by_clock = timer.DELAY_SEC in message.properties or timer.DELAY_MS in message.properties
            if by_clock or message.record.born_timestamp > clock + jitter:
                return (out - (stored - clock)) // self.precision * self.precision
        return None

    # -- files --------------------------------------------------------------------------------------------------------

    def persist(self) -> None:
        """Sync messages, then the timer's files, if anything has changed."""
        if self._timer is not None and self._timer.changed:
            self.store.flush()
            self._timer.sync(self.store.live.clock())
            assert self._counts is not None
            self._counts.write()

    def finish(self, done: Delivered | None = None) -> None:
        """Finish the current slot and write everything, so that nothing is delivered twice."""
        live = self._timer
        if live is None:
            return
        if self._slot is not None:
            self._deliver_slot(live, lambda: False, Delivered() if done is None else done, lambda: None)
        if self._last is not None:
            live.take_for_last(*self._last)
        self.persist()
        live.let_go()


class TimerCounts:
    """Number of waiting messages per topic: ``config/timermetrics``."""

    def __init__(self, store: Store, warn: Warn) -> None:
        self._store = store
        problems: list[str] = []
        metrics = look_at_config(store.layout, _METRICS, problems.append)
        for text in problems:
            warn(text)
        self._keep = not problems
        self._file = metrics if isinstance(metrics, TimerMetrics) else TimerMetrics()
        self._counts = {topic: (metric.count, metric.timestamp) for topic, metric in self._file.counts.items()}
        self._changes = 0

    def add(self, properties: dict[str, str], value: int, taken: int = 0) -> None:
        """Add to the count of a message's topic, unless the message never was in the wheel."""
        topic = properties.get(REAL_TOPIC)
        if topic is not None and taken != _NEVER:
            count, _time = self._counts.get(topic, (0, 0))
            self._counts[topic] = count + value, self._store.live.clock()
            self._changes += 1

    def write(self) -> None:
        """Write the file if a count has changed."""
        if not self._changes:
            return
        version = self._file.data_version
        self._file = replace(
            self._file,
            counts={topic: Metric(count=count, timestamp=time) for topic, (count, time) in self._counts.items()},
            data_version=replace(version, counter=version.counter + self._changes, timestamp=self._store.live.clock()),
        )
        replace_file(self._store.layout.path("config", _METRICS), self._file.build(), keep=self._keep)
        self._keep, self._changes = True, 0
