"""Plans what a query, a stream or a dump reads of a live cluster."""

from collections.abc import Collection, Mapping

from formats.remoting.shapes import MessageQueue
from rmqtool.analytics.live.options import EARLIEST, LATEST, Boundary, LiveRequest
from rmqtool.analytics.live.positions import Positions, QueuePosition, Range, divide, ranges_between, share
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
) -> tuple[Mapping[MessageQueue, QueuePosition], Mapping[MessageQueue, QueuePosition]]:
    begin, until = request.begin(EARLIEST), request.end or Boundary(LATEST)
    ranges = await queues.find()
    check_named(begin, "starting", ranges)
    check_named(until, "ending", ranges)
    await queues.ask_together(ranges)

    async def bounds(queue: MessageQueue) -> tuple[QueuePosition, QueuePosition]:
        start = await queues.resolve(queue, begin, "starting")
        stop = max(await queues.resolve(queue, until, "ending"), start)
        if start == stop:
            return QueuePosition(start), QueuePosition(start)
        return await queues.position(queue, start), await queues.position(queue, stop)

    both = await gather(ranges, bounds)
    return {queue: each[0] for queue, each in both.items()}, {queue: each[1] for queue, each in both.items()}


def check_named(boundary: Boundary, option: str, queues: list[MessageQueue]) -> None:
    """Check that the queues for which an option gives offsets are there.

    Raises:
        BadValue: one is not.
    """
    for queue in boundary.offsets or ():
        if queue not in queues:
            raise BadValue(f"option {option}Offsets: {queue} is not among the queues that can be read")


class Follower:
    """Reads queues of a cluster batch by batch, from one position to the next."""

    def __init__(self, queues: Queues, request: LiveRequest) -> None:
        self._queues, self._request = queues, request

    async def begin(self, default: str) -> Positions:
        """Where the first batch begins.

        Args:
            default: EARLIEST or LATEST, if the request gives no boundary.
        """
        boundary = self._request.begin(default)
        with self._queues.patient_for(self._request.patience.first):
            queues = await self._queues.find()
        check_named(boundary, "starting", queues)
        await self._queues.ask_together(queues)

        async def begin(queue: MessageQueue) -> QueuePosition:
            return await self._queues.position(queue, await self._queues.resolve(queue, boundary, "starting"))

        return await gather(queues, begin)

    async def ends(self, before: Collection[MessageQueue] = ()) -> dict[MessageQueue, int]:
        """Where the queues end now.

        Args:
            before: queues that were read before, see :meth:`Queues.find`.
        """
        before = [queue for queue in before if self._request.selects(queue)]
        queues = await self._queues.find(before)
        await self._queues.ask_together(queues)
        return await gather(queues, self._queues.end)

    async def advance(
        self,
        start: Positions,
        most: int | None = None,
        least: int = 0,
        target: Mapping[MessageQueue, int] | None = None,
    ) -> Positions:
        """Where the batch ends that begins at a position.

        Queues that the request no longer selects keep their position, from which they go on if it selects them again.

        Args:
            most: messages of the batch.
            least: messages without which there is no batch yet.
            target: ends beyond which nothing is read, and no other queue.
        """
        before = {queue for queue in start if self._request.selects(queue)}
        queues = await self._queues.find(before)
        if target is not None:
            queues = [queue for queue in queues if queue in target]
        self._queues.report_missing(before - set(queues))
        await self._queues.ask_together(queues)

        async def follow(queue: MessageQueue) -> tuple[int, int | None, int]:
            if queue in start:
                at, begin, end = await self._queues.follow(queue, start[queue])
            else:
                low, end = await self._queues.offsets(queue)
                if low:
                    self._queues.lose(f"{queue}: is new, and begins at offset {low}: messages have expired")
                at = begin = low
            return at, begin, max(at, end if target is None else min(end, target[queue]))

        ends = await gather(queues, follow)
        backlogs = {queue: end - at for queue, (at, _begin, end) in ends.items()}
        jumps = {queue for queue, (_at, begin, _end) in ends.items() if begin is not None}
        if sum(backlogs.values()) < least and not jumps:
            return start
        shares = backlogs if most is None else share(backlogs, most)

        async def position(queue: MessageQueue) -> QueuePosition:
            at, begin, _end = ends[queue]
            if begin is None and not shares[queue]:
                return start[queue]
            return await self._queues.position(queue, at + shares[queue], begin)

        return {**start, **await gather(queues, position)}
