"""Figures about topics and groups, collected while requests are served."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TypeVar

from formats.topics import DLQ_PREFIX
from rmqtool.errors import RmqError
from rmqtool.server.broker.context import counts
from rmqtool.server.broker.context.broker_context import BrokerContext

log = logging.getLogger(__name__)

_SLICE = 0.01  # s that requests wait at most
T = TypeVar("T")


@dataclass(frozen=True)
class TopicFigures:
    """One topic.

    Attributes:
        newest: messages that its queues ever had, the sum of their max offsets.
        put, put_bytes: messages and bytes per second in the last minute.
    """

    topic: str
    newest: int
    put: float
    put_bytes: float


@dataclass(frozen=True)
class GroupFigures:
    """One group in one topic that it reads or has read.

    Attributes:
        members: consumers of the group that are online.
        broadcast: each member gets every message; then their offsets are unknown.
        consumed: the sum of its offsets.
        behind: messages that it has not consumed yet.
        late: ms since the oldest of these was stored.
        got, got_bytes, sent_back: messages and bytes per second that it was handed in the last minute, and messages
            that it gave back in it.
    """

    group: str
    topic: str
    members: int
    broadcast: bool
    consumed: int
    behind: int
    late: int
    got: float
    got_bytes: float
    sent_back: int


async def pace(items: Iterable[T]) -> AsyncIterator[T]:
    """The same items; requests are served in between."""
    pause = time.monotonic() + _SLICE
    for item in items:
        yield item
        if time.monotonic() >= pause:
            await asyncio.sleep(0)
            pause = time.monotonic() + _SLICE


class Figures:
    """Figures of one broker. Queues that cannot be read are left out and logged once."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._warned: set[str] = set()

    def _tell(self, topic: str, err: Exception) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            log.warning("no figures of topic %s: %s", topic, err)

    async def topics(self) -> list[TopicFigures]:
        """All topics, by name."""
        context, rows = self._context, []
        async for name, config in pace(sorted(context.state.topics.items())):
            newest = 0
            try:
                queues = range(max(config.write_queue_nums, config.read_queue_nums))
                async for queue in pace(queues):
                    newest += max(context.reading.max_offset(name, queue), 0)
            except (OSError, RmqError) as err:
                self._tell(name, err)
                continue
            put = context.counts.rate(counts.TOPIC_PUT, name)
            rows.append(TopicFigures(name, newest, put, context.counts.rate(counts.TOPIC_PUT_SIZE, name)))
        return rows

    async def groups(self) -> list[GroupFigures]:
        """All groups, in the topics that they read or have offsets in, except dead letters."""
        context, rows = self._context, []
        pairs = {(topic, group) for topic, group, _queue in context.state.offsets}
        for group, online in context.clients.consumers.items():
            pairs |= {(topic, group) for topic in online.subscriptions}
        async for topic, group in pace(sorted(pairs)):
            config = context.state.topic(topic)
            if config is not None and not topic.startswith(DLQ_PREFIX):
                try:
                    rows.append(await self._group(topic, group, config.read_queue_nums))
                except (OSError, RmqError) as err:
                    self._tell(topic, err)
        return rows

    async def _group(self, topic: str, group: str, queues: int) -> GroupFigures:
        context, reading, now = self._context, self._context.reading, self._context.clock()
        online = context.clients.consumers.get(group)
        consumed = behind = late = 0
        async for queue in pace(range(queues)):
            high = max(reading.max_offset(topic, queue), 0)
            offset = max(context.state.offset(topic, group, queue) or 0, 0)
            consumed += offset
            behind += max(high - offset, 0)  # an offset beyond the end of a cut queue must not reduce the sum
            if offset < high:
                stored = reading.store_time(topic, queue, max(offset, reading.min_offset(topic, queue)))
                late = max(late, now - stored if stored > 0 else 0)
        key = f"{topic}@{group}"
        back = context.counts.stats(counts.SENT_BACK, key)
        return GroupFigures(
            group=group,
            topic=topic,
            members=len(online.clients) if online is not None else 0,
            broadcast=online is not None and online.message_model == "BROADCASTING",
            consumed=consumed,
            behind=behind,
            late=late,
            got=context.counts.rate(counts.GROUP_GET, key),
            got_bytes=context.counts.rate(counts.GROUP_GET_SIZE, key),
            sent_back=int(back.stats_minute.sum) if back is not None else 0,
        )
