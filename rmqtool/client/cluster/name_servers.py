"""Several equivalent name servers: one is used as long as it answers, then the next."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.frame import Command
from rmqtool.client.cluster.errors import NotNameServer
from rmqtool.remoting.errors import NotReached, RemotingError

_KNOWN_TO_ALL = frozenset({
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_NAMESRV_CONFIG,
})  # fmt: skip

Call: TypeAlias = Callable[[str, Command, float], Awaitable[Command]]


def addresses_of(text: str) -> list[str]:
    """The addresses of ``HOST:PORT;HOST:PORT``."""
    return [part.strip() for part in text.split(";") if part.strip()]


def check_name_server(response: Command, code: int, address: str) -> None:
    """Check that a server that was asked as a name server is one.

    Args:
        code: the code of the request. Brokers do not know those that every name server does.

    Raises:
        NotNameServer: it is not.
    """
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and code in _KNOWN_TO_ALL:
        raise NotNameServer(
            f"{address}: not a name server: it does not know request {int(code)}, as brokers do not; the port of name "
            "servers is 9876 by default"
        )


class NameServers:
    """As in ``NettyRemotingClient``: in random order, so that clients spread over them.

    Args:
        call: sends a request to one of them.
        timeout: seconds that each may take to answer.

    Raises:
        NotReached: there is no address.
    """

    def __init__(self, addresses: Sequence[str], call: Call, timeout: float = 3.0) -> None:
        if not addresses:
            raise NotReached("no address of a name server is given")
        self._call, self._timeout = call, timeout
        self._addresses = random.sample(list(addresses), len(addresses))

    async def call(self, request: Command, absent: Collection[int] = ()) -> tuple[Command, str]:
        """The first answer, and the server's address.

        Args:
            absent: codes that say that a server does not have what is asked for: then the others are asked, too. One
                that has just been started knows only the brokers that have registered since.

        Raises:
            NotReached: none of them answers.
            NotNameServer: one is no name server.
        """
        failures, without = [], None
        for address in list(self._addresses):
            try:
                response = await self._call(address, request, self._timeout)
            except RemotingError as err:
                failures.append(str(err))
                if self._addresses[0] == address:
                    self._addresses.append(self._addresses.pop(0))
            else:
                check_name_server(response, request.code, address)
                if response.code not in absent:
                    return response, address
                without = without or (response, address)
        if without is not None:
            return without
        raise NotReached(f"no name server answers: {'; '.join(failures)}")

    async def call_all(self, request: Callable[[], Command]) -> list[tuple[Command, str]]:
        """The answer of each server that gives one, and its address.

        Each has a memory of its own, and one that has just been started does not know all brokers yet.

        Args:
            request: creates the request for each of them.

        Raises:
            NotReached: none of them answers.
            NotNameServer: one is no name server.
        """

        async def ask(address: str, command: Command) -> Command:
            response = await self._call(address, command, self._timeout)
            check_name_server(response, command.code, address)
            return response

        addresses = list(self._addresses)
        answers = await asyncio.gather(*(ask(address, request()) for address in addresses), return_exceptions=True)
        failures = []
        for answer in answers:
            if isinstance(answer, RemotingError):
                failures.append(str(answer))
            elif isinstance(answer, BaseException):
                raise answer
        if len(failures) == len(addresses):
            raise NotReached(f"no name server answers: {'; '.join(failures)}")
        return [
            (answer, address)
            for answer, address in zip(answers, addresses, strict=True)
            if not isinstance(answer, BaseException)
        ]
