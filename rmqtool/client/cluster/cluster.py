"""A client's view of a cluster, shared by its producers and consumers (impl.factory.MQClientInstance)."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from formats.errors import FormatError
from formats.remoting import headers as h
from formats.remoting.bodies import HeartbeatData, TopicRouteData
from formats.remoting.codes import MASTER_ID, VERSION_4_9_8, VERSION_5_3_3, Language, RequestCode, ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, ProducerData
from formats.remoting.typed import Declared, body_of, to_fields
from rmqtool.client.cluster.answers import body_from, succeeded
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, NoRoute
from rmqtool.client.cluster.identity import new_client_id, new_unique_ids
from rmqtool.client.cluster.links import Links
from rmqtool.client.cluster.name_servers import NameServers, addresses_of
from rmqtool.client.cluster.routes import Route
from rmqtool.remoting.connection import Answer, Connection, Handler
from rmqtool.remoting.errors import ConnectionLost, RemotingError
from rmqtool.services.sending.rules import AUTO_CREATE_TOPIC

log = logging.getLogger(__name__)

R = TypeVar("R")
_VERSIONS = {"4.9": VERSION_4_9_8, "5.3": VERSION_5_3_3}


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Settings of a client, with the defaults of the Java client (client.ClientConfig).

    Attributes:
        namesrv: name servers, ``HOST:PORT;HOST:PORT``.
        engine: which Java client is followed where 4.9 and 5.3 differ.
        client_id: one of its own by default.
        timeout: seconds that a peer may take to answer where nothing else is said.
        route_interval: seconds between two looks at the routes of topics in use.
        heartbeat_interval: seconds between two heartbeats to each broker.
        tls: for connections to name servers and brokers; none by default.
    """

    namesrv: str
    engine: str = "5.3"
    client_id: str | None = None
    timeout: float = 3.0
    route_interval: float = 30.0
    heartbeat_interval: float = 30.0
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if self.engine not in _VERSIONS:
            raise ValueError(f"engine {self.engine!r}: 4.9 or 5.3")


