"""Which clients subscribe to which lite topics, in memory only.

Source: broker.lite.LiteSubscriptionRegistryImpl (5.5.0).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from formats.model.groups import SubscriptionGroup
from rmqtool.rules.kinds import LiteGroup, lite_names

_NONE = LiteGroup(
    topic=None, exclusive=False, resets_excluded=False, resets_unsubscribed=False, wildcard=False, most_events=None
)


class TooManySubscriptions(Exception):
    """The broker has as many subscriptions as it may have."""


class NotForThisGroup(Exception):
    """A group whose clients share all lite topics cannot subscribe to single ones."""


@dataclass(slots=True)
class LiteSubscription:
    """What one client subscribes to.

    Attributes:
        queues: its light queues; of a group that shares all, one name that stands for them.
        updated: ms since the epoch.
    """

    group: str
    topic: str
    queues: dict[str, None] = field(default_factory=dict)
    updated: int = 0


class LiteSubscriptions:
    """All subscriptions of a broker.

    Args:
        most: how many there may be, each of one client to one lite topic.
        registered: called with (client, group, queue) after a client has subscribed.
        left: called with the same after it has not any more.
        excluded: called with the same after another client has taken its lite topic.
        reset: called with (group, queue) if the group begins with the first message again.
    """

    def __init__(
        self,
        groups: Callable[[], Mapping[str, SubscriptionGroup]],
        clock: Callable[[], int],
        *,
        most: int,
        registered: Callable[[str, str, str], None],
        left: Callable[[str, str, str], None],
        excluded: Callable[[str, str, str], None],
        reset: Callable[[str, str], None],
    ) -> None:
        self._groups, self._clock, self._most = groups, clock, most
        self._registered, self._left, self._excluded, self._reset = registered, left, excluded, reset
        self._clients: dict[str, LiteSubscription] = {}
        self._members: dict[str, dict[tuple[str, str], None]] = {}  # by queue: (client, group)
        self.count = 0

    def kind(self, group: str) -> LiteGroup:
        """What a group says about lite topics; as one of another kind if it does not exist."""
        config = self._groups().get(group)
        return _NONE if config is None else LiteGroup.of(config)

    def of(self, client: str) -> LiteSubscription | None:
        """What a client subscribes to."""
        return self._clients.get(client)

    def clients_of(self, group: str) -> list[str]:
        """The clients of a group."""
        return [client for client, found in self._clients.items() if found.group == group]

    # -- changes ------------------------------------------------------------------------------------------------------

    def add(self, client: str, group: str, topic: str, queues: Iterable[str], begin: Callable[[str], None]) -> None:
        """Subscribe to further lite topics.

        Args:
            begin: called with each queue before its messages are handed out.

        Raises:
            TooManySubscriptions: none more is possible.
            NotForThisGroup: the group shares all lite topics.
        """
        if self.count >= self._most:
            raise TooManySubscriptions(f"lite subscription quota exceeded {self._most}")
        kind = self.kind(group)
        if kind.wildcard:
            raise NotForThisGroup("subscribe lite operation is not supported for this group")
        subscription = self._subscription(client, group, topic)
        for queue in queues:
            subscription.queues[queue] = None
            subscription.updated = self._clock()
            if kind.exclusive:
                self._exclude(client, group, queue, reset=kind.resets_excluded)
            begin(queue)
            self._join(client, subscription.group, queue)

    def remove(self, client: str, group: str, topic: str, queues: Iterable[str]) -> None:
        """Unsubscribe from some lite topics."""
        subscription, reset = self._subscription(client, group, topic), self.kind(group).resets_unsubscribed
        for queue in queues:
            subscription.queues.pop(queue, None)
            subscription.updated = self._clock()
            self._leave(client, subscription.group, queue, reset=reset)

    def set(self, client: str, group: str, topic: str, queues: Iterable[str]) -> None:
        """Subscribe to exactly these lite topics."""
        wanted = dict.fromkeys([shared_name(topic, group)] if self.kind(group).wildcard else queues)
        subscription = self._subscription(client, group, topic)
        for queue in [queue for queue in subscription.queues if queue not in wanted]:
            del subscription.queues[queue]
            self._leave(client, subscription.group, queue, reset=False)
        subscription.updated = self._clock()
        for queue in wanted:
            subscription.queues[queue] = None
            self._join(client, subscription.group, queue)

    def drop(self, client: str) -> LiteSubscription | None:
        """Forget a client; returns what it subscribed to."""
        subscription = self._clients.pop(client, None)
        if subscription is not None:
            for queue in subscription.queues:
                self._leave(client, subscription.group, queue, reset=False)
        return subscription

    def find_silent(self, longest: int) -> list[str]:
        """Clients that have not renewed their subscription for so many ms."""
        since = self._clock() - longest
        return [client for client, found in self._clients.items() if found.updated < since]

    def _subscription(self, client: str, group: str, topic: str) -> LiteSubscription:
        return self._clients.setdefault(client, LiteSubscription(group, topic, updated=self._clock()))

    def _join(self, client: str, group: str, queue: str) -> None:
        members = self._members.setdefault(queue, {})
        if (client, group) not in members:
            members[client, group] = None
            self.count += 1
            self._registered(client, group, queue)

    def _leave(self, client: str, group: str, queue: str, *, reset: bool) -> None:
        members = self._members.get(queue, {})
        if (client, group) in members:
            del members[client, group]
            self.count -= 1
            self._left(client, group, queue)
            if reset:
                self._reset(group, queue)
        if not members:
            self._members.pop(queue, None)

    def _exclude(self, new: str, group: str, queue: str, *, reset: bool) -> None:
        """Take a lite topic from the other clients of a group."""
        for client, name in [each for each in self._members.get(queue, {}) if each[1] == group and each[0] != new]:
            subscription = self._clients.get(client)
            if subscription is not None:
                subscription.queues.pop(queue, None)
                if not subscription.queues:
                    del self._clients[client]
            self._excluded(client, name, queue)
            self._leave(client, name, queue, reset=reset)

    # -- who gets it --------------------------------------------------------------------------------------------------

    def subscribers(self, queue: str, group: str | None = None) -> dict[str, list[str]]:
        """The clients that get a light queue's messages, by group.

        Args:
            group: only of this one.
        """
        clients: dict[str, list[str]] = {}
        for client, name in self._members.get(queue, ()):
            clients.setdefault(name, []).append(client)
        if (names := lite_names(queue)) is not None:
            for name, config in self._groups().items():
                kind = LiteGroup.of(config)
                if kind.wildcard and kind.topic == names[0] and (shared := self.sharing(names[0], name)):
                    clients.setdefault(name, shared)
        return clients if group is None else {group: clients[group]} if group in clients else {}

    def sharing(self, topic: str, group: str) -> list[str]:
        """The clients of a group that share all lite topics."""
        return [client for client, _group in self._members.get(shared_name(topic, group), ())]


def shared_name(topic: str, group: str) -> str:
    """What stands for all lite topics of a topic."""
    return f"{topic}@{group}"
