"""Revive unacked messages: move them from the revive topic to the retry topic of their group.

Each queue of the revive topic is read in order. A checkpoint is processed once the records after it are due so much
later that all of its acks must have been read. The offset of the group :data:`~formats.variants.pop.REVIVE_GROUP` is
that of the last finished record, so the next start reads unfinished ones again, and a message revived just before a
kill may be delivered twice.

Source: broker.processor.PopReviveService (5.3.3); clients-and-live-admin 1.7.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from formats.errors import FormatError
from formats.message.properties import TAGS, parse
from formats.message.read import Record, java_int, read
from formats.topics import RETRY_PREFIX
from formats.variants import pop, timer
from formats.variants.pop_handle import FIRST_POP_TIME, retry_topic
from rmqtool.rules.statuses import GetStatus
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.reading import Reading
from rmqtool.services.open_store.store import Store
from rmqtool.services.popping.records import Records
from rmqtool.services.popping.settings import PopSettings
from rmqtool.services.sending.copies import copy_of
from rmqtool.store.append.answers import PutResult

_SURE = 2000  # ms; the newest record must be due this much later than a checkpoint
_QUIET = 3000  # ms without a record after which the clock is used instead
_AGAIN = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)  # s
_BLOCK = 32  # records read at once


class _Read(NamedTuple):
    """A record of the revive topic."""

    queue_offset: int
    event: pop.CheckPoint | pop.Ack
    deliver_time: int


@dataclass(slots=True)
class _Queue:
    """Reading state of one queue of the revive topic.

    Attributes:
        following: queue offset of the next record.
        newest: the latest due time of a record, ms since the epoch; 0 for none yet.
        points: open checkpoints, each with the queue offsets of its finished messages; an ack without a checkpoint gets
            an empty one.
        places: queue offset of each checkpoint.
    """

    queue_id: int
    following: int
    newest: int = 0
    points: dict[pop.PopKey, tuple[pop.CheckPoint, set[int]]] = field(default_factory=dict)
    places: dict[pop.PopKey, int] = field(default_factory=dict)


class Reviving:
    """Revives messages of one store that is open for writing.

    Args:
        state: has topics, groups and offsets; its owner persists them.
        records: stores new checkpoints of messages that cannot be revived now.
        broker_name: used for acks without one.
        in_time: returns whether the timer has delivered everything due to the revive topic.
        topic_made: called after a retry topic was created.
        arrived: called with a queue that has a new message.
    """

    def __init__(
        self,
        store: Store,
        reading: Reading,
        state: BrokerState,
        records: Records,
        settings: PopSettings,
        broker_name: str,
        warn: Warn,
        *,
        clock: Callable[[], int],
        in_time: Callable[[], bool] = lambda: True,
        topic_made: Callable[[], None] = lambda: None,
        arrived: Callable[[str, int], None] = lambda _topic, _queue: None,
    ) -> None:
        self._store, self._reading, self._state, self._records = store, reading, state, records
        self._settings, self._broker_name, self._clock = settings, broker_name, clock
        self._warn = warn
        self._in_time, self._topic_made, self._arrived = in_time, topic_made, arrived
        self._queues: dict[int, _Queue] = {}
        self._new_messages: set[tuple[str, int]] = set()

    @property
    def waiting(self) -> int:
        """Number of open checkpoints."""
        return sum(len(queue.points) for queue in self._queues.values())

    def step(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Read new records, and process the checkpoints that are ready."""
        config = self._state.topic(self._records.topic)
        count = max(self._settings.revive_queues, config.read_queue_nums if config is not None else 0)
        in_time = self._in_time()  # asked first: records stored below are new to the timer
        for queue_id in range(count):
            if stop():
                break
            self._step(queue_id, stop, in_time)
        arrived, self._new_messages = self._new_messages, set()
        for place in arrived:  # once all messages of a checkpoint are stored, so that they are delivered together again
            self._arrived(*place)

    def _step(self, queue_id: int, stop: Callable[[], bool], in_time: bool) -> None:
        topic = self._records.topic
        queue = self._queues.get(queue_id)
        if queue is None:
            if not self._reading.max_offset(topic, queue_id):
                return
            finished = self._state.offset(topic, pop.REVIVE_GROUP, queue_id)
            queue = self._queues[queue_id] = _Queue(queue_id, (-1 if finished is None else finished) + 1)
        while not stop():
            before = queue.following
            for record in self._read_block(queue):
                self._add(queue, record)
            self._process(queue, stop)
            if queue.following == before:
                break
        now = self._clock()
        if queue.points and not stop() and queue.newest and now - queue.newest > _QUIET and in_time:
            queue.newest = now
            self._process(queue, stop)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read_block(self, queue: _Queue) -> Iterator[_Read]:
        """The next records, without those that are neither a checkpoint nor an ack."""
        pulled = self._reading.pull(self._records.topic, queue.queue_id, queue.following, _BLOCK)
        if not pulled.messages:
            if pulled.status in (
                GetStatus.OFFSET_TOO_SMALL,
                GetStatus.OFFSET_OVERFLOW_BADLY,
                GetStatus.OFFSET_FOUND_NULL,
            ):
                queue.following = pulled.next_begin_offset
            elif pulled.status == GetStatus.MESSAGE_WAS_REMOVING:
                queue.following = max(pulled.next_begin_offset, queue.following)
            return
        queue.following = pulled.next_begin_offset
        for data in pulled.messages:
            record = read(data, 0, len(data), crc=False)
            if not isinstance(record, Record):
                continue
            properties = parse(record.properties)
            try:
                event = pop.read(properties.get(TAGS), record.body)
            except FormatError:
                continue
            if event is not None and event.topic and event.group:
                deliver = java_int(properties.get(timer.DELIVER_MS, ""), 64) or 0
                yield _Read(record.queue_offset, event, deliver)

    def _add(self, queue: _Queue, record: _Read) -> None:
        event = record.event
        if isinstance(event, pop.CheckPoint):
            # the timer may have delivered it twice; its place is that of the last copy
            acked = queue.points.pop(event.key, (event, set[int]()))[1]
            queue.points[event.key] = event, acked | event.acked_before
            queue.places[event.key] = record.queue_offset
        else:
            key = event.key if event.broker_name.strip() else event.key._replace(broker_name=self._broker_name)
            if key in queue.points:
                queue.points[key][1].update(event.queue_offsets)
            elif self._clock() - record.deliver_time > self._settings.ack_wait:
                # without its checkpoint it would hold up the offset forever
                nothing = pop.CheckPoint(
                    topic=event.topic,
                    group=event.group,
                    queue_id=event.queue_id,
                    start_offset=event.start_offset,
                    pop_time=event.pop_time,
                    broker_name=key.broker_name,
                )
                queue.points[key] = nothing, set()
                queue.places[key] = record.queue_offset
        # a record that arrived early says nothing about what was due meanwhile
        queue.newest = max(queue.newest, min(record.deliver_time, self._clock()))

    # -- judging ------------------------------------------------------------------------------------------------------

    def _process(self, queue: _Queue, stop: Callable[[], bool]) -> None:
        for key in list(queue.points):
            point, acked = queue.points[key]
            if queue.newest - point.visible_time <= _SURE or stop():
                return
            if self._has_topic_and_group(point):
                for offset in point.queue_offsets[: max(point.count, 0)]:
                    if offset not in acked:
                        if not self._revive(queue, point, offset):
                            return
                        acked.add(offset)
            del queue.points[key]
            place = queue.places.pop(key)
            finished = self._state.offset(self._records.topic, pop.REVIVE_GROUP, queue.queue_id)
            if finished is None or place > finished:
                self._state.set_offset(self._records.topic, pop.REVIVE_GROUP, queue.queue_id, place)

    def _has_topic_and_group(self, point: pop.CheckPoint) -> bool:
        """Whether topic and group still exist."""
        topic = point.topic
        if topic.startswith(RETRY_PREFIX):
            name = topic.removeprefix(RETRY_PREFIX)
            topic = name.removeprefix(f"{point.group}+") if "+" in name else name.removeprefix(f"{point.group}_")
        return self._state.topic(topic) is not None and point.group in self._state.groups

    def _revive(self, queue: _Queue, point: pop.CheckPoint, queue_offset: int) -> bool:
        """Revive one message; False if neither it nor a new checkpoint can be stored now."""
        if self._settings.foreign and point.broker_name != self._broker_name:
            return self._put_again(queue, point, queue_offset)
        pulled = self._reading.pull(point.topic, point.queue_id, queue_offset, 1)
        record = read(pulled.messages[0], 0, len(pulled.messages[0])) if pulled.messages else None
        if not isinstance(record, Record) or record.queue_offset != queue_offset:
            self._warn(
                f"{point.topic} queue {point.queue_id}: the message at queue offset {queue_offset} is gone, so it does "
                f"not come back for {point.group}"
            )
            return True
        stored = self._store_retry(point, record)
        if not stored.ok:
            self._warn(
                f"{point.topic} queue {point.queue_id}: the message at queue offset {queue_offset} cannot come back "
                f"for {point.group} now: {stored.reason}"
            )
            return self._put_again(queue, point, queue_offset)
        self._new_messages.add((stored.topic, stored.queue_id))
        return True

    def _store_retry(self, point: pop.CheckPoint, record: Record) -> PutResult:
        """Store the message in the retry topic of its group."""
        topic = point.topic
        if not topic.startswith(RETRY_PREFIX):
            topic = retry_topic(topic, point.group, newer=self._settings.newer_retry_topics)
        properties = parse(record.properties)
        if record.reconsume_times == 0 or FIRST_POP_TIME not in properties:
            properties[FIRST_POP_TIME] = str(point.pop_time)
        if self._state.topic(topic) is None:
            self._state.ensure_topic(topic, 1)
            self._topic_made()
            if self._state.offset(topic, point.group, 0) is None:
                self._state.set_offset(topic, point.group, 0, 0)
        times = record.reconsume_times + (0 if point.suspended else 1)
        copy = copy_of(record, topic, 0, properties, reconsume_times=times)
        return self._store.append(
            replace(copy, born_host=self._records.address, store_host=self._records.address, was_stored=True)
        )

    def _put_again(self, queue: _Queue, point: pop.CheckPoint, queue_offset: int) -> bool:
        """Store a new checkpoint for a message that cannot be revived now, with a longer interval each time."""
        times = java_int(point.put_again or "") or 0
        if times >= len(_AGAIN) and self._settings.drop_after_all:
            return True
        invisible = point.invisible_time
        if point.visible_time <= self._clock():
            invisible += _AGAIN[min(times, len(_AGAIN) - 1)] * 1000
        again = replace(
            point,
            start_offset=queue_offset,
            invisible_time=invisible,
            count=1,
            distances=(0,),
            bit_map=0,
            put_again=str(times + 1),
            revive_offset=0,
            extra={},
        )
        stored = self._records.put(again, queue.queue_id, again.visible_time)
        return stored.ok
