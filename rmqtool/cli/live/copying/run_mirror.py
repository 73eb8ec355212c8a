"""mirror behind its options."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from formats.message.properties import parse
from formats.primitives import TRANSACTION_MASK
from rmqtool.cli.live.common import client_options
from rmqtool.cli.live.copying.positions import Key, Positions, key_of
from rmqtool.cli.look.run_query import engine_of
from rmqtool.cli.serve.running import Told, until_told
from rmqtool.cli.shell.output import Column, note, write_all, writer
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BadAnswer, ClientError
from rmqtool.client.copying.replay import CannotGoOn
from rmqtool.client.copying.steps import ORIGIN
from rmqtool.client.pulling.consumer import PullConsumer
from rmqtool.client.pulling.pull import Puller, Received
from rmqtool.contract import MIRROR_FIELDS
from rmqtool.errors import BadValue, Refused
from rmqtool.progress import stage
from rmqtool.remoting.errors import RemotingError
from rmqtool.services.opened.broker_state import BrokerState
from rmqtool.services.opened.engine import Store
from rmqtool.services.sending.again import own_properties
from rmqtool.services.sending.copies import copy_of
from rmqtool.services.sending.rules import check_topic
from rmqtool.store.append.outgoing import Message
from rmqtool.words import counted

_SAVED_EVERY = 5.0  # s
_COLUMNS = [Column(name, right=name not in ("topic", "brokerName")) for name in MIRROR_FIELDS]


@dataclass(frozen=True, kw_only=True)
class MirrorPlan:
    """What is to be copied; see the options of the command."""

    namesrv: str
    topics: tuple[str, ...]
    store: str
    follow: bool
    limit: int | None
    keep_times: bool
    engine: str
    tls_config: str | None
    acl: str | None = None
    broker_conf: str | None


@dataclass
class Copied:
    """What a run has copied of a queue.

    Attributes:
        first: where it began.
        next: where it goes on.
        messages: copied.
        expired: gone before they were.
    """

    first: int
    next: int
    messages: int = 0
    expired: int = 0


def run(plan: MirrorPlan, output: str) -> int:
    """Copy; 1 when messages had expired before."""
    if not plan.topics:
        raise BadValue("give one or more topics, and then a store")
    try:
        for topic in plan.topics:
            check_topic(topic)
    except ValueError as err:
        raise BadValue(str(err)) from None
    options, rules = client_options(plan.namesrv, tls_config=plan.tls_config, acl=plan.acl), engine_of(plan.engine)
    return asyncio.run(_Mirror(plan).go(options, rules, output))


class _Mirror:
    def __init__(self, plan: MirrorPlan) -> None:
        self._plan, self._left = plan, plan.limit
        self._copied: dict[Key, Copied] = {}
        self._saved = 0.0

    async def go(self, options: ClientOptions, rules: str | None, output: str) -> int:
        async with until_told() as told, Cluster(options) as cluster:
            # who is not reached, or does not know a topic, is told of before a store is made
            routes = [await cluster.route(topic) for topic in self._plan.topics]
            with self._opened(rules) as store:
                try:
                    await self._run(told, cluster, store)
                finally:
                    if self._copied:
                        write_all(writer(output, MIRROR_FIELDS, _COLUMNS), map(_row, sorted(self._copied.items())))
            assert routes
        words = f"{counted(sum(one.messages for one in self._copied.values()), 'message')} copied"
        note(f"{words}; the same command goes on from there" if told.is_set() else words)
        if told.is_set() and not self._plan.follow:
            return told.exit_code
        return 1 if any(one.expired for one in self._copied.values()) else 0

    def _opened(self, rules: str | None) -> Store:
        path, conf = self._plan.store, self._plan.broker_conf
        if os.path.lexists(path):
            store = Store(path, write=True, broker_conf=conf, engine=rules, mend=True, command="mirror")
            for text in store.warnings:
                note(f"warning: {text}")
            return store
        return Store.create(path, broker_conf=conf, engine=rules)

    async def _run(self, told: Told, cluster: Cluster, store: Store) -> None:
        positions, puller = Positions(store), Puller(cluster)
        ends = await self._begin(cluster, puller, store, positions)
        stopped = asyncio.create_task(told.wait())
        total = None if self._plan.follow else sum(end - positions.at[key] for key, end in ends.items())
        if total is not None and self._left is not None:
            total = min(total, self._left)
        try:
            with stage("copying messages", total, "messages") as copying:
                async with aclosing(self._messages(cluster, puller, positions, ends)) as found:
                    while not told.is_set() and self._left != 0:
                        coming = asyncio.ensure_future(anext(found, None))
                        await asyncio.wait([stopped, coming], return_when=asyncio.FIRST_COMPLETED)
                        if not coming.done():
                            coming.cancel()
                            await asyncio.wait([coming])
                            break
                        got = coming.result()
                        if got is None:
                            break
                        self._take(store, positions, *got)
                        copying.done = sum(one.messages + one.expired for one in self._copied.values())
        finally:
            stopped.cancel()
            if positions.at:
                positions.save()

    async def _begin(self, cluster: Cluster, puller: Puller, store: Store, positions: Positions) -> dict[Key, int]:
        """Positions of queues that are new, in the store before any message of them; and the ends of all queues now."""
        there = {queue.topic for queue in store.queues() if queue.maxOffset > 0}
        state, ends = BrokerState(store, note), dict[Key, int]()
        for topic in self._plan.topics:
            queues = (await cluster.route(topic)).readable
            if topic in there and not any(key.topic == topic for key in positions.at):
                raise Refused(
                    f"{store.layout.root}: has messages of {topic} that were not mirrored: name another store"
                )
            if queues:
                _ensure_queues(state, topic, max(queue.queue_id for queue in queues) + 1)
            for queue in queues:
                low, high = await puller.offsets(queue)
                key = key_of(queue)
                at = positions.at.setdefault(key, low)
                if at > high:
                    raise CannotGoOn(
                        f"{queue}: ends at offset {high}, and was copied up to {at}: the topic was made again since "
                        "then: mirror it into another store"
                    )
                self._copied[key] = Copied(at, at)
                ends[key] = high
        for key in positions.at.keys() - ends.keys():
            if key.topic in self._plan.topics:
                note(f"{key.topic}: queue {key.queue_id} of {key.broker_name} cannot be read now")
        state.persist()
        positions.save()
        self._saved = time.monotonic()
        return ends

    async def _messages(
        self, cluster: Cluster, puller: Puller, positions: Positions, ends: dict[Key, int]
    ) -> AsyncGenerator[tuple[Key, list[Received], int]]:
        """Queue, its next messages, and where it goes on."""
        queues = {key_of(q): q for topic in self._plan.topics for q in (await cluster.route(topic)).readable}
        for key, end in ends.items():
            queue, moves = queues[key], 0
            while (at := positions.at[key]) < end:
                pulled = await puller.pull(queue, at)
                moves = moves + 1 if pulled.next_offset <= at else 0
                if moves > 1:
                    raise BadAnswer(f"{queue}: its broker has nothing at offset {at}, and {end} is its end")
                yield key, pulled.messages, pulled.next_offset
        if not self._plan.follow:
            return
        async with PullConsumer(cluster) as consumer:
            await consumer.assign({queues[key]: positions.at[key] for key in ends})
            while True:
                try:
                    messages = await consumer.poll()
                except (ClientError, RemotingError) as err:
                    note(f"{err}; it is tried again")
                    continue
                if messages:
                    yield key_of(messages[0].queue), messages, messages[-1].queue_offset + 1

    def _take(self, store: Store, positions: Positions, key: Key, messages: Sequence[Received], goes_on: int) -> None:
        """Append what is new of a queue, and keep where it is."""
        at, copied = positions.at[key], self._copied[key]
        new = [one for one in messages if one.queue_offset >= at][: self._left]
        for result, message in zip(store.append_many([self._copy(positions, key, m) for m in new]), new, strict=True):
            if not result.ok:
                raise CannotGoOn(f"{key.topic}: the message at queue offset {message.queue_offset}: {result.reason}")
        if new and len(new) < len(messages) and self._left is not None and len(new) == self._left:
            goes_on = new[-1].queue_offset + 1
        copied.messages += len(new)
        copied.expired += max(goes_on - at - len(new), 0)
        copied.next = max(goes_on, at)
        positions.move(key, copied.next)
        if self._left is not None:
            self._left -= len(new)
        if time.monotonic() - self._saved > _SAVED_EVERY:
            positions.save()
            self._saved = time.monotonic()

    def _copy(self, positions: Positions, key: Key, message: Received) -> Message:
        record = message.record
        named = {**own_properties(parse(record.properties)), ORIGIN: positions.mark(key, message.queue_offset)}
        time_kept = {"store_timestamp": record.store_timestamp} if self._plan.keep_times else {}
        sys_flag = record.sys_flag & ~TRANSACTION_MASK
        return copy_of(
            record, key.topic, key.queue_id, named, sys_flag=sys_flag, was_stored=True, store_host=None, **time_kept
        )


def _ensure_queues(state: BrokerState, topic: str, count: int) -> None:
    """A topic with as many queues as in the cluster: where it has got more, nobody would look for messages there."""
    found = state.ensure_topic(topic, count)
    if min(found.read_queue_nums, found.write_queue_nums) < count:
        read, write = max(found.read_queue_nums, count), max(found.write_queue_nums, count)
        state.set_topic(replace(found, read_queue_nums=read, write_queue_nums=write))


def _row(item: tuple[Key, Copied]) -> dict[str, object]:
    key, copied = item
    values = (*key, copied.first, copied.next, copied.messages, copied.expired)
    return dict(zip(MIRROR_FIELDS, values, strict=True))
