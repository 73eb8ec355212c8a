"""Popping queues, and giving a listener their messages (impl.consumer.ConsumeMessagePopConcurrentlyService; 5.x)."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.errors import BrokerError, ClientError
from rmqtool.client.listening.calls import Calls, Counts
from rmqtool.client.listening.options import From, Later, PushOptions
from rmqtool.client.listening.workers import Workers
from rmqtool.client.popping.popper import Popped, Popper
from rmqtool.client.pulling.pull import Received
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_FULL_PAUSE, _BUSY_PAUSE = 0.05, 0.02  # s, of a queue that is full, and of a broker that has too much to do
_MOST_TRIES = 16
_LAST_POP = 0.5  # s for pops that are under way when the consumer ends
_SOON = 1.0  # s until others get what this client has not begun with when it ends
_DEAD_LEVEL = -1

Dead = Callable[[Received, int], Awaitable[None]]


class PopQueue:
    """A queue that is popped (PopProcessQueue).

    Attributes:
        leaving: nothing more is popped; what was asked for before is still consumed.
        waiting: messages that are not settled yet.
        popped_at: when the last pop began, in ms since 1970.
    """

    def __init__(self) -> None:
        self.leaving = False
        self.waiting = self.popped_at = 0


_Task = tuple[PopQueue, Sequence[Popped]]


class Popping:
    """Pops queues, and settles what the listener says of their messages.

    Args:
        poppers: topic to who pops its queues.
        dead: makes dead letters; is given the delay level -1.
        counts: topic to what was popped; added to.

    Attributes:
        held: the queues.
        paused: nothing is popped until it is false again.
    """

    def __init__(
        self, poppers: Mapping[str, Popper], options: PushOptions, calls: Calls, dead: Dead, counts: dict[str, Counts]
    ) -> None:
        self._poppers, self._options, self._calls, self._dead, self._counts = poppers, options, calls, dead, counts
        self._most = _MOST_TRIES if options.max_tries < 0 else options.max_tries
        self._workers: Workers[_Task] = Workers(options.concurrency, self._consume)
        self._tasks: set[asyncio.Task[None]] = set()
        self.held: dict[MessageQueue, PopQueue] = {}
        self.paused = False

    def start(self) -> None:
        """Begin to work."""
        self._workers.start()

    def leave(self, topic: str, keep: Collection[MessageQueue]) -> None:
        """Pop no more of a topic's queues but these; what was popped is still consumed."""
        for queue in [queue for queue in self.held if queue.topic == topic and queue not in keep]:
            self.held.pop(queue).leaving = True

    def take(self, queues: Collection[MessageQueue]) -> None:
        """Pop these queues too."""
        for queue in sorted(set(queues) - self.held.keys()):
            state = self.held[queue] = PopQueue()
            task = asyncio.create_task(self._pop_forever(queue, state))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self, wait: float) -> None:
        """Pop no more, and wait for the listener. Others get soon what it was not given."""
        for state in self.held.values():
            state.leaving = True
        if tasks := list(self._tasks):
            # one that has messages brings them now: unseen, they would be nobody's until their time is over
            _, held = await asyncio.wait(tasks, timeout=_LAST_POP)
            for task in held:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        left = await self._workers.stop(wait)
        await asyncio.gather(*[self._later(one, _SOON) for _state, messages in left for one in messages])
        self.held.clear()

    # -- popping ------------------------------------------------------------------------------------------------------

    async def _pop_forever(self, queue: MessageQueue, state: PopQueue) -> None:
        options = self._options
        while not state.leaving:
            if self.paused or state.waiting > options.pop_limit:
                await asyncio.sleep(min(options.error_pause, 1.0) if self.paused else _FULL_PAUSE)
                continue
            try:
                await self._pop(queue, state)
            except (ClientError, RemotingError) as err:
                busy = isinstance(err, BrokerError) and err.code == ResponseCode.FLOW_CONTROL
                if not busy:
                    log.warning("%s: %s", queue, err)
                await asyncio.sleep(_BUSY_PAUSE if busy else options.error_pause)
            except Exception:  # the queue would stand still without a word
                log.exception("%s", queue)
                await asyncio.sleep(options.error_pause)

    async def _pop(self, queue: MessageQueue, state: PopQueue) -> None:
        clock, options, popper = asyncio.get_running_loop().time, self._options, self._poppers[queue.topic]
        begin, state.popped_at = clock(), time.time_ns() // 1_000_000
        popped = await popper.pop(
            queue, most=options.pop_batch, invisible=options.pop_invisible, wait=options.hold,
            from_first=options.start == From.FIRST,
        )  # fmt: skip
        if not popped:
            if clock() - begin < _FULL_PAUSE:  # a broker that does not hold pops must not be asked without a pause
                await asyncio.sleep(_FULL_PAUSE)
            return
        self._counts.setdefault(queue.topic, Counts()).add(clock(), len(popped), 0, clock() - begin)
        wanted = [one for one in popped if popper.wants(one)]
        state.waiting += len(wanted)
        for at in range(0, len(wanted), options.batch):
            self._workers.submit((state, wanted[at : at + options.batch]))
        await asyncio.gather(*[self._ack(one) for one in popped if not popper.wants(one)])
        if options.pull_pause:
            await asyncio.sleep(options.pull_pause)

    # -- consuming ----------------------------------------------------------------------------------------------------

    async def _consume(self, task: _Task) -> None:
        state, messages = task
        try:
            if asyncio.get_running_loop().time() >= messages[0].until:
                log.info("%s: %d messages waited for too long; others get them", messages[0].queue, len(messages))
                return
            said = await self._calls.call(messages)
            later = said if said is None or isinstance(said, Later) else Later()
            first = len(messages) if later is None else max(later.first, 0)
            level = 0 if later is None else later.level
            await asyncio.gather(
                *[self._ack(one) for one in messages[:first]], *[self._again(one, level) for one in messages[first:]]
            )
        finally:
            state.waiting -= len(messages)

    async def _ack(self, message: Popped) -> None:
        try:
            await self._poppers[message.queue.topic].ack(message)
        except (ClientError, RemotingError) as err:
            log.warning("%s: consumed, and comes again, for its broker does not know: %s", message.message_id, err)

    async def _later(self, message: Popped, seconds: float) -> None:
        try:
            await self._poppers[message.queue.topic].change(message, seconds)
        except (ClientError, RemotingError) as err:
            log.warning("%s: comes again later than it should: %s", message.message_id, err)

    async def _again(self, message: Popped, level: int) -> None:
        if level != _DEAD_LEVEL and message.reconsume_times < self._most:
            delays = self._options.pop_delays
            await self._later(message, delays[min(level or message.reconsume_times, len(delays) - 1)])
            return
        try:
            await self._dead(message, _DEAD_LEVEL)
        except (ClientError, RemotingError) as err:
            log.warning("%s: no dead letter yet, it comes again: %s", message.message_id, err)
            return
        await self._ack(message)
