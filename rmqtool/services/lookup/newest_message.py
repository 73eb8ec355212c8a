"""The newest message of a store: where its log ends for who reads it."""

from collections.abc import Iterable
from heapq import heappop, heappush

from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import AnyQueue

_TRIED = 256  # entries of queues whose messages are looked for before the log is scanned


def find_newest(log: CommitLog, queues: Iterable[AnyQueue]) -> LocatedRecord | None:
    """The newest message that can be read; None without any.

    Queues tell where to begin, so only what they do not know yet is scanned. What is behind the message, such as a
    record that is torn, is cut by a broker at its next start (store.CommitLog.recoverAbnormally).
    """
    heap: list[tuple[int, int, AnyQueue, int]] = []  # (physical offset, negative; a number; queue; queue offset)

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
