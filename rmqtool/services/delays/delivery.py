"""Deliver delayed messages: the queue of each level in order, from the level's offset.

A message goes to its real topic and queue with all its stored properties, even ``DELAY``, ``REAL_TOPIC`` and
``REAL_QID``, as with a broker. A delivered message is in the log before the offset of its level is written; if a kill
comes between, the next process finds it there, whereas a broker delivers it again. Missing and dropped messages are
skipped for good; a broker examines them again after each start.

Source: store.schedule.ScheduleMessageService (4.9.8); message-services 10.4.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from formats.message.properties import REAL_QID, REAL_TOPIC
from formats.message.read import java_int
from formats.topics import HALF, SCHEDULE
from rmqtool.progress import stage
from rmqtool.services.delays.delays import Delays
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.queue_messages import QueueMessage, TopicQueues, messages_of
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending.copies import EarlierCopies, copy_of
from rmqtool.store.log.commit_log import CommitLog


@dataclass(slots=True, kw_only=True)
class Delivered:
    """What one pass over the levels did."""

    delivered: int = 0
    discarded: int = 0  # half messages sent with a delay level, which a broker drops
    skipped: int = 0  # entries whose message is gone, or was delivered by a process that was killed
    rolled: int = 0  # timer messages moved to a later slot, as their time is beyond the wheel's range
    recalled: int = 0  # recalled timer messages
    stuck: list[int] = field(default_factory=list)  # levels blocked by a message that cannot be delivered


class Delivery:
    """Delivers the delayed messages of a store that is open for writing.

    Args:
        state: has the levels' offsets; its owner persists them.
    """

    def __init__(self, store: Store, state: BrokerState, warn: Warn) -> None:
        self.store, self.state, self.warn = store, state, warn
        self._end = store.live.end
        self._earlier: dict[int, EarlierCopies] = {}  # by level

    def _delays(self, now: int) -> Delays:
        self.store.dispatch()
        layout = self.store.layout
        return Delays(CommitLog(layout), now, self.warn, TopicQueues(layout), self.state.delay_offsets)

    def next_time(self, now: int, stuck: Collection[int] = ()) -> int | None:
        """When the next message is due, ms; None if none waits.

        Args:
            stuck: levels to leave out.
        """
        delays = self._delays(now)
        times = (delays.next_time(level) for level in range(1, len(delays.millis) + 1) if level not in stuck)
        return min((time for time in times if time is not None), default=None)

    def deliver_due(
        self,
        now: int,
        stop: Callable[[], bool] = lambda: False,
        *,
        done: Delivered | None = None,
        after_each: Callable[[], None] = lambda: None,
    ) -> Delivered:
        """Deliver what is due, level by level.

        Args:
            now: ms since the epoch.
            stop: called before each message; true ends the pass.
            done: updated as work is done, so that it is right after an error.
            after_each: called after each message, once the offset of its level is after it.
        """
        done = Delivered() if done is None else done
        delays = self._delays(now)
        ranges = {level: delays.due(level) for level in range(1, len(delays.millis) + 1)}
        for level, due in ranges.items():
            if self.state.delay_offsets.get(level) not in (None, due.start) and level - 1 in delays.queues:
                self.state.set_delay_offset(level, due.start)  # the offset was outside the queue
        if not any(ranges.values()):
            return done
        with stage("delivering delayed messages", sum(map(len, ranges.values())), "messages") as delivering:

            def after() -> None:
                delivering.done += 1
                after_each()

            for level, due in ranges.items():
                if due:
                    self._deliver(delays, level, due, done, stop, after)
        return done

    def _deliver(
        self,
        delays: Delays,
        level: int,
        due: range,
        done: Delivered,
        stop: Callable[[], bool],
        after_each: Callable[[], None] = lambda: None,
    ) -> None:
        following = due.start
        for message in messages_of(delays.log, delays.queues[level - 1], self.warn, due.start, due.stop):
            if stop():
                return
            done.skipped += message.entry.queue_offset - following
            following = message.entry.queue_offset + 1
            if message.properties.get(REAL_TOPIC) == HALF:
                done.discarded += 1
                self.warn(f"{SCHEDULE} queue {level - 1}: a half message was delayed: dropped, as a broker does it")
            elif self._was_delivered(level, message):
                done.skipped += 1
            elif reason := self._try_delivery(message):
                done.stuck.append(level)
                self.warn(
                    f"{SCHEDULE} queue {level - 1}: the message at queue offset {following - 1} cannot be delivered "
                    f"({reason}); it holds up its level, as in a broker"
                )
                return
            else:
                done.delivered += 1
            self.state.set_delay_offset(level, following)
            after_each()
        done.skipped += due.stop - following
        self.state.set_delay_offset(level, due.stop)

    def _was_delivered(self, level: int, message: QueueMessage) -> bool:
        """Whether a process that was killed has delivered it."""
        earlier = self._earlier.setdefault(level, EarlierCopies(self.store, self._end))
        topic, queue_id = message.properties.get(REAL_TOPIC, ""), java_int(message.properties.get(REAL_QID, "")) or 0
        return earlier.take(message.record, topic, queue_id, {})

    def _try_delivery(self, message: QueueMessage) -> str:
        """Deliver a message; returns why it cannot be delivered, or None."""
        topic, queue_id = message.properties.get(REAL_TOPIC), java_int(message.properties.get(REAL_QID, ""))
        if topic is None or queue_id is None:
            return f"no {REAL_TOPIC} or {REAL_QID}"
        if topic == SCHEDULE:
            return f"its {REAL_TOPIC} is {SCHEDULE}: it would come back for ever"
        return self.store.append(copy_of(message.record, topic, queue_id, message.properties, was_stored=True)).reason


def deliver_due(store: Store, now: int, warn: Warn) -> Delivered:
    """Deliver once what is due at a time, and write the offsets of the levels."""
    state = BrokerState(store, warn)
    try:
        done = Delivery(store, state, warn).deliver_due(now)
    except BaseException:
        state.persist_what_is_stored()
        raise
    state.persist()
    return done
