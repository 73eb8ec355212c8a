"""Telling name servers of this broker and its topics (broker.out.BrokerOuterAPI)."""

import asyncio
import logging
import zlib
from collections.abc import Sequence

from formats.config.files import TopicConfig
from formats.remoting import bodies as b
from formats.remoting import namesrv as n
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import DataVersion
from formats.remoting.shapes import TopicConfig as WireTopic
from formats.remoting.typed import body_of, to_fields
from rmqtool.remoting.client import connected
from rmqtool.remoting.errors import RemotingError
from rmqtool.server.broker.known.core import Core

log = logging.getLogger(__name__)

EVERY = 30.0  # s
_TIMEOUT = 6.0


class Registration:
    """Keeps name servers informed. Each is told by itself: one that is away keeps no other waiting.

    Args:
        servers: HOST:PORT of each.
    """

    def __init__(self, core: Core, servers: Sequence[str]) -> None:
        self._core, self.servers = core, tuple(servers)
        self._wanted = asyncio.Event()
        self._failed: set[str] = set()

    def changed(self) -> None:
        """Topics have changed: name servers are to hear of it at once."""
        self._wanted.set()

    async def run(self) -> None:
        """Tell them whenever something has changed, and every half minute."""
        while True:
            self._wanted.clear()
            await self.register()
            try:
                async with asyncio.timeout(EVERY):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def register(self) -> bool:
        """Tell all of them; whether one has taken it."""
        done = await asyncio.gather(*(self._tell(server, self._request()) for server in self.servers))
        return any(done)

    async def unregister(self) -> None:
        """Tell all of them that this broker ends."""
        settings = self._core.settings
        header = n.Broker(
            broker_name=settings.name,
            broker_addr=settings.address,
            cluster_name=settings.cluster,
            broker_id=settings.broker_id,
        )
        request = Command(RequestCode.UNREGISTER_BROKER, fields=to_fields(header))
        await asyncio.gather(*(self._tell(server, request) for server in self.servers))

    def _request(self) -> Command:
        settings, state = self._core.settings, self._core.state
        topics = {name: wire_topic(config, settings.engine) for name, config in state.topics.items()}
        for config in self._core.system_topics():
            topics.setdefault(config.topic_name or "", wire_topic(config, settings.engine))
        if not settings.permission & 2:
            for topic in topics.values():
                topic.perm &= ~2
        version = state.topics_version
        table = b.TopicTable(topics, DataVersion(version.timestamp, version.counter))
        body = body_of(b.RegisterBrokerBody(table))
        header = n.RegisterBroker(
            broker_name=settings.name,
            broker_addr=settings.address,
            cluster_name=settings.cluster,
            ha_server_addr="",
            broker_id=settings.broker_id,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return Command(RequestCode.REGISTER_BROKER, fields=to_fields(header), body=body)

    async def _tell(self, server: str, request: Command) -> bool:
        host, _, port = server.rpartition(":")
        try:
            async with connected(host.strip("[]"), int(port), timeout=_TIMEOUT) as connection:
                answer = await connection.call(request, _TIMEOUT)
        except RemotingError as err:
            if server not in self._failed:
                log.warning("name server %s: %s", server, err)
            self._failed.add(server)
            return False
        self._failed.discard(server)
        if answer.code:
            log.error("name server %s refuses this broker: %s", server, answer.remark)
        return not answer.code


def wire_topic(config: TopicConfig, engine: str) -> WireTopic:
    """A topic as the protocol has it."""
    return WireTopic(
        topic_name=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=None if engine == "4.9" else dict(config.attributes or {}),
    )
