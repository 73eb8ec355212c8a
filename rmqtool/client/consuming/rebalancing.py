"""Who is in a group, and which queues of its topics are whose, looked at now and then (impl.consumer.RebalanceImpl)."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable

from formats.remoting import headers as h
from formats.remoting.bodies import ConsumerIds
from formats.remoting.codes import RequestCode
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError, NoRoute
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consuming.sharing import share
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.rebalance import BadAllocation, Strategy

log = logging.getLogger(__name__)

_UNBALANCED_PAUSE = 1.0  # s

Apply = Callable[[str, Collection[MessageQueue]], Awaitable[bool]]
"""Is given a topic and the queues of it that are this client's; whether it has all of them now."""
ByBrokers = Callable[[Route], Awaitable[bool | None]]


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
        by_brokers: ByBrokers | None = None,
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
