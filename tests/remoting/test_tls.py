"""Parsing ``tls.properties``, and connections with it."""

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.errors import BadValue, RmqError, UnreadableStore
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import NotReached, RemotingError
from rmqtool.remoting.listener import Listener, TlsMode
from rmqtool.remoting.tls import client_tls, server_tls
from tests.cli.running import rmqtool
from tests.remoting.certificates import Certificates, locked

ASKS = {"tls_server_need_client_auth": "require", "tls_server_authClient": "true"}
TRUSTS = {"tls_server_trustCertPath": "@authority"}
HAS = {"tls_client_certPath": "@client", "tls_client_keyPath": "@client.key"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def answers(server: str, client: str | None) -> bool:
    """Whether a request is answered, over TLS if the client has a file."""

    def handle(_connection: Connection, request: Command) -> Command:
        return request.response(body=request.body)

    async def talk() -> bool:
        tls = server_tls(server)
        listener = Listener(handle, tls=tls.context, mode=tls.mode)
        await listener.start("127.0.0.1", 0)
        port = int(listener.address.rpartition(":")[2])
        try:
            async with open_connection(
                "127.0.0.1", port, tls=None if client is None else client_tls(client)
            ) as connection:
                asked = Command(RequestCode.HEART_BEAT, body=b"x" * 70_000)
                return (await connection.call(asked)).body == asked.body
        except RemotingError:
            return False
        finally:
            await listener.stop()

    return asyncio.run(talk())


def test_both_on_one_port_or_tls_alone(made: Certificates) -> None:
    permissive, verifying, plain = made.server(), made.client(), None
    assert server_tls(permissive).mode is TlsMode.PERMISSIVE
    assert answers(permissive, verifying)
    assert answers(permissive, plain)
    enforcing = made.server(tls_server_mode="Enforcing")
    assert answers(enforcing, verifying)
    assert not answers(enforcing, plain)
    disabled = made.properties("disabled", tls_server_mode="disabled")
    assert answers(disabled, plain)
    assert not answers(disabled, verifying)


def test_a_peer_that_says_no_goodbye_is_not_waited_for(made: Certificates) -> None:
    """As in Java; asyncio and uvloop would wait 30 s for it. Everything sent has arrived by then."""
    tls = server_tls(made.server())
    assert tls.context is not None
    got: list[bytes] = []
    over = threading.Event()

    def serve(listening: socket.socket) -> None:
        assert tls.context is not None
        accepted, _ = listening.accept()
        with tls.context.wrap_socket(accepted, server_side=True) as silent:
            while sum(map(len, got)) < 70_000:
                got.append(silent.recv(1 << 16))
            over.wait(40)

    async def talk(port: int) -> None:
        async with asyncio.timeout(15), open_connection("127.0.0.1", port, tls=client_tls(made.client())) as connection:
            await connection.oneway(Command(RequestCode.HEART_BEAT, body=b"x" * 70_000))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        try:
            asyncio.run(talk(listening.getsockname()[1]))
        finally:
            over.set()
            thread.join(10)
    assert sum(map(len, got)) > 70_000


def test_a_server_is_verified_where_the_client_is_told_to(made: Certificates, tmp_path: Path) -> None:
    other = Certificates(tmp_path)
    assert not answers(made.server(), other.client())
    assert answers(made.server(), other.client(tls_client_authServer="false"))


def test_a_client_that_names_whom_it_trusts_verifies_the_server(made: Certificates, tmp_path: Path) -> None:
    other = Certificates(tmp_path)
    assert not answers(made.server(), other.client(tls_client_authServer=""))
    assert answers(made.server(), made.client(tls_client_authServer=""))
    assert answers(made.server(), made.client(tls_client_authServer="", tls_client_trustCertPath=""))


def test_clients_are_verified_where_the_server_is_told_to(made: Certificates, tmp_path: Path) -> None:
    server = made.server(**ASKS, **TRUSTS)
    assert answers(server, made.client(**HAS))
    assert not answers(server, made.client())
    stranger = Certificates(tmp_path).client(tls_client_authServer="false", **HAS)
    assert not answers(server, stranger)
    assert answers(made.server(**{**ASKS, **TRUSTS, "tls_server_need_client_auth": "optional"}), made.client())


def test_other_servers_are_reached_by_tls_where_it_is_enabled(made: Certificates) -> None:
    assert server_tls(made.server()).outgoing is None
    assert server_tls(made.server(tls_enable="true")).outgoing is not None


@pytest.mark.parametrize(
    ("read", "values", "kind", "text"),
    [
        (server_tls, {}, BadValue, "certPath and tls.server.keyPath are missing"),
        (server_tls, {"tls_server_mode": "on"}, BadValue, "tls.server.mode=on: give disabled, permissive, enforcing"),
        (server_tls, {"tls_server_certPath": "@nowhere", "tls_server_keyPath": "@server.key"}, UnreadableStore,
         "No such file"),
        (server_tls, {"tls_server_certPath": "@server", "tls_server_keyPath": "@client.key"}, BadValue, "MISMATCH"),
        (server_tls, {"tls_server_certPath": "@server.key", "tls_server_keyPath": "@server"}, BadValue,
         "no certificate"),
        (server_tls, {"tls_server_certPath": "@server", "tls_server_keyPath": "@server.key", **ASKS}, BadValue,
         "trustCertPath"),
        (client_tls, {"tls_client_authServer": "true", "tls_client_trustCertPath": "@server.key"}, BadValue,
         "no certificates"),
        (client_tls, {"tls_client_authServer": "true", "tls_client_trustCertPath": "@nowhere"}, UnreadableStore,
         "No such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_named(
    read: Callable[[str], object], values: dict[str, str], kind: type[RmqError], text: str, made: Certificates
) -> None:
    path = made.properties("tls.properties", **values)
    with pytest.raises(kind, match=text) as raised:
        read(path)
    assert str(raised.value).startswith(path)


def test_a_locked_key_needs_its_password(made: Certificates) -> None:
    Path(made.path("locked")).write_bytes(locked(Path(made.path("server.key")).read_bytes(), b"secret"))
    server = {"tls_server_keyPath": "@locked"}
    assert answers(made.server(**server, tls_server_keyPassword="secret"), made.client())
    for wrong in ("", "other"):
        path = made.server(**server, tls_server_keyPassword=wrong)
        with pytest.raises(BadValue, match=r"server\.properties: .*no certificate with its key") as raised:
            server_tls(path)
        assert not wrong or wrong not in str(raised.value)


@pytest.mark.parametrize(
    "args",
    [
        ["serve", "STORE", "--create"],
        ["namesrv"],
        ["send", "--namesrv", "127.0.0.1:1", "Orders"],
        ["consume", "--namesrv", "127.0.0.1:1", "Orders"],
    ],
)
def test_a_file_that_is_not_there(args: list[str], tmp_path: Path) -> None:
    given = [str(tmp_path / "store") if word == "STORE" else word for word in args]
    result = rmqtool(*given, "--tls-config", tmp_path / "none")
    assert (result.code, result.out) == (3, "")
    assert f"{tmp_path / 'none'}: No such file or directory" in result.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_said_of_a_server_without_tls_or_with_another_certificate(made: Certificates, tmp_path: Path) -> None:
    async def text(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.close()

    async def reason(port: int, client: str) -> str:
        with pytest.raises(NotReached) as caught:
            async with open_connection("127.0.0.1", port, tls=client_tls(client)):
                pass
        return str(caught.value).partition(": ")[2]

    async def talk() -> None:
        for serve, expected in ((text, "no TLS connection: wrong version number"), (end, "in the TLS handshake")):
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            assert expected in await reason(server.sockets[0].getsockname()[1], made.client())
            server.close()
        tls = server_tls(Certificates(tmp_path).server())  # of another authority
        listener = Listener(lambda _connection, request: request.response(), tls=tls.context, mode=tls.mode)
        await listener.start("127.0.0.1", 0)
        try:
            port = int(listener.address.rpartition(":")[2])
            assert "no TLS connection: unable to get local issuer" in await reason(port, made.client())
        finally:
            await listener.stop()

    asyncio.run(talk())
