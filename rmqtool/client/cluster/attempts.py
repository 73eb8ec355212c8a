"""Further attempts where a broker has not answered, or not with an answer."""

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
    """Whether the same question may be answered later: nobody answered it, or a broker has too much to do."""
    return isinstance(err, RemotingError) or (isinstance(err, BrokerError) and err.code in _PASSING)


async def try_often(work: Callable[[], Awaitable[T]], stop: asyncio.Event, warn: Callable[[str], None]) -> T:
    """What some work gives that only asks; after each of :data:`PAUSES` it is tried again.

    Args:
        stop: set when nothing more is to be tried.
        warn: called with the reason why an attempt failed.

    Raises:
        ClientError, RemotingError: the last attempt failed, or one did so for good.
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
