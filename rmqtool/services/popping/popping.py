"""Pop: choose the messages to deliver, and record the delivery before the client gets them.

A broker that merges checkpoints and acks in memory (``enablePopBufferMerge``) loses them if it is killed; here each is
stored before the request is answered. A group's offset moves past the delivered messages as soon as the checkpoint is
stored.

Source: broker.processor.PopMessageProcessor, PopBufferMergeService (addCkJustOffset, addCkMock), PeekMessageProcessor,
NotificationProcessor (5.3.3); clients-and-live-admin 1.3 to 1.8.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from formats.errors import FormatError
from formats.layouts import derived
from formats.message.build import rebuild
from formats.message.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, build, parse
from formats.message.read import Record, java_int, read
from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.topics import LMQ_PREFIX, RETRY_PREFIX
from formats.variants import pop
from formats.variants.pop_handle import (
    ORDERED,
    POP_CK,
    Handle,
    HandleQueue,
    build_parts,
    count_info,
    origin_of,
    retry_topic,
)
from rmqtool.rules.kinds import priority_share
from rmqtool.rules.statuses import MOVED, GetStatus
from rmqtool.services.lookup.get_message import GetResult
from rmqtool.services.offsets.files import Key
from rmqtool.services.open_store.reading import Accept, Reading
from rmqtool.services.popping.ordered import QueueOrders
from rmqtool.services.popping.settings import PopSettings
from rmqtool.store.append.answers import PutResult

FROM_MIN, FROM_MAX = 0, 1  # where a new group begins (common.constant.ConsumeInitMode)
_NOTHING_WANTED = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.OFFSET_FOUND_NULL, GetStatus.MESSAGE_WAS_REMOVING)
_QUEUE_OFFSET = derived.HEAD_V4_V4.field("queue_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class PopRequest:
    """A pop request.

    Attributes:
        queue_id: negative for all queues.
        invisible_time: ms.
        start: :data:`FROM_MIN` or :data:`FROM_MAX`, for a new group.
        accept: the filter of the subscription.
        attempt: id of the attempt, for ordered pops; a client that repeats it gets the same messages.
        pop_time: of an ordered pop of several queues, ms since the epoch; None for now.
    """

    topic: str
    group: str
    queue_id: int
    most: int
    invisible_time: int
    start: int = FROM_MIN
    ordered: bool = False
    attempt: str | None = None
    accept: Accept | None = None
    pop_time: int | None = None


@dataclass(slots=True)
class PopResult:
    """The result of a pop request.

    Attributes:
        messages: records, in the order of ``parts``.
        rest: number of further messages in all queues that were read.
        order_counts: ``orderCountInfo``; empty unless popped in order.
        failed: a checkpoint could not be stored, so its messages were not handed out.
    """

    pop_time: int
    revive_queue: int
    messages: list[bytes | memoryview] = field(default_factory=list)
    parts: list[HandleQueue] = field(default_factory=list)
    rest: int = 0
    order_counts: list[str] = field(default_factory=list)
    failed: bool = False

    @property
    def count(self) -> int:
        """Number of messages."""
        return sum(len(part.queue_offsets) for part in self.parts)

    @property
    def infos(self) -> tuple[str, str]:
        """``startOffsetInfo`` and ``msgOffsetInfo``."""
        return build_parts(self.parts)


class PopTables(Protocol):
    """Topics, groups and offsets; see :class:`rmqtool.services.open_store.broker_state.BrokerState`."""

    @property
    def groups(self) -> Mapping[str, SubscriptionGroup]: ...

    def topic(self, name: str) -> TopicConfig | None: ...

    def offset(self, topic: str, group: str, queue_id: int) -> int | None: ...

    def set_offset(self, topic: str, group: str, queue_id: int, offset: int) -> None: ...

    def save_groups(self) -> None: ...


class PopRecords(Protocol):
    """Keeps checkpoints and acks; see :class:`rmqtool.services.popping.records.Records`."""

    def put(self, record: pop.CheckPoint | pop.Ack, revive_queue: int, visible_time: int) -> PutResult: ...


def queue_offset_of(record: memoryview) -> int:
    """Queue offset in the head of a stored record; of a batch, that of its first message."""
    return int(_QUEUE_OFFSET.unpack_from(record)[0])


def offset_in(topic: str, record: memoryview) -> int:
    """Offset of a stored record in its own queue, or in a light queue, by its properties."""
    if topic.startswith(LMQ_PREFIX):
        read_record = read(record, 0, len(record), crc=False)
        properties = parse(read_record.properties) if isinstance(read_record, Record) else {}
        queues, offsets = (properties.get(n, "").split(",") for n in (MULTI_DISPATCH, MULTI_QUEUE_OFFSET))
        for queue, text in zip(queues, offsets, strict=False):
            if queue == topic and (offset := java_int(text, 64)) is not None:
                return offset
    return queue_offset_of(record)


class Popping:
    """Pops messages of one store.

    Args:
        state: has topics, groups and offsets; its owner persists them.
        records: keeps checkpoints.
        broker_name: name in handles.
        resets: pending offset resets by topic, group and queue id; removed when applied.
        failed: called with the reason if a checkpoint could not be stored; its messages are then not delivered.
    """

    def __init__(
        self,
        reading: Reading,
        state: PopTables,
        records: PopRecords,
        orders: QueueOrders,
        settings: PopSettings,
        broker_name: str,
        *,
        clock: Callable[[], int],
        random: Random,
        resets: dict[Key, int],
        failed: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self._reading, self._state, self._records, self._orders = reading, state, records, orders
        self._broker_name, self._clock, self._random = broker_name, clock, random
        self._resets, self._failed = resets, failed
        self._turn = 0

    # -- handing out --------------------------------------------------------------------------------------------------

    def pop(self, request: PopRequest) -> PopResult:
        """Pop up to ``request.most`` messages."""
        chance = self._random.randrange(100)
        if request.ordered:
            popped = PopResult(self._clock() if request.pop_time is None else request.pop_time, ORDERED)
        else:
            popped = PopResult(self._clock(), self._turn % self.settings.revive_queues)
            self._turn += 1
        retry = [] if request.ordered else self._retry_queues(request.topic, request.group, chance)
        if self._by_priority(request, chance):
            own = self._own_queues(request.topic, request.queue_id, 0)
            own = own if self.settings.lowest_first else own[::-1]
            first = chance < self.settings.priority_retry_first
        else:
            own = self._own_queues(request.topic, request.queue_id, chance)
            first = chance < self.settings.retry_first
        for topic, queue_id in [*retry, *own] if first else own:
            self._from_queue(request, topic, queue_id, popped)
        if not first and popped.count < request.most:
            for topic, queue_id in retry:
                self._from_queue(request, topic, queue_id, popped)
        return popped

    def _by_priority(self, request: PopRequest, chance: int) -> bool:
        """Whether messages of the highest priority come first: those of the last queues."""
        config = self._state.topic(request.topic)
        if request.ordered or config is None or (config.attributes or {}).get("message.type") != "PRIORITY":
            return False
        group = self._state.groups.get(request.group)
        return chance < priority_share((group.attributes if group is not None else None) or {})

    def _own_queues(self, topic: str, queue_id: int, chance: int) -> list[tuple[str, int]]:
        config = self._state.topic(topic)
        count = config.read_queue_nums if config is not None else 0
        return [(topic, (chance + n) % count) for n in range(count)] if queue_id < 0 else [(topic, queue_id)]

    def _retry_queues(self, topic: str, group: str, chance: int) -> list[tuple[str, int]]:
        """Queues of the retry topic whose turn it is."""
        newer = self.settings.newer_retry_topics
        older = newer and self.settings.older_too and chance % 2 == 0
        return self._own_queues(retry_topic(topic, group, newer=newer and not older), -1, chance)

    def _from_queue(self, request: PopRequest, topic: str, queue_id: int, popped: PopResult) -> None:
        reading, group = self._reading, request.group
        offset = self._offset(topic, group, queue_id, request.start)
        if request.ordered and self._orders.is_blocked(topic, group, queue_id, request.attempt, request.invisible_time):
            return
        room = request.most - popped.count
        if room <= 0:
            popped.rest += reading.max_offset(topic, queue_id) - offset
            return
        pulled = reading.pull(topic, queue_id, offset, room, request.accept)
        if pulled.status in MOVED:
            offset = pulled.next_begin_offset
            self._state.set_offset(topic, group, queue_id, offset)
            pulled = reading.pull(topic, queue_id, offset, room, request.accept)
        if pulled.messages:
            self._hand_out(request, topic, queue_id, offset, pulled, popped)
        elif pulled.status in _NOTHING_WANTED and pulled.next_begin_offset >= 0:
            self._state.set_offset(topic, group, queue_id, pulled.next_begin_offset)
        popped.rest += pulled.max_offset - pulled.next_begin_offset

    def _hand_out(
        self,
        request: PopRequest,
        topic: str,
        queue_id: int,
        offset: int,
        result: GetResult[memoryview],
        popped: PopResult,
    ) -> None:
        offsets = tuple(offset_in(topic, message) for message in result.messages)
        group, origin = request.group, origin_of(topic)
        if request.ordered:
            counts, least = self._orders.pop(
                topic,
                group,
                queue_id,
                attempt=request.attempt,
                pop_time=popped.pop_time,
                invisible_time=request.invisible_time,
                queue_offsets=offsets,
            )
            popped.order_counts.append(count_info(origin, queue_id, counts.items(), least))
            self._state.set_offset(topic, group, queue_id, offset)
        else:
            # after a kill, checkpoints of an unknown group would be dropped, and its messages would not come back
            self._state.save_groups()
            point = pop.CheckPoint(
                topic=topic,
                group=group,
                queue_id=queue_id,
                start_offset=offset,
                pop_time=popped.pop_time,
                broker_name=self._broker_name,
                invisible_time=request.invisible_time,
                count=len(offsets),
                distances=tuple(each - offset for each in offsets),
            )
            stored = self._records.put(point, popped.revive_queue, point.visible_time)
            if not stored.ok:
                self._failed(f"{topic} queue {queue_id}: nothing is handed out to {group}: {stored.reason}")
                popped.rest += len(offsets)
                popped.failed = True
                return
            self._state.set_offset(topic, group, queue_id, result.next_begin_offset)
        popped.parts.append(HandleQueue(origin, queue_id, offset, offsets))
        if topic == request.topic or self.settings.actual_topic:
            popped.messages += result.messages
        else:
            popped.messages += (self._rename(data, request, offset, popped) for data in result.messages)

    def _rename(self, data: memoryview, request: PopRequest, start: int, popped: PopResult) -> bytes | memoryview:
        """A message of a retry topic, rewritten as one of the requested topic, with its handle as a property."""
        record = read(data, 0, len(data), crc=False)
        if not isinstance(record, Record):
            return data
        properties = parse(record.properties)
        handle = Handle(
            start_offset=start,
            pop_time=popped.pop_time,
            invisible_time=request.invisible_time,
            revive_queue=popped.revive_queue,
            origin=origin_of(record.topic.decode("utf-8", "replace")),
            broker_name=self._broker_name,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
        )
        properties.setdefault(POP_CK, handle.text)
        name = request.topic.encode("utf-8", "surrogateescape")
        try:
            return rebuild(record, topic=name, properties=build(properties))
        except FormatError:
            return data  # no room for the handle in its properties: the client builds it from the lists

    # -- where a group is ---------------------------------------------------------------------------------------------

    def _offset(self, topic: str, group: str, queue_id: int, start: int) -> int:
        """Offset of the next message to deliver; stored if the group is new."""
        reset = self._resets.pop((topic, group, queue_id), None)
        if reset is not None:
            self._orders.clear(topic, group, queue_id)
            self._state.set_offset(topic, group, queue_id, reset)
            return reset
        offset = self._state.offset(topic, group, queue_id)
        if offset is None or offset < 0:
            offset = self._first(topic, queue_id, start)
            self._state.set_offset(topic, group, queue_id, offset)
        return offset

    def _first(self, topic: str, queue_id: int, start: int) -> int:
        low = self._reading.min_offset(topic, queue_id)
        if start == FROM_MIN or topic.startswith(RETRY_PREFIX):
            return low
        high = self._reading.max_offset(topic, queue_id)
        if self.settings.from_memory and low <= 0 and high and self._reading.in_memory(topic, queue_id, 0):
            return 0
        return max(high - 1, 0)

    # -- looking only -------------------------------------------------------------------------------------------------

    def waits(
        self, topic: str, group: str, queue_id: int, *, ordered: bool = False, attempt: str | None = None
    ) -> bool:
        """Whether a pop would find messages."""
        return any(
            self._reading.max_offset(name, queue) > self._known_offset(name, group, queue)
            and not (ordered and self._orders.is_blocked(name, group, queue, attempt, 0))
            for name, queue in self._queues(topic, group, queue_id, ordered=ordered)
        )

    def _queues(self, topic: str, group: str, queue_id: int, *, ordered: bool) -> Iterable[tuple[str, int]]:
        yield from self._own_queues(topic, queue_id, 0)
        if not ordered:
            for name in self.retry_topics(topic, group):
                yield from self._own_queues(name, -1, 0)

    def retry_topics(self, topic: str, group: str) -> list[str]:
        """Retry topics that a pop of a topic also reads."""
        newer = self.settings.newer_retry_topics
        forms = [True, False] if newer and self.settings.older_too else [newer]
        return [retry_topic(topic, group, newer=form) for form in forms]

    def _known_offset(self, topic: str, group: str, queue_id: int) -> int:
        offset = self._state.offset(topic, group, queue_id)
        return self._reading.min_offset(topic, queue_id) if offset is None or offset < 0 else offset

    def peek(self, topic: str, group: str, queue_id: int, most: int) -> tuple[list[memoryview], int]:
        """(messages that a pop would get, number of waiting messages), without changing anything."""
        chance = self._random.randrange(100)
        retry, own = self._retry_queues(topic, group, chance), self._own_queues(topic, queue_id, chance)
        messages: list[memoryview] = []
        rest = 0
        for name, queue in [*retry, *own] if chance % 5 == 0 else [*own, *retry]:
            offset = self._known_offset(name, group, queue)
            rest += self._reading.max_offset(name, queue) - offset
            if len(messages) < most:
                pulled = self._reading.pull(name, queue, offset, most - len(messages))
                if pulled.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY):
                    pulled = self._reading.pull(name, queue, pulled.next_begin_offset, most - len(messages))
                messages += pulled.messages
        return messages, rest
