"""Pulling the messages of a queue, one pull after the other (DefaultMQPushConsumerImpl.pullMessage)."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import MessageQueue
from formats.topics import RETRY_PREFIX
from rmqtool.client.cluster.errors import BrokerError, ClientError
from rmqtool.client.consumer.listener import Counts
from rmqtool.client.consumer.offsets import Offsets
from rmqtool.client.consumer.options import FlowLimits, PushOptions
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.proof import MadeAgain
from rmqtool.client.consumer.puller import Pulled, Puller
from rmqtool.client.consumer.received import Received, as_sent
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_FULL_PAUSE, _BUSY_PAUSE = 0.05, 0.02  # s, of a queue that is full, and of a broker that has too much to do
_RETRY_TOPIC = "RETRY_TOPIC"

Submit = Callable[[MessageQueue, ProcessQueue, Sequence[Received]], None]


@dataclass
class Held:
    """A queue that is this client's.

    Attributes:
        offset: of the next pull.
        task: pulls.
    """

    offset: int
    process: ProcessQueue = field(default_factory=ProcessQueue)
    task: asyncio.Task[None] | None = None


class Feeding:
    """Fills process queues.

    Args:
        pullers: topic to who asks for its queues.
        submit: is given what is new in a process queue.
        moved: told of a queue that does not have the offset that was asked for, and where it goes on.
        namespace: that messages are not to show.

    Attributes:
        paused: nothing is pulled until it is false again.
        counts: topic to what was pulled.
        first_topics: retry topic of popped messages to the topic that they were sent to.
        limits: topic to what may wait in each of its queues; else those of the options.
    """

    def __init__(
        self,
        pullers: Mapping[str, Puller],
        options: PushOptions,
        offsets: Offsets,
        submit: Submit,
        moved: Callable[[MessageQueue, Held, int], Awaitable[None]],
        namespace: str = "",
    ) -> None:
        self._namespace = namespace
        self._pullers, self._options, self._offsets = pullers, options, offsets
        self._submit, self._moved = submit, moved
        self._locked = options.orderly and not options.broadcasting
        self.paused = False
        self.counts: dict[str, Counts] = {}
        self.first_topics: dict[str, str] = {}
        self.limits: dict[str, FlowLimits] = {}

    def begin(self, queue: MessageQueue, held: Held) -> None:
        """Pull from now on."""
        held.task = asyncio.create_task(self._pull_forever(queue, held))

    async def _pull_forever(self, queue: MessageQueue, held: Held) -> None:
        clock = asyncio.get_running_loop().time
        options, process = self._options, held.process
        while not process.dropped:
            if self.paused or (self._locked and not process.locked(clock())):
                await asyncio.sleep(min(options.error_pause, 1.0))
                continue
            if process.full(self.limits.get(queue.topic, options.limits), ordered=options.orderly):
                await asyncio.sleep(_FULL_PAUSE)
                continue
            process.pulled_at = time.time_ns() // 1_000_000
            begin = clock()
            try:
                pulled = await self._pullers[queue.topic].pull(
                    queue, held.offset, most=options.pull_batch, wait=options.hold,
                    commit=0 if options.broadcasting else self._offsets.at(queue) or 0,
                )  # fmt: skip
            except MadeAgain as err:
                self._leave(queue, process, err)
                return
            except (ClientError, RemotingError) as err:
                busy = isinstance(err, BrokerError) and err.code == ResponseCode.FLOW_CONTROL
                if not busy:
                    log.warning("%s: %s", queue, err)
                await asyncio.sleep(_BUSY_PAUSE if busy else options.error_pause)
                continue
            except Exception:  # the queue would stand still without a word
                log.exception("%s", queue)
                await asyncio.sleep(options.error_pause)
                continue
            if pulled.moved:
                await self._moved(queue, held, pulled.next_offset)
                return
            await self._pulled(queue, held, pulled, clock() - begin)

    def _leave(self, queue: MessageQueue, process: ProcessQueue, err: MadeAgain) -> None:
        """Have nothing of a queue count any more."""
        process.dropped = True
        self._offsets.forget(queue)
        if self._options.made_again is not None:
            self._options.made_again(err)

    async def _pulled(self, queue: MessageQueue, held: Held, pulled: Pulled, seconds: float) -> None:
        again, held.offset = held.offset, pulled.next_offset
        if pulled.messages:
            counts = self.counts.setdefault(queue.topic, Counts())
            counts.add(asyncio.get_running_loop().time(), len(pulled.messages), 0, seconds)
            messages = pulled.messages
            if self._namespace or queue.topic.startswith(RETRY_PREFIX):
                first = self.first_topics.get(queue.topic)
                messages = [as_sent(message, self._namespace, first) for message in messages]
            self._submit(queue, held.process, held.process.put(messages))
            if self._options.pull_pause:
                await asyncio.sleep(self._options.pull_pause)
            return
        if not len(held.process):
            self._offsets.advance(queue, pulled.next_offset)
        if pulled.next_offset == again:
            await asyncio.sleep(_FULL_PAUSE)  # a broker that does not hold pulls must not be asked without a pause
