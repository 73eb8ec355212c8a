"""Tables of brokers, and the ranges of their queues."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from formats.config.files import ConsumerOffsets, QueueOffset, SubscriptionGroups
from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.remoting import admin as a
from formats.remoting import headers as h
from formats.remoting.bodies import ConsumerConnection, TopicStats
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import TopicOffset
from rmqtool.admin.live.questions import Node, Questions, body

Topics = Mapping[str, TopicConfig]
NO_QUEUE = "is not exist"
"""Part of the remark with which brokers answer a request for entries of a queue that they do not have."""
_NO_TOPIC = (ResponseCode.TOPIC_NOT_EXIST,)


async def fetch_topics(questions: Questions, nodes: Iterable[Node]) -> dict[Node, Topics]:
    """The topics of each broker.

    Raises:
        ClientError: no broker answers.
    """

    async def fetch(node: Node) -> Topics:
        table = await questions.fetch(node, C.GET_ALL_TOPIC_CONFIG, body(a.TopicConfigs), what="its topics are")
        return {} if table is None else table.topic_config_table

    return await questions.tables(nodes, fetch)


async def fetch_groups(questions: Questions, nodes: Iterable[Node]) -> dict[Node, Mapping[str, SubscriptionGroup]]:
    """The group settings of each broker that answers."""

    async def fetch(node: Node) -> Mapping[str, SubscriptionGroup]:
        read = SubscriptionGroups.parse
        table = await questions.fetch(node, C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, read, what="settings of its groups are")
        return {} if table is None else table.groups

    return await questions.collect(nodes, fetch)


async def fetch_offsets(questions: Questions, nodes: Iterable[Node]) -> dict[Node, list[QueueOffset]]:
    """The offsets of all groups of each broker.

    Raises:
        ClientError: no broker answers.
    """

    async def fetch(node: Node) -> list[QueueOffset]:
        read = ConsumerOffsets.parse
        table = await questions.fetch(node, C.GET_ALL_CONSUMER_OFFSET, read, what="offsets of its groups are")
        return [] if table is None else list(table.entries())

    return await questions.tables(nodes, fetch)


@dataclass(frozen=True)
class Ranges:
    """Ranges of queues.

    Attributes:
        queues: (broker, topic) → queue id → offsets; without topics that a broker does not have.
        missing: (broker, topic) pairs without an answer.
    """

    queues: Mapping[tuple[Node, str], Mapping[int, TopicOffset]]
    missing: frozenset[tuple[Node, str]]

    def of(self, node: Node, topic: str) -> Mapping[int, TopicOffset]:
        """The queues of a topic on one broker."""
        return self.queues.get((node, topic), {})


async def fetch_ranges(questions: Questions, places: Iterable[tuple[Node, str]]) -> Ranges:
    """The ranges of the queues of topics."""
    places = list(dict.fromkeys(places))

    async def fetch(place: tuple[Node, str]) -> Mapping[int, TopicOffset] | None:
        node, topic = place
        stats = await questions.fetch(
            node, C.GET_TOPIC_STATS_INFO, body(TopicStats), h.Topic(topic=topic),
            what="ranges of queues are", absent=_NO_TOPIC,
        )  # fmt: skip
        if stats is None:
            return None
        return {queue.queue_id: answers for queue, answers in stats.offset_table.items() if queue.topic == topic}

    answers = await questions.collect(places, fetch)
    return Ranges(
        {place: queues for place, queues in answers.items() if queues is not None},
        frozenset(place for place in places if place not in answers),
    )


async def fetch_first_times(
    questions: Questions, queues: Iterable[tuple[Node, str, int]]
) -> dict[tuple[Node, str, int], int]:
    """The store times (ms) of the first messages of non-empty queues."""

    async def fetch(queue: tuple[Node, str, int]) -> int:
        node, topic, queue_id = queue
        header = h.Queue(topic=topic, queue_id=queue_id, bname=node.name)
        code, what = C.GET_EARLIEST_MSG_STORETIME, "times of first messages are"
        return (await questions.fetch_header(node, code, h.Timestamp, header, what=what)).timestamp

    return {queue: time for queue, time in (await questions.collect(queues, fetch)).items() if time > 0}


async def fetch_clients(questions: Questions, node: Node, group: str) -> Sequence[str]:
    """The ids of the clients of a group that are connected to a broker.

    Raises:
        Unanswered: it gave no answer.
    """
    answer = await questions.fetch(
        node, C.GET_CONSUMER_CONNECTION_LIST, body(ConsumerConnection), h.ConsumerGroup(consumer_group=group),
        what="clients of groups are", absent=(ResponseCode.CONSUMER_NOT_ONLINE,),
    )  # fmt: skip
    return [] if answer is None else [client.client_id for client in answer.connection_set]


def by_topic(offsets: Iterable[QueueOffset]) -> dict[str, dict[str, dict[int, int]]]:
    """Topic → group → queue id → offset."""
    table: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for entry in offsets:
        table[entry.topic][entry.group][entry.queue_id] = entry.offset
    return table
