"""POP of a store that is only read: what was handed out is kept in memory.

A group's offset, which the owner persists, stays before its first message that is not acked: after a restart messages
come again, and none is missed. Messages that nobody acks in time are handed out again from their own queue, as nothing
can be stored in a retry topic. So are those that a broker had handed out before, and that were not acked.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.variants import pop
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.rules.statuses import GetStatus
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.get_message import GetResult
from rmqtool.services.offsets.files import Key
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.reading import Reading
from rmqtool.services.open_store.store import Store
from rmqtool.services.popping.assigning import RequestModes
from rmqtool.services.popping.finishing import Finishing
from rmqtool.services.popping.in_flight import MessagesInFlight
from rmqtool.services.popping.ordered import OrderedPops
from rmqtool.services.popping.popping import Popping, PopRequest, PopResult, queue_offset_of
from rmqtool.services.popping.service import PopBroker
from rmqtool.services.popping.settings import PopSettings
from rmqtool.store.append.answers import PutResult, PutStatus
from rmqtool.store.log.commit_log import CommitLog

_NO_LIMIT = 2**63 - 1


class _Held:
    """Where groups are, and what they hold: takes the place of the tables and of stored checkpoints and acks."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._positions: dict[Key, int] = {}  # next offset to hand out
        self._committed: dict[Key, int] = {}  # offset given to the tables
        self._began: dict[Key, int] = {}  # what is before it was handed out by a broker
        self._points: dict[pop.PopKey, pop.CheckPoint] = {}
        self._left: dict[Key, dict[pop.PopKey, set[int]]] = defaultdict(dict)  # what is not acked of each
        self.returned: dict[Key, set[int]] = defaultdict(set)  # to be handed out again

    # -- as the tables ------------------------------------------------------------------------------------------------

    @property
    def groups(self) -> Mapping[str, SubscriptionGroup]:
        """See :class:`BrokerState`."""
        return self._state.groups

    def topic(self, name: str) -> TopicConfig | None:
        """See :class:`BrokerState`."""
        return self._state.topic(name)

    def save_groups(self) -> None:
        """Do nothing: groups stay in memory, too."""

    def offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Offset of the next message to hand out."""
        key, offset = (topic, group, queue_id), self._state.offset(topic, group, queue_id)
        if key in self._committed and offset != self._committed[key]:  # a client has set it
            self._forget(key)
        return self._positions.get(key, offset)

    def set_offset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set it; a lower one means that the group begins there again."""
        key = topic, group, queue_id
        if offset < self._positions.get(key, offset):
            self._forget(key)
        self._began.setdefault(key, offset)
        self._positions[key] = offset
        self._commit(key)

    def _forget(self, key: Key) -> None:
        for name in self._left.pop(key, {}):
            del self._points[name]
        for table in (self._positions, self._committed, self._began, self.returned):
            table.pop(key, None)

    def _commit(self, key: Key) -> None:
        """Give the tables the offset of the first message that is not acked."""
        began, sets = self._began[key], [*self._left.get(key, {}).values(), self.returned.get(key, set())]
        lowest = min((offset for offsets in sets for offset in offsets if offset >= began), default=_NO_LIMIT)
        self._committed[key] = min(self._positions[key], lowest)
        self._state.set_offset(*key, self._committed[key])

    # -- as stored records --------------------------------------------------------------------------------------------

    def put(self, record: pop.CheckPoint | pop.Ack, revive_queue: int, visible_time: int) -> PutResult:
        """Keep a checkpoint, or apply an ack to its checkpoint."""
        key = record.topic, record.group, record.queue_id
        if isinstance(record, pop.CheckPoint):
            position = self.offset(*key)
            self._positions.setdefault(key, record.start_offset if position is None else position)
            self._began.setdefault(key, self._positions[key])
            self._points[record.key] = record
            self._left[key][record.key] = set(record.queue_offsets)
            self.returned[key].difference_update(record.queue_offsets)
        elif record.key in self._points:
            left = self._left[key][record.key]
            left.difference_update(record.queue_offsets)
            if not left:
                del self._points[record.key], self._left[key][record.key]
            self._commit(key)
        return PutResult(PutStatus.PUT_OK)

    def take_due(self, now: int) -> set[Key]:
        """Take back what was not acked in time; returns the queues that have some of it."""
        places = set()
        for name, point in [(name, point) for name, point in self._points.items() if point.visible_time <= now]:
            key = point.topic, point.group, point.queue_id
            del self._points[name]
            self.returned[key] |= self._left[key].pop(name)
            places.add(key)
        return places

    def take_over(self, topic: str, group: str, queue_id: int, offsets: set[int]) -> None:
        """Take over what a broker had handed out, and nobody has acked."""
        self.returned[topic, group, queue_id] |= offsets


