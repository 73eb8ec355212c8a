"""What consumers of a live cluster share: the queues of a topic, and who is there."""

from formats.remoting import headers as h
from formats.remoting.bodies import ConsumerConnection
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.topics import Perm
from rmqtool.admin.live.questions import Node, Questions, Warn, ask, body
from rmqtool.admin.live.tables import fetch_topics
from rmqtool.admin.target import Target


def fetch_read_queues(target: Target, topic: str, warn: Warn) -> dict[str, int]:
    """The number of read queues of a topic on each broker that lets consumers read it."""

    async def work(questions: Questions) -> dict[str, int]:
        tables = await fetch_topics(questions, await questions.masters())
        return {
            node.name: table[topic].read_queue_nums
            for node, table in tables.items()
            if topic in table and table[topic].perm & Perm.READ
        }

    return ask(target, warn, work)


def consumers_of(target: Target, group: str, warn: Warn) -> list[str]:
    """The ids of the online clients of a group, sorted."""

    async def work(questions: Questions) -> list[str]:
        async def fetch(node: Node) -> ConsumerConnection | None:
            return await questions.fetch(
                node, C.GET_CONSUMER_CONNECTION_LIST, body(ConsumerConnection), h.ConsumerGroup(consumer_group=group),
                what="clients of groups are", absent=(ResponseCode.CONSUMER_NOT_ONLINE,),
            )  # fmt: skip

        answers = await questions.collect(await questions.masters(), fetch)
        return sorted(
            {
                connection.client_id
                for answer in answers.values()
                if answer is not None
                for connection in answer.connection_set
            }
        )

    return ask(target, warn, work)
