"""A store that is served: the broker, its port, and the name server that it brings or is told of.

async with Served("store", ServeOptions()) as served:
    print(served.broker_address, served.name_servers)
    await served.wait()
"""

import logging
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rmqtool.errors import BadValue
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.listener import Listener, TlsMode
from rmqtool.remoting.tls import PLAIN, ServerTls, unverified
from rmqtool.server.broker.broker import Broker
from rmqtool.server.broker.known.settings import DEFAULT_PORT, Settings
from rmqtool.server.broker.registration import Registration
from rmqtool.server.namesrv.server import NameServer
from rmqtool.services.opened.broker_state import setting
from rmqtool.services.opened.engine import Store
from rmqtool.services.serving.drained_state import DrainedState
from rmqtool.store.append.create import create
from rmqtool.store.layout.broker_conf import BrokerConf, load

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How a store is served.

    Attributes:
        broker_conf: the broker's properties file, or its settings by name.
        listen: host and port of the broker; port 0 lets the system choose one, None takes that of the file.
        namesrv: HOST:PORT of each name server to register with; none brings an own one.
        namesrv_listen: host and port of that.
        name, cluster: of the broker, instead of what the file says.
        create: make the store where there is none.
        engine: "4.9" or "5.3"; None for what the store shows.
        read_only: nothing below the store is written, not even a lock.
        offsets: where groups' offsets go then; None for a file beside the store.
        tls: whether connections to the broker and its own name server are, or may be, TLS.
        metrics: host and port of the page for Prometheus; port 0 lets the system choose one, None makes none.
    """

    broker_conf: str | dict[str, str] | None = None
    listen: tuple[str, int] | None = None
    namesrv: tuple[str, ...] = ()
    namesrv_listen: tuple[str, int] = ("127.0.0.1", 9876)
    name: str | None = None
    cluster: str | None = None
    create: bool = False
    engine: str | None = None
    read_only: bool = False
    offsets: str | None = None
    tls: ServerTls = PLAIN
    metrics: tuple[str, int] | None = None


class Served:
    """A store that is served; use it with ``async with``.

    Attributes:
        broker_address: where clients reach the broker, HOST:PORT.
        name_servers: where they ask for it.
        metrics_address: where Prometheus reads, HOST:PORT; empty without that.

    Raises:
        Refused: the store is in use or not healthy, or an address is not to be had.
    """

    def __init__(self, path: str, options: ServeOptions) -> None:
        self._path, self._options = path, options
        self._stack = AsyncExitStack()
        self.broker_address = ""
        self.name_servers: tuple[str, ...] = options.namesrv
        self.metrics_address = ""
        self.broker: Broker | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def _start(self, stack: AsyncExitStack) -> None:
        options = self._options
        conf = _conf(options.broker_conf)
        host, port = options.listen or ("127.0.0.1", setting(conf, "listenPort", DEFAULT_PORT))
        outgoing = options.tls.outgoing
        if not self.name_servers:
            if options.tls.mode is TlsMode.ENFORCING:
                outgoing = outgoing or unverified()
            own = await stack.enter_async_context(NameServer(options.namesrv_listen, tls=options.tls))
            self.name_servers = (own.address,)
        # the port is taken first: a store that cannot be served is not opened
        listener = Listener(
            lambda connection, request: broker.handle(connection, request),
            closed=self._ended,
            tls=options.tls.context,
            mode=options.tls.mode,
        )
        await listener.start(host, port)
        stack.push_async_callback(listener.stop)
        bound = listener.address.rpartition(":")[2]
        self.broker_address = f"{_reachable(conf, host)}:{bound}"
        if options.create and not os.path.lexists(self._path):
            create(self._path, conf)
        state = None
        if options.read_only:
            store = Store(self._path, broker_conf=options.broker_conf, engine=options.engine)
            state = DrainedState(store, log.warning, options.offsets or f"{store.layout.root}.served-offsets.csv")
            engine = state.engine
        else:
            store = Store(self._path, write=True, broker_conf=options.broker_conf, engine=options.engine, mend=True)
            engine = store.live.engine
        stack.callback(store.close)
        settings = Settings.of(
            conf, self.broker_address, engine, name=options.name, cluster=options.cluster, read_only=options.read_only
        )
        self.broker = broker = Broker(store, settings, state=state)
        registration = Registration(broker.core, self.name_servers, outgoing)
        broker.core.topics_changed = registration.changed
        if options.metrics is not None:
            from rmqtool.server.metrics.page import MetricsPage  # loads prometheus-client

            page = MetricsPage(broker)
            await page.start(*options.metrics)
            stack.push_async_callback(page.stop)
            self.metrics_address = page.address
        broker.start()
        stack.push_async_callback(broker.stop)
        stack.push_async_callback(registration.stop)
        await registration.start()

    def _ended(self, connection: Connection) -> None:
        if self.broker is not None:
            self.broker.ended(connection)

    async def wait(self) -> None:
        """Until it cannot go on.

        Raises:
            Disturbed: a broker has begun to load the store.
        """
        assert self.broker is not None
        await self.broker.wait()
        if self.broker.failure is not None:
            raise self.broker.failure

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()


def _conf(broker_conf: str | dict[str, str] | None) -> BrokerConf:
    return load(broker_conf) if isinstance(broker_conf, str) else BrokerConf(broker_conf)


def _reachable(conf: BrokerConf, host: str) -> str:
    """The host by which clients reach this broker."""
    found = conf.text("brokerIP1") or (socket.gethostname() if host in ("0.0.0.0", "::") else host)
    try:
        resolved = socket.getaddrinfo(found, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        raise BadValue(f"brokerIP1={found}: no such host") from None
    return f"[{resolved}]" if ":" in str(resolved) else str(resolved)
