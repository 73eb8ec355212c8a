"""A consumer that is polled (client.consumer.DefaultLitePullConsumer)."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from formats.remoting.admin import ConsumerRunningInfo, ConsumeStatus, QueueState
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, MessageQueue
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import ClientError, NoRoute
from rmqtool.client.cluster.namespaces import with_namespace
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consumer.assignment import Rebalancing
from rmqtool.client.consumer.offsets import LocalOffsets, find_beginning
from rmqtool.client.consumer.options import PollOptions
from rmqtool.client.consumer.pull import QueueReader
from rmqtool.client.consumer.received import Received, as_sent
from rmqtool.client.consumer.requests import answer_running_info, client_properties
from rmqtool.client.consumer.subscriptions import wanted_of
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

Changed = Callable[[str, tuple[MessageQueue, ...]], None]


class LitePullConsumer(QueueReader):
    """Reads topics shared with its group, or assigned queues. Use as an asynchronous context manager.

    Use either :meth:`subscribe` or :meth:`assign`. Automatic commits cover messages of all polls but the latest: a
    further poll shows that they are done.

    Args:
        client: addresses of name servers, options of a client, or a cluster, which at most one consumer per group may
            share.

    Raises:
        ValueError: an invalid group name.
        NotReached: no name server is given.
    """

    def __init__(self, client: str | ClientOptions | Cluster, group: str, options: PollOptions | None = None) -> None:
        options = options or PollOptions()
        super().__init__(
            client, group, batch=options.batch, ahead=options.ahead, wait=options.hold,
            broadcasting=options.broadcasting, local_offsets=options.local_offsets,
        )  # fmt: skip
        self.options = options
        self._chosen = False  # set by `assign`
        self._turn = asyncio.Lock()  # subscribing and unsubscribing a topic exclude each other
        self._committed_at = 0.0
        self._watching: dict[str, list[Changed]] = {}
        self._known: dict[str, tuple[MessageQueue, ...]] = {}  # the queues last reported to watchers
        self._rebalancing = Rebalancing(
            self.cluster, self.group, self._subscriptions, None if options.broadcasting else options.strategy,
            self._apply, options.rebalance_interval,
        )  # fmt: skip
        self._task: asyncio.Task[None] | None = None

    async def _join(self) -> None:
        await self._subscriptions.store.open()
        self.cluster.on_route(self._route_changed)
        self._committed_at = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Commit consumed messages, and leave the group."""
        await super().close()

    async def _leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.options.auto_commit:
            await self._subscriptions.keep()
        for queue in list(self._subscriptions.queues):
            self._end(queue)
        await self._subscriptions.store.close()
        await self.cluster.groups.remove_consumer(self.group)

    # -- what is read -------------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str = "*") -> None:
        """Subscribe to a topic, whose queues are shared with the group.

        Args:
            expression: tags, ``*``, or :class:`Sql`. Members of a group must agree.

        Raises:
            ValueError: no tag, or queues were assigned.
        """
        if self._chosen:
            raise ValueError("queues are assigned: nothing can be subscribed besides")
        topic = with_namespace(self._namespace, topic)
        self._subscriptions.subscribe(topic, *wanted_of(expression))
        try:
            await self.cluster.route(topic)
        except NoRoute as err:
            log.warning("%s; it is waited for", err)
        self.cluster.groups.add_consumer(
            self.group, lambda: self._subscriptions.describe("CONSUME_ACTIVELY", self.options)
        )
        await self.cluster.heartbeat()  # only members known to brokers get queues
        if self._task is None:
            self.cluster.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
            self.cluster.on(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
            self._task = asyncio.create_task(self._rebalancing.run())
        self._rebalancing.wake()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic; its queues go to other members of the group."""
        topic = with_namespace(self._namespace, topic)
        async with self._turn:
            if not self._subscriptions.unsubscribe(topic):
                return
            await self._have(set(), {polled.queue for polled in self._subscriptions.of_topic(topic)})
        await self.cluster.heartbeat()

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, without joining the group.

        Raises:
            ValueError: topics were subscribed.
            NoRoute, RemotingError, BrokerError: the beginning of a queue is unknown.
        """
        if self._subscriptions.topics:
            raise ValueError("topics are subscribed: no queues can be assigned besides")
        self._chosen = True
        await self._have(set(queues), set(self._subscriptions.queues))

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return sorted(self._subscriptions.queues)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic, whichever member reads them.

        Raises:
            NoRoute: no name server knows it.
            RemotingError: none answers.
        """
        return (await self.cluster.route(with_namespace(self._namespace, topic))).readable

    async def on_queues_changed(self, topic: str, watcher: Changed) -> None:
        """Call a function when the queues of a topic change, as seen in its route.

        Args:
            watcher: gets the topic and its queues.

        Raises:
            NoRoute: no name server knows it.
            RemotingError: none answers.
        """
        topic = with_namespace(self._namespace, topic)
        self._known.setdefault(topic, await self.queues(topic))
        self._watching.setdefault(topic, []).append(watcher)

    # -- messages -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 5.0) -> list[Received]:
        """The next messages of one queue; empty after ``timeout`` seconds.

        Raises:
            NoRoute, RemotingError, BrokerError: a queue cannot be read; the next poll tries again.
        """
        self._note_consumed()
        now = asyncio.get_running_loop().time()
        if self.options.auto_commit and now - self._committed_at >= self.options.commit_interval:
            self._committed_at = now
            await self._subscriptions.keep()
        messages = await super().poll(timeout)
        return [as_sent(message, self._namespace) for message in messages] if self._namespace else messages

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the offsets of the group; brokers have them when this returns.

        Args:
            offsets: of some queues; by default all polled messages count as consumed.

        Raises:
            NoRoute, RemotingError, BrokerError: an offset was not committed.
        """
        subscriptions = self._subscriptions
        if offsets is None:
            self._note_consumed()
            offsets = subscriptions.next_offsets()
        for queue in offsets.keys() & subscriptions.queues.keys():
            subscriptions.queues[queue].consumed = offsets[queue]
        if isinstance(subscriptions.store, LocalOffsets):
            await subscriptions.store.write(offsets)
            return
        for queue, offset in offsets.items():
            await self._puller.commit(queue, offset)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset; messages read ahead are dropped.

        Raises:
            KeyError: the queue is not read.
            ValueError: it has no such offset.
            NoRoute, RemotingError, BrokerError: the broker does not answer.
        """
        first, end = await self._puller.offsets(queue)
        if not first <= offset <= end:
            raise ValueError(f"{queue}: offset {offset}: {first} to {end}")
        self._seek(queue, offset)

    # -- the group ----------------------------------------------------------------------------------------------------

    def _describe(self) -> ConsumerData:
        return self._subscriptions.describe("CONSUME_ACTIVELY", self.options)

    def _members_changed(self, _connection: Connection, _request: Command) -> None:
        self._rebalancing.wake()

    def _running_info(self, _connection: Connection, request: Command) -> Command:
        """Request 307: the state of this client."""
        return answer_running_info(request, self.group, self._info)

    def _info(self) -> ConsumerRunningInfo:
        subscriptions = self._subscriptions
        return ConsumerRunningInfo(
            properties=client_properties(self.cluster, subscriptions.began, "CONSUME_ACTIVELY", -1),
            subscription_set=subscriptions.for_heartbeat(),
            mq_table={
                queue: QueueState(commit_offset=polled.consumed or 0)
                for queue, polled in sorted(subscriptions.queues.items())
            },
            status_table={topic: ConsumeStatus() for topic in subscriptions.topics},
        )

    def _route_changed(self, route: Route) -> None:
        self._rebalancing.route_changed(route)
        if route.topic in self._known and self._known[route.topic] != route.readable:
            self._known[route.topic] = route.readable
            for watcher in self._watching[route.topic]:
                watcher(route.topic, route.readable)

    def _note_consumed(self) -> None:
        for polled in self._subscriptions.queues.values():
            polled.consumed = polled.position

    async def _apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        async with self._turn:
            if topic not in self._subscriptions.topics:  # unsubscribed during the rebalance
                mine = ()
            try:
                await self._have(set(mine), {polled.queue for polled in self._subscriptions.of_topic(topic)})
            except (ClientError, RemotingError) as err:
                log.warning("%s: not read yet: %s", topic, err)
                return False
            return True

    async def _have(self, queues_to_read: set[MessageQueue], before: set[MessageQueue]) -> None:
        """Read these queues instead of others."""
        ended = [polled for queue in before - queues_to_read if (polled := self._end(queue)) is not None]
        if self.options.auto_commit and ended:
            await self._subscriptions.keep(*ended)
        for queue in sorted(queues_to_read - before):
            offset = await self._first(queue)
            self._begin(queue, offset, offset)

    async def _first(self, queue: MessageQueue) -> int:
        stored = await self._subscriptions.store.read(queue)
        if stored is not None:
            return stored
        options, began = self.options, self._subscriptions.began
        return await find_beginning(self._puller, queue, options.start, options.start_time, began)
