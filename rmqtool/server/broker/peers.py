"""Connections to other brokers, which hold parts of this one's static topics (remoting.rpc.RpcClientImpl, 5.x)."""

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable

from formats.remoting.frame import Command
from rmqtool.errors import BadValue
from rmqtool.remoting.client import connect
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import NotReached, RemotingError
from rmqtool.remoting.signing import Credentials, sign
from rmqtool.store.layout.broker_conf import BrokerConf

_TIMEOUT = 3.0  # s; forwardTimeout of a broker
_FRESH = 5.0  # s for which an address is taken as known
_CREDENTIALS = "innerClientAuthenticationCredentials"


def inner_credentials(conf: BrokerConf) -> Credentials | None:
    """What a broker signs its own requests with (5.3): ``innerClientAuthenticationCredentials``, if it has both keys.

    Raises:
        BadValue: it is not a JSON object of texts.
    """
    text = conf.text(_CREDENTIALS)
    if not text or not text.strip():
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise BadValue(f'{_CREDENTIALS}: give {{"accessKey":"...","secretKey":"..."}}')  # never quoted
    access, secret = (fields.get(name, "").strip() for name in ("accessKey", "secretKey"))
    return Credentials(access, secret, fields.get("securityToken")) if access and secret else None


class BrokerPeers:
    """Asks other brokers; each keeps its connection.

    Args:
        find: the address of a broker's master, HOST:PORT, from the name servers; None if they do not know it.
        tls: for the connections; None for plain ones.
        credentials: for signing requests; None where no broker has access control.
    """

    def __init__(
        self,
        find: Callable[[str], Awaitable[str | None]],
        tls: ssl.SSLContext | None,
        credentials: Credentials | None = None,
    ) -> None:
        self._find, self._tls, self._credentials = find, tls, credentials
        self._addresses: dict[str, tuple[float, str]] = {}  # by broker: when it was asked for, and what it was
        self._connections: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def ask(self, broker: str, request: Command) -> Command:
        """The answer of a broker.

        Raises:
            RemotingError: it cannot be found or reached, or does not answer in time.
        """
        connection = await self._connection(await self._address(broker))
        if self._credentials is not None:
            request = sign(request, self._credentials)
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
