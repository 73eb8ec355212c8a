"""Helpers: our name server, and a client for it."""

import asyncio
from collections.abc import Awaitable, Callable

from formats.model.topics import DataVersion, TopicConfig
from formats.remoting import frame
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command, Fields
from rmqtool.server.namesrv.server import NameServer

CLUSTER, BROKER, ADDRESS = "LabCluster", "lab-a", "192.0.2.1:10911"


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test in an event loop, with a time limit."""

    async def limited() -> None:
        async with asyncio.timeout(120):
            await test()

    asyncio.run(limited())


class Peer:
    """A connection that sends and reads raw frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, server: NameServer) -> "Peer":
        host, _, port = server.address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def read(self) -> Command:
        """The next frame."""
        head = await self.reader.readexactly(4)
        parsed = frame.parse(head + await self.reader.readexactly(int.from_bytes(head, "big")))
        assert parsed is not None
        return parsed[0]

    async def ask(self, command: Command) -> Command:
        await self.send(frame.build(command))
        return await self.read()

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def registration(
    *, name: str = BROKER, address: str = ADDRESS, id: int = 0, cluster: str = CLUSTER, **more: str
) -> Fields:
    """Fields of a registration."""
    return {
        "brokerName": name, "brokerAddr": address, "brokerId": str(id), "clusterName": cluster,
        "haServerAddr": "192.0.2.1:10912", **more,
    }  # fmt: skip


def topics(*names: str, perm: int = 6) -> dict[str, TopicConfig]:
    """A topic table with two topics that every broker has."""
    return {
        name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4, perm=perm)
        for name in (*names, BROKER, CLUSTER)
    }


def version(counter: int = 1, state: int | None = 0) -> DataVersion:
    return DataVersion(timestamp=1_700_000_000_000, counter=counter, state_version=state)


def command(code: RequestCode, body: bytes = b"", **fields: str) -> Command:
    return Command(code, 1, 0, fields or None, body)
