"""Asking a broker for the messages of a queue, one question after the other (impl.consumer.PullMessageService)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.errors import BrokerError, ClientError
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

FULL_PAUSE = 0.05  # s, of a queue that is full, or whose broker does not wait for messages
_BUSY_PAUSE = 0.02  # s, of a broker that has too much to do


async def keep_reading(
    queue: MessageQueue,
    read: Callable[[], Awaitable[None]],
    *,
    goes_on: Callable[[], bool] = lambda: True,
    wait: Callable[[], float | None] = lambda: None,
    failed: Callable[[ClientError | RemotingError], Awaitable[float]] | None = None,
    error_pause: float,
) -> None:
    """Read a queue until it is this client's no more.

    Args:
        read: asks once, and hands on what comes.
        goes_on: whether the queue is this client's still.
        wait: seconds until it is looked at again, where this client wants nothing now; None where it does.
        failed: is given an error, and says how many seconds to wait; by default it is logged.
        error_pause: seconds to wait after other errors.
    """
    while goes_on():
        if (seconds := wait()) is not None:
            await asyncio.sleep(seconds)
            continue
        try:
            await read()
        except (ClientError, RemotingError) as err:
            if failed is not None:
                pause = await failed(err)
            elif isinstance(err, BrokerError) and err.code == ResponseCode.FLOW_CONTROL:
                pause = _BUSY_PAUSE
            else:
                log.warning("%s: %s", queue, err)
                pause = error_pause
            await asyncio.sleep(pause)
        except Exception:  # the queue would stand still without a word
            log.exception("%s", queue)
            await asyncio.sleep(error_pause)
