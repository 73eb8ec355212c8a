"""Deliver timer messages of 5.x: into the wheel when they come, to their own topics when their slots are over.

A message goes on with all that was stored of it, and with what a broker adds: when the timer took it up and let go of
it, and how often it was moved on because it was too far away for the wheel. Delivery is at least once: what was
delivered is durable before the checkpoint says that its slot is over, and a slot that was begun is ended before the
store is closed.

When the clock was set back, a broker's wheel stands until the clock has come there again. Here it turns on, ahead of
the clock: what was to wait for so long waits for so long. What comes then is given the time that the wheel will have
when it is due, and who has named a time by a clock that was right is not served before that.

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
from rmqtool.services.sending.copies import copy_of
from rmqtool.store.disk.durable import replace_file
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.live import LiveTimer
from rmqtool.store.queues.timer.messages import TimerMessage, recalls_by_topic, records_at

LEVEL = 0  # of the timer among the delay levels
_METRICS = "timermetrics"
_NEVER = 2**63 - 1  # when the wheel took up a message that was due already

_JITTER = 2  # slots by which a clock may be behind the wheel and that is no matter
_JUMP = 10_000  # ms between two looks at the clock: longer ones say that it was set forward, or that nobody has looked

Stop = Callable[[], bool]


class _Due(NamedTuple):
    """A message whose slot is over."""

    unit: timer.LogUnit
    message: TimerMessage


class TimerService:
    """The timer of a store that is open for writing. Its files are made when the first message comes.

    Args:
        warn: called with what cannot be delivered.

    Attributes:
        stuck: whether it stands before a message that a broker cannot take up either.
    """

    def __init__(self, store: Store, warn: Warn) -> None:
        self.store, self.warn = store, warn
        self.precision = store.layout.conf.timer_precision
        self._window = store.layout.conf.timer_window * self.precision
        self.stuck = False
        self._caught_up = False  # with what came in before the store was opened
        self._timer: LiveTimer | None = None
        self._begun: int | None = None  # time of the slot that is being delivered
        self._rest: deque[_Due] = deque()
        self._seen = -1  # end of the log when the queue was looked at last
        self._ahead = 0  # ms by which the wheel is ahead of the clock
        self._last: tuple[int, int, int] | None = None  # offset, size and hash of the message taken last
        self._counts: TimerCounts | None = None

    # -- when ---------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether messages wait that can be delivered some time."""
        behind = not self.stuck and self._seen != self.store.live.end
        return behind or self._begun is not None or (self._timer is not None and self._timer.pending)

    @property
    def next_time(self) -> int | None:
        """When there is something to do, ms; 0 for at once, None for never."""
        if self._begun is not None or (not self.stuck and self._seen != self.store.live.end):
            return 0
        time = self._timer.next_time if self._timer is not None else None
        return time - self._ahead if time is not None else None

    def clock_moved(self, millis: int) -> None:
        """The clock has gone on by so many ms since it was looked at last, or was set back by them."""
        if millis < 0 and self._timer is not None:
            self._go_ahead(self._ahead - millis)
        elif self._ahead and millis > _JUMP:
            self._go_ahead(max(self._ahead - millis, 0))

    def _go_ahead(self, millis: int) -> None:
        self._ahead = millis
        if (rules := self.store.live.timer_rules) is not None:
            rules.ahead = millis

    def look_again(self) -> None:
        """Try once more what could not be taken up."""
        self.stuck, self._seen = False, -1

    # -- what is due --------------------------------------------------------------------------------------------------

    def step(
        self,
        now: int,
        stop: Stop = lambda: False,
        *,
        done: Delivered | None = None,
        after_each: Callable[[], None] = lambda: None,
    ) -> Delivered:
        """Deliver what is due, then take up what has come.

        Args:
            stop: asked before each message; true ends the step.
            done: updated as work is done, so that it is right after an error.
            after_each: called after each message.

        Raises:
            Refused: the timer's files are damaged.
        """
        done = Delivered() if done is None else done
        opened = self._open_timer(now)
        if opened is None:
            return done
        now += self._ahead
        if not self._caught_up:  # a mark that came in last may take back what is due by now
            self._caught_up = self._take_up(opened, stop, done, after_each)
            if not self._caught_up:
                return done
        while not stop() and (self._begun is not None or (slot := opened.due(now)) is not None):
            if self._begun is None:
                assert slot is not None
                self._begin(opened, slot, done)
            if not self._deliver(opened, stop, done, after_each):
                return done
        if not stop() and opened.due(now) is None:
            self._take_up(opened, stop, done, after_each)
        if self.stuck:
            done.stuck.append(LEVEL)
        return done

    def _open_timer(self, now: int) -> LiveTimer | None:
        """The files, as soon as there are any, or a message for them."""
        if self._timer is None:
            if self._seen == self.store.live.end:
                return None
            self.store.dispatch()
            layout = self.store.layout
            if not TimerFiles(layout).present and open_queue(layout, timer.TOPIC, timer.QUEUE_ID) is None:
                self._seen = self.store.live.end
                return None
            self._timer = LiveTimer(layout, now, self.store.live.end)
            self._counts = TimerCounts(self.store, self.warn)
            # nobody else shortens the log while it is held open: once is as good as every 30 s
            self._timer.remove_expired(CommitLog(layout).min_offset)
            if self._timer.revised:
                self._revise(self._timer)
            if (rules := self.store.live.timer_rules) is not None:
                rules.count = self._timer.count
            behind = self._timer.write_time - now // self.precision * self.precision
            if behind > _JITTER * self.precision:
                self.warn(
                    f"{timer.TOPIC}: the clock is {behind} ms behind the timer wheel, which turns on all the same"
                )
                self._go_ahead(behind)
        return self._timer

    def _revise(self, opened: LiveTimer) -> None:
        """Units are gone that the checkpoint tells of: go on behind the message of the last one that is there."""
        last = CommitLog(self.store.layout).read(opened.last_offset, crc=False) if opened.last_offset >= 0 else None
        behind = last.record.queue_offset + 1 if last is not None and last.record.topic.decode() == timer.TOPIC else 0
        opened.queue_offset = min(opened.queue_offset, behind)

    def _begin(self, opened: LiveTimer, slot: int, done: Delivered) -> None:
        """Find the messages of a slot, without those that are recalled."""
        units = opened.units(slot)
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
                self._rest.append(due)
        assert self._counts is not None
        for message in lost.values():  # what they were to recall is not there
            self._counts.add(message.properties, 1)
        self._begun = slot

    def _deliver(self, opened: LiveTimer, stop: Stop, done: Delivered, after_each: Callable[[], None]) -> bool:
        """Deliver the slot that was begun; False where it is not done yet."""
        while self._rest:
            if stop():
                return False
            due = self._rest[0]
            self._put(due.message, due.unit.write_time, bool(due.unit.magic & timer.MAGIC_ROLL), done)
            self._rest.popleft()
            opened.changed = True
            after_each()
        assert self._begun is not None
        opened.remove_slot(self._begun)
        self._begun = None
        return True

    def _put(self, message: TimerMessage, taken: int, rolls: bool, done: Delivered) -> None:
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
            return  # it has come too late
        elif (named := self._named_time(message)) is not None and named > now + _JITTER * self.precision:
            properties[timer.OUT_MS] = str((named + self._ahead) // self.precision * self.precision)
            topic, queue_id, rolls = timer.TOPIC, timer.QUEUE_ID, True
        reason = message.unusable
        if reason is None and topic == timer.TOPIC and not rolls:
            reason = f"its {REAL_TOPIC} is {timer.TOPIC}: it would come back for ever"
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

    def _named_time(self, message: TimerMessage) -> int | None:
        """The time in ms that a sender has named by a clock that was right; None for what waits for a while.

        None too where the clock was not set back, for then the wheel tells.
        """
        if not self._ahead or message.record.born_timestamp > self.store.live.clock():
            return None
        properties = message.properties
        if timer.DELAY_SEC in properties or timer.DELAY_MS in properties:
            return None
        return java_int(properties.get(timer.DELIVER_MS, ""), 64)

    def _count_down(self, properties: dict[str, str], taken: int) -> None:
        """A message waits no more."""
        assert self._counts is not None
        self._counts.add(properties, -1, taken)

    # -- what has come ------------------------------------------------------------------------------------------------

    def _take_up(self, opened: LiveTimer, stop: Stop, done: Delivered, after_each: Callable[[], None]) -> bool:
        """Put what has come into the wheel; False where it was stopped before the end."""
        end = self.store.live.end
        if end == self._seen or self.stuck:
            return True
        self.store.dispatch()
        queue = open_queue(self.store.layout, timer.TOPIC, timer.QUEUE_ID)
        if queue is not None:
            log = CommitLog(self.store.layout)
            start = min(max(opened.queue_offset, queue.min_offset(log.min_offset)), queue.max_offset)
            if start != opened.queue_offset:
                opened.queue_offset, opened.changed = start, True
            for first, units in queue.runs(start):
                for number, record in records_at(log, units["physical_offset"].tolist()):
                    if stop():
                        return False
                    offset = int(units["physical_offset"][number])
                    message = TimerMessage(offset, record, parse(record.properties), 0, 0)
                    if record.topic.decode() == timer.TOPIC and not self._took(opened, message, done):
                        return True
                    opened.queue_offset, opened.changed = first + number + 1, True
                    after_each()
                if opened.queue_offset < first + len(units):
                    opened.queue_offset, opened.changed = first + len(units), True
        self._seen = end
        return True

    def _took(self, opened: LiveTimer, message: TimerMessage, done: Delivered) -> bool:
        """Put a message into the wheel, or deliver it at once; False where that cannot be done."""
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
        if offset in opened.known:
            return True
        if (other := self._reckoned_again(message, out, opened)) is not None:
            properties = {**message.properties, timer.OUT_MS: str(other)}
            return self.store.append(copy_of(message.record, timer.TOPIC, timer.QUEUE_ID, properties)).ok
        if out < opened.read_time:
            self._put(message, _NEVER, False, done)
            return True
        magic, fires = timer.MAGIC_DEFAULT, out
        ahead = out - opened.write_time
        if ahead >= self._window:
            magic |= timer.MAGIC_ROLL
            slots = self._window // self.precision
            # a short last way is made a long one
            near = ahead - self._window < slots // 3 * self.precision
            fires = opened.write_time + (slots // 2 * self.precision if near else self._window)
        if message.mark is not None:
            magic |= timer.MAGIC_DELETE
        opened.put(fires, magic, offset, size, topic_hash)
        assert self._counts is not None
        self._counts.add(message.properties, -1 if message.mark is not None else 1)
        return True

    def _reckoned_again(self, message: TimerMessage, out: int, opened: LiveTimer) -> int | None:
        """When the wheel is to let go of a message whose time was reckoned by another clock; None for others.

        It is stored again with that time, as a message that is moved on is.
        """
        clock, stored = self.store.live.clock(), message.record.store_timestamp
        jitter = _JITTER * self.precision
        if message.mark is not None:
            return None
        if self._ahead and out < opened.read_time and out > clock + jitter:  # while nobody knew that the wheel is ahead
            return (out + self._ahead) // self.precision * self.precision
        if not self._ahead and stored > clock + jitter:  # the clock was set back before the wheel had it
            by_clock = timer.DELAY_SEC in message.properties or timer.DELAY_MS in message.properties
            if by_clock or message.record.born_timestamp > clock + jitter:
                return (out - (stored - clock)) // self.precision * self.precision
        return None

    # -- files --------------------------------------------------------------------------------------------------------

    def persist(self) -> None:
        """Make messages durable, then the timer's files, where something has changed."""
        if self._timer is not None and self._timer.changed:
            self.store.flush()
            self._timer.sync(self.store.live.clock())
            assert self._counts is not None
            self._counts.write()

    def finish(self, done: Delivered | None = None) -> None:
        """End the slot that was begun, and write all down: what was delivered is not delivered again."""
        opened = self._timer
        if opened is None:
            return
        if self._begun is not None:
            self._deliver(opened, lambda: False, Delivered() if done is None else done, lambda: None)
        if self._last is not None:
            opened.take_for_last(*self._last)
        self.persist()
        opened.let_go()


class TimerCounts:
    """How many messages of each topic wait: ``config/timermetrics``."""

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
        """Count a message of its topic. One that never was in the wheel does not count."""
        topic = properties.get(REAL_TOPIC)
        if topic is not None and taken != _NEVER:
            count, _time = self._counts.get(topic, (0, 0))
            self._counts[topic] = count + value, self._store.live.clock()
            self._changes += 1

    def write(self) -> None:
        """Write what has changed."""
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
