"""Hands out messages of lite topics: notes for each client which light queues have some, and pops them in order.

All of it is in memory: after a restart clients subscribe again, and begin at their group's offsets.

Source: broker.lite.LiteEventDispatcher, broker.processor.PopLiteMessageProcessor (5.5.0).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from formats.remoting.lite import MAX_POLICY, MIN_POLICY, OFFSET, POLICY, TAIL_N, OffsetOption
from formats.topics import LMQ_PREFIX
from rmqtool.rules.kinds import lite_names
from rmqtool.services.lite.subscriptions import LiteSubscriptions
from rmqtool.services.offsets.files import Key
from rmqtool.services.open_store.broker_state import BrokerState, setting
from rmqtool.services.open_store.reading import Reading
from rmqtool.services.popping.ordered import QueueOrders
from rmqtool.services.popping.popping import FROM_MAX, Popping, PopRequest
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout

_POLLS_EACH = 35_000  # ms within which a client asks again
_STALLED = 10_000  # ms after which a client that does not ask has left its queues to others
_AVOIDED = 10_000  # ms for which such a client gets no further queues, if there is another one


@dataclass(frozen=True, kw_only=True)
class LiteSettings:
    """A broker's settings for lite topics. Times are ms."""

    most_subscriptions: int = 100_000
    most_events: int = 100
    longest_silence: int = 180_000
    most_light_queues: int = 20_000

    @classmethod
    def of(cls, conf: BrokerConf) -> "LiteSettings":
        """The settings in the broker's file."""
        return cls(
            most_subscriptions=setting(conf, "maxLiteSubscriptionCount", 100_000),
            most_events=setting(conf, "maxClientEventCount", 100),
            longest_silence=setting(conf, "liteSubscriptionCheckTimeoutMills", 180_000),
            most_light_queues=setting(conf, "maxLmqConsumeQueueNum", 20_000),
        )


@dataclass(slots=True)
class _Events:
    """The queues with messages that a client has not asked for since.

    Attributes:
        asked: when it asked last; ms since the epoch.
    """

    group: str
    asked: int
    queues: dict[str, None] = field(default_factory=dict)


class LitePopped(NamedTuple):
    """The result of a pop.

    Attributes:
        counts: how often each message was consumed before, as ``orderCountInfo`` of a pop of lite topics.
    """

    pop_time: int
    messages: list[bytes | memoryview]
    counts: str


