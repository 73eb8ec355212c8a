"""Several equivalent name servers: one is used as long as it answers, then the next."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

from formats.remoting.frame import Command
from rmqtool.remoting.errors import NotReached, RemotingError

Call: TypeAlias = Callable[[str, Command, float], Awaitable[Command]]


def addresses_of(text: str) -> list[str]:
    """The addresses of ``HOST:PORT;HOST:PORT``."""
    return [part.strip() for part in text.split(";") if part.strip()]


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
        """
        addresses = list(self._addresses)
        answers = await asyncio.gather(
            *(self._call(address, request(), self._timeout) for address in addresses), return_exceptions=True
        )
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
