"""A consumer of a group that is given messages as they come (client.consumer.DefaultMQPushConsumer)."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Self

from formats.primitives import address_text
from formats.remoting.shapes import ConsumerData, MessageQueue
from formats.topics import RETRY_PREFIX
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import NoRoute
from rmqtool.client.cluster.identity import local_address
from rmqtool.client.cluster.namespaces import with_namespace, without_namespace
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consumer.assignment import Assigning, ByBrokers, Rebalancing, subscription, tags_of
from rmqtool.client.consumer.fetcher import Feeding
from rmqtool.client.consumer.listener import Calls
from rmqtool.client.consumer.offsets import LocalOffsets, Offsets, RemoteOffsets
from rmqtool.client.consumer.options import STRATEGY_NAMES, Listener, PushOptions, Sql
from rmqtool.client.consumer.pop import Popper, Popping
from rmqtool.client.consumer.processing import OrderlyProcessing, Processing
from rmqtool.client.consumer.proof import ProvingPuller
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.consumer.queues import Holding, Locks, stop
from rmqtool.client.consumer.requests import Requests
from rmqtool.client.consumer.sending_back import SendBack
from rmqtool.rules.sending import check_group

log = logging.getLogger(__name__)

_MOST_TRIES, _ENDLESS = 16, (1 << 31) - 1
_FIRST_RENEWAL = 1.0  # s


class PushConsumer:
    """Consumes topics in a group: each queue is one member's. Use as an asynchronous context manager.

    Every message is handed to the listener at least once; the group's offset in a queue never passes one that is
    neither consumed nor sent back. Consumers in order, and those of which each has all messages, are made by the
    options ``orderly`` and ``broadcasting``.

    Args:
        client: addresses of name servers, options of a client, or a cluster, which is shared by one such consumer at
            most. A broadcasting consumer without an id is ``IP@DEFAULT``, as Java's is, so that it finds its offsets.
        topics: topic to the tags that are wanted: ``*``, or ``created || paid``, or :class:`Sql`. Members of a group
            must agree.
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
        options = options or PushOptions()
        if isinstance(client, str):
            client = ClientOptions(namesrv=client)
        if isinstance(client, ClientOptions) and client.client_id is None and options.broadcasting:
            client = replace(client, client_id=f"{address_text(local_address())}@DEFAULT")
        self._shared = isinstance(client, Cluster)
        self.cluster = client if isinstance(client, Cluster) else Cluster(client)
        namespace = self.cluster.options.namespace
        group = with_namespace(namespace, group)
        self.group, self.options = group, options
        self._retry_topic = RETRY_PREFIX + group
        self._began = time.time_ns() // 1_000_000
        wanted = {with_namespace(namespace, topic): _filter(expression) for topic, expression in topics.items()}
        if not options.broadcasting:  # else nothing comes again
            wanted[self._retry_topic] = ([], None)
        puller = Puller if options.made_again is None else ProvingPuller
        self._pullers = {topic: puller(self.cluster, group, tags, sql) for topic, (tags, sql) in wanted.items()}
        poppers = {topic: Popper(self.cluster, group, tags, sql) for topic, (tags, sql) in wanted.items()}
        self._wanted = [subscription(topic, tags, self._began, sql) for topic, (tags, sql) in wanted.items()]
        self._kept = (
            LocalOffsets(options.local_offsets, self.cluster.client_id, group)
            if options.broadcasting
            else RemoteOffsets(self._pullers)
        )
        offsets = Offsets()
        self._holding = Holding(self._pullers, options, offsets, self._kept, Locks(self.cluster, group), self._began)
        self._calls = Calls.of(without_namespace(namespace, group), listener, options)
        self._processing = self._made(self._calls, offsets)
        self._feeding = Feeding(self._pullers, options, offsets, self._processing.submit, self._holding.move, namespace)
        self._holding.feeding, self._holding.handler = self._feeding, self._processing
        self._popping = Popping(poppers, options, self._calls, self._send_back(_MOST_TRIES).back, self._feeding.counts)
        self._asking = not (options.client_rebalance or options.orderly or options.broadcasting)
        self._rebalancing = Rebalancing(
            self.cluster, group, lambda: self._pullers, None if options.broadcasting else options.strategy,
            self._holding.apply, options.rebalance_interval, self._by_brokers if self._asking else None,
        )  # fmt: skip
        self._assigned = ByBrokers(
            self.cluster, group, Assigning(self.cluster, group, STRATEGY_NAMES.get(options.strategy, "")),
            self._holding, self._feeding, self._popping, self._pullers, self._wanted, self._began,
            self._rebalancing.may_miss, self._rebalancing.wake,
        )  # fmt: skip
        self._requests = Requests(
            self.cluster, group, options, self._holding, self._feeding, self._popping, self._calls,
            lambda: self._wanted, self._began, self._rebalancing.wake,
        )  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    def _made(self, calls: Calls, offsets: Offsets) -> Processing | OrderlyProcessing:
        options = self.options
        back = self._send_back(_ENDLESS if options.orderly else _MOST_TRIES)
        if options.orderly:
            return OrderlyProcessing(calls, options, None if options.broadcasting else back.dead, offsets.set)
        return Processing(calls, options, None if options.broadcasting else back.back, offsets.advance)

    def _send_back(self, most: int) -> SendBack:
        return SendBack(self.cluster, self.group, most if self.options.max_tries < 0 else self.options.max_tries)

    async def _by_brokers(self, route: Route) -> bool | None:
        return await self._assigned.look(route)

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
        """The queues that are this client's now, without those of retry topics."""
        retries = {self._retry_topic, *self._feeding.first_topics}
        return sorted(queue for queue in self._holding.held if queue.topic not in retries)

    def popped_queues(self) -> list[MessageQueue]:
        """The queues of which brokers hand out messages to this client; the id -1 stands for all of a broker."""
        return sorted(self._popping.held)

    def positions(self) -> dict[MessageQueue, int]:
        """Where this client is in each of them: the next offset to consume."""
        return {queue: self._holding.position(queue) for queue in self.queues()}

    async def joined(self) -> None:
        """Wait until this client has looked once which queues are its own."""
        await self._rebalancing.looked.wait()

    def pause(self) -> None:
        """Pull nothing more until :meth:`resume`; what was pulled before still comes to the listener."""
        self._feeding.paused = self._popping.paused = True

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._feeding.paused = self._popping.paused = False

    async def close(self) -> None:
        """Let listeners come to an end, keep the offsets, give back the queues, and leave the group."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        held = list(self._holding.held.values())
        for one in held:
            stop(one)
        pulling = [one.task for one in held if one.task is not None]
        await asyncio.gather(*self._tasks, *pulling, return_exceptions=True)
        wait = self.options.shutdown_wait
        await asyncio.gather(self._processing.stop(wait), self._popping.stop(wait))
        self._calls.close()
        await self._holding.close()
        await self._kept.close()
        await self.cluster.remove_consumer(self.group)
        if not self._shared:
            await self.cluster.close()

    async def _join(self) -> None:
        await self._kept.open()
        for topic in self._pullers.keys() - {self._retry_topic}:
            try:
                await self.cluster.route(topic)
            except NoRoute as err:
                log.warning("%s; it is waited for", err)
        self._requests.begin()
        self.cluster.on_route(self._rebalancing.route_changed)
        self.cluster.add_consumer(self.group, self._describe)
        await self.cluster.heartbeat()  # who is not known to be in the group gets no queues
        self._processing.start()
        if self._asking:
            self._popping.start()
        options = self.options
        self._tasks = [
            asyncio.create_task(self._rebalancing.run()),
            asyncio.create_task(_forever(options.persist_interval, self._holding.persist_all)),
        ]
        if not options.orderly:
            self._tasks.append(asyncio.create_task(_forever(options.consume_timeout, self._look_for_overdue)))
        elif not options.broadcasting:
            renewal = _forever(options.lock_interval, self._holding.renew_locks, first=_FIRST_RENEWAL)
            self._tasks.append(asyncio.create_task(renewal))

    def _describe(self) -> ConsumerData:
        model = "BROADCASTING" if self.options.broadcasting else "CLUSTERING"
        return ConsumerData(self.group, "CONSUME_PASSIVELY", model, self.options.start.value, self._wanted)

    async def _look_for_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for queue, held in list(self._holding.held.items()):
            await self._processing.look_for_overdue(queue, held.process, now)


def _filter(expression: str) -> tuple[list[str], str | None]:
    """Tags, or a SQL92 expression."""
    return ([], str(expression)) if isinstance(expression, Sql) else (tags_of(expression), None)


async def _forever(
    interval: float, work: Callable[[], Coroutine[Any, Any, None]], *, first: float | None = None
) -> None:
    await asyncio.sleep(interval if first is None else min(first, interval))
    while True:
        try:
            await work()
        except Exception:  # one failure must not end what keeps the group's offsets
            log.exception("%s", work.__name__)
        await asyncio.sleep(interval)
