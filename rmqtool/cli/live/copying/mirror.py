"""The command ``mirror``: topics of a live cluster, into a store."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated

import typer

from formats.message.properties import parse
from formats.primitives import TRANSACTION_MASK
from formats.remoting.shapes import MessageQueue
from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import chosen_release
from rmqtool.cli.framework.options import (
    NAMESRV,
    AclOption,
    BrokerConfOption,
    EngineOption,
    LimitOption,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
)
from rmqtool.cli.live.common import client_options
from rmqtool.cli.live.copying.positions import MirrorPositions, QueueKey, key_of
from rmqtool.cli.render.output import Column, write_all, writer
from rmqtool.cli.render.text import note
from rmqtool.cli.serve.running import StopEvent, until_stopped
from rmqtool.client.cluster.attempts import try_often
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BadAnswer, ClientError, NotThere
from rmqtool.client.cluster.readable import readable_queues
from rmqtool.client.consumer.proof import Last, last_of
from rmqtool.client.consumer.pull import PullConsumer
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.consumer.received import Received
from rmqtool.client.copying.replay import CannotGoOn
from rmqtool.client.copying.steps import ORIGIN
from rmqtool.contract import MIRROR_FIELDS
from rmqtool.errors import BadValue, Refused
from rmqtool.progress import stage
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.releases import Release
from rmqtool.rules.resending import own_properties
from rmqtool.rules.sending import check_topic
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending.copies import copy_of
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.words import counted

_SAVED_EVERY = 5.0  # s
_MOST, _SAID, _PAUSE = 32, 3, 1.0  # messages of a pull; how often a gap must be reported, and s between the reports
_MADE_AGAIN = (
    "the topic was made again since then, or its broker's store, and what it has is not what was copied: mirror it "
    "into another store"
)
_COLUMNS = [Column(name, right=name not in ("topic", "brokerName")) for name in MIRROR_FIELDS]


@command("mirror", "rmqtool mirror --namesrv 127.0.0.1:9876 Orders Payments store --follow", progress=True)
def mirror(
    words: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC... STORE", help="The topics, then the store, which is created if missing."),
    ],
    namesrv: NamesrvOption = NAMESRV,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new messages until a signal.")] = False,
    limit: LimitOption = None,
    keep_times: Annotated[
        bool,
        typer.Option("--keep-times", help="Keep the messages' storeTimestamp instead of setting the current time."),
    ] = False,
    engine: EngineOption = "auto",
    tls_config: TlsOption = None,
    acl: AclOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Copy topics of a live cluster into a store, each message once.

    It joins no group and changes nothing in the cluster. Messages keep their queue ids and their order within a queue;
    if several brokers have a topic, their queues of the same id become one. The property RMQTOOL_ORIGIN has the broker,
    queue and queue offset of the original. Positions are kept in the store, so the same command continues however the
    last run ended. It stops at the ends of the queues at the time of the start; with --follow it runs until a signal,
    with exit code 0. Exit code 1: messages had expired in the cluster before they could be copied.
    """
    topics, store = tuple(dict.fromkeys(words[:-1])), words[-1]
    if not topics:
        raise BadValue("give one or more topics, and then a store")
    try:
        for topic in topics:
            check_topic(topic)
    except ValueError as err:
        raise BadValue(str(err)) from None
    plan = MirrorPlan(topics, store, follow=follow, limit=limit, keep_times=keep_times, broker_conf=broker_conf)
    options = client_options(namesrv, tls_config=tls_config, acl=acl)
    return asyncio.run(_Mirror(plan).go(options, chosen_release(engine), output.value))


@dataclass(frozen=True)
class MirrorPlan:
    """What is to be copied; see the options of the command."""

    topics: tuple[str, ...]
    store: str
    _: KW_ONLY
    follow: bool
    limit: int | None
    keep_times: bool
    broker_conf: str | None


@dataclass
class MirroredQueue:
    """What a run has copied of a queue.

    Attributes:
        first: where it began. next: where it continues.
        messages: copied.
        expired: gone before they were.
    """

    first: int
    next: int
    messages: int = 0
    expired: int = 0


