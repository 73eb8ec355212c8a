"""Queues as brokers assign them: pulled or popped, and from one to the other (impl.consumer.RebalanceImpl; 5.x)."""

from collections.abc import Callable
from dataclasses import dataclass

from formats.remoting.shapes import SubscriptionData
from formats.topics import RETRY_PREFIX
from formats.variants.pop_handle import retry_topic
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consuming.feeding import Feeding
from rmqtool.client.consuming.holding import Holding
from rmqtool.client.consuming.sharing import subscription
from rmqtool.client.popping.assigning import Assigning
from rmqtool.client.popping.popping import Popping
from rmqtool.client.pulling.pull import Puller


@dataclass
class ByBrokers:
    """Has the queues that brokers assign.

    Messages that were popped before a group went over to pulling come again in a retry topic for each topic: that one
    is consumed as well, as long as the group pulls.

    Args:
        pullers: topic to who pulls its queues; changed.
        wanted: what heartbeats say; changed.
        began: when the consumer was made, in ms.
        may_miss: topics that need not be there; changed.
        changed: told that there is a topic more to be looked at.
    """

    cluster: Cluster
    group: str
    assigning: Assigning
    holding: Holding
    feeding: Feeding
    popping: Popping
    pullers: dict[str, Puller]
    wanted: list[SubscriptionData]
    began: int
    may_miss: set[str]
    changed: Callable[[], None]

    async def look(self, route: Route) -> bool | None:
        """Ask for the queues of a topic and have them; whether that is so now. None where clients share by themselves.

        Raises:
            ClientError, RemotingError: no broker says; what this client has stays.
        """
        topic = route.topic
        assigned = await self.assigning.of(route)
        if assigned is None:
            return None
        self.popping.leave(topic, assigned.popped)
        balanced = await self.holding.apply(topic, assigned.pulled)
        self.popping.take(assigned.popped)
        if not topic.startswith(RETRY_PREFIX):
            if assigned.popped:
                await self._forget_retries(topic)
            elif assigned.pulled:
                self._want_retries(topic)
        return balanced

    def _want_retries(self, topic: str) -> None:
        for retries in self._retries_of(topic):
            if retries not in self.pullers:
                self.may_miss.add(retries)
                self.feeding.first_topics[retries] = topic
                self.pullers[retries] = Puller(self.cluster, self.group)
                self.wanted.append(subscription(retries, [], self.began))
                self.changed()

    async def _forget_retries(self, topic: str) -> None:
        for retries in self._retries_of(topic):
            if retries in self.pullers and await self.holding.apply(retries, ()):
                del self.pullers[retries]
                self.wanted[:] = [one for one in self.wanted if one.topic != retries]
                self.cluster.forget_route(retries)

    def _retries_of(self, topic: str) -> list[str]:
        """By their older and newer names; brokers write to one of them."""
        return [retry_topic(topic, self.group), retry_topic(topic, self.group, newer=True)]
