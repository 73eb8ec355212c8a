"""A client's view of a cluster, shared by its producers and consumers (impl.factory.MQClientInstance)."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from formats.errors import FormatError
from formats.remoting import headers as h
from formats.remoting.bodies import ClusterInfo, TopicList, TopicRouteData
from formats.remoting.codes import MASTER_ID, RequestCode, ResponseCode
from formats.topics import AUTO_CREATE
from rmqtool.client.cluster.answers import body_from, require_success
from rmqtool.client.cluster.errors import BadAnswer, NoRoute
from rmqtool.client.cluster.groups import GroupMembership
from rmqtool.client.cluster.hooks import RpcHook
from rmqtool.client.cluster.identity import new_client_id, new_unique_ids
from rmqtool.client.cluster.links import share_result
from rmqtool.client.cluster.name_servers import NameServers, addresses_of
from rmqtool.client.cluster.peers import Peers
from rmqtool.client.cluster.routes import Route
from rmqtool.remoting.errors import RemotingError
from rmqtool.remoting.signing import Credentials
from rmqtool.rules.releases import NEWEST, Release

log = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Settings of a client, with the defaults of the Java client (client.ClientConfig).

    Attributes:
        namesrv: name servers, ``HOST:PORT;HOST:PORT``.
        release: which Java client is followed where 4.9 and 5.3 differ.
        client_id: one of its own by default.
        timeout: seconds that a peer may take to answer where nothing else is said.
        route_interval: seconds between two looks at the routes of topics in use.
        heartbeat_interval: seconds between two heartbeats to each broker.
        tls: for connections to name servers and brokers; none by default.
        credentials: sign every request with these, as brokers with access control want it.
        hooks: see every request before it goes out, and its response.
        namespace: topics and groups are known to brokers with it in front of their names, ``NAMESPACE%NAME``.
        heartbeat_v2: leave out of heartbeats what a broker of 5.x knows already (``useHeartbeatV2``).
    """

    namesrv: str
    release: Release = NEWEST
    client_id: str | None = None
    timeout: float = 3.0
    route_interval: float = 30.0
    heartbeat_interval: float = 30.0
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    hooks: Sequence[RpcHook] = ()
    namespace: str = ""
    heartbeat_v2: bool = False


