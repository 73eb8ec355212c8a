"""Plans a batch query of a live cluster."""

from collections.abc import Mapping

from formats.remoting.shapes import MessageQueue
from rmqtool.analytics.live.options import EARLIEST, LATEST, Boundary, LiveRequest
from rmqtool.analytics.live.positions import Position, Range, divide, ranges_between
from rmqtool.analytics.live.queues import Queues, connected, gather
from rmqtool.errors import BadValue


def check_cluster(request: LiveRequest) -> None:
    """Check that a name server answers, before work that takes longer begins.

    Raises:
        RemotingError: none does.
        BadValue, UnreadableStore: the settings of TLS or the keys are invalid.
    """
    with connected(request.target) as (loop, cluster):
        loop.run(cluster.topics())


def plan_ranges(request: LiveRequest) -> list[Range]:
    """Return the ranges that together have all messages of a request, as the queues are now.

    Raises:
        BadValue: an offset is not in its queue, or given for none that is read.
        DataLoss: messages that were asked for have expired.
        ClientError, RemotingError: a topic is not known, or a broker does not answer.
    """
    with connected(request.target) as (loop, cluster):
        start, end = loop.run(_bounds(Queues(cluster, request), request))
    return divide(ranges_between(start, end), request.least_partitions, request.most_records)


async def _bounds(
    queues: Queues, request: LiveRequest
) -> tuple[Mapping[MessageQueue, Position], Mapping[MessageQueue, Position]]:
    begin, until = request.begin(EARLIEST), request.end or Boundary(LATEST)
    found = await queues.find()
    check_named(begin, "starting", found)
    check_named(until, "ending", found)

    async def bounds(queue: MessageQueue) -> tuple[Position, Position]:
        start = await queues.resolve(queue, begin, "starting")
        stop = max(await queues.resolve(queue, until, "ending"), start)
        if start == stop:
            return Position(start), Position(start)
        return await queues.position(queue, start), await queues.position(queue, stop)

    both = await gather(found, bounds)
    return {queue: each[0] for queue, each in both.items()}, {queue: each[1] for queue, each in both.items()}


def check_named(boundary: Boundary, option: str, queues: list[MessageQueue]) -> None:
    """Check that the queues for which an option gives offsets are there.

    Raises:
        BadValue: one is not.
    """
    for queue in boundary.offsets or ():
        if queue not in queues:
            raise BadValue(f"option {option}Offsets: {queue} is not among the queues that can be read")
