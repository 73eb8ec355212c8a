"""The queues of a cluster: which exist, where they begin and end, and whether they are still the same.

An offset alone proves nothing, so every position comes with the message before it
(:mod:`rmqtool.client.consumer.proof`). That no route names a broker, or that a broker answers nothing, proves nothing
either: it is an error, or a queue that waits.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from formats.remoting import headers as h
from formats.remoting.bodies import TopicStats
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.shapes import MessageQueue
from rmqtool.admin.live.questions import client_options
from rmqtool.admin.target import Target
from rmqtool.analytics.live.options import EARLIEST, LATEST, Boundary, LiveRequest, Point
from rmqtool.analytics.live.positions import Positions, QueuePosition
from rmqtool.analytics.live.waiting import AwaitedPeers, warn
from rmqtool.client.cluster import attempts
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError, NoRoute
from rmqtool.client.cluster.loop import Loop, fast_event_loop
from rmqtool.client.cluster.readable import ordinary_topics, readable_queues
from rmqtool.client.consumer.proof import MadeAgain, last_at, prove
from rmqtool.client.consumer.puller import Puller
from rmqtool.errors import BadValue
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.static_topics import is_mock_broker
from rmqtool.words import command_line

T = TypeVar("T")
K = TypeVar("K")
_IN_FLIGHT = 64  # queues asked at the same time
_TRUSTED = 60.0  # s that the proof of a position holds in a queue without news
_MANY = 64  # queues; more are asked for together
_STEP = 32  # messages looked at together, around a time


class DataLoss(ClientError):
    """Messages that were to be read are no longer there."""


class _Away(RemotingError):
    """Queues that were read before are not in the routes.

    Attributes:
        others: those that are.
    """

    def __init__(self, text: str, others: list[MessageQueue]) -> None:
        super().__init__(text)
        self.others = others


@contextmanager
def connected(target: Target) -> Iterator[tuple[Loop, Cluster]]:
    """A client of a cluster, in an event loop of its own thread.

    Raises:
        BadValue, UnreadableStore: the settings of TLS or the keys are invalid.
    """
    options = client_options(target)
    loop = Loop(fast_event_loop)
    try:

        async def open_cluster() -> Cluster:
            return await Cluster(options).__aenter__()

        cluster = loop.run(open_cluster())
        try:
            yield loop, cluster
        finally:
            loop.run(cluster.close())
    finally:
        loop.close()


async def check_registered(cluster: Cluster, target: Target) -> None:
    """Check that brokers are registered at all; else no route says nothing about a topic.

    Raises:
        RemotingError: none is, as after the restart of the only one, or of a name server.
    """
    if not (await cluster.brokers()).broker_addr_table:
        raise RemotingError(f"{target.text}: no broker is registered")


async def gather(items: Iterable[K], work: Callable[[K], Coroutine[Any, Any, T]]) -> dict[K, T]:
    """The result of work for each item; a limited number is in progress, and the first error ends all."""
    free = asyncio.Semaphore(_IN_FLIGHT)

    async def run(item: K) -> T:
        async with free:
            return await work(item)

    tasks = {item: asyncio.ensure_future(run(item)) for item in items}
    try:
        await asyncio.gather(*tasks.values())
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    return {item: task.result() for item, task in tasks.items()}


class Queues:
    """Answers questions about the queues of a request."""

    def __init__(self, cluster: Cluster, request: LiveRequest) -> None:
        self._cluster, self._request = cluster, request
        self._puller = Puller(cluster)
        self._waiting = AwaitedPeers(request.patience.later, by_option=request.by_option)
        self._proven: dict[MessageQueue, tuple[QueuePosition, float]] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._bounds: dict[MessageQueue, tuple[int, int]] = {}  # beginnings and ends

    # -- asking, and waiting for who is away --------------------------------------------------------------------------

    @contextmanager
    def patient_for(self, seconds: float) -> Iterator[None]:
        """Wait no longer than this for a peer that is away."""
        usual, self._waiting.patience = self._waiting.patience, seconds
        try:
            yield
        finally:
            self._waiting.patience = usual

    async def ask(self, what: MessageQueue | str, work: Callable[[], Awaitable[T]], *, known: bool = True) -> T:
        """The result of work that only reads; a broker that is away is waited for, and asked by new routes.

        Args:
            what: the queue or topic that is asked for; it begins the text of errors.
            known: it is there, so no route to it means that its broker, or a name server, has just been restarted.

        Raises:
            ClientError, RemotingError: no attempt succeeded; the text names the queue.
        """

        async def attempt() -> T:
            try:
                return await work()
            except (ClientError, RemotingError) as err:
                if attempts.may_pass(err) or isinstance(err, NoRoute):
                    self._cluster.forget_route(what.topic if isinstance(what, MessageQueue) else what)
                if known and isinstance(err, NoRoute):
                    raise RemotingError(str(err)) from err
                raise

        try:
            return await self._waiting.try_often(what, attempt)
        except (DataLoss, MadeAgain):
            raise
        except (ClientError, RemotingError) as err:
            if str(err).startswith(str(what)):
                raise
            raise ClientError(f"{what}: {err}") from err

    # -- which there are ----------------------------------------------------------------------------------------------

    async def find(self, before: Collection[MessageQueue] = ()) -> list[MessageQueue]:
        """All queues of the request that can be read now, as the name servers know them at this moment.

        Args:
            before: queues that were read before. If the request is strict, they are waited for, as their broker may
                just be restarted; else they may be away.

        Raises:
            ClientError, RemotingError: a topic is not known, or its queues are not among those that can be read.
        """

        async def find_all() -> list[MessageQueue]:
            queues = await self._find(before)
            if self._request.strict and (away := set(before).difference(queues)):
                raise _Away(f"{min(away)}: no route has it", queues)
            return queues

        try:
            return await self._waiting.try_often("", find_all)
        except _Away as err:
            return err.others

    async def _find(self, before: Collection[MessageQueue]) -> list[MessageQueue]:
        wanted = self._request.queues
        topics = (
            self._request.topics
            or await self._find_new_topics({queue.topic for queue in before})
            or tuple({queue.topic for queue in wanted})
        )
        known, strict = {queue.topic for queue in before}, self._request.strict
        by_topic = await gather(
            topics,
            lambda topic: self._of_topic(
                topic, known=strict and topic in known, may_be_away=not strict and topic in known
            ),
        )
        queues = await self._of_cluster(sorted({queue for some in by_topic.values() for queue in some}))
        if not wanted:
            return queues
        for queue in wanted:
            if queue not in queues and queue not in before:
                raise NoRoute(f"{queue}: is not among the queues that can be read")
        return sorted(set(wanted).intersection(queues))

    async def _find_new_topics(self, known: set[str]) -> tuple[str, ...]:
        if self._request.pattern is None:
            return ()
        pattern = re.compile(self._request.pattern)

        async def list_topics() -> list[str]:
            await check_registered(self._cluster, self._request.target)
            return await ordinary_topics(self._cluster)

        names = await self.ask("the list of topics", list_topics)
        new = [name for name in names if pattern.fullmatch(name) and name not in known]
        routes = await gather(new, lambda name: self.ask(name, lambda: self._cluster.fetch_route(name), known=False))
        topics = (*sorted(known), *(name for name in new if not routes[name].inherited))
        if not topics:
            raise NoRoute(f"{self._request.target.text}: no topic matches {self._request.pattern}")
        return topics

    async def _of_topic(self, topic: str, *, known: bool, may_be_away: bool) -> tuple[MessageQueue, ...]:
        async def readable() -> tuple[MessageQueue, ...]:
            try:
                await self._cluster.fetch_route(topic)
            except NoRoute:
                if not may_be_away:
                    await check_registered(self._cluster, self._request.target)
                raise
            return await readable_queues(self._cluster, topic)

        try:
            return await self.ask(topic, readable, known=known)
        except NoRoute:
            if not may_be_away:
                raise
            return ()

    async def _of_cluster(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        name, text = self._request.target.cluster, self._request.target.text
        if name is None:
            return queues
        info = await self.ask(text, self._cluster.brokers)
        if name not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise ClientError(f"{text}: the name server knows no cluster {name}; it knows {known}")
        brokers = set(info.cluster_addr_table[name])
        return [queue for queue in queues if queue.broker_name in brokers]

    # -- where they begin and end -------------------------------------------------------------------------------------

    async def ask_together(self, queues: Collection[MessageQueue]) -> None:
        """If there are many queues, ask each broker where all queues of a topic begin and end.

        :meth:`offsets` and :meth:`end` of these queues are answered by that until this is called again. A queue without
        an answer is then asked for itself, as are all of static topics: here brokers do not translate their offsets.
        """
        self._bounds = {}
        if len(queues) <= _MANY:
            return
        places = {(queue.topic, queue.broker_name) for queue in queues if not is_mock_broker(queue.broker_name)}
        for bounds in (await gather(sorted(places), self._ask_broker)).values():
            self._bounds |= bounds

    async def _ask_broker(self, place: tuple[str, str]) -> dict[MessageQueue, tuple[int, int]]:
        topic, broker = place
        request = self._cluster.request(RequestCode.GET_TOPIC_STATS_INFO, h.Topic(topic=topic))
        try:
            await self._cluster.route(topic)
            address = self._cluster.reading_address(broker)
            stats = body_from(TopicStats, await self._cluster.ask(address, request), address)
        except (ClientError, RemotingError):
            return {}
        return {
            MessageQueue(topic, broker, queue.queue_id): (offset.min_offset, offset.max_offset)
            for queue, offset in stats.offset_table.items()
            if queue.topic == topic and 0 <= offset.min_offset <= offset.max_offset
        }

    async def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset of a queue, and the offset after its last message."""
        if (bounds := self._bounds.get(queue)) is not None:
            return bounds
        return await self.ask(queue, lambda: self._puller.offsets(queue))

    async def end(self, queue: MessageQueue) -> int:
        """The offset after the last message of a queue."""
        if (bounds := self._bounds.get(queue)) is not None:
            return bounds[1]
        return await self.ask(queue, lambda: self._puller.end(queue))

    async def position(self, queue: MessageQueue, offset: int, begin: int | None = None) -> QueuePosition:
        """A position in a queue, with its proof."""
        last = await self.ask(queue, lambda: last_at(self._puller, queue, offset - 1)) if offset else None
        return QueuePosition(offset, last, begin)

    async def resolve(self, queue: MessageQueue, boundary: Boundary, option: str) -> int:
        """The offset of a boundary in a queue.

        Args:
            option: prefix of the options that it was given by.

        Raises:
            BadValue: it is not in the queue, or not given for it.
            DataLoss: the messages there have expired.
        """
        low, high = await self.offsets(queue)
        if boundary.timestamp is not None:
            return await self._at_time(queue, boundary.timestamp, low, high)
        point: Point = boundary.word
        if boundary.offsets is not None:
            if queue not in boundary.offsets:
                raise BadValue(f"option {option}Offsets: gives no offset for {queue}")
            point = boundary.offsets[queue]
        if isinstance(point, str):
            return {EARLIEST: low, LATEST: high}[point]
        if point > high:
            raise BadValue(f"option {option}Offsets: {queue} ends at offset {high}, before {point}")
        if point < low:
            self.lose(f"{queue}: begins at offset {low}, and was asked for from {point} on: messages have expired")
        return max(point, low)

    async def _at_time(self, queue: MessageQueue, timestamp: int, low: int, high: int) -> int:
        """The offset of the first message stored at or after a time.

        Brokers of 4.9 may answer the message before, or any one of several of the same millisecond.
        """
        if low >= high:
            return high
        at = min(max(await self.ask(queue, lambda: self._puller.offset_at(queue, timestamp)), low), high)
        while at > low:
            begin = max(at - _STEP, low)
            times = await self._times(queue, begin, at)
            at = next((offset + 1 for offset, stored in reversed(times) if stored < timestamp), begin)
            if at > begin:
                break
        while at < high:
            times = await self._times(queue, at, high)
            later = next((offset for offset, stored in times if stored >= timestamp), None)
            if later is not None:
                return later
            at = times[-1][0] + 1
        return min(at, high)

    async def _times(self, queue: MessageQueue, start: int, stop: int) -> list[tuple[int, int]]:
        """Offset and store time of some messages from an offset on, at least one."""

        async def times() -> list[tuple[int, int]]:
            pulled = await self._puller.pull(queue, start, most=min(stop - start, _STEP))
            if not pulled.messages:
                raise BadAnswer(f"{queue}: its broker gives no message at offset {start}, and ends at {stop}")
            return [(message.queue_offset, message.record.store_timestamp) for message in pulled.messages]

        offsets = [(offset, stored) for offset, stored in await self.ask(queue, times) if offset < stop]
        return offsets or [(stop - 1, 1 << 62)]  # a compacted topic has none of these any more

    # -- whether they are the same ------------------------------------------------------------------------------------

    async def follow(self, queue: MessageQueue, position: QueuePosition) -> tuple[int, int | None, int]:
        """Continue from a position in a queue.

        Returns:
            (the offset to continue at, the same again if it is not that of the position, the end of the queue).

        Raises:
            DataLoss: the messages at the position are gone, or it is another queue.
        """
        proven, when = self._proven.get(queue, (None, 0.0))
        if proven == position and time.monotonic() - when < _TRUSTED and await self.end(queue) == position.next:
            return position.next, None, position.next  # nothing is to be read yet
        low, high = await self.offsets(queue)
        try:
            if position.last is not None:
                last = position.last
                await self.ask(queue, lambda: prove(self._puller, queue, last))
            if position.next > high:
                await self._ends_before(queue, position.next, high)
        except MadeAgain as err:
            self.lose_queue(err)
            return low, low, high
        if position.next < low:
            self.lose(f"{queue}: was read up to offset {position.next}, and begins at {low}: messages have expired")
            return low, low, high
        self._proven[queue] = position, time.monotonic()
        return position.next, None, high

    async def _ends_before(self, queue: MessageQueue, offset: int, high: int) -> None:
        if not self._puller.is_master(queue):
            raise RemotingError(
                f"{queue}: was read up to {offset}, a slave has it up to {high}, and its master is away"
            )
        raise MadeAgain(f"{queue}: was read up to offset {offset}, and ends at {high}: it has lost messages, or is new")

    # -- progress for others ------------------------------------------------------------------------------------------

    async def commit(self, positions: Positions, group: str) -> None:
        """Move the offsets of a group to where a stream is. What cannot be written now is with the next batch.

        Raises:
            BadValue: a broker does not know the group.
        """
        puller = Puller(self._cluster, group)

        async def move(queue: MessageQueue) -> None:
            position = positions[queue]
            if self._committed.get(queue) == position.next:
                return
            try:
                if position.last is not None:
                    await prove(self._puller, queue, position.last)
                await puller.commit(queue, position.next)
                self._committed[queue] = position.next
            except BrokerError as err:
                if err.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise BadValue(f"option commitGroup: {err}; {command_line('group', 'create')} makes it") from None
                warn(f"{queue}: the offset of group {group} is not moved: {err}")
            except (ClientError, RemotingError) as err:
                warn(f"{queue}: the offset of group {group} is not moved: {err}")

        await gather(positions, move)

    def report_missing(self, queues: Collection[MessageQueue]) -> None:
        """Report queues that were read before, and that no route has now.

        Raises:
            DataLoss: there are some.
        """
        for queue in sorted(queues):
            self.lose(
                f"{queue}: is no longer among the queues that can be read: its broker is away, or the topic has fewer "
                "queues",
                "waits for it",
            )

    def lose_queue(self, err: MadeAgain) -> None:
        """Report that a queue is another one than before.

        Raises:
            DataLoss: the request does not allow it.
        """
        self.lose(str(err), "begins it at its first message")

    def lose(self, text: str, otherwise: str = "goes on without them") -> None:
        """Report a loss: as an error, or as a warning if the request allows it.

        Raises:
            DataLoss: the request does not allow it.
        """
        if self._request.strict:
            raise DataLoss(f"{text} (failOnDataLoss=false {otherwise})" if self._request.by_option else text)
        warn(f"{text} (failOnDataLoss=false: {otherwise})")
