"""Which consumer gets which queue: the strategies of the Java client, in its own arithmetic.

Source: client.consumer.rebalance (4.9.8), common.consistenthash; message-services 14.1. A test holds each against the
classes of the real client.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from hashlib import md5
from typing import Any

from rmqtool.rules.broadcast import QueueName

Strategy = Callable[[str, Sequence[QueueName], Sequence[str]], list[QueueName]]
VIRTUAL_NODES = 10


class BadAllocation(ValueError):
    """What the client throws for, and then leaves the topic as it is."""


def sort(queues: Collection[QueueName], consumers: Collection[str]) -> tuple[list[QueueName], list[str]]:
    """Queues and consumer ids in the order in which every client sees them (``RebalanceImpl``; UTF-16 like Java's)."""
    return sorted(queues, key=lambda q: (_utf16(q.topic), _utf16(q.broker_name), q.queue_id)), sorted(
        consumers, key=_utf16
    )


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _takes_part(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> bool:
    """Whether there is anything to do (``AbstractAllocateMessageQueueStrategy.check``).

    Raises:
        BadAllocation: no id, no queues or no consumers.
    """
    if not consumer:
        raise BadAllocation("currentCID is empty")
    if not queues:
        raise BadAllocation("mqAll is null or mqAll empty")
    if not consumers:
        raise BadAllocation("cidAll is null or cidAll empty")
    return consumer in consumers


def averagely(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> list[QueueName]:
    """``AVG``: neighbouring queues, the first consumers one more where they do not divide evenly."""
    if not _takes_part(consumer, queues, consumers):
        return []
    index, (share, rest) = consumers.index(consumer), divmod(len(queues), len(consumers))
    size = 1 if len(queues) <= len(consumers) else share + (index < rest)
    start = index * size if index < rest else index * size + rest
    return list(queues[start : start + max(min(size, len(queues) - start), 0)])


def averagely_by_circle(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> list[QueueName]:
    """``AVG_BY_CIRCLE``: dealt out like cards."""
    if not _takes_part(consumer, queues, consumers):
        return []
    return list(queues[consumers.index(consumer) :: len(consumers)])


def by_config(configured: Sequence[QueueName]) -> Strategy:
    """``CONFIG``: the configured queues, whatever there is."""
    return lambda _consumer, _queues, _consumers: list(configured)


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """``MACHINE_ROOM``: only queues of brokers whose names begin with one of these rooms and an ``@``."""

    def allocate(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> list[QueueName]:
        if not _takes_part(consumer, queues, consumers):
            return []
        near = [queue for queue in queues if _room_of(queue.broker_name) in rooms]
        index, (share, rest) = consumers.index(consumer), divmod(len(near), len(consumers))
        own = near[index * share : (index + 1) * share]
        return own + ([near[index + share * len(consumers)]] if rest > index else [])

    return allocate


def _room_of(broker_name: str) -> str | None:
    """The room of ``room@name``. Java's split drops what is empty at the end, so ``room@`` is none."""
    parts = broker_name.split("@")
    while parts and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else None


def near_machine_room(
    inner: Strategy, broker_room: Callable[[str], str], consumer_room: Callable[[str], str]
) -> Strategy:
    """``MACHINE_ROOM_NEARBY``: own room's queues among own room's consumers, those of empty rooms among all.

    Args:
        inner: how the queues of a room are divided.
        broker_room, consumer_room: room of a broker name, of a consumer id.
    """

    def allocate(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> list[QueueName]:
        if not _takes_part(consumer, queues, consumers):
            return []
        queues_in: dict[str, list[QueueName]] = {}
        for queue in queues:
            queues_in.setdefault(_need_room(broker_room(queue.broker_name)), []).append(queue)
        consumers_in: dict[str, list[str]] = {}
        for each in consumers:
            consumers_in.setdefault(_need_room(consumer_room(each)), []).append(each)
        own = consumer_room(consumer)
        share = []
        if own_queues := queues_in.pop(own, None):
            share += inner(consumer, own_queues, consumers_in[own])
        for room in sorted(queues_in, key=_utf16):
            if room not in consumers_in:
                share += inner(consumer, queues_in[room], consumers)
        return share

    return allocate


def _need_room(room: str) -> str:
    if not room:
        raise BadAllocation("machine room is null")
    return room


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Strategy:
    """``CONSISTENT_HASH``: a ring of points for each consumer; few queues move when consumers come or go.

    Raises:
        BadAllocation: a negative number of points.
    """
    if virtual_nodes < 0:
        raise BadAllocation(f"illegal virtualNodeCnt :{virtual_nodes}")

    def allocate(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> list[QueueName]:
        if not _takes_part(consumer, queues, consumers):
            return []
        ring = _ring(consumers, virtual_nodes)
        if not ring:
            return []
        points = sorted(ring)
        return [queue for queue in queues if ring[points[bisect_left(points, _point(queue)) % len(points)]] == consumer]

    return allocate


def _ring(consumers: Sequence[str], virtual_nodes: int) -> dict[int, str]:
    """Point on the ring to its owner; of equal points the last added wins.

    A consumer that is added again adds new points behind those that it has.
    """
    ring: dict[int, str] = {}
    for index, consumer in enumerate(consumers):
        there = sum(owner == consumer for owner in ring.values()) if consumer in consumers[:index] else 0
        ring |= {_hash(f"{consumer}-{number + there}"): consumer for number in range(virtual_nodes)}
    return ring


def _point(queue: QueueName) -> int:
    return _hash(f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]")


def _hash(text: str) -> int:
    """The first four bytes of the MD5, unsigned."""
    return int.from_bytes(md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedQueue:
    """One queue and who gets it; None where no consumer does."""

    topic: str
    brokerName: str
    queueId: int
    consumer: str | None
    before: str | None = None  # who has it now, in a plan from one set of consumers to another
    moves: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


def owners(strategy: Strategy, queues: Collection[QueueName], consumers: Collection[str]) -> dict[QueueName, list[str]]:
    """Queue to the consumers that take it, each asked for itself as each client does."""
    ordered, ids = sort(queues, consumers)
    taken: dict[QueueName, list[str]] = {queue: [] for queue in ordered}
    for consumer in dict.fromkeys(ids):
        for queue in strategy(consumer, ordered, ids):
            taken.setdefault(queue, []).append(consumer)
    return taken


def plan(
    strategy: Strategy, queues: Collection[QueueName], consumers: Collection[str], before: Collection[str] = ()
) -> list[AssignedQueue]:
    """Who gets which queue, one row for each queue and taker.

    Args:
        before: the consumers that there are now; then each row says who had the queue.

    Raises:
        BadAllocation: no queues or no consumers.
    """
    if not consumers:
        raise BadAllocation("cidAll is null or cidAll empty")
    earlier = owners(strategy, queues, before) if before else {}
    rows = []
    for queue, takers in owners(strategy, queues, consumers).items():
        had = earlier.get(queue, [])
        wanted: list[str | None] = [*takers] or [None]
        rows += [
            AssignedQueue(
                topic=queue.topic,
                brokerName=queue.broker_name,
                queueId=queue.queue_id,
                consumer=taker,
                before=" ".join(had) or None,
                moves=bool(before) and taker not in had,
            )
            for taker in wanted
        ]
    return rows
