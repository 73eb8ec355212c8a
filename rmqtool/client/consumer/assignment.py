"""Which queues of a group's topics are this client's (impl.consumer.RebalanceImpl)."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Set
from dataclasses import dataclass

from formats.primitives import java_hash
from formats.remoting import headers as h
from formats.remoting.bodies import AssignmentRequest, AssignmentResponse, ConsumerIds
from formats.remoting.codes import RequestCode, RequestMode, ResponseCode
from formats.remoting.shapes import MessageQueue, SubscriptionData
from formats.remoting.typed import body_of
from formats.topics import RETRY_PREFIX
from formats.variants.pop_handle import retry_topic
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError, NoRoute
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consumer.fetcher import Feeding
from rmqtool.client.consumer.pop import Popping
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.consumer.queues import Holding
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.rebalance import BadAllocation, Strategy, sort

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Assigned:
    """The queues of a topic that are this client's.

    Attributes:
        pulled: whose messages it asks for by their offsets.
        popped: of which brokers hand out messages; -1 stands for all of a broker.
    """

    pulled: Set[MessageQueue]
    popped: Set[MessageQueue]


class Assigning:
    """Asks brokers.

    Args:
        strategy: name of the one by which they share queues out.
    """

    def __init__(self, cluster: Cluster, group: str, strategy: str) -> None:
        self._cluster, self._group, self._strategy = cluster, group, strategy
        self._unknown: set[str] = set()  # topics of brokers that know no such question

    async def of(self, route: Route) -> Assigned | None:
        """The queues of a topic; None where clients share them out by themselves, as with brokers of 4.9.

        Raises:
            ClientError, RemotingError: no broker says.
        """
        if route.topic in self._unknown:
            return None
        asked = AssignmentRequest(route.topic, self._group, self._cluster.client_id, self._strategy, "CLUSTERING")
        request = self._cluster.request(RequestCode.QUERY_ASSIGNMENT, body=body_of(asked))
        failure: ClientError | RemotingError = NoRoute(f"{route.topic}: no broker")
        for broker_name in random.sample(list(route.brokers), len(route.brokers)):
            try:
                address = self._cluster.reading_address(broker_name)
                response = await self._cluster.ask(address, request)
                return _assigned(route.topic, body_from(AssignmentResponse, response, address), address)
            except BrokerError as err:
                if err.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    log.info("%s: its brokers share no queues out", route.topic)
                    self._unknown.add(route.topic)
                    return None
                failure = err
            except (ClientError, RemotingError) as err:
                failure = err
        raise failure


def _assigned(topic: str, said: AssignmentResponse, address: str) -> Assigned:
    if said.message_queue_assignments is None:
        raise BadAnswer(f"{address}: does not say which queues of {topic} are whose")
    queues: dict[bool, set[MessageQueue]] = {True: set(), False: set()}
    for one in said.message_queue_assignments:
        if one.message_queue.topic != topic:
            raise BadAnswer(
                f"{address}: a queue of {one.message_queue.topic[:100]} where those of {topic} were asked for"
            )
        queues[one.mode == RequestMode.POP].add(one.message_queue)
    return Assigned(queues[False], queues[True])


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


def subscription(topic: str, tags: Collection[str], version: int, sql: str | None = None) -> SubscriptionData:
    """As heartbeats carry it.

    Args:
        sql: an expression in the place of tags.
        version: when it was made, in ms; of two, brokers keep the newer one.
    """
    if sql is not None:
        return SubscriptionData(topic, sql, sub_version=version, expression_type="SQL92")
    return SubscriptionData(
        topic, " || ".join(tags) or "*", list(tags), [java_hash(tag) for tag in tags], sub_version=version
    )


def share(
    strategy: Strategy, client_id: str, queues: Collection[MessageQueue], members: Collection[str]
) -> set[MessageQueue]:
    """The queues of a topic that are this client's.

    Raises:
        BadAllocation: the strategy cannot say.
    """
    names, ids = sort([QueueName(q.topic, q.broker_name, q.queue_id) for q in queues], members)
    return {MessageQueue(*name) for name in strategy(client_id, names, ids)}


_UNBALANCED_PAUSE = 1.0  # s

Apply = Callable[[str, Collection[MessageQueue]], Awaitable[bool]]
"""Is given a topic and the queues of it that are this client's; whether it has all of them now."""
AskBrokers = Callable[[Route], Awaitable[bool | None]]


class Rebalancing:
    """Looks which queues are this client's, at once where it is told that something has changed.

    Args:
        topics: those that are consumed.
        strategy: how queues are shared; None where every member has all of them.
        interval: seconds between two looks.
        by_brokers: applies what brokers say of a topic, and tells whether this client has all of its queues now; None
            where members share them by themselves.

    Attributes:
        may_miss: topics that need not be there.
        looked: set when each topic was looked at once, with or without success.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Callable[[], Iterable[str]],
        strategy: Strategy | None,
        apply: Apply,
        interval: float,
        by_brokers: AskBrokers | None = None,
    ) -> None:
        self._cluster, self._group, self._topics, self._strategy = cluster, group, topics, strategy
        self._apply, self._interval, self._by_brokers = apply, interval, by_brokers
        self.may_miss: set[str] = set()
        self._wake = asyncio.Event()
        self.looked = asyncio.Event()

    def wake(self) -> None:
        """Look again now."""
        self._wake.set()

    def route_changed(self, route: Route) -> None:
        """A watcher of routes."""
        if route.topic in set(self._topics()):
            self._wake.set()

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            self._wake.clear()
            balanced = True
            for topic in list(self._topics()):
                try:
                    balanced &= await self._look(topic)
                except (ClientError, RemotingError, BadAllocation) as err:
                    log.info("%s: queues stay as they are: %s", topic, err)
                    balanced = False
                except Exception:  # one failure must not end the consumption
                    log.exception("%s: queues stay as they are", topic)
                    balanced = False
            self.looked.set()
            try:
                async with asyncio.timeout(self._interval if balanced else _UNBALANCED_PAUSE):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _look(self, topic: str) -> bool:
        try:
            route = await self._cluster.route(topic)
        except NoRoute:
            if topic in self.may_miss:
                return True
            raise
        if self._by_brokers is not None and (balanced := await self._by_brokers(route)) is not None:
            return balanced
        if self._strategy is None:
            return await self._apply(topic, set(route.readable))
        members = await self._members(route)
        client_id = self._cluster.client_id
        mine = share(self._strategy, client_id, route.readable, members) if route.readable else set()
        return await self._apply(topic, mine) and client_id in members

    async def _members(self, route: Route) -> list[str]:
        """The ids of the group's clients, from the first broker of a topic that says them."""
        failure: ClientError | RemotingError = NoRoute(f"{route.topic}: no broker")
        for broker_name in random.sample(list(route.brokers), len(route.brokers)):
            try:
                address = self._cluster.reading_address(broker_name)
                request = self._cluster.request(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP, h.Group(consumer_group=self._group)
                )
                response = await self._cluster.ask(address, request)
                with self._cluster.answers_of(address):
                    members = body_from(ConsumerIds, response, address).consumer_id_list
                return list(dict.fromkeys(members))  # one that has two connections for a moment has one share
            except (ClientError, RemotingError) as err:
                failure = err
        raise failure


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
