"""Requests of one client: building, hooks, signing, sending; and handlers for requests of brokers."""

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from formats.fastjson.declare import Declared
from formats.remoting.codes import ControllerCode, Language, RequestCode, ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from rmqtool.client.cluster.answers import require_success
from rmqtool.client.cluster.errors import BadAnswer
from rmqtool.client.cluster.hooks import RpcHook
from rmqtool.client.cluster.links import Links
from rmqtool.remoting.connection import Answer, Connection, Handler
from rmqtool.remoting.signing import Credentials, sign
from rmqtool.rules.releases import Release

# of a consumer whose heartbeat has not come, or has been forgotten
_UNKNOWN = (
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.FILTER_DATA_NOT_EXIST,
)


class Peers:
    """Name servers and brokers, by address.

    Args:
        release: whose version to announce.
        timeout: default seconds for a peer to answer.
        hooks: called in order with every request and its response.
        credentials: for signing requests, after the hooks.
        opened: called with each new connection.
        unknown: called with a broker that does not know a group, or its subscription.
    """

    def __init__(
        self,
        release: Release,
        timeout: float,
        *,
        hooks: Sequence[RpcHook] = (),
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        opened: Callable[[str], None] | None = None,
        unknown: Callable[[str], None] | None = None,
    ) -> None:
        self.release, self.timeout, self._hooks, self._credentials = release, timeout, tuple(hooks), credentials
        self._links = Links(self._answer, opened=opened, tls=tls, timeout=timeout)
        self._handlers: dict[int, Handler] = {}
        self._unknown = unknown

    def request(self, code: RequestCode | ControllerCode, header: Declared | None = None, body: bytes = b"") -> Command:
        """Build a request of this client."""
        return Command(
            code,
            fields=None if header is None else to_fields(header),
            body=body,
            language=Language.PYTHON,
            version=self.release.mq_version,
        )

    def prepare(self, address: str, request: Command) -> Command:
        """Apply the hooks and the signature to a request."""
        for hook in self._hooks:
            request = hook.before(address, request)
        return request if self._credentials is None else sign(request, self._credentials)

    async def connect(self, address: str) -> Connection:
        """The connection to a peer.

        Raises:
            RemotingError: not reached.
        """
        return await self._links.get(address)

    async def call(
        self, address: str, request: Command, timeout: float | None = None, *, over: Connection | None = None
    ) -> Command:
        """Send a request to a peer; returns its response, whatever the code.

        Args:
            over: the connection to use; a new one may reach another peer at the address.

        Raises:
            RemotingError: not reached, or no response within ``timeout`` seconds.
        """
        request, timeout = self.prepare(address, request), self.timeout if timeout is None else timeout
        if over is None:
            response = await self._links.call(address, request, timeout)
        else:
            response = await over.call(request, timeout)
        for hook in self._hooks:
            hook.after(address, request, response)
        if response.code in _UNKNOWN and self._unknown is not None:
            self._unknown(address)
        return response

    async def ask(
        self, address: str, request: Command, timeout: float | None = None, *, over: Connection | None = None
    ) -> Command:
        """As :meth:`call`, for a response that must be a success.

        Raises:
            RemotingError: not reached, or no response in time.
            BrokerError: another code.
        """
        return require_success(await self.call(address, request, timeout, over=over), address)

    async def oneway(self, address: str, request: Command) -> None:
        """Send a one-way request.

        Raises:
            RemotingError: not reached.
        """
        await self._links.oneway(address, self.prepare(address, request))

    async def tell(self, connection: Connection, request: Command) -> None:
        """As :meth:`oneway`, over an open connection, such as one with a request.

        Raises:
            ConnectionLost: it has ended.
        """
        await connection.oneway(self.prepare(connection.peer, request))

    def drop(self, address: str, reason: str) -> None:
        """Close the connection to a peer, if any; pending requests fail with the reason."""
        self._links.drop(address, reason)

    def on(self, code: RequestCode, handler: Handler) -> None:
        """Set the handler for brokers' requests with this code."""
        self._handlers[code] = handler

    @contextmanager
    def answers_of(self, address: str) -> Iterator[None]:
        """Context for reading a peer's answer: an invalid one closes the connection."""
        try:
            yield
        except BadAnswer as err:
            self.drop(address, str(err))
            raise

    async def close(self) -> None:
        """Close all connections after sending what is buffered."""
        await self._links.close()

    def _answer(self, connection: Connection, request: Command) -> Answer:
        handler = self._handlers.get(request.code)
        if handler is not None:
            return handler(connection, request)
        remark = f"request type {request.code} not supported"
        return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark, language=Language.PYTHON)