class _Popping(Popping):
    """Hands out again, first, what was not acked in time."""

    def __init__(self, held: _Held, reading: Reading, orders: OrderedPops, settings: PopSettings, name: str, *,
                 clock: Callable[[], int], random: Random, resets: dict[Key, int], failed: Warn) -> None:  # fmt: skip
        super().__init__(
            reading, held, held, orders, settings, name, clock=clock, random=random, resets=resets, failed=failed
        )
        self._held = held

    def _from_queue(self, request: PopRequest, topic: str, queue_id: int, popped: PopResult) -> None:
        back = self._held.returned.get((topic, request.group, queue_id))
        room = request.most - popped.count
        if request.ordered or not back or room <= 0:
            super()._from_queue(request, topic, queue_id, popped)
            return
        offset = self._offset(topic, request.group, queue_id, request.start)
        messages, end = [], self._reading.max_offset(topic, queue_id)
        for each in sorted(back)[:room]:
            pulled = self._reading.pull(topic, queue_id, each, 1, request.accept)
            if pulled.messages and queue_offset_of(pulled.messages[0]) == each:
                messages += pulled.messages
            else:
                back.discard(each)  # the log has it no more, or the group does not want it any more
        popped.rest += end - offset + len(back) - len(messages)
        if messages:
            first = min(back)
            result = GetResult(GetStatus.FOUND, offset, 0, end, messages)
            self._hand_out(request, topic, queue_id, first, result, popped)

    def waits(
        self, topic: str, group: str, queue_id: int, *, ordered: bool = False, attempt: str | None = None
    ) -> bool:
        again = any(self._held.returned.get((name, group, number)) for name, number in
                    self._queues(topic, group, queue_id, ordered=ordered))  # fmt: skip
        return again or super().waits(topic, group, queue_id, ordered=ordered, attempt=attempt)


class MemoryPops:
    """As :class:`rmqtool.services.popping.service.PopService`, for a store that is only read."""

    def __init__(
        self,
        store: Store,
        reading: Reading,
        state: BrokerState,
        broker: PopBroker,
        warn: Warn,
        *,
        resets: dict[Key, int],
        random: Random | None = None,
    ) -> None:
        self._broker, self._clock = broker, state.clock
        self.settings = settings = replace(PopSettings.of(store.layout.conf), timer=True)
        self.modes = RequestModes(state, settings, pull_only=True)
        self.records = self._held = held = _Held(state)
        try:
            in_flight = MessagesInFlight(CommitLog(store.layout), self._clock(), warn).find_handed_out()
        except (CorruptFile, MissingRuntime, UnreadableStore) as err:
            in_flight = {}
            warn(f"what a broker had handed out, and nobody has acked, is not known, and not handed out again: {err}")
        for (topic, group, queue_id), offsets in in_flight.items():
            kept = {offset for offset, handed in offsets.items() if handed.kind != "ordered"}
            if kept:
                held.take_over(topic, group, queue_id, kept)
        self.orders = OrderedPops(state, self._clock)
        self.popping = _Popping(
            held, reading, self.orders, settings, broker.name,
            clock=self._clock, random=random or Random(), resets=resets, failed=warn,
        )  # fmt: skip
        self.finishing = Finishing(held, held, self.orders, clock=self._clock, resets=resets, freed=broker.freed)

    def step(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Take back what is due."""
        for place in self.orders.take_freed():
            self._broker.freed(*place)
        for topic, _group, queue_id in self._held.take_due(self._clock()):
            self._broker.arrived(topic, queue_id)
