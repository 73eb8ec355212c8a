"""A served store: the broker, its port, and its own or another name server.

async with Served("store", ServeOptions()) as served:
    print(served.broker_address, served.name_servers)
    await served.wait()
"""

import asyncio
import logging
import os
import socket
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.remoting.connection import Answer, Connection
from rmqtool.remoting.listener import Listener, TlsMode
from rmqtool.remoting.signing import Credentials
from rmqtool.remoting.tls import PLAIN, ServerTls, unverified_context
from rmqtool.rules.releases import NEWEST, Release
from rmqtool.services.open_store.broker_state import setting
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.create import create
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout

if TYPE_CHECKING:
    from rmqtool.server.broker.broker import Broker

log = logging.getLogger(__name__)

DEFAULT_PORT = 10911


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How a store is served.

    Attributes:
        broker_conf: the broker's properties file, or its settings by name.
        listen: host and port of the broker; port 0 lets the system choose one, None takes that of the file.
        namesrv: HOST:PORT of each name server to register with; if empty, one is started.
        namesrv_listen: host and port of that.
        name, cluster: of the broker, instead of what the file says.
        create: create the store if it does not exist.
        copies: all copies of the store, the one whose history counts first; with ``read_only`` all of them are served.
        release: whose rules apply; None for the store's own, which is the newest for one that is created.
        read_only: nothing below the store is written, not even a lock.
        follow: a broker is writing the store; it is only read, and new messages are served.
        offsets: file for the offsets of groups in both cases; None for one beside the store.
        tls: whether connections to the broker and its own name server are, or may be, TLS.
        acl: the file plain_acl.yml; None to follow the broker's file.
        credentials: sign requests to other brokers with these, unless the file has some of its own.
        metrics: host and port of the page for Prometheus; port 0 lets the system choose one, None makes none.
    """

    broker_conf: str | dict[str, str] | None = None
    listen: tuple[str, int] | None = None
    namesrv: tuple[str, ...] = ()
    namesrv_listen: tuple[str, int] = ("127.0.0.1", 9876)
    name: str | None = None
    cluster: str | None = None
    create: bool = False
    copies: tuple[StoreLayout, ...] = ()
    release: Release | None = None
    read_only: bool = False
    follow: bool = False
    offsets: str | None = None
    tls: ServerTls = PLAIN
    acl: str | None = None
    credentials: Credentials | None = None
    metrics: tuple[str, int] | None = None


class Served:
    """A served store; use it with ``async with``.

    Attributes:
        broker_address: HOST:PORT at which clients reach the broker.
        name_servers: HOST:PORT of the name servers, with ; between.
        metrics_address: HOST:PORT of the metrics page; empty without one.

    Raises:
        Refused: the store is in use or not healthy, or an address is not available.
    """

    def __init__(self, path: str, options: ServeOptions) -> None:
        self._path, self._options = path, options
        self._stack = AsyncExitStack()
        self.broker_address = ""
        self.name_servers: tuple[str, ...] = options.namesrv
        self.metrics_address = ""
        self.broker: Broker | None = None
        self._listener: Listener | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def _start(self, stack: AsyncExitStack) -> None:
        options = self._options
        conf = _conf(options.broker_conf)
        accounts = options.acl or _accounts(conf, options.broker_conf)
        if options.acl is not None and not os.path.exists(options.acl):
            raise UnreadableStore(f"{options.acl}: No such file or directory")
        if accounts is not None:
            from rmqtool.server.access.files import read_all  # loads PyYAML

            read_all(accounts)  # check them before the store is opened or created
        from rmqtool.server.broker.peers import BrokerPeers, inner_credentials

        credentials = inner_credentials(conf) or options.credentials
        # take the ports before the store is opened
        outgoing = await self._find_name_servers(stack)
        await self._listen(stack, conf)
        opening = asyncio.get_running_loop().run_in_executor(None, self._open, conf)
        # load the rest while the store is examined
        from rmqtool.server.broker.broker import Broker
        from rmqtool.server.broker.context.settings import BrokerSettings
        from rmqtool.server.broker.registration import Registration
        from rmqtool.services.open_store.union import UnionStore
        from rmqtool.services.serving.drained_state import DrainedState, FollowedState, UnionState

        store = await opening
        stack.callback(store.close)
        state: DrainedState | None = None
        read_only = options.read_only or options.follow
        if read_only:
            offsets = options.offsets or f"{store.layout.root}.served-offsets.csv"
            if isinstance(store, UnionStore):
                state = UnionState(store, log.warning, offsets)
            else:
                state = (FollowedState if options.follow else DrainedState)(store, log.warning, offsets)
        settings = BrokerSettings.of(
            conf,
            self.broker_address,
            store.live.release if state is None else state.release,
            name=options.name,
            cluster=options.cluster,
            read_only=read_only,
        )
        self.broker = broker = Broker(store, settings, state=state, accounts=accounts)
        registration = Registration(broker.context, self.name_servers, outgoing)
        broker.context.topic_changes.subscribe(registration.announce)
        broker.context.routes = registration.queues_of
        broker.context.announced = registration.finish
        peers = BrokerPeers(registration.find_master, outgoing, credentials)
        broker.context.ask_broker = peers.ask
        stack.push_async_callback(peers.stop)
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

    async def _find_name_servers(self, stack: AsyncExitStack) -> ssl.SSLContext | None:
        """Start a name server if none was named; returns the TLS context for name servers, None for plain TCP."""
        tls = self._options.tls
        if self.name_servers:
            return tls.outgoing
        from rmqtool.server.namesrv.server import NameServer

        own = await stack.enter_async_context(NameServer(self._options.namesrv_listen, tls=tls))
        self.name_servers = (own.address,)
        return tls.outgoing or (unverified_context() if tls.mode is TlsMode.ENFORCING else None)

    async def _listen(self, stack: AsyncExitStack, conf: BrokerConf) -> None:
        """Take the broker's port, and determine the address for clients."""
        host, port = self._options.listen or ("127.0.0.1", setting(conf, "listenPort", DEFAULT_PORT))
        tls = self._options.tls
        self._listener = Listener(self._handle, closed=self._end_connection, tls=tls.context, mode=tls.mode)
        await self._listener.start(host, port)
        stack.push_async_callback(self._listener.stop)
        self.broker_address = f"{_reachable(conf, host)}:{self._listener.address.rpartition(':')[2]}"

    def _open(self, conf: BrokerConf) -> Store:
        """Open the store; create it if asked to."""
        options = self._options
        if options.create and not os.path.lexists(self._path):
            create(self._path, conf, options.release or NEWEST)
        if options.copies:
            from rmqtool.services.open_store.union import UnionStore

            return UnionStore(options.copies, log.warning, options.release)
        if options.read_only or options.follow:
            return Store(self._path, broker_conf=options.broker_conf, release=options.release)
        store = Store(
            self._path, write=True, broker_conf=options.broker_conf, release=options.release, mend=True, command="serve"
        )
        for text in store.warnings:
            log.warning("%s", text)
        return store

    def _handle(self, connection: Connection, request: Command) -> Answer:
        if self.broker is None:
            return request.response(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is starting")
        return self.broker.handle(connection, request)

    @property
    def connections(self) -> int:
        """The number of connections of the broker."""
        return self._listener.connections if self._listener is not None else 0

    def _end_connection(self, connection: Connection) -> None:
        if self.broker is not None:
            self.broker.end_connection(connection)

    async def wait(self) -> None:
        """Wait until it cannot continue.

        Raises:
            Disturbed: a broker has begun to load the store.
            OSError, RmqError: an error ended all writing; the next start examines the store.
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


def _accounts(conf: BrokerConf, broker_conf: str | dict[str, str] | None) -> str | None:
    """The file of accounts, if the broker's file enables access control."""
    if not conf.flag("aclEnable", False):
        return None
    home = conf.text("rocketmqHome") or os.environ.get("ROCKETMQ_HOME")
    if home is not None:
        return os.path.join(home, "conf", "plain_acl.yml")
    if not isinstance(broker_conf, str):
        raise BadValue("aclEnable=true, and nothing says where plain_acl.yml is (--acl-config, ROCKETMQ_HOME)")
    return os.path.join(os.path.dirname(os.path.abspath(broker_conf)), "plain_acl.yml")


def _reachable(conf: BrokerConf, host: str) -> str:
    """The host at which clients reach this broker."""
    address = conf.text("brokerIP1") or (socket.gethostname() if host in ("0.0.0.0", "::") else host)
    try:
        resolved = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        raise BadValue(f"brokerIP1={address}: no such host") from None
    return f"[{resolved}]" if ":" in str(resolved) else str(resolved)
