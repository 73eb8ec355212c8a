"""Consumer groups of a live cluster. No request is made in the name of a group."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from formats.config.files import QueueOffset
from formats.model.groups import SubscriptionGroup
from formats.remoting import headers as h
from formats.remoting.bodies import ConsumeStats
from formats.remoting.codes import RequestCode as C
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
from rmqtool.services.consumers.groups import PROBLEMS, GroupInfo, GroupLag, offset_state, topic_state, total_diff
from rmqtool.services.lookup.offsets import OffsetRow, StoredOffset
from rmqtool.services.lookup.retry_names import RetryNames

Times = Mapping[tuple[Node, str], Mapping[tuple[str, int], int]]  # broker and group, topic and queue id: ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroupLag(GroupLag):
    """One queue of a group, on one of its brokers."""

    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOffsetRow(OffsetRow):
    """How far a group has come in a queue, on one of its brokers."""

    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStoredOffset(StoredOffset):
    """One offset of a group, as one of its brokers has it."""

    brokerName: str


class LiveGroups:
    """The groups of a cluster.

    Args:
        warn: called with each reason why an answer is not whole.
        say: called with what no broker tells.
        wanted: whether a group's offsets in a topic are asked for.
    """

    lag_row = LiveGroupLag
    stored_row = LiveStoredOffset
    offset_row = LiveOffsetRow

    def __init__(
        self, target: Target, warn: Warn, say: Warn, wanted: Callable[[str, str], bool] = lambda _group, _topic: True
    ) -> None:
        self._target, self._warn, self._say, self._wanted = target, warn, say, wanted

    def holding(self, _queue_ids: Collection[int] = ()) -> bool:
        """Whether POP consumers hold messages, which no broker tells."""
        return False

    def infos(self) -> list[GroupInfo]:
        """Every group that a broker has settings or an offset of, sorted."""
        return ask(self._target, self._warn, self._infos)

    def lag(self) -> list[LiveGroupLag]:
        """Every queue of every group, sorted by group, topic, broker and queue."""
        return ask(self._target, self._warn, self._lag)

    def offsets(self) -> list[LiveStoredOffset]:
        """Offsets as brokers have them, sorted by group, topic, broker and queue."""

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
        """Offsets beside the queues that they point into, sorted in the same way."""
        return ask(self._target, self._warn, self._positions)

    # -- lag ----------------------------------------------------------------------------------------------------------

    async def _lag(self, questions: Questions) -> list[LiveGroupLag]:
        offsets = await self._fetch_offsets(questions, await questions.masters())
        tables = await fetch_topics(questions, offsets)
        ranges = await _fetch_ranges_of(questions, offsets, tables)
        times = await _fetch_times(questions, offsets)
        self._say_untold("inFlight")
        rows = [row for node in offsets for row in self._rows(node, offsets[node], tables, ranges, times)]
        return sorted(rows, key=lambda row: (row.group, row.topic, row.brokerName, row.queueId))

    def _rows(
        self,
        node: Node,
        offsets: Iterable[QueueOffset],
        tables: Mapping[Node, Topics],
        ranges: Ranges,
        times: Times | None,
    ) -> Iterable[LiveGroupLag]:
        """The rows of one broker; where it does not tell how far a queue goes, what follows from that is None."""
        if node not in tables:
            return  # said already
        for topic, groups in by_topic(offsets).items():
            config, queues = tables[node].get(topic), ranges.of(node, topic)
            reads = {
                n for n, bounds in queues.items() if bounds.max_offset > 0 and config and n < config.read_queue_nums
            }
            for group, known in groups.items():
                for queue_id in sorted({*known, *reads}):
                    bounds = queues.get(queue_id)
                    last = times.get((node, group), {}).get((topic, queue_id)) if times is not None else None
                    low = max(bounds.min_offset, 0) if bounds is not None else None
                    high = max(bounds.max_offset, 0) if bounds is not None else None
                    offset = known.get(queue_id)
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
            for row in self._rows(node, entries, tables, ranges, None):
                rows[row.group].append(row)
        known = {topic for table in tables.values() for topic in table}
        pairs = {(entry.topic, entry.group) for entries in offsets.values() for entry in entries}
        retry_names = RetryNames({*names}, known, pairs)
        self._say_untold("inFlight")
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
        offsets = await fetch_offsets(questions, nodes)
        return {
            node: [entry for entry in entries if self._wanted(entry.group, entry.topic)]
            for node, entries in offsets.items()
        }

    async def _sorted_offsets(self, questions: Questions) -> list[tuple[Node, QueueOffset]]:
        by_node = await self._fetch_offsets(questions, await questions.masters())
        offsets = [(node, entry) for node, entries in by_node.items() for entry in entries]
        return sorted(offsets, key=lambda item: (item[1].group, item[1].topic, item[0].name, item[1].queue_id))

    async def _positions(self, questions: Questions) -> list[LiveOffsetRow]:
        offsets = await self._sorted_offsets(questions)
        ranges = await fetch_ranges(questions, ((node, entry.topic) for node, entry in offsets))
        rows = []
        for node, entry in offsets:
            bounds = ranges.of(node, entry.topic).get(entry.queue_id)
            high = max(bounds.max_offset, 0) if bounds is not None else None
            rows.append(
                LiveOffsetRow(
                    topic=entry.topic,
                    group=entry.group,
                    queueId=entry.queue_id,
                    consumerOffset=entry.offset,
                    minOffset=max(bounds.min_offset, 0) if bounds is not None else None,
                    brokerOffset=high,
                    diff=high - entry.offset if high is not None else None,
                    brokerName=node.name,
                )
            )
        return rows

    def _say_untold(self, *names: str) -> None:
        self._say(f"brokers do not tell {' and '.join(names)}: null in machine output")


def _info(
    group: str,
    configs: Sequence[SubscriptionGroup],
    rows: Sequence[GroupLag],
    names: RetryNames,
    dead_letters: int | None,
) -> GroupInfo:
    """A group, and the sums of its queues. What brokers do not agree in is None."""
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
    """Of the topics that groups have offsets in, as far as brokers have them."""
    wanted = {(node, entry.topic): None for node, entries in offsets.items() for entry in entries}
    return await fetch_ranges(questions, [*(place for place in wanted if place[1] in tables.get(place[0], ())), *more])


async def _fetch_times(questions: Questions, offsets: Mapping[Node, Iterable[QueueOffset]]) -> Times:
    """Store times of the last messages that were consumed, as far as brokers tell them."""
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
    """Messages of a topic, which no broker may have; None where some broker does not tell."""
    nodes = [node for node, table in tables.items() if topic in table]
    if any((node, topic) in ranges.missing for node in nodes):
        return None
    queues = (queue for node in nodes for queue in ranges.of(node, topic).values())
    return sum(max(queue.max_offset, 0) - max(queue.min_offset, 0) for queue in queues)
