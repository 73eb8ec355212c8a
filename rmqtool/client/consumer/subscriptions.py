"""What a consumer reads: topics, and queues with where it is in them (impl.consumer.RebalanceImpl, FilterAPI)."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from formats.primitives import java_hash
from formats.remoting.shapes import ConsumerData, MessageQueue, SubscriptionData
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.consumer.listener import Counts
from rmqtool.client.consumer.offsets import LocalOffsets, RemoteOffsets
from rmqtool.client.consumer.options import FlowLimits, PollOptions, PushOptions, Sql
from rmqtool.client.consumer.puller import Puller


def tags_of(expression: str) -> list[str]:
    """The tags of an expression like ``created || paid``; none for ``*``, which is all messages.

    Raises:
        ValueError: it has ``||`` and no tag.
    """
    text = expression.strip()
    if text in ("", "*"):
        return []
    tags = [part.strip() for part in text.split("||") if part.strip()]
    if not tags:
        raise ValueError(f"{expression!r}: no tag")
    return list(dict.fromkeys(tags))


def wanted_of(expression: str) -> tuple[list[str], str | None]:
    """The tags that an expression of a subscription has, or the SQL92 expression that it is.

    Raises:
        ValueError: it has ``||`` and no tag.
    """
    return ([], str(expression)) if isinstance(expression, Sql) else (tags_of(expression), None)


def subscription_data(topic: str, tags: Collection[str], version: int, sql: str | None = None) -> SubscriptionData:
    """A subscription as heartbeats carry it.

    Args:
        sql: an expression in the place of tags.
        version: when it was made, in ms; of two, brokers keep the newer one.
    """
    if sql is not None:
        return SubscriptionData(topic, sql, sub_version=version, expression_type="SQL92")
    return SubscriptionData(
        topic, " || ".join(tags) or "*", list(tags), [java_hash(tag) for tag in tags], sub_version=version
    )


@dataclass
class Subscription:
    """A topic that is read.

    Attributes:
        puller: asks for the messages that are wanted.
        tags, sql: which messages those are.
        data: the same, for heartbeats.
        optional: the topic need not exist.
        sent_to: of a retry topic of popped messages: the topic that they were sent to.
        limits: what may wait in each queue, where the topic has limits of its own.
        pulled: messages that were pulled or popped.
    """

    puller: Puller
    tags: Sequence[str]
    sql: str | None
    data: SubscriptionData
    optional: bool = False
    sent_to: str | None = None
    limits: FlowLimits | None = None
    pulled: Counts = field(default_factory=Counts)


@dataclass(eq=False)
class Assigned:
    """A queue that is this client's.

    Attributes:
        offset: of the next pull.
        consumed: the next offset to consume, which is kept for the group; None where it is not known yet.
        task: pulls.
    """

    queue: MessageQueue
    offset: int
    consumed: int | None = None
    task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Pull no more."""
        if self.task is not None:
            self.task.cancel()


A = TypeVar("A", bound=Assigned)


class Subscriptions(Generic[A]):
    """The topics and queues of a consumer. Everything that changes them goes through this object.

    Args:
        puller: for topics without a subscription.
        local: the file that keeps offsets; else brokers keep them.

    Attributes:
        began: when the consumer was made, in ms.
        store: keeps the group's offsets.
    """

    def __init__(self, cluster: Cluster, puller: Puller, local: LocalOffsets | None = None) -> None:
        self._cluster, self._puller = cluster, puller
        self._topics: dict[str, Subscription] = {}
        self._queues: dict[MessageQueue, A] = {}
        self.began = time.time_ns() // 1_000_000
        self.store = local or RemoteOffsets(self.puller)

    # -- topics -------------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, Subscription]:
        """Topic to its subscription."""
        return MappingProxyType(self._topics)

    def subscribe(
        self,
        topic: str,
        tags: Sequence[str] = (),
        sql: str | None = None,
        *,
        kind: type[Puller] = Puller,
        optional: bool = False,
        sent_to: str | None = None,
    ) -> None:
        """Read a topic.

        Args:
            kind: the class of its puller.

        Raises:
            ValueError: tags and an expression.
        """
        puller = kind(self._cluster, self._puller.group, tags, sql)
        data = subscription_data(topic, tags, time.time_ns() // 1_000_000, sql)
        self._topics[topic] = Subscription(puller, tags, sql, data, optional, sent_to)

    def unsubscribe(self, topic: str) -> bool:
        """Read a topic no more; whether it was read."""
        return self._topics.pop(topic, None) is not None

    def for_heartbeat(self) -> list[SubscriptionData]:
        """All topics, as heartbeats carry them."""
        return [subscription.data for subscription in self._topics.values()]

    def describe(self, kind: str, options: PushOptions | PollOptions) -> ConsumerData:
        """The consumer, as heartbeats carry it."""
        model = "BROADCASTING" if options.broadcasting else "CLUSTERING"
        return ConsumerData(self._puller.group, kind, model, options.start.value, self.for_heartbeat())

    def puller(self, topic: str) -> Puller:
        """What asks for the messages and offsets of a topic."""
        known = self._topics.get(topic)
        return self._puller if known is None else known.puller

    # -- queues -------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> Mapping[MessageQueue, A]:
        """The queues that are this client's."""
        return MappingProxyType(self._queues)

    def of_topic(self, topic: str) -> list[A]:
        """This client's queues of a topic."""
        return [assigned for queue, assigned in self._queues.items() if queue.topic == topic]

    def holds(self, assigned: Assigned) -> bool:
        """Whether a queue is still this client's, and has not begun at another offset meanwhile."""
        return self._queues.get(assigned.queue) is assigned

    def assign(self, assigned: A) -> None:
        """Have a queue, in the place of what it was before."""
        self._queues[assigned.queue] = assigned

    def revoke(self, queue: MessageQueue) -> A | None:
        """Leave a queue to others; what it was."""
        return self._queues.pop(queue, None)

    def revoke_all(self) -> None:
        """Leave all queues to others."""
        self._queues.clear()

    # -- positions ----------------------------------------------------------------------------------------------------

    def next_offsets(self) -> dict[MessageQueue, int]:
        """Queue to the next offset to consume, where that is known."""
        known = ((queue, assigned.consumed) for queue, assigned in self._queues.items())
        return {queue: offset for queue, offset in known if offset is not None}

    async def keep(self, *some: A) -> None:
        """Keep the group's offsets in some queues, by default in all.

        Queues come and go meanwhile: of one that is another member's by then nothing may be written.
        """
        if isinstance(self.store, LocalOffsets):
            known = {held.queue: held.consumed for held in some or self._queues.values() if held.consumed is not None}
            if known:
                await self.store.write(known)
            return
        for held in some or list(self._queues.values()):
            if held.consumed is not None and (some or self.holds(held)):
                await self.store.write({held.queue: held.consumed})
