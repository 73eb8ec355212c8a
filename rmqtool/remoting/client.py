"""The client's side of a connection (netty.NettyRemotingClient)."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rmqtool.remoting.connection import TLS_GOODBYE, Connection, Handler, PeerLimits
from rmqtool.remoting.errors import NotReached


async def connect(
    host: str,
    port: int,
    *,
    handler: "Handler | None" = None,
    tls: ssl.SSLContext | None = None,
    limits: PeerLimits | None = None,
    timeout: float = 3.0,
) -> Connection:
    """A connection to a server; the caller closes it.

    Args:
        handler: answers requests of the server; without one they are refused.
        timeout: seconds for opening the connection.

    Raises:
        NotReached: connection refused, TLS failed, or timeout.
    """
    connection = Connection(handler, limits, strict=True)
    try:
        async with asyncio.timeout(timeout):
            await asyncio.get_running_loop().create_connection(
                lambda: connection, host, port, ssl=tls, ssl_shutdown_timeout=None if tls is None else TLS_GOODBYE
            )
    except TimeoutError:
        raise NotReached(f"{host}:{port}: no connection within {timeout:g} s") from None
    except (ConnectionResetError, ConnectionAbortedError) as err:
        where = "" if tls is None else " in the TLS handshake, which a server without TLS does not answer"
        raise NotReached(f"{host}:{port}: {_words(err)}{where}") from None
    except (OSError, UnicodeError) as err:  # IDNA raises UnicodeError for invalid host names
        raise NotReached(f"{host}:{port}: {_words(err)}") from None
    return connection


def _words(err: OSError | UnicodeError) -> str:
    if hasattr(err, "library"):  # an ssl.SSLError, whose numbers are not the system's
        why = getattr(err, "verify_message", None) or str(getattr(err, "reason", None) or err).replace("_", " ").lower()
        return f"no TLS connection: {why}"
    if isinstance(err, OSError) and (err.errno or 0) > 0:
        return os.strerror(err.errno or 0)  # asyncio's message repeats the address
    return getattr(err, "strerror", None) or str(err) or "the peer closed the connection"


@asynccontextmanager
async def open_connection(
    host: str,
    port: int,
    *,
    handler: "Handler | None" = None,
    tls: ssl.SSLContext | None = None,
    limits: PeerLimits | None = None,
    timeout: float = 3.0,
) -> AsyncIterator[Connection]:
    """As :func:`connect`, closed at the end."""
    connection = await connect(host, port, handler=handler, tls=tls, limits=limits, timeout=timeout)
    try:
        yield connection
    finally:
        await connection.close()
