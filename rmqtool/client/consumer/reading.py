"""The loop that reads a queue, one request after the other (impl.consumer.PullMessageService)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.errors import BrokerError, ClientError
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

FULL_PAUSE = 0.05  # s, if a queue is full, or its broker does not wait for messages
_BUSY_PAUSE = 0.02  # s, if a broker is overloaded


async def keep_reading(
    queue: MessageQueue,
    read: Callable[[], Awaitable[None]],
    *,
    goes_on: Callable[[], bool] = lambda: True,
    wait: Callable[[], float | None] = lambda: None,
    failed: Callable[[ClientError | RemotingError], Awaitable[float]] | None = None,
    error_pause: float,
) -> None:
    """Read a queue until it no longer belongs to this client.

    Args:
        read: makes one request, and passes on its messages.
        goes_on: whether the queue still belongs to this client.
        wait: seconds to pause if nothing should be read now; None to read.
        failed: called with an error; returns seconds to wait. By default errors are logged, as warnings where they
            differ from the last one.
        error_pause: seconds to wait after other errors.
    """
    reported = ""
    while goes_on():
        if (seconds := wait()) is not None:
            await asyncio.sleep(seconds)
            continue
        try:
            await read()
            reported = ""
        except (ClientError, RemotingError) as err:
            if failed is not None:
                pause = await failed(err)
            elif isinstance(err, BrokerError) and err.code == ResponseCode.FLOW_CONTROL:
                pause = _BUSY_PAUSE
            else:
                log.log(logging.INFO if str(err) == reported else logging.WARNING, "%s: %s", queue, err)
                reported, pause = str(err), error_pause
            await asyncio.sleep(pause)
        except Exception:  # otherwise the queue would silently stop
            log.exception("%s", queue)
            await asyncio.sleep(error_pause)
