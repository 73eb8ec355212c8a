"""Pulls whose answers are verified as a whole by compiled code; a message is decoded when it is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from formats.message.inner import is_inner_batch
from formats.message.read import MIN_SIZE, Record, read
from formats.remoting import headers as h
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from formats.topics import LMQ_PREFIX
from rmqtool.analytics.live.queues import gather
from rmqtool.client.cluster.answers import header_from
from rmqtool.client.consumer.puller import Pulled, Puller
from rmqtool.client.consumer.received import Received, make_received
from rmqtool.kernels.scan import Rows, Walker

_LANES = 8  # requests to a broker at the same time: their answers come together, and wake us once
_FIRST, _MOST = 64, 512  # messages of a lane: at first, and at most
_RUN_BYTES = 4 << 20  # what the answers of all lanes should have together


class BulkMessages(Sequence[Received]):
    """The messages of an answer.

    Args:
        body: the answer, which has no others.
        rows: their fields.

    Attributes:
        body, rows: as given.
    """

    def __init__(self, queue: MessageQueue, body: bytes, rows: Rows) -> None:
        self._queue, self.body, self.rows = queue, body, rows

    @property
    def offsets(self) -> range:
        """Their queue offsets."""
        first = int(self.rows.queue_offset[0])
        return range(first, first + len(self))

    def __len__(self) -> int:
        return self.rows.records

    @overload
    def __getitem__(self, index: int) -> Received: ...
    @overload
    def __getitem__(self, index: slice) -> list[Received]: ...
    def __getitem__(self, index: int | slice) -> Received | list[Received]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        record = read(self.body, int(self.rows.at[index]), len(self.body))
        assert isinstance(record, Record)
        return make_received(self._queue, record)


@dataclass
class _Run:
    """Requests in progress.

    Attributes:
        request: what is asked, but for the queue offset and the number of messages.
        size: bytes received.
    """

    address: str
    request: Command
    size: int = 0


class BulkPuller(Puller):
    """A puller for many messages. What is not the usual answer is read as any other puller does."""

    _lane = _FIRST

    async def pull_run(self, queue: MessageQueue, offset: int, stop: int) -> Pulled | None:
        """Pull messages of a queue from an offset on, none behind ``stop``, by several requests at the same time.

        The range is divided into lanes. Each is pulled from its beginning to its end, beside the others.

        Returns:
            None unless each answer is a usual one, and together they are the messages of the queue without a gap.

        Raises:
            NoRoute, RemotingError: the broker is not reached, or its answer is invalid.
        """
        if self._selects or queue.topic.startswith(LMQ_PREFIX):
            return None
        lane = self._lane
        run = _Run(await self._address(queue), self._pull_request(queue, offset, lane))
        begins = range(offset, min(stop, offset + _LANES * lane), lane)
        lanes = await gather(begins, lambda begin: self._pull_lane(run, begin, min(begin + lane, stop)))
        bodies: list[bytes] = []
        for answered, last in lanes.values():
            if last is None:
                return None
            bodies += answered
            if last.next_begin_offset not in begins:  # it has ended early: the lanes behind it are pulled again
                break
        messages = _whole_answer(queue, offset, b"".join(bodies))
        if last is None or messages is None or messages.offsets.stop != last.next_begin_offset:
            return None
        each = len(messages.body) // len(messages)
        self._lane = min(max(_RUN_BYTES // (_LANES * each), 1), _MOST)
        return Pulled(messages, messages.offsets.stop, last.min_offset, last.max_offset, body=messages.body)

    async def _pull_lane(self, run: _Run, at: int, stop: int) -> tuple[list[bytes], h.PullResponse | None]:
        """The bodies of answers from an offset on, and the header of the last one; None if it is not a usual one."""
        bodies: list[bytes] = []
        last = None
        while at < stop and not (bodies and run.size >= 2 * _RUN_BYTES):
            fields = {**(run.request.fields or {}), "queueOffset": str(at), "maxMsgNums": str(stop - at)}
            response = await self.cluster.call(run.address, replace(run.request, fields=fields))
            if response.code != ResponseCode.SUCCESS:
                return bodies, None
            with self.cluster.answers_of(run.address):
                last = header_from(h.PullResponse, response, run.address)
            if last.offset_delta is not None or not at < last.next_begin_offset <= stop:
                return bodies, None
            at = last.next_begin_offset
            bodies.append(response.body)
            run.size += len(response.body)
        return bodies, last

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
    if end != len(body) or not count or any(map(is_inner_batch, set(rows.sys_flag.tolist()))):
        return None
    topic = np.frombuffer(queue.topic.encode(), np.uint8)
    same = np.array_equal(rows.queue_offset, np.arange(offset, offset + count)) and (
        np.all(rows.queue_id == queue.queue_id) and np.all(rows.topic_length == len(topic))
    )
    if not same or np.any(np.frombuffer(body, np.uint8)[rows.topic_at[:, None] + np.arange(len(topic))] != topic):
        return None
    return BulkMessages(queue, body, rows)
