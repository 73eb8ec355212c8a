"""The server's side: one port for plain connections and TLS (netty.NettyRemotingServer)."""

import asyncio
import errno
import logging
import resource
import socket
import ssl
import sys
from collections.abc import Callable
from enum import Enum

from rmqtool.errors import Refused
from rmqtool.remoting.connection import TLS_GOODBYE, Connection, Handler, PeerLimits

log = logging.getLogger(__name__)

_TLS_HANDSHAKE = 0x16  # first byte of a TLS connection; that of a frame is at most 1
_BACKLOG = 1024
_PAUSE = 0.1  # s, when there are no descriptors left
_FOR_FILES = 256  # descriptors that connections leave, or half of a smaller number
_taken: "set[asyncio.Task[None]]" = set()  # connections of all listeners of this process


class TlsMode(Enum):
    """Which connections are taken (tls.server.mode)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"  # both, distinguished by their first byte
    ENFORCING = "enforcing"


class Listener:
    """A listening port.

    Args:
        handler: answers requests.
        closed: called with every connection that ended.
        tls: certificate and key; without it TLS connections are closed.
        most: connections at a time; above that new ones are closed. So are those for which the process would have too
            few descriptors left beside its files.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        closed: Callable[[Connection], None] | None = None,
        tls: ssl.SSLContext | None = None,
        mode: TlsMode = TlsMode.PERMISSIVE,
        limits: PeerLimits | None = None,
        most: int = 20_000,
    ) -> None:
        if tls is None and mode is TlsMode.ENFORCING:
            raise Refused("TLS is required, but there is no certificate")
        self._handler, self._closed, self._tls, self._mode = handler, closed, tls, mode
        self._limits, self._most = limits or PeerLimits(), most
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.address = ""

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._serving)

    async def start(self, host: str, port: int) -> None:
        """Listen; :attr:`address` is then HOST:PORT, with the port that the system chose where 0 was asked for.

        Raises:
            Refused: the address is in use, or not one of this machine.
        """
        try:
            addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = addresses[0]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
            self._socket.listen(_BACKLOG)
            self._socket.setblocking(False)
        except OSError as err:
            if self._socket is not None:
                self._socket.close()
            raise Refused(f"{host}:{port}: {err.strerror or err}") from None
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._socket.getsockname()[1]}"
        self._accepting = asyncio.create_task(self._accept(self._socket))

    async def stop(self) -> None:
        """Stop listening and end all connections."""
        tasks = [*self._serving] + ([self._accepting] if self._accepting else [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        short = False  # of descriptors or memory: said once
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as err:
                if err.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    if not short:
                        log.error("no new connection is taken: %s", err.strerror)
                    short = True
                    await asyncio.sleep(_PAUSE)
                continue  # the peer was gone before it was taken
            if len(self._serving) >= self._most or len(_taken) >= _most_connections():
                accepted.close()
                if not short:
                    log.error("no new connection is taken: there are %d", len(self._serving))
                short = True
                continue
            if short:
                log.info("new connections are taken again")
                short = False
            accepted.setblocking(False)
            task = asyncio.create_task(self._serve(accepted))
            for tasks in (self._serving, _taken):
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    async def _serve(self, accepted: socket.socket) -> None:
        connection = None
        try:
            tls = await self._context_of(accepted)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol = Connection(self._handler, self._limits, self._closed)
            # of a TLS connection uvloop returns a protocol of its own
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, accepted, ssl=tls, ssl_shutdown_timeout=None if tls is None else TLS_GOODBYE
            )
            connection = protocol
            await connection.lost.wait()
        except OSError as err:
            log.debug("a connection was not taken: %s", err)
        finally:
            if connection is None:
                accepted.close()
            else:
                connection.abort()

    async def _context_of(self, accepted: socket.socket) -> ssl.SSLContext | None:
        """The TLS context that a connection asks for, None for a plain one.

        Raises:
            OSError: it sends nothing, or not what is allowed here.
        """
        async with asyncio.timeout(self._limits.idle):
            first = await _peek(accepted)
        if first != bytes([_TLS_HANDSHAKE]):
            if self._mode is TlsMode.ENFORCING:
                raise ConnectionRefusedError("a plain connection where TLS is enforced")
            return None
        if self._tls is None or self._mode is TlsMode.DISABLED:
            raise ConnectionRefusedError("a TLS connection where there is no TLS")
        return self._tls


def _most_connections() -> int:
    """How many this process may have, so that it can still open files."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit - min(_FOR_FILES, limit // 2)


async def _peek(accepted: socket.socket) -> bytes:
    """The first byte of a connection, which stays to be read; nothing where it ended."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(accepted, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(accepted)
    return accepted.recv(1, socket.MSG_PEEK)
