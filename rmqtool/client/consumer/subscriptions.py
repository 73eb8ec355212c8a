"""Subscribed topics, and assigned queues with their positions (impl.consumer.RebalanceImpl, FilterAPI)."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from formats.primitives import java_hash
from formats.remoting.shapes import ConsumerData, MessageQueue, SubscriptionData
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.consumer.listener import ConsumeCounts
from rmqtool.client.consumer.offsets import LocalOffsets, RemoteOffsets
from rmqtool.client.consumer.options import FlowLimits, PollOptions, PushOptions, Sql
from rmqtool.client.consumer.puller import Puller


def tags_of(expression: str) -> list[str]:
    """The tags of an expression like ``created || paid``; empty for ``*``, which means all messages.

    Raises:
        ValueError: it has ``||`` but no tag.
    """
    text = expression.strip()
    if text in ("", "*"):
        return []
    tags = [part.strip() for part in text.split("||") if part.strip()]
    if not tags:
        raise ValueError(f"{expression!r}: no tag")
    return list(dict.fromkeys(tags))


def wanted_of(expression: str) -> tuple[list[str], str | None]:
    """(tags, SQL92 expression) of a subscription's expression; only one of them is given.

    Raises:
        ValueError: it has ``||`` but no tag.
    """
    return ([], str(expression)) if isinstance(expression, Sql) else (tags_of(expression), None)


def subscription_data(topic: str, tags: Collection[str], version: int, sql: str | None = None) -> SubscriptionData:
    """A subscription for heartbeats.

    Args:
        sql: an expression instead of tags.
        version: when it was created, in ms; brokers keep the newer one.
    """
    if sql is not None:
        return SubscriptionData(topic, sql, sub_version=version, expression_type="SQL92")
    return SubscriptionData(
        topic, " || ".join(tags) or "*", list(tags), [java_hash(tag) for tag in tags], sub_version=version
    )


@dataclass
class Subscription:
    """A subscribed topic.

    Attributes:
        puller: pulls its messages.
        tags, sql: the filter.
        data: the subscription for heartbeats.
        optional: the topic need not exist.
        sent_to: for a retry topic of popped messages: their original topic.
        limits: limits of each queue, if the topic has its own.
        pulled: statistics of pulled or popped messages.
    """

    puller: Puller
    tags: Sequence[str]
    sql: str | None
    data: SubscriptionData
    optional: bool = False
    sent_to: str | None = None
    limits: FlowLimits | None = None
    pulled: ConsumeCounts = field(default_factory=ConsumeCounts)


@dataclass(eq=False)
class Assigned:
    """A queue assigned to this client.

    Attributes:
        offset: offset of the next pull.
        consumed: the next offset to consume, which is committed for the group; None if not known yet.
        task: the pulling task.
    """

    queue: MessageQueue
    offset: int
    consumed: int | None = None
    task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stop pulling."""
        if self.task is not None:
            self.task.cancel()


A = TypeVar("A", bound=Assigned)


class Subscriptions(Generic[A]):
    """The topics and queues of a consumer. All changes go through this object.

    Args:
        puller: puller for topics without a subscription.
        local: file that stores offsets; by default brokers store them.

    Attributes:
        began: when the consumer was created, in ms.
        store: stores the group's offsets.
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
        """Topic → subscription."""
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
        """Subscribe to a topic.

        Args:
            kind: the class of its puller.

        Raises:
            ValueError: both tags and an expression.
        """
        puller = kind(self._cluster, self._puller.group, tags, sql)
        data = subscription_data(topic, tags, time.time_ns() // 1_000_000, sql)
        self._topics[topic] = Subscription(puller, tags, sql, data, optional, sent_to)

    def unsubscribe(self, topic: str) -> bool:
        """Unsubscribe from a topic; returns whether it was subscribed."""
        return self._topics.pop(topic, None) is not None

    def for_heartbeat(self) -> list[SubscriptionData]:
        """All subscriptions, for heartbeats."""
        return [subscription.data for subscription in self._topics.values()]

    def describe(self, kind: str, options: PushOptions | PollOptions) -> ConsumerData:
        """The consumer's data for heartbeats."""
        model = "BROADCASTING" if options.broadcasting else "CLUSTERING"
        return ConsumerData(self._puller.group, kind, model, options.start.value, self.for_heartbeat())

    def puller(self, topic: str) -> Puller:
        """The puller of a topic."""
        subscription = self._topics.get(topic)
        return self._puller if subscription is None else subscription.puller

    # -- queues -------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> Mapping[MessageQueue, A]:
        """The queues assigned to this client."""
        return MappingProxyType(self._queues)

    def of_topic(self, topic: str) -> list[A]:
        """This client's queues of a topic."""
        return [assigned for queue, assigned in self._queues.items() if queue.topic == topic]

    def holds(self, assigned: Assigned) -> bool:
        """Whether a queue is still assigned to this client, and was not restarted at another offset."""
        return self._queues.get(assigned.queue) is assigned

    def assign(self, assigned: A) -> None:
        """Add a queue, replacing its previous state."""
        self._queues[assigned.queue] = assigned

    def revoke(self, queue: MessageQueue) -> A | None:
        """Remove a queue; returns its state."""
        return self._queues.pop(queue, None)

    def revoke_all(self) -> None:
        """Remove all queues."""
        self._queues.clear()

    # -- positions ----------------------------------------------------------------------------------------------------

    def next_offsets(self) -> dict[MessageQueue, int]:
        """Queue → next offset to consume, if known."""
        positions = ((queue, assigned.consumed) for queue, assigned in self._queues.items())
        return {queue: offset for queue, offset in positions if offset is not None}

    async def keep(self, *some: A) -> None:
        """Commit the group's offsets of some queues, by default of all.

        Assignments may change meanwhile: nothing must be written for a queue that has moved to another member.
        """
        if isinstance(self.store, LocalOffsets):
            offsets = {held.queue: held.consumed for held in some or self._queues.values() if held.consumed is not None}
            if offsets:
                await self.store.write(offsets)
            return
        for held in some or list(self._queues.values()):
            if held.consumed is not None and (some or self.holds(held)):
                await self.store.write({held.queue: held.consumed})
