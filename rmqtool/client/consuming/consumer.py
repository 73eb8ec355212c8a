"""A consumer that shares the queues of topics with its group (client.consumer.DefaultMQPushConsumer, clustering)."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from formats.remoting import headers as h
from formats.remoting.bodies import ConsumerIds
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, MessageQueue
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BrokerError, ClientError, NoRoute
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consuming.offsets import Offsets
from rmqtool.client.consuming.options import From, Listener, PushOptions
from rmqtool.client.consuming.process_queue import ProcessQueue
from rmqtool.client.consuming.processing import Processing
from rmqtool.client.consuming.sharing import share, subscription, tags_of
from rmqtool.client.pulling.pull import Pulled, Puller, Received
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError
from rmqtool.services.consumers.rebalance import BadAllocation
from rmqtool.services.lookup.queue_messages import RETRY_PREFIX
from rmqtool.services.sending.rules import check_group

log = logging.getLogger(__name__)

_FULL_PAUSE, _BUSY_PAUSE = 0.05, 0.02  # s, of a queue that is full, and of a broker that has too much to do
_UNBALANCED_PAUSE = 1.0  # s
_MOST_TRIES = 16
_SEND_BACK_TIMEOUT = 5.0  # s
_HALF_AN_HOUR = 30 * 60 * 1000  # ms
_RETRY_TOPIC = "RETRY_TOPIC"


@dataclass
class _Held:
    """A queue that is this client's.

    Attributes:
        offset: of the next pull.
        task: pulls.
    """

    offset: int
    process: ProcessQueue = field(default_factory=ProcessQueue)
    task: asyncio.Task[None] | None = None


class PushConsumer:
    """Consumes topics in a group: each queue is one member's. Use as an asynchronous context manager.

    Every message is handed to the listener at least once; the group's offset in a queue never passes one that is
    neither consumed nor sent back.

    Args:
        client: addresses of name servers, options of a client, or a cluster, which is shared by one such consumer at
            most.
        topics: topic to the tags that are wanted: ``*``, or ``created || paid``. Members of a group must agree.
        listener: is given the messages. A function that is no coroutine runs in threads.

    Raises:
        ValueError: no name for a group, no topic, or options that mean nothing.
        NotReached: no name server is given.
    """

    def __init__(
        self,
        client: str | ClientOptions | Cluster,
        group: str,
        topics: Mapping[str, str],
        listener: Listener,
        options: PushOptions | None = None,
    ) -> None:
        check_group(group)
        if not topics:
            raise ValueError("no topic to consume")
        if isinstance(client, str):
            client = ClientOptions(namesrv=client)
        self.group, self.options = group, options or PushOptions()
        tags = {topic: tags_of(expression) for topic, expression in topics.items()}
        self._retry_topic = RETRY_PREFIX + group
        tags[self._retry_topic] = []
        self._shared = isinstance(client, Cluster)
        self.cluster = client if isinstance(client, Cluster) else Cluster(client)
        self._pullers = {topic: Puller(self.cluster, group, wanted) for topic, wanted in tags.items()}
        version = time.time_ns() // 1_000_000
        self._began = version
        self._wanted = [subscription(topic, wanted, version) for topic, wanted in tags.items()]
        self._offsets = Offsets()
        self._held: dict[MessageQueue, _Held] = {}
        self._processing = Processing(listener, self.options, self._give_back, self._offsets.advance)
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            if not self._shared:
                await self.cluster.__aenter__()
            await self._join()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def queues(self) -> list[MessageQueue]:
        """The queues that are this client's now, without those of the retry topic."""
        return sorted(queue for queue in self._held if queue.topic != self._retry_topic)

    async def close(self) -> None:
        """Let listeners come to an end, keep the offsets, and leave the group."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for held in self._held.values():
            _stop(held)
        pulling = [held.task for held in self._held.values() if held.task is not None]
        await asyncio.gather(*self._tasks, *pulling, return_exceptions=True)
        await self._processing.stop(self.options.shutdown_wait)
        await asyncio.gather(*[self._persist(queue) for queue in self._held])
        for held in self._held.values():
            held.process.dropped = True
        self._held.clear()
        await self.cluster.remove_consumer(self.group)
        if not self._shared:
            await self.cluster.close()

    async def _join(self) -> None:
        for topic in self._pullers.keys() - {self._retry_topic}:
            try:
                await self.cluster.route(topic)
            except NoRoute as err:
                log.warning("%s; it is waited for", err)
        self.cluster.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        self.cluster.on_route(self._route_changed)
        self.cluster.add_consumer(self.group, self._describe)
        await self.cluster.heartbeat()  # who is not known to be in the group gets no queues
        self._processing.start()
        self._tasks = [
            asyncio.create_task(self._rebalance_forever()),
            asyncio.create_task(_forever(self.options.persist_interval, self._persist_all)),
            asyncio.create_task(_forever(self.options.consume_timeout, self._look_for_overdue)),
        ]

    def _describe(self) -> ConsumerData:
        return ConsumerData(self.group, "CONSUME_PASSIVELY", "CLUSTERING", self.options.start.value, self._wanted)

    # -- which queues -------------------------------------------------------------------------------------------------

    def _members_changed(self, _connection: Connection, _request: Command) -> None:
        self._wake.set()

    def _route_changed(self, route: Route) -> None:
        if route.topic in self._pullers:
            self._wake.set()

    async def _rebalance_forever(self) -> None:
        while True:
            self._wake.clear()
            balanced = True
            for topic in self._pullers:
                try:
                    balanced &= await self._rebalance(topic)
                except (ClientError, RemotingError, BadAllocation) as err:
                    log.info("%s: queues stay as they are: %s", topic, err)
                    balanced = False
                except Exception:  # one failure must not end the consumption
                    log.exception("%s: queues stay as they are", topic)
                    balanced = False
            try:
                async with asyncio.timeout(self.options.rebalance_interval if balanced else _UNBALANCED_PAUSE):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _rebalance(self, topic: str) -> bool:
        """Take and give up queues of a topic; whether all is as it should be."""
        route = await self.cluster.route(topic)
        members = await self._members(route)
        mine = (
            share(self.options.strategy, self.cluster.client_id, route.readable, members) if route.readable else set()
        )
        for queue in [queue for queue in self._held if queue.topic == topic and queue not in mine]:
            await self._give_up(queue)
        balanced = self.cluster.client_id in members
        for queue in sorted(mine - self._held.keys()):
            try:
                await self._take(queue)
            except (ClientError, RemotingError) as err:
                log.warning("%s: not consumed yet: %s", queue, err)
                balanced = False
        return balanced

    async def _members(self, route: Route) -> list[str]:
        """The ids of the group's clients, from the first broker of a topic that says them."""
        failure: ClientError | RemotingError = NoRoute(f"{route.topic}: no broker")
        for broker_name in random.sample(list(route.brokers), len(route.brokers)):
            try:
                address = self.cluster.reading_address(broker_name)
                request = self.cluster.request(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP, h.Group(consumer_group=self.group)
                )
                return body_from(ConsumerIds, await self.cluster.ask(address, request), address).consumer_id_list
            except (ClientError, RemotingError) as err:
                failure = err
        raise failure

    async def _take(self, queue: MessageQueue) -> None:
        self._offsets.forget(queue)
        self._begin(queue, await self._first(queue))

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        held = self._held[queue] = _Held(offset)
        held.task = asyncio.create_task(self._pull_forever(queue, held))

    async def _give_up(self, queue: MessageQueue) -> None:
        held = self._held.pop(queue)
        _stop(held)
        held.process.dropped = True
        await self._persist(queue)
        self._offsets.forget(queue)

    async def _first(self, queue: MessageQueue) -> int:
        """Where the group goes on, or begins (RebalancePushImpl.computePullFromWhere)."""
        puller = self._pullers[queue.topic]
        stored = await puller.committed(queue)
        if stored is not None:
            self._offsets.set(queue, stored)
            return stored
        is_retry = queue.topic == self._retry_topic
        if self.options.start == From.FIRST or (self.options.start == From.LAST and is_retry):
            return (await puller.offsets(queue))[0]
        if self.options.start == From.LAST or is_retry:
            return (await puller.offsets(queue))[1]
        start = self.options.start_time
        return await puller.offset_at(queue, self._began - _HALF_AN_HOUR if start is None else start)

    # -- pulling ------------------------------------------------------------------------------------------------------

    async def _pull_forever(self, queue: MessageQueue, held: _Held) -> None:
        while not held.process.dropped:
            if held.process.full(self.options.limits):
                await asyncio.sleep(_FULL_PAUSE)
                continue
            try:
                pulled = await self._pullers[queue.topic].pull(
                    queue,
                    held.offset,
                    most=self.options.pull_batch,
                    wait=self.options.hold,
                    commit=self._offsets.at(queue) or 0,
                )
            except (ClientError, RemotingError) as err:
                busy = isinstance(err, BrokerError) and err.code == ResponseCode.FLOW_CONTROL
                if not busy:
                    log.warning("%s: %s", queue, err)
                await asyncio.sleep(_BUSY_PAUSE if busy else self.options.error_pause)
                continue
            except Exception:  # the queue would stand still without a word
                log.exception("%s", queue)
                await asyncio.sleep(self.options.error_pause)
                continue
            if pulled.moved:
                await self._move(queue, held, pulled.next_offset)
                return
            await self._pulled(queue, held, pulled)

    async def _pulled(self, queue: MessageQueue, held: _Held, pulled: Pulled) -> None:
        again, held.offset = held.offset, pulled.next_offset
        if pulled.messages:
            new = held.process.put([self._as_sent(message) for message in pulled.messages])
            self._processing.submit(queue, held.process, new)
            return
        if not len(held.process):
            self._offsets.advance(queue, pulled.next_offset)
        if pulled.next_offset == again:
            await asyncio.sleep(_FULL_PAUSE)  # a broker that does not hold pulls must not be asked without a pause

    async def _move(self, queue: MessageQueue, held: _Held, offset: int) -> None:
        """The broker has nothing at the offset: go on where it says, with nothing of what was pulled before."""
        log.warning("%s: offset %d is outside of the queue; on at %d", queue, held.offset, offset)
        held.process.dropped = True
        self._offsets.set(queue, offset)
        await self._persist(queue)
        await asyncio.sleep(self.options.error_pause)  # brokers that say so for ever are asked once in a while
        if self._held.get(queue) is held:
            self._begin(queue, offset)

    def _as_sent(self, message: Received) -> Received:
        if message.queue.topic == self._retry_topic and (topic := message.properties.get(_RETRY_TOPIC)):
            return replace(message, sent_to=topic)
        return message

    # -- what was consumed --------------------------------------------------------------------------------------------

    async def _give_back(self, message: Received, level: int) -> None:
        """Send a message back, to come again or to be a dead letter (MQClientAPIImpl.consumerSendMessageBack)."""
        most = self.options.max_tries
        header = h.SendBack(
            offset=message.record.physical_offset,
            group=self.group,
            delay_level=level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=_MOST_TRIES if most < 0 else most,
            bname=message.queue.broker_name,
        )
        address = self.cluster.address(message.queue.broker_name)
        request = self.cluster.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await self.cluster.ask(address, request, _SEND_BACK_TIMEOUT)

    async def _look_for_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for queue, held in list(self._held.items()):
            await self._processing.give_back_overdue(queue, held.process, now)

    async def _persist_all(self) -> None:
        for queue in list(self._held):
            if queue in self._held:
                await self._persist(queue)

    async def _persist(self, queue: MessageQueue) -> None:
        offset = self._offsets.at(queue)
        if offset is None:
            return
        try:
            await self._pullers[queue.topic].commit(queue, offset)
        except (ClientError, RemotingError) as err:
            log.warning("%s: the offset %d is not kept yet: %s", queue, offset, err)


def _stop(held: _Held) -> None:
    if held.task is not None:
        held.task.cancel()


async def _forever(interval: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        await asyncio.sleep(interval)
        try:
            await work()
        except Exception:  # one failure must not end what keeps the group's offsets
            log.exception("%s", work.__name__)