class Cluster(Peers):
    """Routes, connections and heartbeats of one client. Use as an asynchronous context manager.

    Nothing is sent before it is needed: a client that joins no group sends no heartbeat.

    Attributes:
        client_id: under which brokers know this client.
        unique_id: gives the next unique message id.
        options: as given.
        groups: those that brokers hear of, with each heartbeat.

    Raises:
        NotReached: no name server is given.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.client_id = options.client_id or new_client_id()
        self.unique_id = new_unique_ids()
        super().__init__(
            options.release,
            options.timeout,
            hooks=options.hooks,
            credentials=options.credentials,
            tls=options.tls,
            opened=lambda address: self.groups.forget(address),
        )
        self._name_servers = NameServers(addresses_of(options.namesrv), self.call, options.timeout)
        self.groups = GroupMembership(self.client_id, self, self.addresses, self._spawn, short=options.heartbeat_v2)
        self._routes: dict[str, Route] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._fetching: dict[str, asyncio.Task[Route]] = {}
        self._route_watchers: list[Callable[[Route], None]] = []
        self._shared: dict[Callable[[Cluster], Any], Any] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._spawn(self._forever(self.options.route_interval, self.refresh_routes))
        self._spawn(self._forever(self.options.heartbeat_interval, self.heartbeat))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave all groups and close all connections. Nothing that goes wrong on the way is raised."""
        await self.groups.leave_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().close()

    # -- routes -------------------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> Route:
        """Where a topic is: as the name servers said when they were last asked, at most ``route_interval`` ago.

        Raises:
            NoRoute: no name server knows the topic.
            RemotingError: none answers, or not with a route.
        """
        found = self._routes.get(topic)
        return found if found is not None and not found.assumed else await self.fetch_route(topic)

    async def publish_route(self, topic: str, template: str = AUTO_CREATE, queue_nums: int = 4) -> Route:
        """As :meth:`route`, to send to: for a topic that is not there yet it is where its first message will make it.

        Args:
            template: the topic whose brokers make new topics.
            queue_nums: queues that a new topic is to have on each of them.

        Raises:
            NoRoute: no name server knows the topic, and no broker makes new ones.
            RemotingError: none answers, or not with a route.
        """
        found = self._routes.get(topic)
        if found is not None and found.writable:
            return found
        with_queues = None
        try:
            with_queues = await self.fetch_route(topic)
        except NoRoute:
            try:
                data = await self._ask_route(template)
            except NoRoute:
                raise NoRoute(f"{topic}: no name server knows the topic, and no broker makes new ones") from None
            with_queues = self._learn(Route.of, topic, data, queue_nums=queue_nums)
        if not with_queues.writable:
            raise NoRoute(f"{topic}: no broker takes messages for it")
        return with_queues

    async def fetch_route(self, topic: str) -> Route:
        """Ask the name servers now. Those who ask at the same time share the answer.

        Raises:
            NoRoute: no name server knows the topic; what was known of it stays.
            RemotingError: none answers, or not with a route.
        """
        fetching = self._fetching.get(topic)
        if fetching is None:
            fetching = self._fetching[topic] = self._spawn(self._fetch(topic))
            fetching.add_done_callback(lambda task: self._end_fetch(topic, task))
        return await share_result(fetching, topic)

    async def topics(self) -> list[str]:
        """All topics that the name servers know, those of the system among them.

        Raises:
            RemotingError: none answers, or not with topics.
            BrokerError: the name server does not tell.
        """
        request = self.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        response, address = await self._name_servers.call(request)
        with self.answers_of(address):
            return body_from(TopicList, require_success(response, address), address).topic_list

    async def brokers(self) -> ClusterInfo:
        """All brokers that the name servers know, and the clusters that they are in.

        Raises:
            RemotingError: none answers, or not with brokers.
            BrokerError: the name server does not tell.
        """
        response, address = await self._name_servers.call(self.request(RequestCode.GET_BROKER_CLUSTER_INFO))
        with self.answers_of(address):
            return body_from(ClusterInfo, require_success(response, address), address)

    def knows(self, topic: str) -> bool:
        """Whether a route of the topic is in use."""
        return topic in self._routes

    def forget_route(self, topic: str) -> None:
        """A topic that is not used any more."""
        self._routes.pop(topic, None)
        self._find_brokers()

    def _find_brokers(self) -> None:
        """Those of the routes in use: who has left all of them is not greeted any more."""
        self._brokers = {name: dict(known) for route in self._routes.values() for name, known in route.brokers.items()}

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Of a broker of some route.

        Raises:
            NoRoute: no route has it.
        """
        found = self._brokers.get(broker_name, {}).get(broker_id)
        if found is None:
            which = "master" if broker_id == MASTER_ID else f"slave {broker_id}"
            raise NoRoute(f"broker {broker_name}: no route has the address of its {which}")
        return found

    def reading_address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Of a broker to read from: the one that is wanted, else any of that name (``findBrokerAddressInSubscribe``).

        Raises:
            NoRoute: no route has one.
        """
        known = self._brokers.get(broker_name, {})
        if broker_id not in known and known:
            broker_id = min(known)
        return self.address(broker_name, broker_id)

    def addresses(self, *, slaves: bool = True) -> list[str]:
        """Of all brokers of all routes in use."""
        return [
            address
            for known in self._brokers.values()
            for broker_id, address in sorted(known.items())
            if slaves or broker_id == MASTER_ID
        ]

    def on_route(self, watcher: Callable[[Route], None]) -> None:
        """Call a function with every route that is new or has changed."""
        self._route_watchers.append(watcher)

    async def refresh_routes(self) -> None:
        """Ask for the routes of all topics in use; where that fails, what was known stays."""
        for topic in list(self._routes):
            try:
                await self.fetch_route(topic)
            except NoRoute:
                continue
            except RemotingError as err:
                log.warning("routes are not up to date: %s", err)
                return

    async def _fetch(self, topic: str) -> Route:
        return self._learn(Route.of, topic, await self._ask_route(topic))

    def _end_fetch(self, topic: str, task: asyncio.Task[Route]) -> None:
        self._fetching.pop(topic, None)
        if not task.cancelled():
            task.exception()  # who asked has it; without anybody left it is nobody's

    async def _ask_route(self, topic: str) -> TopicRouteData:
        request = self.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, h.Topic(topic=topic))
        response, address = await self._name_servers.call(request)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(f"{topic}: no name server knows the topic")
        with self.answers_of(address):
            return body_from(TopicRouteData, require_success(response, address), address)

    def _learn(self, make: Callable[..., Route], topic: str, data: TopicRouteData, **more: Any) -> Route:
        try:
            route = make(topic, data, **more)
        except FormatError as err:
            raise BadAnswer(f"{topic}: not a route: {err}") from None
        known = set(self.addresses())
        changed = self._routes.pop(topic, None) != route
        self._routes[topic] = route  # the last one, which counts where routes disagree
        self._find_brokers()
        self.groups.greet([address for address in self.addresses() if address not in known])
        if changed:
            for watcher in self._route_watchers:
                watcher(route)
        return route

    # -- groups -------------------------------------------------------------------------------------------------------

    async def heartbeat(self) -> None:
        """Tell all brokers of this client's groups, now. What fails is tried again with the next heartbeat."""
        await self.groups.heartbeat()

    def share(self, kind: "Callable[[Cluster], T]") -> T:
        """What all producers and consumers of this client have together; made when it is first asked for."""
        if kind not in self._shared:
            self._shared[kind] = kind(self)
        found: T = self._shared[kind]
        return found

    # -- tasks --------------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _forever(self, interval: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                await work()
            except Exception:  # one failure must not end what keeps the client alive
                log.exception("%s", work.__name__)
