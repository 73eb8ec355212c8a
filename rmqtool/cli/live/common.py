"""What commands that talk to a live cluster have in common."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from formats.remoting.shapes import MessageQueue
from rmqtool.admin.keys import credentials, credentials_for
from rmqtool.admin.target import SCHEME
from rmqtool.cli.framework.opening import LIVE, chosen_release, live_target
from rmqtool.cli.render.text import note
from rmqtool.cli.serve.running import address_of
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.cluster.name_servers import addresses_of
from rmqtool.client.cluster.readable import ordinary_topics, readable_queues
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consumer.puller import Puller
from rmqtool.errors import BadValue
from rmqtool.rules.releases import CLIENT
from rmqtool.rules.sending import check_topic
from rmqtool.words import counted

_COMING = 1.0  # s for a message that has just been stored


def client_options(
    namesrv: str, engine: str = "auto", tls_config: str | None = None, acl: str | None = None
) -> ClientOptions:
    """Options of a client.

    Args:
        namesrv: addresses, or a target, whose settings of TLS and credentials hold unless others are given.
        tls_config: a ``tls.properties``; without one connections are plain.
        acl: a file with credentials; by default those in the environment, if any.

    Raises:
        BadValue: no addresses, an unknown release, or invalid settings of TLS or credentials.
        UnreadableStore: the file, or one that it names, cannot be read.
    """
    release, keys = chosen_release(engine) or CLIENT, None
    # addresses alone need no scheme here
    if namesrv.startswith(LIVE) and (target := live_target(namesrv)) is not None:
        addresses = target.namesrv
        if target.cluster is not None:
            raise BadValue(
                f"{target.text}: a client uses every broker that has the topic, not those of cluster {target.cluster} "
                f"alone: give {SCHEME}{','.join(addresses)}"
            )
        tls_config = tls_config or target.tls_config
        keys = credentials_for(target) if acl is None else None
    else:
        addresses = tuple(addresses_of(namesrv))
    if not addresses:
        raise BadValue("--namesrv: give HOST:PORT, or several of them with semicolons between")
    for address in addresses:
        address_of(address, "--namesrv")
    tls = None
    if tls_config is not None:
        from rmqtool.remoting.tls import client_tls  # OpenSSL is slow to load

        tls = client_tls(tls_config)
    keys = keys or credentials(acl)
    return ClientOptions(namesrv=";".join(addresses), release=release, tls=tls, credentials=keys)


def check_wanted(topic: str | None, tags: Sequence[str], sql: str | None) -> None:
    """Check the topic and the filters.

    Raises:
        BadValue: they are invalid.
    """
    try:
        if topic is not None:
            check_topic(topic, sending=False)
    except ValueError as err:
        raise BadValue(str(err)) from None
    if tags and sql is not None:
        raise BadValue("--sql: goes without --tag; in SQL a tag is TAGS = 'paid'")


@dataclass(frozen=True)
class ConsumedTopics:
    """What a command consumes.

    Attributes:
        topics: their names.
        queues: of all of them.
        refused: ordinary topics that cannot be read, already named on stderr.
        all_topics: every ordinary topic was asked for.
    """

    topics: tuple[str, ...]
    queues: tuple[MessageQueue, ...]
    refused: int = 0
    all_topics: bool = False

    def describe(self, count: int) -> str:
        """The total of messages and topics."""
        return counted(count, "message") + (f" of {counted(len(self.topics), 'topic')}" if self.all_topics else "")


async def find_readable(cluster: Cluster, topic: str | None) -> ConsumedTopics:
    """The queues of a topic, or of every ordinary topic: no system, retry, dead-letter or light-queue topics.

    Raises:
        ClientError, RemotingError: it cannot be read, or no name server lists the topics.
    """
    if topic is not None:
        return ConsumedTopics((topic,), await readable_queues(cluster, topic))
    topics, queues, refused = list[str](), list[MessageQueue](), 0
    for name in await ordinary_topics(cluster):
        try:
            if (await cluster.route(name)).inherited:
                continue
            queues += await readable_queues(cluster, name)
        except ClientError as err:
            note(str(err))
            refused += 1
        else:
            topics.append(name)
    return ConsumedTopics(tuple(topics), tuple(queues), refused, all_topics=True)


def note_lost_brokers(cluster: Cluster) -> None:
    """Name a broker on stderr, once, when it leaves the route of a topic that is read, and when it is back.

    A broker that was in no route when the command began is not known, so nothing is said of it.
    """
    known, lost = dict[str, frozenset[str]](), set[str]()

    def compare(route: Route) -> None:
        brokers = frozenset(route.brokers)
        for name in sorted(known.get(route.topic, brokers) - brokers - lost):
            lost.add(name)
            note(f"broker {name} is no longer in the route of {route.topic}: what it has is not read until it is back")
        for name in sorted(lost & brokers):
            lost.discard(name)
            note(f"broker {name} is in the route of {route.topic} again")
        known[route.topic] = brokers

    cluster.on_route(compare)


async def find_unread(
    puller: Puller, queues: Iterable[MessageQueue], positions: Callable[[], Mapping[MessageQueue, int]]
) -> MessageQueue | None:
    """A queue of which brokers have more than was read; None if there is none.

    Args:
        positions: returns up to which offsets queues were read; those with a filter are left out, because brokers hold
            pulls for which nothing matches.

    Raises:
        ClientError, RemotingError: a broker does not answer, so that is unknown.
    """
    ends = {queue: await puller.end(queue) for queue in queues}
    await asyncio.sleep(_COMING)
    at = positions()
    return next((queue for queue, end in ends.items() if at.get(queue, end) < end), None)


def has_more(queue: MessageQueue, seconds: float) -> ClientError:
    """The error of a queue whose broker has messages and does not give them."""
    return ClientError(f"{queue}: its broker has more messages, but gave none of them for {seconds:g} s")