class Cluster:
    """Routes, connections and heartbeats of one client. Use as an asynchronous context manager.

    Nothing is sent before it is needed: a client that joins no group sends no heartbeat.

    Attributes:
        client_id: under which brokers know this client.
        unique_id: gives the next unique message id.
        options: as given.

    Raises:
        NotReached: no name server is given.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.client_id = options.client_id or new_client_id()
        self.unique_id = new_unique_ids()
        self._links = Links(self._answer, opened=self._opened, tls=options.tls, timeout=options.timeout)
        self._name_servers = NameServers(addresses_of(options.namesrv), self._links, options.timeout)
        self._handlers: dict[int, Handler] = {}
        self._routes: dict[str, Route] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._fetching: dict[str, asyncio.Task[Route]] = {}
        self._producers: set[str] = set()
        self._consumers: dict[str, Callable[[], ConsumerData]] = {}
        self._route_watchers: list[Callable[[Route], None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._greeting: set[str] = set()  # brokers whose connection is made for a heartbeat

    async def __aenter__(self) -> Self:
        self._spawn(self._forever(self.options.route_interval, self.refresh_routes))
        self._spawn(self._forever(self.options.heartbeat_interval, self.heartbeat))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave all groups and close all connections. Nothing that goes wrong on the way is raised."""
        for group in list(self._producers):
            await self.remove_producer(group)
        for group in list(self._consumers):
            await self.remove_consumer(group)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._links.close()

    # -- requests -----------------------------------------------------------------------------------------------------

    def request(self, code: RequestCode, header: Declared | None = None, body: bytes = b"") -> Command:
        """A request as this client sends it."""
        return Command(
            code,
            fields=None if header is None else to_fields(header),
            body=body,
            language=Language.PYTHON,
            version=_VERSIONS[self.options.engine],
        )

    async def call(self, address: str, request: Command, timeout: float | None = None) -> Command:
        """Send a request to a peer; its response, whatever its code is.

        Raises:
            RemotingError: not reached, or no response within ``timeout`` seconds.
        """
        return await self._links.call(address, request, self.options.timeout if timeout is None else timeout)

    async def ask(self, address: str, request: Command, timeout: float | None = None) -> Command:
        """As :meth:`call`, for a response that must be a success.

        Raises:
            RemotingError: not reached, or no response in time.
            BrokerError: another code.
        """
        return succeeded(await self.call(address, request, timeout), address)

    async def oneway(self, address: str, request: Command) -> None:
        """Send a request that nobody answers.

        Raises:
            RemotingError: not reached.
        """
        await self._links.oneway(address, request)

    def on(self, code: RequestCode, handler: Handler) -> None:
        """Answer requests of brokers that have this code. There is one handler for a code; the last one counts."""
        self._handlers[code] = handler

    def _answer(self, connection: Connection, request: Command) -> Answer:
        handler = self._handlers.get(request.code)
        if handler is not None:
            return handler(connection, request)
        remark = f"request type {request.code} not supported"
        return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark, language=Language.PYTHON)

    # -- routes -------------------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> Route:
        """Where a topic is: as the name servers said when they were last asked, at most ``route_interval`` ago.

        Raises:
            NoRoute: no name server knows the topic.
            RemotingError: none answers, or not with a route.
        """
        found = self._routes.get(topic)
        return found if found is not None and not found.assumed else await self.fetch_route(topic)

    async def publish_route(self, topic: str, template: str = AUTO_CREATE_TOPIC, queue_nums: int = 4) -> Route:
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
            fetching.add_done_callback(lambda task: self._fetched(topic, task))
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:
            if fetching.cancelled():
                raise ConnectionLost(f"{topic}: the client is closed") from None
            raise

    def forget_route(self, topic: str) -> None:
        """A topic that is not used any more."""
        self._routes.pop(topic, None)

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
        """Be told of every route that is new or has changed."""
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

    def _fetched(self, topic: str, task: asyncio.Task[Route]) -> None:
        self._fetching.pop(topic, None)
        if not task.cancelled():
            task.exception()  # who asked has it; without anybody left it is nobody's

    async def _ask_route(self, topic: str) -> TopicRouteData:
        request = self.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, h.Topic(topic=topic))
        response, address = await self._name_servers.call(request)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(f"{topic}: no name server knows the topic")
        return body_from(TopicRouteData, succeeded(response, address), address)

    def _learn(self, make: Callable[..., Route], topic: str, data: TopicRouteData, **more: Any) -> Route:
        try:
            route = make(topic, data, **more)
        except FormatError as err:
            raise BadAnswer(f"{topic}: not a route: {err}") from None
        known = set(self.addresses())
        for name, addresses in route.brokers.items():
            self._brokers[name] = dict(addresses)
        changed, self._routes[topic] = self._routes.get(topic) != route, route
        if self._in_groups:
            for address in self._to_greet():
                if address not in known:
                    self._greet_soon(address)
        if changed:
            for watcher in self._route_watchers:
                watcher(route)
        return route

    # -- groups -------------------------------------------------------------------------------------------------------

    def add_producer(self, group: str) -> None:
        """Tell brokers, with each heartbeat, that this client sends for a group."""
        self._producers.add(group)
        self._greet_all()

    def add_consumer(self, group: str, describe: Callable[[], ConsumerData]) -> None:
        """Tell brokers, with each heartbeat, that this client consumes for a group.

        Args:
            describe: what the group wants, at the time of a heartbeat.
        """
        self._consumers[group] = describe
        self._greet_all()

    async def remove_producer(self, group: str) -> None:
        """Leave a group; brokers that cannot be told find out by themselves."""
        if group in self._producers:
            self._producers.remove(group)
            await self._leave(h.Unregister(client_id=self.client_id, producer_group=group))

    async def remove_consumer(self, group: str) -> None:
        """Leave a group; brokers that cannot be told find out by themselves."""
        if self._consumers.pop(group, None) is not None:
            await self._leave(h.Unregister(client_id=self.client_id, consumer_group=group))

    async def heartbeat(self) -> None:
        """Tell all brokers of this client's groups, now. What fails is tried again with the next heartbeat."""
        if self._in_groups:
            await asyncio.gather(*[self._greet(address) for address in self._to_greet()])

    @property
    def _in_groups(self) -> bool:
        return bool(self._producers or self._consumers)

    def _to_greet(self) -> list[str]:
        return self.addresses(slaves=bool(self._consumers))

    def _greet_all(self) -> None:
        for address in self._to_greet():
            self._greet_soon(address)

    def _greet_soon(self, address: str) -> None:
        if address not in self._greeting:
            self._spawn(self._greet(address))

    def _opened(self, address: str) -> None:
        """A broker forgets a client when its connection ends."""
        if self._in_groups and address in self._to_greet():
            self._greet_soon(address)

    async def _greet(self, address: str) -> None:
        self._greeting.add(address)
        try:
            await self._links.get(address)
            self._greeting.discard(address)
            await self.ask(address, self._heartbeat())
        except (RemotingError, BrokerError) as err:
            log.warning("heartbeat: %s", err)
        finally:
            self._greeting.discard(address)

    def _heartbeat(self) -> Command:
        data = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group) for group in sorted(self._producers)],
            consumer_data_set=[describe() for describe in self._consumers.values()],
        )
        if self.options.engine == "4.9":
            return self.request(RequestCode.HEART_BEAT, body=body_of(data))
        data.heartbeat_fingerprint, data.without_sub = 0, False
        return self.request(RequestCode.HEART_BEAT, h.Empty(), body_of(data))

    async def _leave(self, header: h.Unregister) -> None:
        async def tell(address: str) -> None:
            try:
                await self.ask(address, self.request(RequestCode.UNREGISTER_CLIENT, header), 1.0)
            except (RemotingError, BrokerError) as err:
                log.info("leaving a group: %s", err)

        await asyncio.gather(*[tell(address) for address in self.addresses()])

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
