"""The newest readable message of a store."""

from collections.abc import Iterable
from heapq import heappop, heappush

from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import AnyQueue

_TRIED = 256  # queue entries to try before the log is scanned


def find_newest(log: CommitLog, queues: Iterable[AnyQueue]) -> LocatedRecord | None:
    """The newest readable message, or None.

    Only the part of the log that queues do not cover yet is scanned. Anything after the message, such as a torn record,
    is cut off by a broker's next start (store.CommitLog.recoverAbnormally).
    """
    heap: list[tuple[int, int, AnyQueue, int]] = []  # (negated physical offset, tie breaker, queue, queue offset)

    def enter(number: int, queue: AnyQueue, queue_offset: int) -> None:
        entry = queue.entry(queue_offset) if queue_offset >= 0 else None
        if entry is not None:
            heappush(heap, (-entry.physical_offset, number, queue, queue_offset))

    for number, queue in enumerate(queues):
        enter(number, queue, queue.max_offset - 1)
    for _ in range(_TRIED):
        if not heap:
            break
        before, number, queue, queue_offset = heappop(heap)
        if log.read(-before) is not None:
            return log.last(-before)
        enter(number, queue, queue_offset - 1)
    return log.last()
