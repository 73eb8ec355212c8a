"""What commands that talk to a live cluster have in common."""

from collections.abc import Sequence

from formats.remoting.shapes import MessageQueue
from rmqtool.cli.framework.opening import chosen_release
from rmqtool.cli.live.access import credentials
from rmqtool.cli.serve.running import address_of
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.cluster.name_servers import addresses_of
from rmqtool.errors import BadValue
from rmqtool.rules.releases import NEWEST
from rmqtool.rules.sending import check_topic


def client_options(
    namesrv: str, engine: str = "auto", tls_config: str | None = None, acl: str | None = None
) -> ClientOptions:
    """Options of a client.

    Args:
        tls_config: a ``tls.properties``; without one connections are plain.
        acl: a file of keys to sign requests with; without one those of the environment are used, if there are any.

    Raises:
        BadValue: no addresses, no release that is known, or a setting of TLS or of keys that cannot be understood.
        UnreadableStore: the file, or one that it names, cannot be read.
    """
    release = chosen_release(engine) or NEWEST
    addresses = addresses_of(namesrv)
    if not addresses:
        raise BadValue("--namesrv: give HOST:PORT, or several of them with semicolons between")
    for address in addresses:
        address_of(address, "--namesrv")
    tls = None
    if tls_config is not None:
        from rmqtool.remoting.tls import client_tls  # OpenSSL takes its time to load

        tls = client_tls(tls_config)
    return ClientOptions(namesrv=namesrv, release=release, tls=tls, credentials=credentials(acl))


def check_wanted(topic: str, tags: Sequence[str], sql: str | None) -> None:
    """Whether messages of a topic can be asked for so.

    Raises:
        BadValue: they cannot.
    """
    try:
        check_topic(topic, sending=False)
    except ValueError as err:
        raise BadValue(str(err)) from None
    if tags and sql is not None:
        raise BadValue("--sql: goes without --tag; in SQL a tag is TAGS = 'paid'")


async def readable_queues(cluster: Cluster, topic: str) -> tuple[MessageQueue, ...]:
    """The queues that consumers of a topic read.

    Raises:
        ClientError: the topic's permission forbids reading on every broker: an empty answer would be taken for a fact.
        NoRoute, RemotingError: no name server knows of the topic, or none answers.
    """
    route = await cluster.route(topic)
    if not route.readable:
        raise ClientError(
            f"{topic}: cannot be read: its permission on {', '.join(sorted(route.brokers))} forbids it, and what is "
            "stored there is not shown (mqadmin updateTopicPerm changes it)"
        )
    return route.readable
