"""The transport over real sockets."""

import asyncio
import errno
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trustme

from formats.remoting import frame
from formats.remoting.codes import CommandFlag, ResponseCode, Serializer
from formats.remoting.frame import Command
from rmqtool.errors import Refused
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection, PeerLimits
from rmqtool.remoting.errors import ConnectionLost, NoAnswer, NotReached
from rmqtool.remoting.listener import Listener, TlsMode

ECHO, SILENT, BROKEN, CALL_BACK, GATED = 1, 2, 3, 4, 5


class Server:
    """Handlers to talk to."""

    def __init__(self) -> None:
        self.got: list[Command] = []
        self.gone: list[Connection] = []
        self.gate = asyncio.Event()
        self.entered = 0

    async def handle(self, connection: Connection, request: Command) -> Command | None:
        self.got.append(request)
        if request.code == SILENT:
            return None
        if request.code == BROKEN:
            raise ValueError("what went wrong")
        if request.code == CALL_BACK:
            answer = await connection.call(Command(ECHO, body=b"back"), 10)
            return request.response(body=answer.body)
        if request.code == GATED:
            self.entered += 1
            await self.gate.wait()
        return request.response(fields=request.fields, body=request.body)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Server, Listener, int]]:
    server = Server()
    listener = Listener(server.handle, closed=server.gone.append, **options)
    await listener.start("127.0.0.1", 0)
    try:
        yield server, listener, int(listener.address.rpartition(":")[2])
    finally:
        await listener.stop()


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("form", Serializer)
def test_responses_find_their_requests_in_any_order(form: Serializer) -> None:
    async def test() -> None:
        async with serving() as (server, _, port), open_connection("127.0.0.1", port) as client:
            gated = [asyncio.create_task(client.call(Command(GATED, body=bytes([n])), 30)) for n in range(20)]
            await until(lambda: server.entered == 20)
            answers = [await client.call(Command(ECHO, body=bytes([n]), serializer=form)) for n in range(20)]
            assert [answer.body for answer in answers] == [bytes([n]) for n in range(20)]
            assert {answer.serializer for answer in answers} == {form}
            server.gate.set()
            assert [(await task).body for task in gated] == [bytes([n]) for n in range(20)]

    run(test)


def test_a_oneway_request_is_never_answered() -> None:
    async def test() -> None:
        async with serving() as (server, _, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for code in (ECHO, BROKEN):
                writer.write(frame.build(Command(code, 7, CommandFlag.ONEWAY)))
            writer.write(frame.build(Command(ECHO, 8)))
            head = await reader.readexactly(4)
            rest = await reader.readexactly(int.from_bytes(head, "big"))
            command = frame.parse(head + rest)
            assert command is not None
            assert command[0].opaque == 8
            assert len(server.got) == 3
            writer.close()

    run(test)


def test_a_request_in_the_other_direction() -> None:
    async def handle(_connection: Connection, request: Command) -> Command | None:
        return request.response(body=request.body * 2)

    async def test() -> None:
        async with serving() as (_, _, port), open_connection("127.0.0.1", port, handler=handle) as client:
            assert (await client.call(Command(CALL_BACK), 10)).body == b"backback"

    run(test)


def test_what_fails_is_answered_and_the_connection_goes_on() -> None:
    async def test() -> None:
        async with serving() as (_, _, port), open_connection("127.0.0.1", port) as client:
            answer = await client.call(Command(BROKEN))
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "ValueError: what went wrong")
            assert (await client.call(Command(ECHO, body=b"x"))).body == b"x"

    run(test)


def test_no_answer_in_time() -> None:
    async def test() -> None:
        async with serving() as (_, _, port), open_connection("127.0.0.1", port) as client:
            with pytest.raises(NoAnswer, match=f"127.0.0.1:{port}: no answer to request 2 within 0.05 s"):
                await client.call(Command(SILENT), 0.05)
            assert (await client.call(Command(ECHO, body=b"x"))).body == b"x"

    run(test)


def test_all_who_wait_are_told_when_the_connection_ends() -> None:
    async def test() -> None:
        async with serving() as (server, listener, port), open_connection("127.0.0.1", port) as client:
            calls = [asyncio.create_task(client.call(Command(SILENT), 50)) for _ in range(5)]
            await until(lambda: len(server.got) == 5)
            await listener.stop()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(end) for end in ended] == [ConnectionLost] * 5
            with pytest.raises(ConnectionLost, match="closed"):
                await client.call(Command(ECHO))
            assert len(server.gone) == 1

    run(test)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x04",
        b"\0\0\0\x10\0\0\0\x0d",
        b"\0\0\0\x06\0\0\0\2[]",
        b"\0\0\0\x06\0\0\0\2\xff\xff",
        b"\0",
    ],
)
def test_a_peer_that_sends_something_else_is_closed_and_others_are_served(sent: bytes) -> None:
    async def test() -> None:
        limits = PeerLimits(stalled=0.2)
        async with serving(limits=limits) as (server, _, port), open_connection("127.0.0.1", port) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(1)
            writer.close()
            await until(lambda: len(server.gone) == 1)
            assert (await client.call(Command(ECHO, body=b"x"))).body == b"x"

    run(test)


def test_a_frame_above_the_limit_closes_the_connection() -> None:
    async def test() -> None:
        async with serving(limits=PeerLimits(frame=1000)) as (_, _, port), open_connection("127.0.0.1", port) as client:
            with pytest.raises(ConnectionLost):
                await client.call(Command(ECHO, body=bytes(1000)))

    run(test)


