"""Topics of a live cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from formats.config.topic_kinds import kind_of
from formats.model.topics import TopicConfig
from formats.remoting.shapes import TopicOffset
from rmqtool.admin.live.questions import Node, Questions, Unanswered, Warn, ask
from rmqtool.admin.live.tables import (
    Ranges,
    Topics,
    by_topic,
    fetch_first_times,
    fetch_groups,
    fetch_offsets,
    fetch_ranges,
    fetch_topics,
)
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.services.lookup.retry_names import RetryNames
from rmqtool.services.lookup.topics import (
    NO_CONSUMER,
    NO_GROUP,
    NO_MESSAGES,
    QueueInfo,
    TopicDetails,
    TopicRow,
    UnusedTopic,
    permission,
)

T = TypeVar("T")
Consumers = Mapping[Node, Mapping[str, Mapping[str, Mapping[int, int]]]]  # broker, topic, group, queue id: offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQueueInfo(QueueInfo):
    """One queue of a topic, on one of its brokers."""

    brokerName: str


class LiveTopics:
    """The topics of a cluster.

    Args:
        warn: called with each reason why an answer is incomplete.
        say: called with what no broker reports.
        system: include the broker's own topics.
    """

    queue_row = LiveQueueInfo

    def __init__(self, target: Target, warn: Warn, say: Warn, *, system: bool = True) -> None:
        self._target, self._warn, self._say, self._system = target, warn, say, system

    def summaries(self) -> list[TopicRow]:
        """Every topic that a broker has, sorted."""
        return ask(self._target, self._warn, self.gather_summaries)

    def details(self, topic: str) -> TopicDetails | None:
        """One topic with its queues, by broker and queue id; None if no broker has it."""
        return ask(self._target, self._warn, lambda questions: self._details(questions, topic))

    def find_unused(self) -> list[UnusedTopic]:
        """Application topics without messages, without a consumer, or of groups that no broker has.

        Raises:
            ClientError: a broker does not answer. It may have what makes a topic used.
        """
        return ask(self._target, self._warn, self._find_unused)

    async def _find_unused(self, questions: Questions) -> list[UnusedTopic]:
        masters = await questions.masters()
        try:
            tables = await questions.need(fetch_topics(questions, masters), masters)
            offsets = await questions.need(fetch_offsets(questions, masters), masters)
            groups = await questions.need(fetch_groups(questions, masters), masters)
            known = {name for table in tables.values() for name in table}
            places = [
                (node, name)
                for node, table in tables.items()
                for name, config in table.items()
                if kind_of(name, config, known) != "system"
            ]
            ranges = await fetch_ranges(questions, places)
            if ranges.missing:
                raise Unanswered
        except Unanswered:
            raise ClientError(
                f"{self._target.text}: whether a topic is unused is only known if all brokers answer: "
                + "; ".join(questions.reasons())
            ) from None
        pairs = {(entry.topic, entry.group) for entries in offsets.values() for entry in entries}
        consumed = {topic for topic, _group in pairs}
        configured = {group for table in groups.values() for group in table}
        names = RetryNames(configured, known, pairs)
        self._say_unreported("bytes")
        rows = []
        for topic in sorted({name for _node, name in places}):
            config = next(table[topic] for table in tables.values() if topic in table)
            kind = kind_of(topic, config, known)
            queues = [bounds for node in tables for bounds in ranges.of(node, topic).values()]
            messages = sum(map(_count, queues))
            if kind == "normal" and not messages:
                reason = NO_MESSAGES
            elif kind == "normal" and topic not in consumed:
                reason = NO_CONSUMER
            elif kind in ("retry", "dlq") and names.of(topic).group not in configured:
                reason = NO_GROUP
            else:
                continue
            rows.append(
                UnusedTopic(
                    topic=topic, reason=reason, configured=True, queues=sum(queue.max_offset > 0 for queue in queues),
                    messages=messages, bytes=None,
                )
            )  # fmt: skip
        return rows

    async def gather_summaries(self, questions: Questions) -> list[TopicRow]:
        tables = await fetch_topics(questions, await questions.masters())
        consumers = await self._fetch_consumers(questions, tables)
        known = {name for table in tables.values() for name in table}
        wanted = [
            (node, name)
            for node, table in tables.items()
            for name, config in table.items()
            if self._system or kind_of(name, config, known) != "system"
        ]
        ranges = await fetch_ranges(questions, wanted)
        self._say_unreported("bytes")
        names = sorted({name for _node, name in wanted})
        return [self._summary(name, tables, ranges, consumers, known) for name in names]

    async def _details(self, questions: Questions, topic: str) -> TopicDetails | None:
        tables = await fetch_topics(questions, await questions.masters())
        nodes = [node for node, table in tables.items() if topic in table]
        if not nodes:
            questions.tell()
            return None
        consumers = await self._fetch_consumers(questions, nodes)
        ranges = await fetch_ranges(questions, [(node, topic) for node in nodes])
        queues = {
            (node, topic, queue_id): bounds
            for node in nodes
            for queue_id, bounds in sorted(ranges.of(node, topic).items())
        }
        firsts = await fetch_first_times(
            questions, [queue for queue, bounds in queues.items() if bounds.max_offset > max(bounds.min_offset, 0)]
        )
        self._say_unreported("bytes")
        names = {name for table in tables.values() for name in table}
        return TopicDetails(
            summary=self._summary(topic, tables, ranges, consumers, names),
            queues=[_queue(queue, bounds, firsts.get(queue), consumers) for queue, bounds in queues.items()],
        )

    async def _fetch_consumers(self, questions: Questions, nodes: Iterable[Node]) -> Consumers:
        return {node: by_topic(offsets) for node, offsets in (await fetch_offsets(questions, nodes)).items()}

    def _summary(
        self, topic: str, tables: Mapping[Node, Topics], ranges: Ranges, consumers: Consumers, known: set[str]
    ) -> TopicRow:
        configs = {node: table[topic] for node, table in tables.items() if topic in table}
        known_ranges = [ranges.of(node, topic) for node in configs if (node, topic) not in ranges.missing]
        queues = [offsets for by_id in known_ranges for offsets in by_id.values()]
        first = next(iter(configs.values()))
        attributes = [config.attributes for config in configs.values()]
        return TopicRow(
            topic=topic,
            kind=kind_of(topic, first, known),
            configured=True,
            readQueueNums=sum(config.read_queue_nums for config in configs.values()),
            writeQueueNums=sum(config.write_queue_nums for config in configs.values()),
            perm=self._common_value(topic, "perm", configs, [permission(config.perm) for config in configs.values()]),
            order=self._common_value(topic, "order", configs, [config.order for config in configs.values()]),
            queues=sum(queue.max_offset > 0 for queue in queues) if known_ranges else None,
            messages=sum(map(_count, queues)) if known_ranges else None,
            groups=len({group for topics in consumers.values() for group in topics.get(topic, ())}),
            lastStoreTimestamp=max((queue.last_update_timestamp for queue in queues), default=0) or None,
            messageType=self._common_value(
                topic,
                "messageType",
                configs,
                [names.get("message.type") for names in attributes],
            ),
            queueType=self._common_value(
                topic,
                "queueType",
                configs,
                [names.get("queue.type") for names in attributes],
            ),
            cleanupPolicy=self._common_value(
                topic,
                "cleanupPolicy",
                configs,
                [names.get("cleanup.policy") for names in attributes],
            ),
            bytes=None,
        )

    def _common_value(
        self, topic: str, name: str, configs: Mapping[Node, TopicConfig], values: Sequence[T]
    ) -> T | None:
        """A topic's value if all brokers agree; otherwise None, and the difference is reported."""
        if len(set(values)) == 1:
            return values[0]
        values_by_broker = ", ".join(f"{node.name} {value}" for node, value in zip(configs, values, strict=True))
        self._say(f"topic {topic}: brokers differ in {name}: {values_by_broker}")
        return None

    def _say_unreported(self, *names: str) -> None:
        self._say(f"brokers do not report {' and '.join(names)}: null in machine output")


def _count(queue: TopicOffset) -> int:
    return max(queue.max_offset, 0) - max(queue.min_offset, 0)


def _queue(place: tuple[Node, str, int], bounds: TopicOffset, first: int | None, consumers: Consumers) -> LiveQueueInfo:
    node, topic, queue_id = place
    groups = consumers.get(node, {}).get(topic, {})
    return LiveQueueInfo(
        topic=topic,
        queueId=queue_id,
        minOffset=max(bounds.min_offset, 0),
        maxOffset=max(bounds.max_offset, 0),
        firstStoreTimestamp=first,
        lastStoreTimestamp=bounds.last_update_timestamp if bounds.last_update_timestamp > 0 else None,
        bytes=None,
        groups={
            group: max(bounds.max_offset, 0) - offsets[queue_id]
            for group, offsets in sorted(groups.items())
            if queue_id in offsets
        },
        brokerName=node.name,
    )
