"""Consumer groups of a live cluster. No request is made in the name of a group."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from formats.config.files import QueueOffset
from formats.model.groups import SubscriptionGroup
from formats.remoting import headers as h
from formats.remoting.bodies import ConsumeStats
from formats.remoting.codes import RequestCode as C
from formats.remoting.shapes import MessageQueue
from formats.topics import DLQ_PREFIX, RETRY_PREFIX
from rmqtool.admin.live.questions import Node, Questions, Warn, ask, body
from rmqtool.admin.live.tables import (
    Ranges,
    Topics,
    by_topic,
    fetch_groups,
    fetch_offsets,
    fetch_ranges,
    fetch_topics,
)
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import NotThere
from rmqtool.client.consumer.puller import LOOKING, Puller
from rmqtool.contract import PlainRows
from rmqtool.services.consumers.groups import PROBLEMS, GroupInfo, GroupLag, offset_state, topic_state, total_diff
from rmqtool.services.consumers.watch import Place, place_of
from rmqtool.services.lookup.offsets import OffsetRow, StoredOffset
from rmqtool.services.lookup.retry_names import RetryNames

ROUND = 15.0
"""Seconds for each of the two parts of a round."""
Times = Mapping[tuple[Node, str], Mapping[tuple[str, int], int]]  # broker and group, topic and queue id: ms


@dataclass(slots=True, kw_only=True)
class LiveGroupLag(GroupLag):
    """One queue of a group, on one of its brokers."""

    brokerName: str


@dataclass(slots=True, kw_only=True)
class LiveOffsetRow(OffsetRow):
    """The offset of a group in a queue, on one of its brokers."""

    brokerName: str


@dataclass(slots=True, kw_only=True)
class LiveStoredOffset(StoredOffset):
    """One offset of a group, as stored by one of its brokers."""

    brokerName: str


class LiveGroups:
    """The groups of a cluster.

    Args:
        warn: called with each reason why an answer is incomplete.
        say: called with what no broker reports.
        wanted: selects offsets by group and topic.
        limit: s for the lag, and for the oldest messages, after which the rest is missing; without one, each request
            has its own limit.

    Attributes:
        clusters: the cluster of each broker whose lag was asked for, by name.
    """

    lag_row = LiveGroupLag
    stored_row = LiveStoredOffset
    offset_row = LiveOffsetRow

    def __init__(
        self,
        target: Target,
        warn: Warn,
        say: Warn,
        wanted: Callable[[str, str], bool] = lambda _group, _topic: True,
        *,
        limit: float | None = None,
    ) -> None:
        self._target, self._warn, self._say, self._wanted, self._limit = target, warn, say, wanted, limit
        self.clusters: dict[str, str] = {}

    def holds_messages(self, _queue_ids: Collection[int] = ()) -> bool:
        """Whether POP consumers are known to hold messages; no broker reports it."""
        return False

    def infos(self) -> list[GroupInfo]:
        """Every group with settings or an offset at a broker, sorted."""
        return ask(self._target, self._warn, self._infos)

    def lag(self) -> list[LiveGroupLag]:
        """Every queue of every group, sorted by group, topic, broker and queue."""
        return ask(self._target, self._warn, self._lag, self._limit)

    def lag_rows(self) -> Iterator[PlainRows]:
        """As :meth:`lag`, by the thousand."""
        return PlainRows.of(LiveGroupLag, self.lag())

    def oldest(self, rows: Sequence[GroupLag]) -> dict[Place, int]:
        """The store time (ms) of the oldest unread message of each row: one message of each queue is read."""
        if not rows:
            return {}
        return ask(self._target, self._warn, lambda questions: self._oldest(questions, rows), self._limit)

    def offsets(self) -> list[LiveStoredOffset]:
        """Offsets as stored by brokers, sorted by group, topic, broker and queue."""

        async def work(questions: Questions) -> list[LiveStoredOffset]:
            return [
                LiveStoredOffset(
                    group=entry.group,
                    topic=entry.topic,
                    queueId=entry.queue_id,
                    consumerOffset=entry.offset,
                    brokerName=node.name,
                )
                for node, entry in await self._sorted_offsets(questions)
            ]

        return ask(self._target, self._warn, work)

    def positions(self) -> list[LiveOffsetRow]:
        """Offsets with the ranges of their queues, sorted in the same way."""
        return ask(self._target, self._warn, self._positions)

    # -- lag ----------------------------------------------------------------------------------------------------------

    async def _lag(self, questions: Questions) -> list[LiveGroupLag]:
        masters = await questions.masters()
        self.clusters = {node.name: node.cluster for node in masters}
        offsets = await self._fetch_offsets(questions, masters)
        tables = await fetch_topics(questions, offsets)
        ranges = await _fetch_ranges_of(questions, offsets, tables)
        times = await _fetch_times(questions, offsets)
        self._say_unreported("inFlight")
        rows = [row for node in offsets for row in self.rows(node, offsets[node], tables, ranges, times)]
        return sorted(rows, key=lambda row: (row.group, row.topic, row.brokerName, row.queueId))

    def rows(
        self,
        node: Node,
        offsets: Iterable[QueueOffset],
        tables: Mapping[Node, Topics],
        ranges: Ranges,
        times: Times | None,
    ) -> Iterable[LiveGroupLag]:
        """The rows of one broker; if it does not report the range of a queue, fields that depend on it are None."""
        if node not in tables:
            return  # already reported
        for topic, groups in by_topic(offsets).items():
            config, queues = tables[node].get(topic), ranges.of(node, topic)
            reads = {
                n
                for n, queue_range in queues.items()
                if queue_range.max_offset > 0 and config and n < config.read_queue_nums
            }
            for group, offsets_by_queue in groups.items():
                for queue_id in sorted({*offsets_by_queue, *reads}):
                    queue_range = queues.get(queue_id)
                    last = times.get((node, group), {}).get((topic, queue_id)) if times is not None else None
                    low = max(queue_range.min_offset, 0) if queue_range is not None else None
                    high = max(queue_range.max_offset, 0) if queue_range is not None else None
                    offset = offsets_by_queue.get(queue_id)
                    yield LiveGroupLag(
                        group=group,
                        topic=topic,
                        queueId=queue_id,
                        consumerOffset=offset,
                        minOffset=low,
                        brokerOffset=high,
                        diff=high - (offset or 0) if high is not None else None,
                        lastTimestamp=last,
                        state=offset_state(offset, low, high, topic_state(topic, queue_id, config)),
                        inFlight=None,
                        brokerName=node.name,
                    )

    async def _oldest(self, questions: Questions, rows: Sequence[GroupLag]) -> dict[Place, int]:
        nodes = {node.name: node for node in await questions.masters()}
        queues: dict[Place, tuple[Node, MessageQueue, int]] = {}
        for row in rows:
            place = place_of(row)
            node = nodes.get(place[2] or "")
            if node is not None:
                offset = max(row.consumerOffset or 0, row.minOffset or 0)
                queues[place] = (node, MessageQueue(row.topic, node.name, row.queueId), offset)

        async def fetch(place: Place) -> int | None:
            node, queue, offset = queues[place]
            puller = Puller(questions.cluster, LOOKING, address=node.address)

            async def pull() -> int | None:
                try:
                    pulled = await puller.pull(queue, offset, most=1)
                except NotThere:
                    return None
                return pulled.messages[0].record.store_timestamp if pulled.messages else None

            return await questions.attempt(node, "times of oldest messages are", pull)

        times = await questions.collect(queues, fetch)
        return {place: time for place, time in times.items() if time is not None}

    # -- groups -------------------------------------------------------------------------------------------------------

    async def _infos(self, questions: Questions) -> list[GroupInfo]:
        nodes = await questions.masters()
        offsets = await self._fetch_offsets(questions, nodes)
        configs = await fetch_groups(questions, nodes)
        tables = await fetch_topics(questions, nodes)
        names = {group for table in configs.values() for group in table}
        names |= {entry.group for entries in offsets.values() for entry in entries}
        dead = [(node, topic) for node, table in tables.items() for topic in table if topic.startswith(DLQ_PREFIX)]
        ranges = await _fetch_ranges_of(questions, offsets, tables, dead)
        rows: dict[str, list[GroupLag]] = defaultdict(list)
        for node, entries in offsets.items():
            for row in self.rows(node, entries, tables, ranges, None):
                rows[row.group].append(row)
        topics_known = {topic for table in tables.values() for topic in table}
        pairs = {(entry.topic, entry.group) for entries in offsets.values() for entry in entries}
        retry_names = RetryNames({*names}, topics_known, pairs)
        self._say_unreported("inFlight")
        return [
            _info(
                group,
                [table[group] for table in configs.values() if group in table],
                rows[group],
                retry_names,
                _dead_letters(DLQ_PREFIX + group, tables, ranges),
            )
            for group in sorted(names)
        ]

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def _fetch_offsets(self, questions: Questions, nodes: Iterable[Node]) -> dict[Node, list[QueueOffset]]:
        answers = await fetch_offsets(questions, nodes)
        return {
            node: [entry for entry in entries if self._wanted(entry.group, entry.topic)]
            for node, entries in answers.items()
        }

    async def _sorted_offsets(self, questions: Questions) -> list[tuple[Node, QueueOffset]]:
        answers = await self._fetch_offsets(questions, await questions.masters())
        offsets = [(node, entry) for node, entries in answers.items() for entry in entries]
        return sorted(offsets, key=lambda pair: (pair[1].group, pair[1].topic, pair[0].name, pair[1].queue_id))

    async def _positions(self, questions: Questions) -> list[LiveOffsetRow]:
        offsets = await self._sorted_offsets(questions)
        ranges = await fetch_ranges(questions, ((node, entry.topic) for node, entry in offsets))
        rows = []
        for node, entry in offsets:
            queue_range = ranges.of(node, entry.topic).get(entry.queue_id)
            high = max(queue_range.max_offset, 0) if queue_range is not None else None
            rows.append(
                LiveOffsetRow(
                    topic=entry.topic,
                    group=entry.group,
                    queueId=entry.queue_id,
                    consumerOffset=entry.offset,
                    minOffset=max(queue_range.min_offset, 0) if queue_range is not None else None,
                    brokerOffset=high,
                    diff=high - entry.offset if high is not None else None,
                    brokerName=node.name,
                )
            )
        return rows

    def _say_unreported(self, *names: str) -> None:
        self._say(f"brokers do not report {' and '.join(names)}: null in machine output")


async def lag_of(questions: Questions, nodes: Iterable[Node]) -> list[LiveGroupLag]:
    """Every queue of every group of some brokers, without times of last messages."""
    groups = LiveGroups(questions.target, lambda _text: None, lambda _text: None)
    offsets = await fetch_offsets(questions, nodes)
    tables = await fetch_topics(questions, offsets)
    ranges = await _fetch_ranges_of(questions, offsets, tables)
    return [row for node in offsets for row in groups.rows(node, offsets[node], tables, ranges, None)]


def _info(
    group: str,
    configs: Sequence[SubscriptionGroup],
    rows: Sequence[GroupLag],
    names: RetryNames,
    dead_letters: int | None,
) -> GroupInfo:
    """A group with the sums of its queues. Values on which brokers disagree are None."""
    retries = {row.topic for row in rows if row.topic.startswith(RETRY_PREFIX) and names.of(row.topic).group == group}
    own = [row for row in rows if row.topic not in retries]
    enabled, times = {config.consume_enable for config in configs}, {config.retry_max_times for config in configs}
    return GroupInfo(
        group=group,
        configured=bool(configs),
        consumeEnable=enabled.pop() if len(enabled) == 1 else None,
        retryMaxTimes=times.pop() if len(times) == 1 else None,
        topics=len({row.topic for row in own}),
        queues=len(own),
        diff=total_diff(own),
        retryDiff=total_diff(row for row in rows if row.topic in retries),
        deadLetters=dead_letters,
        problems=sum(row.state in PROBLEMS for row in rows),
        inFlight=None,
    )


async def _fetch_ranges_of(
    questions: Questions,
    offsets: Mapping[Node, Iterable[QueueOffset]],
    tables: Mapping[Node, Topics],
    more: Iterable[tuple[Node, str]] = (),
) -> Ranges:
    """Queue ranges of the topics that groups have offsets in, if brokers have them."""
    topics_with_offsets = {(node, entry.topic): None for node, entries in offsets.items() for entry in entries}
    return await fetch_ranges(
        questions, [*(place for place in topics_with_offsets if place[1] in tables.get(place[0], ())), *more]
    )


async def _fetch_times(questions: Questions, offsets: Mapping[Node, Iterable[QueueOffset]]) -> Times:
    """Store times of the last consumed messages, if brokers report them."""
    pairs = dict.fromkeys((node, entry.group) for node, entries in offsets.items() for entry in entries)

    async def fetch(pair: tuple[Node, str]) -> Mapping[tuple[str, int], int]:
        node, group = pair
        stats = await questions.fetch(
            node, C.GET_CONSUME_STATS, body(ConsumeStats), h.ConsumerGroup(consumer_group=group),
            what="times of last messages are",
        )  # fmt: skip
        assert stats is not None  # nothing is absent
        return {(queue.topic, queue.queue_id): wrapper.last_timestamp for queue, wrapper in stats.offset_table.items()}

    return await questions.collect(pairs, fetch)


def _dead_letters(topic: str, tables: Mapping[Node, Topics], ranges: Ranges) -> int | None:
    """Number of messages of a topic, which need not exist; None if a broker does not report it."""
    nodes = [node for node, table in tables.items() if topic in table]
    if any((node, topic) in ranges.missing for node in nodes):
        return None
    queues = (queue for node in nodes for queue in ranges.of(node, topic).values())
    return sum(max(queue.max_offset, 0) - max(queue.min_offset, 0) for queue in queues)
