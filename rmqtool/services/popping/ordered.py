"""State of ordered pops: a queue delivers nothing while a message of its last pop is invisible.

Source: broker.offset.ConsumerOrderInfoManager (5.3.3); clients-and-live-admin 1.8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from formats.config.files_of_5 import ConsumerOrderInfos, OrderInfo
from rmqtool.services.open_store.broker_state import BrokerState

FILE = "consumerOrderInfo.json"
_KEPT = 24 * 3600 * 1000  # ms after the last pop until the state is dropped
_NOT_LISTED, _STALE = -1, -2


class QueueOrders:
    """The last pop of each group from each queue, in memory. Times are ms since the epoch."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self._free_at: dict[tuple[str, str, int], int] = {}

    @property
    def table(self) -> Mapping[str, Mapping[int, OrderInfo]]:
        """The last pops by ``topic@group`` and queue id."""
        return self._table

    def is_blocked(self, topic: str, group: str, queue_id: int, attempt: str | None, invisible_time: int) -> bool:
        """Whether a queue delivers nothing.

        Args:
            attempt: a client that repeats its attempt id gets the same messages again at once.
            invisible_time: ms; used if the last pop has none.
        """
        info = self._get(topic, group, queue_id)
        if info is None or not info.offset_list or (info.attempt_id is not None and info.attempt_id == attempt):
            return False
        now = self._clock()
        return any(now < time for time in self._invisible_until(info, invisible_time))

    def pop(
        self,
        topic: str,
        group: str,
        queue_id: int,
        *,
        attempt: str | None,
        pop_time: int,
        invisible_time: int,
        queue_offsets: Sequence[int],
    ) -> tuple[dict[int, int], int]:
        """Record a pop; returns (how often each message was popped before, the minimum of these)."""
        before = self._get(topic, group, queue_id)
        counts: Mapping[int, int] | None = None
        if before is not None:
            counts = before.consumed_counts or {}
            if before.attempt_id is None or before.attempt_id != attempt:
                again = set(before.queue_offsets)
                counts = {offset: counts.get(offset, 0) + 1 for offset in queue_offsets if offset in again}
        first = queue_offsets[0]
        info = OrderInfo(
            attempt_id=attempt,
            pop_time=pop_time,
            invisible_time=invisible_time,
            offset_list=(first, *(offset - first for offset in queue_offsets[1:])),
            consumed_counts=counts,
            last_consume_timestamp=self._clock(),
        )
        self._set(topic, group, queue_id, info)
        known = dict(counts or {})
        return known, min(known.values(), default=0) if len(known) == len(queue_offsets) else 0

    def ack(self, topic: str, group: str, queue_id: int, queue_offset: int, pop_time: int) -> int:
        """Ack a message; returns the offset at which its group continues.

        Returns:
            -1 if the message is not of the last pop, -2 if the pop time differs: nothing changes then.
        """
        info = self._get(topic, group, queue_id)
        if info is None:
            return queue_offset + 1
        offsets = info.queue_offsets
        if not offsets:
            return _NOT_LISTED
        if pop_time != info.pop_time:
            return _STALE
        if queue_offset not in offsets:
            return _NOT_LISTED
        bits = info.commit_bits | 1 << offsets.index(queue_offset)
        self._set(topic, group, queue_id, replace(info, commit_bits=bits))
        return next((offset for bit, offset in enumerate(offsets) if not bits >> bit & 1), offsets[-1] + 1)

    def postpone(self, topic: str, group: str, queue_id: int, queue_offset: int, pop_time: int, until: int) -> None:
        """Change the time at which a message becomes visible again."""
        info = self._get(topic, group, queue_id)
        if info is not None and info.pop_time == pop_time:
            self._set(
                topic, group, queue_id, replace(info, next_visible={**(info.next_visible or {}), queue_offset: until})
            )

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the last pop, because the group's offset was reset."""
        queues = self._table.get(f"{topic}@{group}", {})
        if queues.pop(queue_id, None) is not None:
            self._free_at.pop((topic, group, queue_id), None)
            self._keep()

    def suspend(self, topic: str, group: str, queue_id: int, pop_time: int, until: int) -> None:
        """Make all messages of the last pop invisible until a time, and have them not count as consumed once more."""
        info = self._get(topic, group, queue_id)
        if info is not None and info.pop_time == pop_time:
            counts = info.consumed_counts
            if counts is not None:
                counts = {offset: max(count - 1, 0) for offset, count in counts.items()}
            info = replace(info, next_visible=None, invisible_time=until - pop_time, consumed_counts=counts)
            self._set(topic, group, queue_id, info)

    def take_freed(self) -> list[tuple[str, str, int]]:
        """Queues (topic, group, queue id) whose messages have become visible since the last call."""
        now = self._clock()
        places = [place for place, time in self._free_at.items() if time <= now]
        for place in places:
            del self._free_at[place]
        return places

    # -- the table ----------------------------------------------------------------------------------------------------

    def _get(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        return self._table.get(f"{topic}@{group}", {}).get(queue_id)

    def _set(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        self._table.setdefault(f"{topic}@{group}", {})[queue_id] = info
        self._note(topic, group, queue_id, info)
        self._keep()

    def _note(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        """Note when the queue becomes free if nothing is acked."""
        self._free_at[topic, group, queue_id] = max(self._invisible_until(info, 0), default=0)

    def _invisible_until(self, info: OrderInfo, invisible_time: int) -> list[int]:
        """The time at which each unacked message becomes visible."""
        invisible = info.invisible_time if info.invisible_time and info.invisible_time > 0 else invisible_time
        later = info.next_visible or {}
        return [
            later.get(offset, info.pop_time + invisible)
            for bit, offset in enumerate(info.queue_offsets)
            if not info.commit_bits >> bit & 1
        ]

    def _keep(self) -> None:
        """Called after each change of the table."""


class OrderedPops(QueueOrders):
    """The same, persisted.

    Args:
        state: has topics and groups; its owner persists the file of ordered pops with the other tables.

    Raises:
        CorruptFile: the file and its ``.bak`` are broken.
    """

    def __init__(self, state: BrokerState, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self._state = state
        self._file = file = state.load(FILE, ConsumerOrderInfos)
        self._table = {name: dict(queues) for name, queues in file.table.items()}
        for name, queues in self._table.items():
            topic, _at, group = name.partition("@")
            for queue_id, info in queues.items():
                self._note(topic, group, queue_id, info)

    def _keep(self) -> None:
        self._state.keep(FILE, self._build)

    def _build(self) -> bytes:
        self._clean()
        return replace(self._file, table=self._table).build(self._state.release.version)

    def _clean(self) -> None:
        """Drop the state of queues that are no longer popped."""
        now = self._clock()
        for name in list(self._table):
            topic, _at, group = name.partition("@")
            config, queues = self._state.topic(topic), self._table[name]
            for queue_id in list(queues):
                if (
                    config is None
                    or group not in self._state.groups
                    or queue_id >= config.read_queue_nums
                    or now - queues[queue_id].last_consume_timestamp > _KEPT
                ):
                    del queues[queue_id]
                    self._free_at.pop((topic, group, queue_id), None)
            if not queues:
                del self._table[name]