class _Mirror:
    def __init__(self, plan: MirrorPlan) -> None:
        self._plan, self._left = plan, plan.limit
        self._copied: dict[QueueKey, MirroredQueue] = {}
        self._away: set[QueueKey] = set()  # queues copied before that cannot be read now
        self._saved = 0.0

    async def go(self, options: ClientOptions, release: Release | None, output: str) -> int:
        async with until_stopped() as stop, Cluster(options) as cluster:
            # unreachable brokers and unknown topics are reported before a store is made
            routes = [await cluster.route(topic) for topic in self._plan.topics]
            with self._open_store(release) as store:
                try:
                    await self._run(stop, cluster, store)
                except RemotingError as err:
                    if not stop.is_set():
                        raise
                    note(str(err))  # the last request was not answered
                finally:
                    if self._copied:
                        write_all(writer(output, MIRROR_FIELDS, _COLUMNS), map(_row, sorted(self._copied.items())))
            assert routes
        summary = f"{counted(sum(copied.messages for copied in self._copied.values()), 'message')} copied"
        note(f"{summary}; the same command continues from there" if stop.is_set() else summary)
        if stop.is_set() and not self._plan.follow:
            return stop.exit_code
        return 1 if self._away or any(copied.expired for copied in self._copied.values()) else 0

    def _open_store(self, release: Release | None) -> Store:
        path, conf = self._plan.store, self._plan.broker_conf
        if os.path.lexists(path):
            store = Store(path, write=True, broker_conf=conf, release=release, mend=True, command="mirror")
            for text in store.warnings:
                note(f"warning: {text}")
            return store
        return Store.create(path, broker_conf=conf, release=release)

    async def _run(self, stop: StopEvent, cluster: Cluster, store: Store) -> None:
        positions, origin = MirrorPositions(store), _Origin(cluster, stop)
        ends = await self._begin(cluster, origin, store, positions)
        stopped = asyncio.create_task(stop.wait())
        total = None if self._plan.follow else sum(end - positions.at[key] for key, end in ends.items())
        if total is not None and self._left is not None:
            total = min(total, self._left)
        try:
            with stage("copying messages", total, "messages") as copying:
                async with aclosing(self._messages(cluster, origin, store, positions, ends)) as messages:
                    while not stop.is_set() and self._left != 0:
                        coming = asyncio.ensure_future(anext(messages, None))
                        await asyncio.wait([stopped, coming], return_when=asyncio.FIRST_COMPLETED)
                        if not coming.done():
                            coming.cancel()
                            await asyncio.wait([coming])
                            break
                        batch = coming.result()
                        if batch is None:
                            break
                        self._take(store, positions, *batch)
                        copying.done = sum(copied.messages + copied.expired for copied in self._copied.values())
        finally:
            stopped.cancel()
            if positions.at:
                positions.save()

    async def _begin(
        self, cluster: Cluster, origin: "_Origin", store: Store, positions: MirrorPositions
    ) -> dict[QueueKey, int]:
        """Store the positions of new queues before any of their messages; returns the current ends of all queues."""
        there = {queue.topic for queue in store.queues() if queue.maxOffset > 0}
        for topic in self._plan.topics:
            if topic in there and not any(key.topic == topic for key in positions.at):
                raise Refused(
                    f"{store.layout.root}: has messages of {topic} that were not mirrored: name another store"
                )
        for topic in self._plan.topics:
            if not any(key.topic == topic for key in positions.at):
                await readable_queues(cluster, topic)
        ends = await self._find_queues(cluster, origin, store, positions)
        self._away = {key for key in positions.at.keys() - ends.keys() if key.topic in self._plan.topics}
        for key in sorted(self._away):
            note(f"{key.topic}: queue {key.queue_id} of {key.broker_name} cannot be read now: nothing of it is copied")
        return ends

    async def _find_queues(
        self, cluster: Cluster, origin: "_Origin", store: Store, positions: MirrorPositions
    ) -> dict[QueueKey, int]:
        """New queues, with their current ends."""
        state, ends = BrokerState(store, note), dict[QueueKey, int]()
        for topic in self._plan.topics:
            queues = [queue for queue in (await cluster.route(topic)).readable if key_of(queue) not in self._copied]
            if queues:
                _ensure_queues(state, topic, max(queue.queue_id for queue in queues) + 1)
            for queue in queues:
                key = key_of(queue)
                low, high = await origin.offsets(queue)
                if key not in positions.last and low < positions.at.get(key, low):
                    positions.at[key] = low  # nothing was copied, not even from an earlier queue of that name
                at = positions.at.setdefault(key, low)
                await origin.prove(queue, at, positions.last.get(key), (low, high))
                self._copied[key] = MirroredQueue(at, at)
                ends[key] = high
        if ends:
            state.persist()
            positions.save()
            self._saved = time.monotonic()
        return ends

    async def _messages(
        self, cluster: Cluster, origin: "_Origin", store: Store, positions: MirrorPositions, ends: dict[QueueKey, int]
    ) -> AsyncGenerator[tuple[QueueKey, Sequence[Received], int]]:
        """(queue, its next messages, the offset after them)."""
        for key, end in ends.items():
            while (at := positions.at[key]) < end:
                yield key, *await origin.messages(MessageQueue(*key), at, positions.last.get(key))
        if not self._plan.follow:
            return
        async with PullConsumer(cluster) as consumer:
            await consumer.assign({MessageQueue(*key): positions.at[key] for key in ends})
            while True:
                try:
                    messages = await consumer.poll()
                    if new := await self._find_queues(cluster, origin, store, positions):
                        self._away -= new.keys()
                        added = {MessageQueue(*key): positions.at[key] for key in new}
                        await consumer.assign({**dict.fromkeys(consumer.assigned()), **added})
                    if messages:
                        queue = messages[0].queue
                        at = positions.at[key_of(queue)]
                        if messages[0].queue_offset != at:  # expired, or another queue
                            consumer.seek(queue, at)
                            yield key_of(queue), *await origin.messages(queue, at, positions.last.get(key_of(queue)))
                            consumer.seek(queue, positions.at[key_of(queue)])
                            continue
                        await origin.prove(queue, at, positions.last.get(key_of(queue)))
                        yield key_of(queue), messages, messages[-1].queue_offset + 1
                except CannotGoOn:
                    raise
                except (ClientError, RemotingError) as err:
                    note(f"{err}; it is tried again")
                    await asyncio.sleep(_PAUSE)
                    for queue in consumer.assigned():  # what was polled but not copied comes again
                        consumer.seek(queue, positions.at[key_of(queue)])

    def _take(
        self, store: Store, positions: MirrorPositions, key: QueueKey, messages: Sequence[Received], goes_on: int
    ) -> None:
        """Append new messages of a queue, and keep its position."""
        at, copied = positions.at[key], self._copied[key]
        new = [message for message in messages if message.queue_offset >= at][: self._left]
        for result, message in zip(store.append_many([self._copy(positions, key, m) for m in new]), new, strict=True):
            if not result.ok:
                raise CannotGoOn(f"{key.topic}: the message at queue offset {message.queue_offset}: {result.reason}")
        if new and len(new) < len(messages) and self._left is not None and len(new) == self._left:
            goes_on = new[-1].queue_offset + 1
        copied.messages += len(new)
        copied.expired += max(goes_on - at - len(new), 0)
        copied.next = max(goes_on, at)
        positions.move(key, copied.next, last_of(new[-1].record, new[-1].queue_offset) if new else None)
        if self._left is not None:
            self._left -= len(new)
        if time.monotonic() - self._saved > _SAVED_EVERY:
            positions.save()
            self._saved = time.monotonic()

    def _copy(self, positions: MirrorPositions, key: QueueKey, message: Received) -> NewMessage:
        record = message.record
        named = {**own_properties(parse(record.properties)), ORIGIN: positions.mark(key, message.queue_offset)}
        time_kept = {"store_timestamp": record.store_timestamp} if self._plan.keep_times else {}
        sys_flag = record.sys_flag & ~TRANSACTION_MASK
        return copy_of(
            record, key.topic, key.queue_id, named, sys_flag=sys_flag, was_stored=True, store_host=None, **time_kept
        )


