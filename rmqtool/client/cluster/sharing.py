"""Waiting for work that others wait for, too."""

import asyncio
from typing import TypeVar

from rmqtool.remoting.errors import ConnectionLost

T = TypeVar("T")


async def shared(work: "asyncio.Task[T]", what: str) -> T:
    """The result of a task, which goes on for the others when one who waits for it is cancelled.

    Raises:
        ConnectionLost: the task itself was cancelled, as the client is closed; ``what`` is named.
        CancelledError: who waits was cancelled, whether or not the task was, too.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if work.cancelled() and not (waiting is not None and waiting.cancelling()):
            raise ConnectionLost(f"{what}: the client is closed") from None
        raise
