"""Registration of this broker and its topics at name servers (broker.out.BrokerOuterAPI)."""

import asyncio
import logging
import ssl
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from formats.config.files_of_5 import TopicQueueMapping
from formats.errors import FormatError
from formats.fastjson.declare import T, body_of, read_body
from formats.model.topics import TopicConfig
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting import namesrv as n
from formats.remoting.codes import MASTER_ID, RequestCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import MappingInfo
from formats.topics import Perm
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.static_topics import current_queues
from rmqtool.server.broker.context.broker_context import BrokerContext

log = logging.getLogger(__name__)

EVERY = 30.0  # s
_TIMEOUT = 6.0  # s, of everything but a registration
_MOST_QUEUES = 1 << 16  # of one topic on one broker
_PAUSE = 2.0  # before an unreachable name server is tried again
_REST = 4.0  # after a registration of changes, wait this many times as long as it took
_MOST_REST = 10.0  # s
_MOST_WAIT = 1.0  # s for which the answer that announces a new topic waits for name servers


class _Registered(NamedTuple):
    """What a name server knows through a connection."""

    changes: int  # of topics, since the store was opened
    permission: int  # of this broker


class Registration:
    """Keeps name servers informed, each over its own connection, so that an unreachable one delays no other.

    The connections stay open, as a name server forgets a broker whose connection ends.

    Args:
        servers: HOST:PORT of each.
        tls: for connections to them; None for plain ones.
    """

    def __init__(self, context: BrokerContext, servers: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        self._context = context
        timeout = context.settings.registration_timeout / 1000
        self._servers = [_Server(server, self._request, timeout, tls) for server in servers]
        self._tasks: list[asyncio.Task[None]] = []

    def announce(self) -> None:
        """Register changed topics at once."""
        for server in self._servers:
            server.wanted.set()

    async def finish(self) -> None:
        """Until the connected name servers know all topics of this moment, or for a second.

        The answer to the first message of a topic waits for this, as in a real broker, which registers the topic
        before it stores the message: a client that then asks for the route gets it.
        """
        changes = len(self._context.state.changed_topics)
        telling = [asyncio.create_task(server.wait_for_answer(changes)) for server in self._servers]
        if telling:
            _done, late = await asyncio.wait(telling, timeout=_MOST_WAIT)
            for task in late:
                task.cancel()

    async def queues_of(self, topic: str) -> list[QueueName] | None:
        """The readable queues of a topic on all brokers; None if no name server knows."""
        for server in self._servers:
            route = await server.route(topic)
            if route is not None:
                return [
                    QueueName(topic, data.broker_name, queue_id)
                    for data in route.queue_datas
                    if data.perm & Perm.READ
                    for queue_id in range(min(data.read_queue_nums, _MOST_QUEUES))
                ]
        return None

    async def find_master(self, broker: str) -> str | None:
        """The address of a broker's master, HOST:PORT; None if no name server knows."""
        for server in self._servers:
            cluster = await server.cluster()
            data = None if cluster is None else cluster.broker_addr_table.get(broker)
            if data is not None and MASTER_ID in data.broker_addrs:
                return data.broker_addrs[MASTER_ID]
        return None

    async def start(self) -> None:
        """Start; returns when one name server knows this broker, or all were tried."""
        self._tasks = [asyncio.create_task(server.keep()) for server in self._servers]
        tried = [asyncio.create_task(server.tried.wait()) for server in self._servers]
        await asyncio.wait(tried, timeout=_TIMEOUT)
        for task in tried:
            task.cancel()

    async def stop(self) -> None:
        """Unregister at all name servers."""
        settings = self._context.settings
        header = n.BrokerAddress(
            broker_name=settings.name,
            broker_addr=settings.address,
            cluster_name=settings.cluster,
            broker_id=settings.broker_id,
        )
        request = Command(RequestCode.UNREGISTER_BROKER, fields=to_fields(header))
        await asyncio.gather(*(server.leave(request) for server in self._servers))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _request(self, known: _Registered | None) -> tuple[Command, _Registered]:
        """(request, what the name server knows after it): with changed topics, or all.

        Args:
            known: what it knows; None to register everything.
        """
        settings, state = self._context.settings, self._context.state
        topics = self._find_changed_topics(known)
        if whole := topics is None:
            topics = dict(state.topics)
            for config in self._context.system_topics():
                topics.setdefault(config.topic_name or "", config)
        if not settings.permission & 2:
            topics = {name: replace(config, perm=config.perm & ~2) for name, config in topics.items()}
        mappings = self._context.static_topics.mappings
        infos = {name: _info_of(mapping) for name, mapping in mappings.items() if whole or name in topics}
        table = b.TopicTable(
            topics, replace(state.topics_version, state_version=None), topic_queue_mapping_info_map=infos or None
        )
        body = body_of(b.RegisterBrokerBody(table), settings.release.version)
        header = n.RegisterBroker(
            broker_name=settings.name,
            broker_addr=settings.address,
            cluster_name=settings.cluster,
            ha_server_addr="",
            broker_id=settings.broker_id,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        request = Command(RequestCode.REGISTER_BROKER, fields=to_fields(header), body=body)
        return request, _Registered(len(state.changed_topics), settings.permission)

    def _find_changed_topics(self, known: _Registered | None) -> dict[str, TopicConfig] | None:
        """Created or changed topics; None if all are to be registered (registerIncrementBrokerData)."""
        state = self._context.state
        if known is None or known.permission != self._context.settings.permission:
            return None
        names = dict.fromkeys(state.changed_topics[known.changes :])
        topics = {name: config for name in names if (config := state.topic(name)) is not None}
        return topics if topics and len(topics) == len(names) else None


def _info_of(mapping: TopicQueueMapping) -> MappingInfo:
    return MappingInfo(
        topic=mapping.topic,
        scope=mapping.scope,
        total_queues=mapping.total_queues,
        bname=mapping.broker_name,
        epoch=mapping.epoch,
        dirty=mapping.dirty,
        curr_id_map=current_queues(mapping),
    )


class _Server:
    """One name server."""

    def __init__(
        self,
        address: str,
        request: Callable[[_Registered | None], tuple[Command, _Registered]],
        timeout: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.wanted, self.tried = asyncio.Event(), asyncio.Event()
        self._address, self._request, self._timeout, self._tls = address, request, timeout, tls
        self._connection: Connection | None = None
        self._registered: _Registered | None = None
        self._acknowledged = -1  # changes of topics in the last request that was answered
        self._answered = asyncio.Event()  # replaced after each answer, and when the connection ends
        self._failed = False

    async def keep(self) -> None:
        """Register changed topics as they change, and all topics at first and every half minute."""
        host, _, port = self._address.rpartition(":")
        while True:
            try:
                async with open_connection(host.strip("[]"), int(port), tls=self._tls, timeout=_TIMEOUT) as connection:
                    self._connection, self._registered, self._acknowledged = connection, None, -1
                    changed = False
                    while not connection.closed:
                        self.wanted.clear()
                        begun = time.monotonic()
                        await self._tell(connection)
                        took = time.monotonic() - begun
                        if changed:
                            await _any_of(connection.lost, seconds=min(_REST * took, _MOST_REST))
                        await _any_of(self.wanted, connection.lost, seconds=EVERY)
                        changed = self.wanted.is_set()
                        if not changed:
                            self._registered = None
            except RemotingError as err:
                if not self._failed:
                    log.warning("name server %s: %s", self._address, err)
                self._failed = True
            finally:
                self._connection = None
                self.tried.set()
                self._announce_answer()
            await asyncio.sleep(_PAUSE)

    async def _tell(self, connection: Connection) -> None:
        request, known = self._request(self._registered)
        answer = await connection.call(request, self._timeout)
        self._failed, self._registered = False, None if answer.code else known
        self._acknowledged = known.changes
        self.tried.set()
        self._announce_answer()
        if answer.code:
            log.error("name server %s refuses this broker: %s", self._address, answer.remark)

    async def wait_for_answer(self, changes: int) -> None:
        """Until the name server has answered a registration with these changes, or cannot be reached."""
        while self._connection is not None and self._acknowledged < changes:
            await self._answered.wait()

    def _announce_answer(self) -> None:
        self._answered.set()
        self._answered = asyncio.Event()

    async def route(self, topic: str) -> b.TopicRouteData | None:
        """The route of a topic; None if it does not know."""
        request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields=to_fields(h.Topic(topic=topic)))
        return await self._ask(request, b.TopicRouteData)

    async def cluster(self) -> b.ClusterInfo | None:
        """All brokers; None if it does not answer."""
        return await self._ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO), b.ClusterInfo)

    async def _ask(self, request: Command, kind: type[T]) -> T | None:
        if self._connection is None:
            return None
        try:
            answer = await self._connection.call(request, _TIMEOUT)
            return None if answer.code else read_body(kind, answer.body)
        except (RemotingError, FormatError):
            return None

    async def leave(self, request: Command) -> None:
        """Unregister."""
        if self._connection is not None:
            try:
                await self._connection.call(request, _TIMEOUT)
            except RemotingError as err:
                log.warning("name server %s: %s", self._address, err)


async def _any_of(*events: asyncio.Event, seconds: float) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
