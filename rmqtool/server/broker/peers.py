"""Connections to other brokers, which hold parts of this one's static topics (remoting.rpc.RpcClientImpl, 5.x)."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable

from formats.remoting.frame import Command
from rmqtool.remoting.client import connect
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import NotReached, RemotingError

_TIMEOUT = 3.0  # s; forwardTimeout of a broker
_FRESH = 5.0  # s for which an address is taken as known


class Peers:
    """Asks other brokers; each keeps its connection.

    Args:
        find: the address of a broker's master, HOST:PORT, from the name servers; None if they do not know it.
        tls: for the connections; None for plain ones.
    """

    def __init__(self, find: Callable[[str], Awaitable[str | None]], tls: ssl.SSLContext | None) -> None:
        self._find, self._tls = find, tls
        self._addresses: dict[str, tuple[float, str]] = {}  # by broker: when it was asked for, and what it was
        self._connections: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def ask(self, broker: str, request: Command) -> Command:
        """The answer of a broker.

        Raises:
            RemotingError: it cannot be found or reached, or does not answer in time.
        """
        connection = await self._connection(await self._address(broker))
        try:
            return await connection.call(request, _TIMEOUT)
        except RemotingError:
            self._addresses.pop(broker, None)  # it may have moved
            raise

    async def _address(self, broker: str) -> str:
        asked, address = self._addresses.get(broker, (0.0, ""))
        now = time.monotonic()
        if not address or now - asked > _FRESH:
            found = await self._find(broker)
            if found is None:
                raise NotReached(f"cannot find addr for broker {broker}")
            self._addresses[broker] = now, (address := found)
        return address

    async def _connection(self, address: str) -> Connection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or connection.closed:
                host, _, port = address.rpartition(":")
                if not port.isdigit():
                    raise NotReached(f"{address}: not an address")
                connection = await connect(host.strip("[]"), int(port), tls=self._tls, timeout=_TIMEOUT)
                self._connections[address] = connection
            return connection

    async def stop(self) -> None:
        """Close all connections."""
        connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(connection.close() for connection in connections))
