"""A consumer that asks for its messages (client.consumer.DefaultLitePullConsumer)."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Self

from formats.fastjson.declare import body_of
from formats.primitives import address_text
from formats.remoting.admin import ConsumerRunningInfo, ConsumeStatus, QueueState
from formats.remoting.codes import Language, RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, MessageQueue, SubscriptionData
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import ClientError, NoRoute
from rmqtool.client.cluster.identity import local_address
from rmqtool.client.cluster.namespaces import with_namespace
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consuming.feeding import as_sent
from rmqtool.client.consuming.offsets.beginning import beginning
from rmqtool.client.consuming.offsets.local import LocalOffsets
from rmqtool.client.consuming.offsets.remote import RemoteOffsets
from rmqtool.client.consuming.rebalancing import Rebalancing
from rmqtool.client.consuming.sharing import subscription, tags_of
from rmqtool.client.listening.options import Sql
from rmqtool.client.polling.options import PollOptions
from rmqtool.client.pulling.consumer import PullConsumer
from rmqtool.client.pulling.pull import Puller, Received
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.sending import check_group

log = logging.getLogger(__name__)

Changed = Callable[[str, tuple[MessageQueue, ...]], None]


class LitePullConsumer:
    """Reads topics that it shares with its group, or queues that it is told. Use as an asynchronous context manager.

    Either :meth:`subscribe` or :meth:`assign` says what is read. Only what a poll gave before the latest one is
    committed by itself: whoever polls again has done with it.

    Args:
        client: addresses of name servers, options of a client, or a cluster, which is shared by one consumer of a
            group at most.

    Raises:
        ValueError: no name for a group.
        NotReached: no name server is given.
    """

    def __init__(self, client: str | ClientOptions | Cluster, group: str, options: PollOptions | None = None) -> None:
        check_group(group)
        options = options or PollOptions()
        if isinstance(client, str):
            client = ClientOptions(namesrv=client)
        if isinstance(client, ClientOptions) and client.client_id is None and options.broadcasting:
            client = replace(client, client_id=f"{address_text(local_address())}@DEFAULT")
        self._shared = isinstance(client, Cluster)
        self.cluster = client if isinstance(client, Cluster) else Cluster(client)
        self._namespace = self.cluster.options.namespace
        group = with_namespace(self._namespace, group)
        self.group, self.options = group, options
        self._puller = Puller(self.cluster, group)
        self._reader = PullConsumer(self.cluster, group, batch=options.batch, ahead=options.ahead, wait=options.hold)
        self._kept: RemoteOffsets | LocalOffsets = RemoteOffsets(_Any(self._puller))
        if options.broadcasting:
            self._kept = LocalOffsets(options.local_offsets, self.cluster.client_id, group)
        self._wanted: dict[str, SubscriptionData] = {}
        self._chosen = False  # by `assign`
        self._began = time.time_ns() // 1_000_000
        self._consumed: dict[MessageQueue, int] = {}
        self._committed_at = 0.0
        self._watching: dict[str, list[Changed]] = {}
        self._told: dict[str, tuple[MessageQueue, ...]] = {}
        self._rebalancing = Rebalancing(
            self.cluster, group, lambda: self._wanted, None if options.broadcasting else options.strategy,
            self._apply, options.rebalance_interval,
        )  # fmt: skip
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            if not self._shared:
                await self.cluster.__aenter__()
            await self._reader.__aenter__()
            await self._kept.open()
            self.cluster.on_route(self._route_changed)
        except BaseException:
            await self.close()
            raise
        self._committed_at = asyncio.get_running_loop().time()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Commit what may be, and leave the group."""
        if self._closed:
            return
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.options.auto_commit:
            await self._keep()
        await self._reader.close()
        await self._kept.close()
        await self.cluster.remove_consumer(self.group)
        if not self._shared:
            await self.cluster.close()

    # -- what is read -------------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str = "*") -> None:
        """Read a topic, whose queues are shared with the other members of the group.

        Args:
            expression: tags, ``*``, or :class:`Sql`. Members of a group must agree.

        Raises:
            ValueError: no tag; or queues were assigned.
        """
        if self._chosen:
            raise ValueError("queues are assigned: nothing can be subscribed besides")
        topic = with_namespace(self._namespace, topic)
        sql = str(expression) if isinstance(expression, Sql) else None
        tags = [] if sql is not None else tags_of(expression)
        self._reader.filter(topic, tags, sql)
        self._wanted[topic] = subscription(topic, tags, time.time_ns() // 1_000_000, sql)
        try:
            await self.cluster.route(topic)
        except NoRoute as err:
            log.warning("%s; it is waited for", err)
        self.cluster.add_consumer(self.group, self._describe)
        await self.cluster.heartbeat()  # who is not known to be in the group gets no queues
        if self._task is None:
            self.cluster.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
            self.cluster.on(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
            self._task = asyncio.create_task(self._rebalancing.run())
        self._rebalancing.wake()

    async def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; its queues go to the other members of the group."""
        topic = with_namespace(self._namespace, topic)
        if self._wanted.pop(topic, None) is not None:
            await self._apply(topic, ())
            await self.cluster.heartbeat()

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, and no others, without being a member of the group.

        Raises:
            ValueError: topics were subscribed.
            NoRoute, RemotingError, BrokerError: it cannot be told where a queue begins.
        """
        if self._wanted:
            raise ValueError("topics are subscribed: no queues can be assigned besides")
        self._chosen = True
        await self._read(set(queues))

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return self._reader.assigned()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic, whoever reads them.

        Raises:
            NoRoute: no name server knows it.
            RemotingError: none answers.
        """
        return (await self.cluster.route(with_namespace(self._namespace, topic))).readable

    async def on_queues_changed(self, topic: str, watcher: Changed) -> None:
        """Be told when a topic gets other queues, as its route says, which is asked for now and then.

        Args:
            watcher: is given the topic and its queues.

        Raises:
            NoRoute: no name server knows it.
            RemotingError: none answers.
        """
        topic = with_namespace(self._namespace, topic)
        self._told.setdefault(topic, await self.queues(topic))
        self._watching.setdefault(topic, []).append(watcher)

    # -- messages -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 5.0) -> list[Received]:
        """The next messages of one queue; none where there are none within ``timeout`` seconds.

        Raises:
            NoRoute, RemotingError, BrokerError: a queue cannot be read; asked again, it is tried again.
        """
        self._note_consumed()
        now = asyncio.get_running_loop().time()
        if self.options.auto_commit and now - self._committed_at >= self.options.commit_interval:
            self._committed_at = now
            await self._keep()
        found = await self._reader.poll(timeout)
        return [as_sent(message, self._namespace) for message in found] if self._namespace else found

    async def __aiter__(self) -> AsyncIterator[Received]:
        while True:
            for message in await self.poll():
                yield message

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Keep where the group is; brokers have it when this returns.

        Args:
            offsets: of some queues; by default all that was polled counts as consumed.

        Raises:
            NoRoute, RemotingError, BrokerError: one was not kept.
        """
        if offsets is None:
            self._note_consumed()
            offsets = dict(self._consumed)
        else:
            self._consumed |= {queue: at for queue, at in offsets.items() if queue in self._consumed}
        if isinstance(self._kept, LocalOffsets):
            await self._kept.write(offsets)
            return
        for queue, offset in offsets.items():
            await self._puller.commit(queue, offset)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is in a queue; None where it never was.

        Raises:
            NoRoute, RemotingError, BrokerError: it cannot be told.
        """
        return await self._kept.read(queue)

    def position(self, queue: MessageQueue) -> int:
        """The offset at which the next poll of a queue begins.

        Raises:
            KeyError: it is not read.
        """
        return self._reader.position(queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset; what was read ahead is dropped.

        Raises:
            KeyError: the queue is not read.
            ValueError: it has no such offset.
            NoRoute, RemotingError, BrokerError: that cannot be told.
        """
        first, end = await self._reader.offsets(queue)
        if not first <= offset <= end:
            raise ValueError(f"{queue}: offset {offset}: {first} to {end}")
        self._reader.seek(queue, offset)
        self._consumed[queue] = offset

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that a queue has.

        Raises:
            KeyError: the queue is not read.
            NoRoute, RemotingError, BrokerError: it cannot be told where that is.
        """
        await self.seek(queue, (await self._reader.offsets(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the last message that a queue has.

        Raises:
            KeyError: the queue is not read.
            NoRoute, RemotingError, BrokerError: it cannot be told where that is.
        """
        await self.seek(queue, (await self._reader.offsets(queue))[1])

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """About the first offset of messages stored at a time (ms) or later.

        Raises:
            NoRoute, RemotingError, BrokerError: it cannot be told.
        """
        return await self._reader.offset_at(queue, timestamp)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Read no more of queues, until :meth:`resume`.

        Raises:
            KeyError: one is not read.
        """
        self._reader.pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that are paused, where they were.

        Raises:
            KeyError: one is not read.
        """
        self._reader.resume(queues)

    def paused(self) -> list[MessageQueue]:
        """The queues that are."""
        return self._reader.paused()

    # -- the group ----------------------------------------------------------------------------------------------------

    def _describe(self) -> ConsumerData:
        model = "BROADCASTING" if self.options.broadcasting else "CLUSTERING"
        wanted = list(self._wanted.values())
        return ConsumerData(self.group, "CONSUME_ACTIVELY", model, self.options.start.value, wanted)

    def _members_changed(self, _connection: Connection, _request: Command) -> None:
        self._rebalancing.wake()

    def _running_info(self, _connection: Connection, request: Command) -> Command:
        """Request 307: how this client stands."""
        properties = {
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
            "PROP_CLIENT_VERSION": self.cluster.options.release.full_name,
            "PROP_THREADPOOL_CORE_SIZE": "-1",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._began),
            "PROP_NAMESERVER_ADDR": self.cluster.options.namesrv,
        }
        table = {queue: QueueState(commit_offset=self._consumed.get(queue, 0)) for queue in self._reader.assigned()}
        wanted = list(self._wanted.values())
        status = {one.topic: ConsumeStatus() for one in wanted}
        info = ConsumerRunningInfo(properties=properties, subscription_set=wanted, mq_table=table, status_table=status)
        return request.response(body=body_of(info), language=Language.PYTHON)

    def _route_changed(self, route: Route) -> None:
        self._rebalancing.route_changed(route)
        if route.topic in self._told and self._told[route.topic] != route.readable:
            self._told[route.topic] = route.readable
            for watcher in self._watching[route.topic]:
                watcher(route.topic, route.readable)

    async def _keep(self) -> None:
        """Commit. Queues come and go meanwhile: of one that is another member's by then nothing may be written."""
        if self.options.broadcasting:
            await self._kept.write(dict(self._consumed))
            return
        for queue in list(self._consumed):
            if (offset := self._consumed.get(queue)) is not None:
                await self._kept.write({queue: offset})

    def _note_consumed(self) -> None:
        self._consumed = {queue: self._reader.position(queue) for queue in self._reader.assigned()}

    async def _apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        others = {queue for queue in self._reader.assigned() if queue.topic != topic}
        try:
            await self._read(others | set(mine))
        except (ClientError, RemotingError) as err:
            log.warning("%s: not read yet: %s", topic, err)
            return False
        return True

    async def _read(self, wanted: set[MessageQueue]) -> None:
        before = set(self._reader.assigned())
        left = {queue: self._consumed.pop(queue) for queue in before - wanted if queue in self._consumed}
        await self._reader.assign(dict.fromkeys(before & wanted))
        # a poll may have noted them meanwhile; what is written later is another member's to say
        left |= {queue: self._consumed.pop(queue) for queue in before - wanted if queue in self._consumed}
        if self.options.auto_commit and left:
            await self._kept.write(left)
        for queue in sorted(wanted - before):
            offset = await self._first(queue)
            await self._reader.assign({**dict.fromkeys(self._reader.assigned()), queue: offset})
            self._consumed[queue] = offset

    async def _first(self, queue: MessageQueue) -> int:
        stored = await self._kept.read(queue)
        if stored is not None:
            return stored
        return await beginning(self._puller, queue, self.options.start, self.options.start_time, self._began)


class _Any(dict[str, Puller]):
    """One puller for the offsets of all topics."""

    def __init__(self, puller: Puller) -> None:
        super().__init__()
        self._puller = puller

    def __missing__(self, topic: str) -> Puller:
        return self._puller
