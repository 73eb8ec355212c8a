"""A listening name server, for the command and for ``serve``."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rmqtool.remoting.connection import PeerLimits
from rmqtool.remoting.listener import Listener
from rmqtool.remoting.tls import PLAIN, ServerTls
from rmqtool.server.namesrv.requests import Requests
from rmqtool.server.namesrv.settings import NamesrvSettings

_AT_A_TIME = 4  # requests of one connection: only registrations take time, and they may be large


def _monotonic() -> int:
    return time.monotonic_ns() // 1_000_000


class NameServer:
    """A name server on a port of its own; use it with ``async with``, or call :meth:`start` and :meth:`close`.

    Attributes:
        requests: answers requests; a broker in the same process may call it directly.
        address: where it listens, HOST:PORT; empty before the start.

    Args:
        listen: host and port; port 0 lets the system choose one.
        clock: monotonic clock, in ms.
        kv_config: file that keeps the KV configuration; without it in memory only.
        tls: whether connections must or may use TLS.

    Raises:
        UnreadableStore: that file cannot be read.
        CorruptFile: it holds something else.
    """

    def __init__(
        self,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        settings: NamesrvSettings | None = None,
        clock: Callable[[], int] = _monotonic,
        kv_config: str | None = None,
        tls: ServerTls = PLAIN,
    ) -> None:
        self.requests = Requests(clock, settings, kv_config)
        self._kv_config = kv_config
        self._listen = listen
        limits = PeerLimits(requests=_AT_A_TIME)
        self._listener = Listener(
            self.requests.handle, closed=self.requests.end_connection, tls=tls.context, mode=tls.mode, limits=limits
        )
        self._expiring: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self._listener.address

    async def start(self) -> None:
        """Listen.

        Raises:
            Refused: the address is in use, or not one of this machine.
        """
        await self._listener.start(*self._listen)
        port = self.address.rpartition(":")[2]
        self.requests.fixed = {"bindAddress": self._listen[0], "listenPort": port}
        if self._kv_config is not None:
            self.requests.fixed["kvConfigPath"] = self._kv_config
        self._expiring = asyncio.create_task(self._expire())

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self.requests.settings.scan_not_active_broker_interval / 1000)
            self.requests.expire()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.gather(self._expiring, return_exceptions=True)
        await self._listener.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
