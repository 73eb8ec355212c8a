"""Which client of a group consumes a queue alone (broker.client.rebalance.RebalanceLockManager)."""

from collections.abc import Callable, Iterable

from formats.remoting.shapes import MessageQueue

LIFE = 60.0  # s without renewal until a lock expires


class QueueLocks:
    """Locks of queues, in memory only.

    Args:
        clock: monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._locks: dict[str, dict[MessageQueue, tuple[str, float]]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues for a client; returns those that it holds now."""
        table = self._locks.setdefault(group, {})
        now, locked = self._clock(), []
        for queue in queues:
            owner, since = table.get(queue, (client_id, now))
            if owner == client_id or now - since > LIFE:
                table[queue] = client_id, now
                locked.append(queue)
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues that the client holds."""
        table = self._locks.get(group, {})
        for queue in queues:
            if queue in table and table[queue][0] == client_id:
                del table[queue]
        if not table:
            self._locks.pop(group, None)

    def is_held(self, group: str) -> bool:
        """Whether a client of the group holds a queue."""
        now = self._clock()
        return any(now - since <= LIFE for _client, since in self._locks.get(group, {}).values())
