"""Assignment of queues to consumers: the strategies of the Java client, with the same arithmetic.

Source: client.consumer.rebalance (4.9.8), common.consistenthash; message-services 14.1. Tests compare each strategy
with the real client's class.
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
    """The client throws an exception in this case and leaves the assignment of the topic unchanged."""


def sort(queues: Collection[QueueName], consumers: Collection[str]) -> tuple[list[QueueName], list[str]]:
    """Return queues and consumer ids in the order in which every client sees them (``RebalanceImpl``; UTF-16 order)."""
    return sorted(queues, key=lambda q: (_utf16(q.topic), _utf16(q.broker_name), q.queue_id)), sorted(
        consumers, key=_utf16
    )


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _takes_part(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> bool:
    """Return whether the consumer takes part (``AbstractAllocateMessageQueueStrategy.check``).

    Raises:
        BadAllocation: the consumer id is empty, or there are no queues or no consumers.
    """
    if not consumer:
        raise BadAllocation("currentCID is empty")
    if not queues:
        raise BadAllocation("mqAll is null or mqAll empty")
    if not consumers:
        raise BadAllocation("cidAll is null or cidAll empty")
    return consumer in consumers


def averagely(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> list[QueueName]:
    """``AVG``: adjacent queues; if they do not divide evenly, the first consumers get one more."""
    if not _takes_part(consumer, queues, consumers):
        return []
    index, (share, rest) = consumers.index(consumer), divmod(len(queues), len(consumers))
    size = 1 if len(queues) <= len(consumers) else share + (index < rest)
    start = index * size if index < rest else index * size + rest
    return list(queues[start : start + max(min(size, len(queues) - start), 0)])


def averagely_by_circle(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> list[QueueName]:
    """``AVG_BY_CIRCLE``: round robin."""
    if not _takes_part(consumer, queues, consumers):
        return []
    return list(queues[consumers.index(consumer) :: len(consumers)])


def by_config(configured: Sequence[QueueName]) -> Strategy:
    """``CONFIG``: the configured queues, whatever queues exist."""
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
    """Return the room of ``room@name``. Java's split drops trailing empty parts, so ``room@`` has none."""
    parts = broker_name.split("@")
    while parts and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else None


def near_machine_room(
    inner: Strategy, broker_room: Callable[[str], str], consumer_room: Callable[[str], str]
) -> Strategy:
    """``MACHINE_ROOM_NEARBY``: a room's queues go to its own consumers; those of rooms without consumers to all.

    Args:
        inner: strategy for the queues of one room.
        broker_room, consumer_room: return the room of a broker name or consumer id.
    """

    def allocate(consumer: str, queues: Sequence[QueueName], consumers: Sequence[str]) -> list[QueueName]:
        if not _takes_part(consumer, queues, consumers):
            return []
        queues_in: dict[str, list[QueueName]] = {}
        for queue in queues:
            queues_in.setdefault(_need_room(broker_room(queue.broker_name)), []).append(queue)
        consumers_in: dict[str, list[str]] = {}
        for other in consumers:
            consumers_in.setdefault(_need_room(consumer_room(other)), []).append(other)
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
    """``CONSISTENT_HASH``: a ring with several points per consumer; few queues move when consumers come or go.

    Raises:
        BadAllocation: the number of points is negative.
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
    """Return the owner of each point on the ring; of equal points the last added wins.

    A consumer that occurs more than once gets further points.
    """
    ring: dict[int, str] = {}
    for index, consumer in enumerate(consumers):
        existing = sum(owner == consumer for owner in ring.values()) if consumer in consumers[:index] else 0
        ring |= {_hash(f"{consumer}-{number + existing}"): consumer for number in range(virtual_nodes)}
    return ring


def _point(queue: QueueName) -> int:
    return _hash(f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]")


def _hash(text: str) -> int:
    """Return the first four bytes of the MD5 as an unsigned number."""
    return int.from_bytes(md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedQueue:
    """One queue and its consumer; None if no consumer gets the queue."""

    topic: str
    brokerName: str
    queueId: int
    consumer: str | None
    before: str | None = None  # the current consumer, in a plan from one set of consumers to another
    moves: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in machine-readable output."""
        return asdict(self)


def owners(strategy: Strategy, queues: Collection[QueueName], consumers: Collection[str]) -> dict[QueueName, list[str]]:
    """Return the consumers that take each queue, computed separately for each consumer as each client does."""
    ordered, ids = sort(queues, consumers)
    taken: dict[QueueName, list[str]] = {queue: [] for queue in ordered}
    for consumer in dict.fromkeys(ids):
        for queue in strategy(consumer, ordered, ids):
            taken.setdefault(queue, []).append(consumer)
    return taken


def plan(
    strategy: Strategy, queues: Collection[QueueName], consumers: Collection[str], before: Collection[str] = ()
) -> list[AssignedQueue]:
    """Return the assignment, with one row per queue and consumer.

    Args:
        before: the current consumers; if given, each row also has the queue's current consumer.

    Raises:
        BadAllocation: there are no queues or no consumers.
    """
    if not consumers:
        raise BadAllocation("cidAll is null or cidAll empty")
    earlier = owners(strategy, queues, before) if before else {}
    rows = []
    for queue, takers in owners(strategy, queues, consumers).items():
        previous = earlier.get(queue, [])
        wanted: list[str | None] = [*takers] or [None]
        rows += [
            AssignedQueue(
                topic=queue.topic,
                brokerName=queue.broker_name,
                queueId=queue.queue_id,
                consumer=taker,
                before=" ".join(previous) or None,
                moves=bool(before) and taker not in previous,
            )
            for taker in wanted
        ]
    return rows