class _Origin:
    """The mirrored cluster; requests without an answer are repeated.

    Args:
        stop: set when no more requests are to be repeated.
    """

    def __init__(self, cluster: Cluster, stop: StopEvent) -> None:
        self._puller, self._stop = Puller(cluster), stop

    async def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset of a queue, and its end."""
        return await try_often(partial(self._puller.offsets, queue), self._stop, note)

    async def messages(self, queue: MessageQueue, at: int, last: Last | None) -> tuple[Sequence[Received], int]:
        """The next messages of a queue, proved by the one before them, and the offset after them.

        Raises:
            CannotGoOn: it is no longer the queue that was copied.
        """
        return await try_often(partial(self._messages, queue, at, last), self._stop, note)

    async def _messages(self, queue: MessageQueue, at: int, last: Last | None) -> tuple[Sequence[Received], int]:
        before = last is not None and last.offset == at - 1
        pulled = None
        try:
            pulled = await self._puller.pull(queue, at - before, most=_MOST + before)
        except NotThere as err:
            low, high = await self._puller.offsets(queue)
            if low <= at and not before:
                return await self._passed_over(queue, at, err, high)
        if pulled is not None and not pulled.moved and pulled.messages:
            if not before:
                await self._prove(queue, at, last)
                return pulled.messages, pulled.next_offset
            first, *messages = pulled.messages
            if first.queue_offset == at - 1:
                _compare(queue, first, last)
                if messages:
                    return messages, pulled.next_offset
        # the message before has gone, there is none after it, or it is only known to be missing
        low, high = await self._puller.offsets(queue)
        await self._prove(queue, at, last, (low, high))
        if low > at:
            return [], low  # they have expired
        try:
            pulled = await self._puller.pull(queue, at, most=_MOST)
        except NotThere as err:
            return await self._passed_over(queue, at, err, high)
        if pulled.moved or not pulled.messages:
            raise BadAnswer(f"{queue}: its broker has nothing at offset {at}, and {high} is its end")
        return pulled.messages, pulled.next_offset

    async def _passed_over(
        self, queue: MessageQueue, at: int, err: NotThere, high: int
    ) -> tuple[Sequence[Received], int]:
        """A gap that a broker reports although nothing has expired: believed only when reported repeatedly."""
        for _ in range(_SAID):
            await asyncio.sleep(_PAUSE)
            try:
                pulled = await self._puller.pull(queue, at, most=_MOST)
            except NotThere as again:
                if again.next_offset == err.next_offset:
                    continue
                raise
            if pulled.messages:
                return pulled.messages, pulled.next_offset
            raise err
        following = min(err.next_offset, high)
        note(f"{queue}: its broker does not give the messages from offset {at} to {following - 1}: not copied")
        return [], following

    async def prove(
        self, queue: MessageQueue, at: int, last: Last | None, bounds: tuple[int, int] | None = None
    ) -> None:
        """Prove that a queue is still the one that was copied up to an offset.

        Args:
            bounds: its first offset and its end, if known.

        Raises:
            CannotGoOn: it is another queue.
        """
        await try_often(partial(self._prove, queue, at, last, bounds), self._stop, note)

    async def _prove(
        self, queue: MessageQueue, at: int, last: Last | None, bounds: tuple[int, int] | None = None
    ) -> None:
        if bounds is not None and at > bounds[1]:
            if not self._puller.is_master(queue):
                raise CannotGoOn(
                    f"{queue}: was copied up to {at}, and a slave has it up to {bounds[1]}: its master is away"
                )
            raise CannotGoOn(f"{queue}: ends at offset {bounds[1]}, and was copied up to {at}: {_MADE_AGAIN}")
        if last is None:
            return
        pulled = (
            await self._puller.pull(queue, last.offset, most=1) if bounds is None or bounds[0] <= last.offset else None
        )
        if pulled is not None and pulled.messages and pulled.messages[0].queue_offset == last.offset:
            _compare(queue, pulled.messages[0], last)
            return
        low, high = bounds or await self._puller.offsets(queue)
        if high < at or last.offset < low < at:
            raise CannotGoOn(f"{queue}: is from offset {low} to {high}, and was copied up to {at}: {_MADE_AGAIN}")
        if low <= last.offset:
            raise BadAnswer(
                f"{queue}: its broker does not give the message at offset {last.offset}, which was copied last"
            )


def _compare(queue: MessageQueue, message: Received, last: Last | None) -> None:
    """Raise CannotGoOn if a message is not the one that was copied last."""
    if last is not None and last_of(message.record, message.queue_offset) != last:
        raise CannotGoOn(
            f"{queue}: has another message at offset {last.offset} than the one that was copied: {_MADE_AGAIN}"
        )


def _ensure_queues(state: BrokerState, topic: str, count: int) -> None:
    """Give the topic as many queues as in the cluster: clients would not read from others."""
    config = state.ensure_topic(topic, count)
    if min(config.read_queue_nums, config.write_queue_nums) < count:
        read, write = max(config.read_queue_nums, count), max(config.write_queue_nums, count)
        state.set_topic(replace(config, read_queue_nums=read, write_queue_nums=write))


def _row(item: tuple[QueueKey, MirroredQueue]) -> dict[str, object]:
    key, copied = item
    values = (*key, copied.first, copied.next, copied.messages, copied.expired)
    return dict(zip(MIRROR_FIELDS, values, strict=True))
