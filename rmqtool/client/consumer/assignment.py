"""Assignment of a group's queues to this client (impl.consumer.RebalanceImpl)."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Set
from dataclasses import dataclass
from typing import Any

from formats.fastjson.declare import body_of
from formats.remoting import headers as h
from formats.remoting.bodies import AssignmentRequest, AssignmentResponse, ConsumerIds
from formats.remoting.codes import RequestCode, RequestMode, ResponseCode
from formats.remoting.shapes import MessageQueue
from formats.topics import RETRY_PREFIX
from formats.variants.pop_handle import retry_topic
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError, NoRoute
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consumer.options import STRATEGY_NAMES
from rmqtool.client.consumer.pop import PopLoop
from rmqtool.client.consumer.subscriptions import Subscriptions
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.rebalance import BadAllocation, Strategy, sort

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Assignment:
    """This client's queues of a topic.

    Attributes:
        pulled: queues to pull.
        popped: queues to pop; -1 stands for all of a broker.
    """

    pulled: Set[MessageQueue]
    popped: Set[MessageQueue]


class BrokerAssignments:
    """Asks brokers for assignments.

    Args:
        strategy: name of the allocation strategy.
    """

    def __init__(self, cluster: Cluster, group: str, strategy: str) -> None:
        self._cluster, self._group, self._strategy = cluster, group, strategy
        self._unknown: set[str] = set()  # topics of brokers without this request

    async def of(self, route: Route) -> Assignment | None:
        """This client's queues of a topic; None if clients allocate them, as with brokers of 4.9.

        Raises:
            ClientError, RemotingError: no broker answers.
        """
        if route.topic in self._unknown:
            return None
        client_id = self._cluster.client_id
        assignment_request = AssignmentRequest(route.topic, self._group, client_id, self._strategy, "CLUSTERING")
        request = self._cluster.request(RequestCode.QUERY_ASSIGNMENT, body=body_of(assignment_request))
        failure: ClientError | RemotingError = NoRoute(f"{route.topic}: no broker")
        for broker_name in random.sample(list(route.brokers), len(route.brokers)):
            try:
                address = self._cluster.reading_address(broker_name)
                response = await self._cluster.ask(address, request)
                return _assignment(route.topic, body_from(AssignmentResponse, response, address), address)
            except BrokerError as err:
                if err.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    log.info("%s: its brokers share no queues out", route.topic)
                    self._unknown.add(route.topic)
                    return None
                failure = err
            except (ClientError, RemotingError) as err:
                failure = err
        raise failure


def _assignment(topic: str, response: AssignmentResponse, address: str) -> Assignment:
    if response.message_queue_assignments is None:
        raise BadAnswer(f"{address}: does not say which queues of {topic} are whose")
    queues: dict[bool, set[MessageQueue]] = {True: set(), False: set()}
    for assignment in response.message_queue_assignments:
        if assignment.message_queue.topic != topic:
            raise BadAnswer(
                f"{address}: a queue of {assignment.message_queue.topic[:100]} where those of {topic} were asked for"
            )
        queues[assignment.mode == RequestMode.POP].add(assignment.message_queue)
    return Assignment(queues[False], queues[True])


def share(
    strategy: Strategy,
    client_id: str,
    queues: Collection[MessageQueue],
    members: Collection[str],
    shared_as: str | None = None,
) -> set[MessageQueue]:
    """This client's queues of a topic.

    Args:
        shared_as: the broker name of all queues of a static topic, for the members of the group to share them alike.

    Raises:
        BadAllocation: the strategy fails.
    """
    known = {QueueName(q.topic, shared_as or q.broker_name, q.queue_id): q for q in queues}
    names, ids = sort(known, members)
    return {known.get(name) or MessageQueue(*name) for name in strategy(client_id, names, ids)}


_UNBALANCED_PAUSE = 1.0  # s
_TOLD_FAILURE = 2  # most failures in a row

Apply = Callable[[str, Collection[MessageQueue]], Awaitable[bool]]
"""Is given a topic and the queues of it that are this client's; whether it has all of them now."""


