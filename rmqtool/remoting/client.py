"""The client's side of a connection (netty.NettyRemotingClient)."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rmqtool.remoting.connection import Connection, Handler, Limits
from rmqtool.remoting.errors import NotReached


@asynccontextmanager
async def connected(
    host: str,
    port: int,
    *,
    handler: "Handler | None" = None,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    timeout: float = 3.0,
) -> AsyncIterator[Connection]:
    """A connection to a server, closed at the end.

    Args:
        handler: answers requests of the server; without one they are refused.
        timeout: seconds until the connection must stand.

    Raises:
        NotReached: nobody listens there, TLS fails, or it takes too long.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_connection(lambda: Connection(handler, limits), host, port, ssl=tls)
    except TimeoutError:
        raise NotReached(f"{host}:{port}: no connection within {timeout:g} s") from None
    except OSError as err:
        raise NotReached(f"{host}:{port}: {err.strerror or err}") from None
    try:
        yield connection
    finally:
        await connection.close()
