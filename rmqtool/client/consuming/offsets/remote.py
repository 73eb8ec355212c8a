"""Offsets that brokers keep for a group (client.consumer.store.RemoteBrokerOffsetStore)."""

import logging
from collections.abc import Mapping

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.pulling.pull import Puller
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)


class RemoteOffsets:
    """Each queue's broker has its offset.

    Args:
        pullers: topic to who asks for its queues.
    """

    def __init__(self, pullers: Mapping[str, Puller]) -> None:
        self._pullers = pullers

    async def open(self) -> None:
        """Nothing is needed."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Where the group is; None where it never was.

        Raises:
            ClientError, RemotingError: it cannot be told.
        """
        return await self._pullers[queue.topic].committed(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Have brokers keep them; what fails is tried again with the next ones."""
        for queue, offset in offsets.items():
            try:
                await self._pullers[queue.topic].commit(queue, offset)
            except (ClientError, RemotingError) as err:
                log.warning("%s: the offset %d is not kept yet: %s", queue, offset, err)

    async def close(self) -> None:
        """Nothing is needed."""
