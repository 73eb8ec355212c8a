"""What can be read in a cluster: its ordinary topics, and their queues."""

from formats.config.topic_kinds import kind_of
from formats.remoting.shapes import MessageQueue
from formats.topics import LMQ_PREFIX
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.words import command_line


async def ordinary_topics(cluster: Cluster) -> list[str]:
    """All topics that the name servers know, without system, retry, dead-letter and light-queue topics.

    Topics from which others inherit (named after a cluster or a broker) are included; their routes show them.

    Raises:
        RemotingError, BrokerError: no name server lists the topics.
    """
    names = set(await cluster.topics())
    return sorted(name for name in names if not name.startswith(LMQ_PREFIX) and kind_of(name, None, names) == "normal")


async def readable_queues(cluster: Cluster, topic: str) -> tuple[MessageQueue, ...]:
    """The queues that consumers of a topic read.

    Raises:
        ClientError: no broker permits reading the topic; an empty answer would be misleading.
        NoRoute, RemotingError: no name server knows the topic, or none answers.
    """
    route = await cluster.route(topic)
    if not route.readable:
        raise ClientError(
            f"{topic}: cannot be read: its permission on {', '.join(sorted(route.brokers))} forbids it, and what is "
            f"stored there is not shown ({command_line('topic', 'perm')} changes it)"
        )
    return route.readable
