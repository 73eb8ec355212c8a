"""A push consumer (client.consumer.DefaultMQPushConsumer)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from formats.remoting.shapes import ConsumerData, MessageQueue
from formats.topics import RETRY_PREFIX
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import NoRoute
from rmqtool.client.cluster.member import GroupMember
from rmqtool.client.cluster.namespaces import with_namespace, without_namespace
from rmqtool.client.consumer.assignment import Rebalancing
from rmqtool.client.consumer.fetcher import Fetcher
from rmqtool.client.consumer.listener import Calls
from rmqtool.client.consumer.offsets import LocalOffsets
from rmqtool.client.consumer.options import Listener, PushOptions
from rmqtool.client.consumer.pop import PopLoop
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.processing import OrderlyProcessing, Processing
from rmqtool.client.consumer.proof import ProvingPuller
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.consumer.queues import HeldQueues, Locks
from rmqtool.client.consumer.requests import GroupRequests
from rmqtool.client.consumer.sending_back import SendBack
from rmqtool.client.consumer.subscriptions import Subscriptions, wanted_of

log = logging.getLogger(__name__)

_FIRST_RENEWAL = 1.0  # s


class PushConsumer(GroupMember):
    """Consumes topics in a group: each queue belongs to one member. Use as an asynchronous context manager.

    Every message is passed to the listener at least once; the group's offset in a queue never passes a message that is
    neither consumed nor sent back. The options ``orderly`` and ``broadcasting`` select orderly and broadcasting
    consumption.

    Args:
        client: addresses of name servers, options of a client, or a cluster, which at most one such consumer may share.
            A broadcasting consumer without an id gets ``IP@DEFAULT``, as in Java, so that it finds its offsets again.
        topics: topic to expression: ``*``, ``created || paid``, or :class:`Sql`. Members of a group must agree.
        listener: called with messages; in threads unless it is a coroutine function.

    Raises:
        ValueError: an invalid group name, no topic, or invalid options.
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
        if not topics:
            raise ValueError("no topic to consume")
        options = options or PushOptions()
        super().__init__(client, group, fixed_id=options.broadcasting)
        self.options = options
        namespace, group = self._namespace, self.group
        local = LocalOffsets(options.local_offsets, self.cluster.client_id, group) if options.broadcasting else None
        self._subscriptions = Subscriptions[ProcessQueue](self.cluster, Puller(self.cluster, group), local)
        self._retry_topic = RETRY_PREFIX + group
        wanted = {with_namespace(namespace, topic): expression for topic, expression in topics.items()}
        if not options.broadcasting:  # broadcasting has no retries
            wanted[self._retry_topic] = "*"
        for topic, expression in wanted.items():
            kind = Puller if options.made_again is None else ProvingPuller
            self._subscriptions.subscribe(topic, *wanted_of(expression), kind=kind)
        self._calls = Calls.of(without_namespace(namespace, group), listener, options)
        back = SendBack(self.cluster, group, options.tries)
        self._processing: Processing | OrderlyProcessing
        if options.orderly:
            self._processing = OrderlyProcessing(self._calls, options, None if options.broadcasting else back.dead)
        else:
            self._processing = Processing(self._calls, options, None if options.broadcasting else back.back)
        self._fetcher = Fetcher(self._subscriptions, options, self._processing, namespace)
        self._held = HeldQueues(
            self._subscriptions, options, self._fetcher, self._processing, Locks(self.cluster, group)
        )
        self._popping = PopLoop(self.cluster, group, self._subscriptions, options, self._calls, back.back)
        self._asking = not (options.client_rebalance or options.orderly or options.broadcasting)
        self._rebalancing = Rebalancing(
            self.cluster, group, self._subscriptions, None if options.broadcasting else options.strategy,
            self._held.apply, options.rebalance_interval, self._popping if self._asking else None,
        )  # fmt: skip
        self._requests = GroupRequests(
            self.cluster, group, options, self._subscriptions, self._held, self._popping, self._calls,
            self._rebalancing.wake,
        )  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []

    def queues(self) -> list[MessageQueue]:
        """The queues currently assigned to this client, without those of retry topics."""
        topics = self._subscriptions.topics
        hidden = {topic for topic, subscription in topics.items() if subscription.sent_to is not None} | {
            self._retry_topic
        }
        return sorted(queue for queue in self._subscriptions.queues if queue.topic not in hidden)

    def popped_queues(self) -> list[MessageQueue]:
        """The queues that this client pops; queue id -1 stands for all queues of a broker."""
        return sorted(self._popping.held)

    def positions(self) -> dict[MessageQueue, int]:
        """The next offset to consume in each assigned queue."""
        return {queue: self._subscriptions.queues[queue].position for queue in self.queues()}

    async def joined(self) -> None:
        """Wait until this client has rebalanced once."""
        await self._rebalancing.looked.wait()

    def pause(self) -> None:
        """Stop pulling until :meth:`resume`; messages already pulled are still consumed."""
        self._fetcher.paused = self._popping.paused = True

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._fetcher.paused = self._popping.paused = False

    async def close(self) -> None:
        """Wait for listeners, commit offsets, release queues, and leave the group."""
        await super().close()

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        held = list(self._subscriptions.queues.values())
        for process in held:
            process.stop()
        pulling = [process.task for process in held if process.task is not None]
        await asyncio.gather(*self._tasks, *pulling, return_exceptions=True)
        wait = self.options.shutdown_wait
        await asyncio.gather(self._processing.stop(wait), self._popping.stop(wait))
        self._calls.close()
        await self._held.close()
        await self._subscriptions.store.close()
        await self.cluster.groups.remove_consumer(self.group)

    async def _join(self) -> None:
        await self._subscriptions.store.open()
        for topic in self._subscriptions.topics.keys() - {self._retry_topic}:
            try:
                await self.cluster.route(topic)
            except NoRoute as err:
                log.warning("%s; it is waited for", err)
        self._requests.begin()
        self.cluster.on_route(self._rebalancing.route_changed)
        self.cluster.groups.add_consumer(self.group, self._describe)
        await self.cluster.heartbeat()  # only members known to brokers get queues
        self._processing.start()
        if self._asking:
            self._popping.start()
        options = self.options
        self._tasks = [
            asyncio.create_task(self._rebalancing.run()),
            asyncio.create_task(_forever(options.persist_interval, self._subscriptions.keep)),
        ]
        if not options.orderly:
            self._tasks.append(asyncio.create_task(_forever(options.consume_timeout, self._look_for_overdue)))
        elif not options.broadcasting:
            renewal = _forever(options.lock_interval, self._held.renew_locks, first=_FIRST_RENEWAL)
            self._tasks.append(asyncio.create_task(renewal))

    def _describe(self) -> ConsumerData:
        return self._subscriptions.describe("CONSUME_PASSIVELY", self.options)

    async def _look_for_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for process in list(self._subscriptions.queues.values()):
            await self._processing.look_for_overdue(process, now)


async def _forever(
    interval: float, work: Callable[[], Coroutine[Any, Any, None]], *, first: float | None = None
) -> None:
    await asyncio.sleep(interval if first is None else min(first, interval))
    while True:
        try:
            await work()
        except Exception:  # a failure must not end the task that commits offsets
            log.exception("%s", work.__name__)
        await asyncio.sleep(interval)