class Rebalancing:
    """Rebalances periodically, and at once when notified of changes.

    Messages popped before a group switched to pulling come back in a retry topic per topic, which is consumed too while
    the group pulls.

    Args:
        strategy: allocation strategy; None if every member has all queues.
        interval: seconds between runs.
        popping: pops queues that brokers assign; None if members allocate queues themselves.

    Attributes:
        looked: set when every topic was rebalanced once, successfully or not.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        subscriptions: Subscriptions[Any],
        strategy: Strategy | None,
        apply: Apply,
        interval: float,
        popping: PopLoop | None = None,
    ) -> None:
        self._cluster, self._group, self._subscriptions, self._strategy = cluster, group, subscriptions, strategy
        self._apply, self._interval, self._popping = apply, interval, popping
        names = STRATEGY_NAMES.get(strategy, "") if strategy is not None else ""
        self._assignments = BrokerAssignments(cluster, group, names)
        self._wake = asyncio.Event()
        self._failures: Counter[str] = Counter()  # failures in a row, by topic
        self.looked = asyncio.Event()

    def wake(self) -> None:
        """Rebalance now."""
        self._wake.set()

    def route_changed(self, route: Route) -> None:
        """A watcher of routes."""
        if route.topic in self._subscriptions.topics:
            self._wake.set()

    async def run(self) -> None:
        """Rebalance until cancelled."""
        while True:
            self._wake.clear()
            balanced = True
            for topic in list(self._subscriptions.topics):
                try:
                    balanced &= await self._look(topic)
                    self._failures[topic] = 0
                except (ClientError, RemotingError, BadAllocation) as err:
                    self._failures[topic] += 1  # the first run may precede the first heartbeat
                    level = logging.WARNING if self._failures[topic] == _TOLD_FAILURE else logging.INFO
                    log.log(level, "%s: queues stay as they are: %s", topic, err)
                    balanced = False
                except Exception:  # a failure must not end consumption
                    log.exception("%s: queues stay as they are", topic)
                    balanced = False
            self.looked.set()
            try:
                async with asyncio.timeout(self._interval if balanced else _UNBALANCED_PAUSE):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _look(self, topic: str) -> bool:
        subscription = self._subscriptions.topics.get(topic)
        if subscription is None:
            return True  # left meanwhile
        try:
            route = await self._cluster.route(topic)
        except NoRoute:
            if subscription.optional:
                return True
            raise
        if self._popping is not None and (assigned := await self._assignments.of(route)) is not None:
            return await self._apply_assignment(topic, assigned, self._popping)
        if self._strategy is None:
            return await self._apply(topic, set(route.readable))
        members = await self._members(route)
        client_id = self._cluster.client_id
        mine = set[MessageQueue]()
        if route.readable:
            mine = share(self._strategy, client_id, route.readable, members, route.shared_as)
        return await self._apply(topic, mine) and client_id in members

    async def _apply_assignment(self, topic: str, assigned: Assignment, popping: PopLoop) -> bool:
        """Apply an assignment by brokers: pull or pop queues, switching if needed."""
        popping.leave(topic, assigned.popped)
        balanced = await self._apply(topic, assigned.pulled)
        popping.take(assigned.popped)
        if not topic.startswith(RETRY_PREFIX):
            # under older and newer names; brokers use one of them
            for retries in (retry_topic(topic, self._group), retry_topic(topic, self._group, newer=True)):
                if assigned.popped:
                    await self._forget(retries)
                elif assigned.pulled and retries not in self._subscriptions.topics:
                    self._subscriptions.subscribe(retries, optional=True, sent_to=topic)
                    self.wake()
        return balanced

    async def _forget(self, retries: str) -> None:
        if retries in self._subscriptions.topics and await self._apply(retries, ()):
            self._subscriptions.unsubscribe(retries)
            self._cluster.forget_route(retries)

    async def _members(self, route: Route) -> list[str]:
        """The ids of the group's clients, from the first broker of a topic that answers."""
        failure: ClientError | RemotingError = NoRoute(f"{route.topic}: no broker")
        for broker_name in random.sample(list(route.brokers), len(route.brokers)):
            try:
                address = self._cluster.reading_address(broker_name)
                request = self._cluster.request(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP, h.ConsumerGroup(consumer_group=self._group)
                )
                response = await self._cluster.ask(address, request)
                with self._cluster.answers_of(address):
                    members = body_from(ConsumerIds, response, address).consumer_id_list
                return list(dict.fromkeys(members))  # a client with two connections gets one share
            except (ClientError, RemotingError) as err:
                failure = err
        raise failure
