"""Static topics (5.x): which queues of which brokers hold the queues of a topic."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from formats.config.files_of_5 import TopicQueueMapping, TopicQueueMappings
from rmqtool.contract import PlainRow
from rmqtool.rules.static_topics import chains_of, is_decided
from rmqtool.services.lookup.configs import Warn, look_at_config
from rmqtool.store.layout.paths import StoreLayout

FILE = "topicQueueMapping.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTopic(PlainRow):
    """One static topic. A store knows its own broker's part only."""

    topic: str
    totalQueues: int
    queues: int  # whose ranges are known
    ranges: int
    epoch: int  # of the last change; ms
    leaders: str  # brokers that take its messages, and how many queues each: lab-a:4,lab-b:4


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRange(PlainRow):
    """One range of a queue of a static topic."""

    topic: str
    queueId: int  # in the topic
    gen: int
    brokerName: str | None
    physicalQueueId: int  # of the broker
    logicOffset: int | None  # of its first message in the topic's queue; None: not decided yet
    startOffset: int  # of its first message in the physical queue
    endOffset: int | None  # behind its last one there; None: not stated
    leads: bool  # it takes messages


def stored_mappings(layout: StoreLayout, warn: Warn) -> list[TopicQueueMapping]:
    """The parts of static topics that the broker of a store holds."""
    file = look_at_config(layout, FILE, warn)
    return list(file.mappings.values()) if isinstance(file, TopicQueueMappings) else []


def list_static_topics(mappings: Iterable[TopicQueueMapping]) -> list[StaticTopic]:
    """Static topics by name, from the parts of one or more brokers."""
    rows = []
    for topic, parts in sorted(_by_topic(mappings).items()):
        chains = chains_of(parts)
        leaders: dict[str, int] = defaultdict(int)
        for ranges in chains.values():
            leaders[ranges[-1].broker_name or ""] += 1
        rows.append(
            StaticTopic(
                topic=topic,
                totalQueues=max(part.total_queues for part in parts),
                queues=len(chains),
                ranges=sum(map(len, chains.values())),
                epoch=max(part.epoch for part in parts),
                leaders=",".join(f"{name}:{number}" for name, number in sorted(leaders.items())),
            )
        )
    return rows


def list_static_ranges(mappings: Iterable[TopicQueueMapping], topic: str) -> list[StaticRange]:
    """The ranges of a static topic, by queue, oldest first; empty if it is not one."""
    return [
        StaticRange(
            topic=topic,
            queueId=queue_id,
            gen=item.gen,
            brokerName=item.broker_name,
            physicalQueueId=item.queue_id,
            logicOffset=item.logic_offset if is_decided(item) else None,
            startOffset=item.start_offset,
            endOffset=item.end_offset if item.end_offset >= 0 else None,
            leads=item is ranges[-1],
        )
        for queue_id, ranges in chains_of(_by_topic(mappings).get(topic, ())).items()
        for item in ranges
    ]


def _by_topic(mappings: Iterable[TopicQueueMapping]) -> dict[str, list[TopicQueueMapping]]:
    topics: dict[str, list[TopicQueueMapping]] = defaultdict(list)
    for mapping in mappings:
        topics[mapping.topic or ""].append(mapping)
    return topics
