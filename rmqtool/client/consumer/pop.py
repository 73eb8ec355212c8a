"""POP consumption of 5.x: brokers hand out single messages instead of assigning queues.

Source: client.impl.consumer.PullAPIWrapper.popAsync, client.impl.MQClientAPIImpl.processPopResponse,
client.impl.consumer.ConsumeMessagePopConcurrentlyService (5.3.3); clients-and-live-admin 1.3, 1.4.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from formats.errors import FormatError
from formats.fastjson.declare import Declared
from formats.message.properties import parse
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from formats.topics import LMQ_PREFIX
from formats.variants.pop_handle import POP_CK, Handle, origin_of, parse_parts, real_topic, retry_topic
from rmqtool.client.cluster.answers import header_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError
from rmqtool.client.cluster.namespaces import without_namespace
from rmqtool.client.consumer.listener import Calls, Workers
from rmqtool.client.consumer.options import From, Later, PushOptions
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.reading import FULL_PAUSE, keep_reading
from rmqtool.client.consumer.received import Received, records_in
from rmqtool.client.consumer.subscriptions import Subscriptions
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_LAST_POP = 0.5  # s for pops in progress when the consumer ends
_SOON = 1.0  # s until others get the messages not begun when the consumer ends
_DEAD_LEVEL = -1
_NOTHING = {ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND}
_PATIENCE = 10.0  # s for an answer beyond the time that the broker may wait


@dataclass(frozen=True)
class Popped(Received):
    """A popped message, which other members do not see for a limited time.

    Attributes:
        handle: handle to acknowledge it.
        until: when that time ends, in seconds of the event loop.
    """

    handle: str = ""
    until: float = 0.0


class Popper:
    """Pops messages of one topic for a group.

    Args:
        tags, sql: the filter, as for :class:`rmqtool.client.consumer.puller.Puller`.
    """

    def __init__(self, cluster: Cluster, group: str, tags: Sequence[str] = (), sql: str | None = None) -> None:
        self._cluster, self._group, self._tags = cluster, group, frozenset(tags)
        self._expression = sql if sql is not None else " || ".join(tags) or "*"
        self._kind = "TAG" if sql is None else "SQL92"

    def wants(self, message: Popped) -> bool:
        """Whether a message has one of the tags: brokers compare only hashes."""
        return not self._tags or message.tags in self._tags

    async def pop(
        self, queue: MessageQueue, *, most: int, invisible: float, wait: float, from_first: bool
    ) -> list[Popped]:
        """Pop messages of a queue, or of any queue of its broker if the queue id is -1.

        Args:
            most: maximum number of messages, up to 32.
            invisible: seconds for which the messages are invisible to others.
            wait: seconds that the broker may wait for the first message.
            from_first: a new group begins with the first message instead of the next one.

        Raises:
            NoRoute, RemotingError: the broker is not reached, or its answer is invalid.
            BrokerError: the broker refuses.
        """
        header = p.Pop(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            max_msg_nums=most,
            invisible_time=round(invisible * 1000),
            poll_time=round(wait * 1000),
            born_time=0,  # now, by the broker's clock: this client's may be wrong
            init_mode=0 if from_first else 1,
            exp_type=self._kind,
            exp=self._expression,
            order=False,
            bname=queue.broker_name,
        )
        address = await self._address(queue)
        response = await self._cluster.call(
            address, self._cluster.request(RequestCode.POP_MESSAGE, header), wait + _PATIENCE
        )
        until = asyncio.get_running_loop().time() + invisible
        if response.code in _NOTHING:
            return []
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response, address)
        with self._cluster.answers_of(address):
            try:
                return self._messages(queue, response, address, until)
            except FormatError as err:
                raise BadAnswer(f"{address}: messages without a handle: {err}") from None

    def _messages(self, queue: MessageQueue, response: Command, address: str, until: float) -> list[Popped]:
        answer = header_from(p.PopResponse, response, address)
        parts = parse_parts(answer.start_offset_info or "", answer.msg_offset_info or "")
        starts = {(part.origin, part.queue_id): part.start_offset for part in parts}
        namespace = self._cluster.options.namespace
        sent_to = without_namespace(namespace, queue.topic) if namespace else None
        topic, group = queue.topic, self._group
        topics = {topic, retry_topic(topic, group), retry_topic(topic, group, newer=True)}
        light = topic.startswith(LMQ_PREFIX)  # its messages have other topics
        messages = []
        for record in records_in(response.body, address):
            name = record.topic.decode("utf-8", "replace")
            if name not in topics and not light:
                raise BadAnswer(f"{address}: a message of {name[:100]} where those of {topic} were asked for")
            text = parse(record.properties).get(POP_CK)  # for a redelivered message the broker puts the handle there
            if text is None or not _is_of(text, answer.pop_time):
                origin = origin_of(name)
                text = Handle(
                    start_offset=starts.get((origin, record.queue_id), record.queue_offset),
                    pop_time=answer.pop_time,
                    invisible_time=answer.invisible_time,
                    revive_queue=answer.revive_qid,
                    origin=origin,
                    broker_name=queue.broker_name,
                    queue_id=record.queue_id,
                    queue_offset=record.queue_offset,
                ).text
            where = MessageQueue(queue.topic, queue.broker_name, record.queue_id)
            messages.append(Popped(where, record, sent_to, handle=text, until=until))
        return messages

    async def ack(self, message: Popped) -> None:
        """Acknowledge a message.

        Raises:
            NoRoute, RemotingError, BrokerError: not acknowledged; the message will be redelivered.
        """
        await self._ask(message, RequestCode.ACK_MESSAGE, p.AckMessage)

    async def change(self, message: Popped, seconds: float) -> None:
        """Make the broker redeliver a message after ``seconds``.

        Raises:
            NoRoute, RemotingError, BrokerError: the message is redelivered at its previous time.
        """
        code, time = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, round(seconds * 1000)
        await self._ask(message, code, partial(p.ChangeInvisible, invisible_time=time))

    async def _ask(self, message: Popped, code: RequestCode, kind: Callable[..., Declared]) -> None:
        """Ask the broker about a message; ``kind`` makes the header from what its handle says."""
        handle = Handle.parse(message.handle)
        header = kind(
            consumer_group=self._group,
            topic=real_topic(message.queue.topic, self._group, handle.origin),
            queue_id=handle.queue_id,
            extra_info=message.handle,
            offset=handle.queue_offset,
            bname=handle.broker_name,
        )
        await self._cluster.ask(await self._address(message.queue), self._cluster.request(code, header))

    async def _address(self, queue: MessageQueue) -> str:
        await self._cluster.route(queue.topic)
        return self._cluster.address(queue.broker_name)


def _is_of(handle: str, pop_time: int) -> bool:
    """Whether a handle belongs to this pop: a copied message may still have the handle of an earlier one."""
    try:
        return Handle.parse(handle).pop_time == pop_time
    except FormatError:
        return False


Dead = Callable[[Received, int], Awaitable[None]]


class PopQueue:
    """A queue that is popped (PopProcessQueue).

    Attributes:
        leaving: no further pops; messages of pops in progress are still consumed.
        waiting: number of unsettled messages.
        popped_at: when the last pop began, in ms since 1970.
    """

    def __init__(self) -> None:
        self.leaving = False
        self.waiting = self.popped_at = 0


_Task = tuple[PopQueue, Sequence[Popped]]


class PopLoop:
    """Pops queues, and settles messages according to the listener's answers.

    Args:
        dead: turns messages into dead letters; called with delay level -1.

    Attributes:
        held: the queues.
        paused: nothing is popped while true.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        subscriptions: Subscriptions[ProcessQueue],
        options: PushOptions,
        calls: Calls,
        dead: Dead,
    ) -> None:
        self._subscriptions, self._options, self._calls, self._dead = subscriptions, options, calls, dead
        self._poppers = {
            topic: Popper(cluster, group, subscription.tags, subscription.sql)
            for topic, subscription in subscriptions.topics.items()
        }
        self._workers: Workers[_Task] = Workers(options.concurrency, self._consume)
        self._tasks: set[asyncio.Task[None]] = set()
        self.held: dict[MessageQueue, PopQueue] = {}
        self.paused = False

    def start(self) -> None:
        """Start the workers."""
        self._workers.start()

    def leave(self, topic: str, keep: Collection[MessageQueue]) -> None:
        """Stop popping a topic's queues except these; popped messages are still consumed."""
        for queue in [queue for queue in self.held if queue.topic == topic and queue not in keep]:
            self.held.pop(queue).leaving = True

    def take(self, queues: Collection[MessageQueue]) -> None:
        """Start popping these queues."""
        for queue in sorted(set(queues) - self.held.keys()):
            state = self.held[queue] = PopQueue()
            task = asyncio.create_task(
                keep_reading(
                    queue,
                    partial(self._pop, queue, state),
                    goes_on=partial(_stays, state),
                    wait=partial(self._wait, state),
                    error_pause=self._options.error_pause,
                )
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self, wait: float) -> None:
        """Stop popping, and wait for the listener. Other members soon get the messages it was not called with."""
        for state in self.held.values():
            state.leaving = True
        if tasks := list(self._tasks):
            # a pop that finds messages returns them now; unread, nobody would get them until their time is over
            _, held = await asyncio.wait(tasks, timeout=_LAST_POP)
            for task in held:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        not_begun = await self._workers.stop(wait)
        await asyncio.gather(*[self._later(message, _SOON) for _state, messages in not_begun for message in messages])
        self.held.clear()

    # -- popping ------------------------------------------------------------------------------------------------------

    def _wait(self, state: PopQueue) -> float | None:
        if self.paused:
            return min(self._options.error_pause, 1.0)
        return FULL_PAUSE if state.waiting > self._options.pop_limit else None

    async def _pop(self, queue: MessageQueue, state: PopQueue) -> None:
        clock, options, popper = asyncio.get_running_loop().time, self._options, self._poppers[queue.topic]
        begin, state.popped_at = clock(), time.time_ns() // 1_000_000
        popped = await popper.pop(
            queue, most=options.pop_batch, invisible=options.pop_invisible, wait=options.hold,
            from_first=options.start == From.FIRST,
        )  # fmt: skip
        if not popped:
            if clock() - begin < FULL_PAUSE:  # a broker that does not hold pops must not be polled without a pause
                await asyncio.sleep(FULL_PAUSE)
            return
        self._subscriptions.topics[queue.topic].pulled.add(clock(), len(popped), 0, clock() - begin)
        matching = [message for message in popped if popper.wants(message)]
        state.waiting += len(matching)
        for at in range(0, len(matching), options.batch):
            self._workers.submit((state, matching[at : at + options.batch]))
        await asyncio.gather(*[self._ack(message) for message in popped if not popper.wants(message)])
        if options.pull_pause:
            await asyncio.sleep(options.pull_pause)

    # -- consuming ----------------------------------------------------------------------------------------------------

    async def _consume(self, task: _Task) -> None:
        state, messages = task
        try:
            if asyncio.get_running_loop().time() >= messages[0].until:
                log.info("%s: %d messages waited for too long; others get them", messages[0].queue, len(messages))
                return
            answer = await self._calls.call(messages)
            later = answer if answer is None or isinstance(answer, Later) else Later()
            first = len(messages) if later is None else max(later.first, 0)
            level = 0 if later is None else later.level
            await asyncio.gather(
                *[self._ack(message) for message in messages[:first]],
                *[self._again(message, level) for message in messages[first:]],
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
        if level != _DEAD_LEVEL and message.reconsume_times < self._options.tries:
            delays = self._options.pop_delays
            await self._later(message, delays[min(level or message.reconsume_times, len(delays) - 1)])
            return
        try:
            await self._dead(message, _DEAD_LEVEL)
        except (ClientError, RemotingError) as err:
            log.warning("%s: no dead letter yet, it comes again: %s", message.message_id, err)
            return
        await self._ack(message)


def _stays(state: PopQueue) -> bool:
    return not state.leaving
