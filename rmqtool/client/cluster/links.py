"""Connections to peers by address, opened on demand."""

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.remoting.client import connect
from rmqtool.remoting.connection import Connection, Handler, PeerLimits
from rmqtool.remoting.errors import ConnectionLost, NotReached

T = TypeVar("T")


async def share_result(work: "asyncio.Task[T]", what: str) -> T:
    """Await a shared task, which continues if one of its waiters is cancelled.

    Raises:
        ConnectionLost: the task itself was cancelled because the client closes.
        CancelledError: the caller was cancelled.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if work.cancelled() and not (waiting is not None and waiting.cancelling()):
            raise ConnectionLost(f"{what}: the client is closed") from None
        raise


class Links:
    """One connection per address (netty.NettyRemotingClient), reopened on demand.

    Args:
        handler: answers requests of the peers.
        opened: called with each new connection.
        timeout: seconds for opening a connection.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        opened: Callable[[str], None] | None = None,
        tls: ssl.SSLContext | None = None,
        limits: PeerLimits | None = None,
        timeout: float = 3.0,
    ) -> None:
        self._handler, self._opened, self._tls, self._limits, self._timeout = handler, opened, tls, limits, timeout
        self._open: dict[str, Connection] = {}
        self._left: list[Connection] = []  # to servers that shut down; either side closes them when idle
        self._dialing: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False

    async def get(self, address: str) -> Connection:
        """The connection to an address.

        Raises:
            NotReached: it cannot be opened.
            ConnectionLost: everything was closed.
        """
        link = self._open.get(address)
        if link is not None and not link.closed:
            return link
        if self._closed:
            raise ConnectionLost(f"{address}: the client is closed")
        dialing = self._dialing.get(address)
        if dialing is None:
            dialing = self._dialing[address] = asyncio.create_task(self._dial(address))
            dialing.add_done_callback(lambda task: self._end_dial(address, task))
        return await share_result(dialing, address)

    async def call(self, address: str, request: Command, timeout: float) -> Command:
        """Send a request and wait for its response.

        If a server announces its shutdown (5.x), the request is sent again over a new connection, which may reach
        another server. Requests over the old one may still be answered.

        Raises:
            RemotingError: not reached, no response within ``timeout`` seconds, or the connection ended.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + timeout
        connection = await self.get(address)
        response = await connection.call(request, timeout)
        if response.code != ResponseCode.GO_AWAY:
            return response
        if self._open.get(address) is connection:
            del self._open[address]
            self._left = [link for link in self._left if not link.closed] + [connection]
        return await (await self.get(address)).call(request, max(end - clock(), 0.001))

    async def oneway(self, address: str, request: Command) -> None:
        """Send a one-way request.

        Raises:
            RemotingError: not reached.
        """
        await (await self.get(address)).oneway(request)

    def drop(self, address: str, reason: str) -> None:
        """Close the connection to an address, if any; pending requests fail with the reason."""
        if (link := self._open.pop(address, None)) is not None:
            link.abort(reason.removeprefix(f"{address}: "))
            self._left = [other for other in self._left if not other.lost.is_set()] + [link]

    async def close(self) -> None:
        """Close all connections after sending what is buffered."""
        self._closed = True
        for dialing in list(self._dialing.values()):
            dialing.cancel()
        await asyncio.gather(*self._dialing.values(), return_exceptions=True)
        await asyncio.gather(*[connection.close() for connection in [*self._open.values(), *self._left]])
        self._open.clear()
        self._left.clear()

    async def _dial(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 0xFFFF:
            raise NotReached(f"{address[:100]!r}: no address HOST:PORT")
        return await connect(
            host.strip("[]"), int(port), handler=self._handler, tls=self._tls, limits=self._limits,
            timeout=self._timeout,
        )  # fmt: skip

    def _end_dial(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._dialing.pop(address, None)
        if not task.cancelled() and task.exception() is None:
            self._open[address] = task.result()
            if self._opened is not None and not self._closed:
                self._opened(address)
