"""Whether brokers that could not be reached are there again (client.latency.LatencyFaultToleranceImpl, of 5.x)."""

import asyncio
from collections.abc import Callable

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError, NoRoute
from rmqtool.client.producing.choice import Choice
from rmqtool.remoting.errors import RemotingError

_EVERY = 3.0  # s
_TIMEOUT = 0.2  # s that a broker has


async def watch(cluster: Cluster, choice: Choice, topic: Callable[[], str]) -> None:
    """Ask those that are unreachable for the end of a queue, for ever; one that tells it is there again.

    Args:
        topic: of the queue; nobody is asked as long as it is empty.
    """
    while True:
        await asyncio.sleep(_EVERY)
        if topic():
            await asyncio.gather(*[_detect(cluster, choice, name, topic()) for name in choice.unreachable])


async def _detect(cluster: Cluster, choice: Choice, broker_name: str, topic: str) -> None:
    header = h.Queue(topic=topic, queue_id=0, bname=broker_name)
    try:
        address = cluster.address(broker_name)
        await cluster.ask(address, cluster.request(RequestCode.GET_MAX_OFFSET, header), _TIMEOUT)
    except NoRoute:
        choice.reached(broker_name)  # it is gone: there is nothing to remember
    except (ClientError, RemotingError):
        return
    else:
        choice.reached(broker_name)