class LiteService:
    """The lite topics of one broker.

    Args:
        popping: pops with ``orders``.
        orders: the last pops from light queues.
        resets: pending offset resets by topic, group and queue id.
        wake: called with a client that should ask again; returns whether it was waiting.
        excluded: called with (client, group, queue) after another client has taken its lite topic.
    """

    def __init__(
        self,
        layout: StoreLayout,
        reading: Reading,
        state: BrokerState,
        popping: Popping,
        orders: QueueOrders,
        *,
        resets: dict[Key, int],
        random: Random,
        wake: Callable[[str], object],
        excluded: Callable[[str, str, str], None],
    ) -> None:
        self.settings = LiteSettings.of(layout.conf)
        self._layout, self._reading, self._state, self._popping, self.orders = layout, reading, state, popping, orders
        self._resets, self._random, self._wake, self._clock = resets, random, wake, state.clock
        self._events: dict[str, _Events] = {}
        self._avoided: dict[str, int] = {}  # client → until when
        self._again: dict[str, None] = {}  # groups with queues for which no client had room
        self.subscriptions = LiteSubscriptions(
            lambda: state.groups,
            state.clock,
            most=self.settings.most_subscriptions,
            registered=self._register,
            left=self._forget,
            excluded=excluded,
            reset=self._begin_again,
        )

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def begin(self, group: str, queue: str, option: OffsetOption | None) -> None:
        """Set where a group continues in a light queue, as a subscription says."""
        if option is None:
            return
        current, target = self.offset(group, queue), None
        if option.type == POLICY:
            target = {MIN_POLICY: 0, MAX_POLICY: self.end(queue)}.get(option.value)
        elif option.type == OFFSET:
            target = option.value
        elif option.type == TAIL_N and current >= 0:
            target = max(0, current - option.value)
        if target is not None and target != current:
            self._resets[queue, group, 0] = target
            self._state.set_offset(queue, group, 0, target)
            self.orders.clear(queue, group, 0)

    def _begin_again(self, group: str, queue: str) -> None:
        self.begin(group, queue, OffsetOption(type=POLICY, value=MIN_POLICY))

    def _register(self, _client: str, group: str, queue: str) -> None:
        if self.subscriptions.kind(group).wildcard:
            self.note_group(group)
        elif self.end(queue) > 0:
            self.note(queue, group)

    def _forget(self, client: str, _group: str, queue: str) -> None:
        """A client that has unsubscribed gets nothing more of a queue. Brokers hand it what was noted before."""
        if (events := self._events.get(client)) is not None:
            events.queues.pop(queue, None)

    def leave(self, client: str) -> None:
        """Forget a client; what was noted for it goes to others."""
        events = self._events.pop(client, None)
        self.subscriptions.drop(client)
        if events is not None:
            for queue in events.queues:
                self.note(queue, events.group)

    # -- which clients get a queue ------------------------------------------------------------------------------------

    def arrive(self, topic: str, _queue_id: int) -> None:
        """Note a queue that has a new message; others than light queues of lite topics are ignored."""
        if topic.startswith(f"{LMQ_PREFIX}$"):
            self.note(topic)

    def note(self, queue: str, group: str | None = None, *, but: str | None = None) -> None:
        """Note for one client of each group, or of one group, that a queue has messages.

        Args:
            but: a client that gets it only if there is no other one.
        """
        for name, clients in self.subscriptions.subscribers(queue, group).items():
            if not self._note_for(queue, name, clients, but):
                self._again[name] = None

    def _note_for(self, queue: str, group: str, clients: list[str], but: str | None = None) -> bool:
        now, start = self._clock(), self._random.randrange(len(clients))
        order = clients[start:] + clients[:start]
        last = [client for client in order if client == but or self._avoided.get(client, 0) > now]
        for client in [*(client for client in order if client not in last), *last]:
            events = self._events.setdefault(client, _Events(group, now))
            if queue in events.queues or len(events.queues) < self._most_events(group):
                events.queues[queue] = None
                self._wake(client)
                return True
        return False

    def _most_events(self, group: str) -> int:
        return self.subscriptions.kind(group).most_events or self.settings.most_events

    def note_group(self, group: str) -> None:
        """Note all queues with messages left for the clients of a group."""
        kind = self.subscriptions.kind(group)
        if kind.wildcard and kind.topic is not None:
            if clients := self.subscriptions.sharing(kind.topic, group):
                for queue in self.queues_of(kind.topic):
                    if self.lag(group, queue) > 0 and not self._note_for(queue, group, clients):
                        self._again[group] = None
                        return
            return
        for client in self.subscriptions.clients_of(group):
            self.note_client(client, group)

    def note_client(self, client: str, group: str) -> None:
        """Note all queues with messages left to which a client subscribes."""
        subscription = self.subscriptions.of(client)
        for queue in subscription.queues if subscription is not None else ():
            if self.lag(group, queue) > 0 and not self._note_for(queue, group, [client]):
                self._again[group] = None
                return

    def look(self) -> None:
        """Note queues whose messages have become visible again."""
        for queue, group, _queue_id in self.orders.take_freed():
            self.note(queue, group)

    def expire(self) -> None:
        """Forget clients that are gone, and give what was noted for silent ones to others."""
        for client in self.subscriptions.find_silent(self.settings.longest_silence):
            self.leave(client)
        now = self._clock()
        self._avoided = {client: until for client, until in self._avoided.items() if until > now}
        for client, events in list(self._events.items()):
            silence = now - events.asked
            if silence > _POLLS_EACH or (events.queues and silence > _STALLED):
                del self._events[client]
                self._avoided[client] = now + _AVOIDED
                for queue in events.queues:
                    self.note(queue, events.group, but=client)
        again, self._again = self._again, {}
        for group in again:
            self.note_group(group)

    # -- handing out --------------------------------------------------------------------------------------------------

    def pop(self, client: str, group: str, most: int, invisible_time: int, attempt: str | None) -> LitePopped:
        """Pop up to ``most`` messages of the queues that are noted for a client."""
        now = self._clock()
        messages: list[bytes | memoryview] = []
        counts: list[str] = []
        events = self._events.get(client)
        if events is not None:
            events.asked = now
        while events is not None and events.queues and len(messages) < most:
            queue = next(iter(events.queues))
            del events.queues[queue]
            request = PopRequest(
                topic=queue,
                group=group,
                queue_id=0,
                most=most - len(messages),
                invisible_time=invisible_time,
                start=FROM_MAX,
                ordered=True,
                attempt=attempt,
                pop_time=now,
            )
            popped = self._popping.pop(request)
            if popped.messages:
                messages += popped.messages
                counts.append(_counts(popped.order_counts[0], popped.count))
        return LitePopped(now, messages, ";".join(counts))

    # -- where a group is ---------------------------------------------------------------------------------------------

    def offset(self, group: str, queue: str) -> int:
        """Offset at which a group continues in a light queue; -1 if it has never read it."""
        offset = self._state.offset(queue, group, 0)
        return -1 if offset is None else offset

    def end(self, queue: str) -> int:
        """Offset after the last message of a light queue; 0 without one."""
        return max(self._reading.max_offset(queue, 0), 0)

    def lag(self, group: str, queue: str) -> int:
        """How many messages of a light queue a group has left."""
        return self.end(queue) - max(self.offset(group, queue), 0)

    def queues_of(self, topic: str) -> list[str]:
        """All light queues of a topic."""
        prefix = f"{LMQ_PREFIX}${topic}$"
        return [name for name, _id, _path in self._layout.each_queue_dir(prefix=prefix) if lite_names(name) is not None]

    @property
    def clients(self) -> int:
        """How many clients have something noted."""
        return len(self._events)

    def asked(self, client: str) -> int:
        """When a client asked last, ms since the epoch; -1 if nothing was ever noted for it."""
        events = self._events.get(client)
        return -1 if events is None else events.asked


def _counts(text: str, messages: int) -> str:
    """``orderCountInfo`` of one queue, as a pop of lite topics has it: an item for each message."""
    items = text.split(";")
    if len(items) > 1:
        return ";".join(items[:-1])
    fields = text.split(" ")
    return ";".join([fields[2] if len(fields) == 3 else "0"] * messages)


def queue_names(topic: str, lite_topics: Iterable[str]) -> list[str]:
    """The light queues of lite topics."""
    return [f"{LMQ_PREFIX}${topic}${name}" for name in lite_topics if name]
