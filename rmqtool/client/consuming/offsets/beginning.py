"""Where a group begins in a queue in which it never was (RebalancePushImpl.computePullFromWhere)."""

from formats.remoting.shapes import MessageQueue
from formats.topics import RETRY_PREFIX
from rmqtool.client.listening.options import From
from rmqtool.client.pulling.pull import Puller

_HALF_AN_HOUR = 30 * 60 * 1000  # ms


async def beginning(puller: Puller, queue: MessageQueue, start: From, start_time: int | None, began: int) -> int:
    """The offset; that of the first message is 0, and a broker that has it no more says then where to go on.

    Nobody is asked for that, as in Java: brokers with ACL 2.0 answer only those who have more rights than to consume.

    Args:
        start_time: for ``From.TIMESTAMP``, in ms; by default half an hour before ``began``, when the consumer was made.

    Raises:
        NoRoute, RemotingError, BrokerError: it cannot be told.
    """
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if start == From.FIRST or (start == From.LAST and is_retry):
        return 0
    if start == From.LAST or is_retry:
        return await puller.end(queue)
    return await puller.offset_at(queue, began - _HALF_AN_HOUR if start_time is None else start_time)
