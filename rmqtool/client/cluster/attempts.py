"""Retries after a broker did not answer, or answered with an error."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from formats.remoting.codes import ResponseCode
from rmqtool.client.cluster.errors import BrokerError, ClientError
from rmqtool.remoting.errors import RemotingError

T = TypeVar("T")
PAUSES = (1.0, 2.0, 4.0, 8.0)  # s before each further attempt
_PASSING = {ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.SERVICE_NOT_AVAILABLE}


def may_pass(err: ClientError | RemotingError) -> bool:
    """Whether a retry may help: there was no answer, or a broker is overloaded."""
    return isinstance(err, RemotingError) or (isinstance(err, BrokerError) and err.code in _PASSING)


async def try_often(work: Callable[[], Awaitable[T]], stop: asyncio.Event, warn: Callable[[str], None]) -> T:
    """The result of work that only reads; it is retried after each of :data:`PAUSES`.

    Args:
        stop: set to end the retries.
        warn: called with the error of each failed attempt.

    Raises:
        ClientError, RemotingError: the last attempt failed, or one failed permanently.
    """
    for pause in PAUSES:
        try:
            return await work()
        except (ClientError, RemotingError) as err:
            if not may_pass(err) or stop.is_set():
                raise
            warn(f"{err}; it is tried again")
        try:
            async with asyncio.timeout(pause):
                await stop.wait()
        except TimeoutError:
            pass
    return await work()
