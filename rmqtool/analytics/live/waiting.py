"""Waiting for brokers and name servers that are away, with a message that says what is waited for."""

import asyncio
import os
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from rmqtool.client.cluster import attempts
from rmqtool.client.cluster.errors import ClientError
from rmqtool.remoting.errors import RemotingError

T = TypeVar("T")
# s of waiting before it is reported (so with the third attempt of those that fail at once), and between two reports
_QUIET, _REPORTS = 2.5, 60.0


def warn(text: str) -> None:
    """Say on stderr what is waited for, or was left out."""
    warnings.warn(text, stacklevel=2)


@dataclass(frozen=True)
class Patience:
    """How long a broker or name server that is away is waited for, in seconds.

    Attributes:
        first: as long as the name servers have never named a broker: their address may be wrong.
        later: after that.
    """

    first: float = 60.0
    later: float = 60.0


A_MINUTE = Patience()


class AwaitedPeers:
    """Tries work again while a peer is away.

    Args:
        by_option: whether the option ``brokerTimeout`` can be given, so that messages name it.

    Attributes:
        patience: seconds for which a peer is waited for.
    """

    def __init__(self, patience: float, *, by_option: bool = True) -> None:
        self.patience, self._by_option = patience, by_option
        self._parent = os.getppid()  # Spark's driver or executor: it may be killed meanwhile
        self._reported: dict[str, float] = {}  # when it was last said that a peer is waited for

    async def try_often(self, what: object, work: Callable[[], Awaitable[T]]) -> T:
        """The result of work that may be repeated.

        Args:
            what: it is for; it begins the message.

        Raises:
            ClientError, RemotingError: no attempt succeeded.
        """
        begun, patience, away = time.monotonic(), self.patience, False

        async def attempt() -> T:
            nonlocal away
            try:
                return await work()
            except (ClientError, RemotingError) as err:
                away = attempts.is_away(err)
                raise

        def report(text: str) -> None:
            """Say what is waited for: after some seconds, and then every minute; once for all queues of a broker."""
            if os.getppid() != self._parent:
                raise ClientError(f"{text}, but the process that asks for it has ended")
            now = time.monotonic()
            if now - begun >= _QUIET and now - self._reported.get(text, -_REPORTS) >= _REPORTS:
                self._reported[text] = now
                name = "" if text.startswith(str(what)) else f"{what}: "
                option = " (option brokerTimeout)" if self._by_option else ""
                rest = f" for {begun + patience - now:.0f} more seconds{option}" if away else ""
                warn(f"{name}{text}{rest}")

        return await attempts.try_often(attempt, asyncio.Event(), report, patience)
