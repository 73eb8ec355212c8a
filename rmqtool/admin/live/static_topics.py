"""Static topics of live brokers (5.x)."""

from collections.abc import Iterable, Mapping

from formats.config.files_of_5 import TopicQueueMapping
from formats.remoting import admin as a
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from rmqtool.admin.live.questions import Node, Questions, Warn, ask, body
from rmqtool.admin.target import Target

_NO_TOPIC = (ResponseCode.TOPIC_NOT_EXIST,)


def fetch_mappings(target: Target, warn: Warn) -> list[TopicQueueMapping]:
    """The parts of static topics that the brokers of a cluster hold.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[TopicQueueMapping]:
        tables = await fetch_parts(questions, await questions.masters())
        return [mapping for table in tables.values() for mapping in table.values()]

    return ask(target, warn, work)


async def fetch_parts(questions: Questions, nodes: Iterable[Node]) -> dict[Node, Mapping[str, TopicQueueMapping]]:
    """The parts of static topics that each broker holds, by topic.

    Raises:
        ClientError: no broker answers.
    """

    async def fetch(node: Node) -> Mapping[str, TopicQueueMapping]:
        table = await questions.fetch(node, C.GET_ALL_TOPIC_CONFIG, body(a.TopicConfigs), what="its topics are")
        return {} if table is None else table.topic_queue_mapping_detail_map or {}

    return await questions.tables(nodes, fetch)


async def fetch_part(questions: Questions, node: Node, topic: str) -> a.StaticTopicConfig | None:
    """The settings of a topic on a broker with its part of the queues; None if it does not have it.

    Raises:
        Unanswered: there is no answer.
    """
    return await questions.fetch(
        node, C.GET_TOPIC_CONFIG, a.StaticTopicConfig.parse, h.Topic(topic=topic, lo=True),
        what="its static topics are", absent=_NO_TOPIC,
    )  # fmt: skip
