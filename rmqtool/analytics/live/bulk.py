"""Pulls whose answers are verified as a whole by compiled code; a message is decoded when it is asked for."""

from collections.abc import Sequence
from typing import overload

import numpy as np

from formats.message.inner import is_inner_batch
from formats.message.read import MIN_SIZE, Record, read
from formats.remoting import headers as h
from formats.remoting.shapes import MessageQueue
from formats.topics import LMQ_PREFIX
from rmqtool.client.consumer.puller import Pulled, Puller
from rmqtool.client.consumer.received import Received, make_received
from rmqtool.kernels.scan import Rows, Walker


class BulkMessages(Sequence[Received]):
    """The messages of an answer.

    Args:
        body: the answer, which has no others.
        rows: their fields.
    """

    def __init__(self, queue: MessageQueue, body: bytes, rows: Rows) -> None:
        self._queue, self._body, self._rows = queue, body, rows

    @property
    def offsets(self) -> range:
        """Their queue offsets."""
        first = int(self._rows.queue_offset[0])
        return range(first, first + len(self))

    def __len__(self) -> int:
        return self._rows.records

    @overload
    def __getitem__(self, index: int) -> Received: ...
    @overload
    def __getitem__(self, index: slice) -> list[Received]: ...
    def __getitem__(self, index: int | slice) -> Received | list[Received]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        record = read(self._body, int(self._rows.at[index]), len(self._body))
        assert isinstance(record, Record)
        return make_received(self._queue, record)


class BulkPuller(Puller):
    """A puller for many messages. What is not the usual answer is read as any other puller does."""

    async def _take(
        self, queue: MessageQueue, offset: int, answered: bytes, answer: h.PullResponse, address: str
    ) -> Pulled:
        plain = not self._selects and answer.offset_delta is None and not queue.topic.startswith(LMQ_PREFIX)
        messages = _whole_answer(queue, offset, answered) if plain else None
        if messages is None or messages.offsets.stop > answer.next_begin_offset:
            return await super()._take(queue, offset, answered, answer, address)
        return Pulled(messages, messages.offsets.stop, answer.min_offset, answer.max_offset, body=answered)


def _whole_answer(queue: MessageQueue, offset: int, body: bytes) -> BulkMessages | None:
    """The messages of an answer; None unless they are those of the queue from the offset on, without a gap."""
    walker = Walker(body, len(body) // MIN_SIZE + 1)
    rows, end = walker.walk(0, len(body))
    count = rows.records
    if end != len(body) or not count or any(map(is_inner_batch, rows.sys_flag.tolist())):
        return None
    topic = queue.topic.encode()
    same = np.array_equal(rows.queue_offset, np.arange(offset, offset + count)) and (
        np.all(rows.queue_id == queue.queue_id) and np.all(rows.topic_length == len(topic))
    )
    if not same or any(body[at : at + len(topic)] != topic for at in rows.topic_at.tolist()):
        return None
    return BulkMessages(queue, body, rows)
