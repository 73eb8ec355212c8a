"""Scripted name servers and brokers, on free ports."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeVar

from formats.fastjson.declare import body_of
from formats.remoting.bodies import TopicRouteData
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import BrokerData, QueueData
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.remoting.connection import Answer, Connection
from rmqtool.remoting.errors import ConnectionLost
from rmqtool.remoting.listener import Listener

Reply = Callable[[Command], Answer]
T = TypeVar("T")


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test with a time limit."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


class Peer:
    """A scripted server.

    Attributes:
        got: received requests, in order.
        replies: request code → answer; other requests are refused.
        connections: open connections.
    """

    def __init__(self) -> None:
        self.got: list[Command] = []
        self.replies: dict[int, Reply] = {RequestCode.HEART_BEAT: ok, RequestCode.UNREGISTER_CLIENT: ok}
        self.connections: list[Connection] = []
        self.address = ""

    def handle(self, connection: Connection, request: Command) -> Answer:
        if connection not in self.connections:
            self.connections.append(connection)
        self.got.append(request)
        reply = self.replies.get(request.code)
        return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED) if reply is None else reply(request)

    def codes(self) -> list[int]:
        return [request.code for request in self.got]

    def of(self, code: RequestCode) -> list[Command]:
        return [request for request in self.got if request.code == code]


def ok(request: Command) -> Command:
    return request.response()


@asynccontextmanager
async def peer(**options: Any) -> AsyncIterator[Peer]:
    """A listening peer."""
    made = Peer()
    listener = Listener(made.handle, **options)
    await listener.start("127.0.0.1", 0)
    made.address = listener.address
    try:
        yield made
    finally:
        await listener.stop()


def route(*brokers: tuple[str, str], queues: int = 4, perm: int = 6) -> TopicRouteData:
    """A route with these masters, each (name, address)."""
    return TopicRouteData(
        [BrokerData("C", name, {0: address}) for name, address in brokers],
        [QueueData(name, queues, queues, perm) for name, _address in brokers],
    )


def tells(routes: dict[str, TopicRouteData]) -> Reply:
    """The replies of a name server that knows these topics."""

    def answer(request: Command) -> Command:
        data = routes.get((request.fields or {})["topic"])
        if data is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, "no route")
        return request.response(body=body_of(data))

    return answer


@asynccontextmanager
async def raw_peer(answer: bytes) -> AsyncIterator[str]:
    """The address of a server that answers everything with the same bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            writer.write(answer)
            await writer.drain()

    async with listening(serve) as address:
        yield address


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
) -> AsyncIterator[str]:
    """The address of a server that does this with each connection, until the other side is gone."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def unreadable(topic: str) -> AsyncIterator[str]:
    """The address of a name server with a topic that must not be read."""
    data = route(("a", "127.0.0.1:1"), queues=1)
    data.queue_datas[0].perm = 2
    async with peer() as namesrv:
        namesrv.replies[RequestCode.GET_ROUTEINFO_BY_TOPIC] = tells({topic: data})
        yield namesrv.address


@contextmanager
def serving(peers: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Serve in a thread; yields what the peers yield."""
    ready, loop, end = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    opened: list[T] = []

    async def serve() -> None:
        async with peers as peer_or_address:
            opened.append(peer_or_address)
            ready.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        assert ready.wait(30)
        yield opened[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


async def lose_connection(broker: "Peer", cluster: Cluster) -> None:
    """End the newest connection to a broker, and ask until there is another."""
    broker.connections[-1].abort()
    while True:
        try:
            await cluster.ask(broker.address, cluster.request(RequestCode.GET_MAX_OFFSET))
            return
        except ConnectionLost:
            continue
