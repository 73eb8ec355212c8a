"""A name server queried over real connections, and registrations of brokers."""

from collections.abc import Awaitable, Callable
from typing import Any

from formats.fastjson.declare import body_of
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.remoting.bodies import RegisterBrokerBody, TopicTable
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.frame import Command
from rmqtool.server.namesrv.server import NameServer
from rmqtool.server.namesrv.settings import NamesrvSettings
from tests.server.name_servers import (
    Peer,
    command,
    run,
    topics,
    version,
)
from tests.server.name_servers import (
    registration as who,
)

C, OK = RequestCode, ResponseCode.SUCCESS
Test = Callable[[NameServer, Peer], Awaitable[None]]


class Clock:
    """A clock set by the test."""

    now = 0

    def __call__(self) -> int:
        return self.now


def asked(test: Test, settings: NamesrvSettings | None = None, clock: Clock | None = None) -> None:
    """Run a test with a server and a connection to it."""

    async def with_server() -> None:
        async with NameServer(settings=settings, clock=clock or Clock()) as server:
            peer = await Peer.to(server)
            try:
                await test(server, peer)
            finally:
                await peer.close()

    run(with_server)


def body(*names: str, counter: int = 1, filters: list[str] | None = None) -> RegisterBrokerBody:
    return RegisterBrokerBody(TopicTable(topics(*names), version(counter)), filters or [])


def register(*names: str, counter: int = 1, **more: str) -> Command:
    return command(C.REGISTER_BROKER, body_of(body(*names, counter=counter)), **who(**more))


async def value(peer: Peer, code: RequestCode, data: bytes = b"", **fields: str) -> Any:
    answer = await peer.ask(command(code, data, **fields))
    assert (answer.code, answer.remark) == (OK, None)
    return loads(answer.body, BODY)