def test_an_idle_connection_is_closed() -> None:
    async def test() -> None:
        async with serving(limits=PeerLimits(idle=0.1)) as (server, _, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame.build(Command(SILENT)))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(1)
            assert len(server.got) == 1
            writer.close()

    run(test)


def test_no_more_requests_are_read_than_may_be_worked_on() -> None:
    async def test() -> None:
        limits = PeerLimits(requests=3)
        async with serving(limits=limits) as (server, _, port), open_connection("127.0.0.1", port) as client:
            calls = [asyncio.create_task(client.call(Command(GATED), 50)) for _ in range(10)]
            await until(lambda: server.entered == 3)
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert server.entered == 3
            server.gate.set()
            await asyncio.gather(*calls)
            assert server.entered == 10

    run(test)


def test_a_peer_with_many_requests_leaves_others_their_turn() -> None:
    order: list[int] = []

    def handle(_: Connection, request: Command) -> Command:
        order.append(request.code)
        return request.response()

    async def test() -> None:
        listener = Listener(handle, limits=PeerLimits(turn=0.0))
        await listener.start("127.0.0.1", 0)
        port = int(listener.address.rpartition(":")[2])
        try:
            async with open_connection("127.0.0.1", port) as first, open_connection("127.0.0.1", port) as other:
                await first.call(Command(7), 10)
                await other.call(Command(7), 10)
                order.clear()
                for number in range(100):
                    first.tell(Command(ECHO if number < 99 else SILENT))
                other.tell(Command(BROKEN))
                await until(lambda: len(order) == 101)
        finally:
            await listener.stop()

    run(test)
    assert order[-1] == SILENT, "nothing of the first is lost, and its order is kept"
    assert order.index(BROKEN) <= 4


def test_a_peer_that_does_not_read_is_closed() -> None:
    async def test() -> None:
        async with serving(limits=PeerLimits(stalled=0.2)) as (server, _, port):
            request = frame.build(Command(ECHO, body=bytes(1 << 20)))
            with socket.create_connection(("127.0.0.1", port)) as slow:
                slow.setblocking(False)
                with suppress(ConnectionError):  # where it is closed before all is sent
                    await asyncio.get_running_loop().sock_sendall(slow, request * 40)
                await until(lambda: len(server.gone) == 1)
                assert 0 < len(server.got) < 40

    run(test)


def test_an_address_that_cannot_be_had() -> None:
    async def test() -> None:
        async with serving() as (_, _, port):
            with pytest.raises(Refused, match=f"127.0.0.1:{port}: Address already in use"):
                await Listener(Server().handle).start("127.0.0.1", port)
        with pytest.raises(NotReached, match=f"127.0.0.1:{port}: "):
            async with open_connection("127.0.0.1", port):
                pass

    run(test)


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    issuer = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    issuer.issue_cert("127.0.0.1").configure_cert(server)
    issuer.configure_trust(client)
    return server, client


@pytest.mark.parametrize("mode", TlsMode)
@pytest.mark.parametrize("secure", [False, True])
def test_one_port_for_plain_and_tls(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], mode: TlsMode, secure: bool
) -> None:
    async def test() -> None:
        allowed = mode is not TlsMode.DISABLED if secure else mode is not TlsMode.ENFORCING
        async with serving(tls=contexts[0], mode=mode) as (_, _, port):
            tls = contexts[1] if secure else None
            if allowed:
                async with open_connection("127.0.0.1", port, tls=tls) as client:
                    body = bytes(range(256)) * 4000
                    assert (await client.call(Command(ECHO, body=body), 10)).body == body
            else:
                with pytest.raises((NotReached, ConnectionLost)):
                    async with open_connection("127.0.0.1", port, tls=tls) as client:
                        await client.call(Command(ECHO))

    run(test)


def test_tls_is_not_enforced_without_a_certificate() -> None:
    with pytest.raises(Refused, match="no certificate"):
        Listener(Server().handle, mode=TlsMode.ENFORCING)


def test_connections_leave_descriptors_for_files(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda _which: (20, 20))
        async with serving() as (_, listener, port), serving() as (_, _other, other):
            opened = [await asyncio.open_connection("127.0.0.1", each) for each in [port, other] * 10]
            await until(lambda: sum(reader.at_eof() for reader, _ in opened) == 10)
            assert listener.connections <= 10
            for reader, writer in opened:
                if not reader.at_eof():
                    writer.close()
            await until(lambda: not listener.connections)
            async with open_connection("127.0.0.1", port) as client:
                assert (await client.call(Command(ECHO, body=b"x"), 10)).body == b"x"
            for _, writer in opened:
                writer.close()

    run(test)
    assert sum("no new connection is taken" in record.getMessage() for record in caplog.records) <= 2


def test_an_answer_names_no_path_of_the_server() -> None:
    async def handle(_connection: Connection, _request: Command) -> Command | None:
        raise OSError(errno.ENOSPC, "No space left on device", "/srv/rocketmq/store/config/topics.json")

    async def test() -> None:
        listener = Listener(handle)
        await listener.start("127.0.0.1", 0)
        try:
            async with open_connection("127.0.0.1", int(listener.address.rpartition(":")[2])) as client:
                answer = await client.call(Command(ECHO), 10)
                assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "OSError: No space left on device")
        finally:
            await listener.stop()

    run(test)
