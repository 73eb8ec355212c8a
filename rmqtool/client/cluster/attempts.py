"""Retries after a broker did not answer, or answered with an error."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from formats.remoting.codes import ResponseCode
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError, MasterAway
from rmqtool.remoting.errors import RemotingError

T = TypeVar("T")
PAUSES = (1.0, 2.0, 4.0, 8.0)  # s before each further attempt
_PASSING = {ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.SERVICE_NOT_AVAILABLE}


def may_pass(err: ClientError | RemotingError) -> bool:
    """Whether a retry may help: there was no answer, or a broker is overloaded."""
    return isinstance(err, RemotingError) or (isinstance(err, BrokerError) and err.code in _PASSING)


def is_away(err: ClientError | RemotingError) -> bool:
    """Whether a peer is away or overloaded, as while it is started again; an invalid answer is neither."""
    return may_pass(err) and (isinstance(err, MasterAway) or not isinstance(err, BadAnswer))


async def try_often(
    work: Callable[[], Awaitable[T]],
    stop: asyncio.Event,
    warn: Callable[[str], None],
    patience: float | None = None,
) -> T:
    """The result of work that only reads; it is retried after each of :data:`PAUSES`.

    Args:
        stop: set to end the retries.
        warn: called with the error of each failed attempt.
        patience: retry for as many seconds while a peer is away, however often that is.

    Raises:
        ClientError, RemotingError: the last attempt failed, or one failed permanently.
    """
    begun, failed, waited = time.monotonic(), 0, 0
    while True:
        try:
            return await work()
        except (ClientError, RemotingError) as err:
            if patience is not None and is_away(err):
                pause = min(PAUSES[min(waited, len(PAUSES) - 1)], begun + patience - time.monotonic())
                waited += 1
            else:
                pause = PAUSES[failed] if failed < len(PAUSES) else 0
                failed += 1
            if not may_pass(err) or stop.is_set() or pause <= 0:
                raise
            warn(f"{err}; it is tried again")
        try:
            async with asyncio.timeout(pause):
                await stop.wait()
        except TimeoutError:
            pass
