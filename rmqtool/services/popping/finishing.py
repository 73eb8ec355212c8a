"""Acks of popped messages, and changes of their invisible time.

Source: broker.processor.AckMessageProcessor, ChangeInvisibleTimeProcessor (5.3.3); clients-and-live-admin 1.3, 1.8.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from formats.variants import pop
from formats.variants.pop_handle import ORDERED, Handle
from rmqtool.services.offsets.files import Key
from rmqtool.services.popping.ordered import QueueOrders
from rmqtool.services.popping.popping import PopRecords, PopTables

MESSAGE_ILLEGAL, SYSTEM_ERROR = 13, 1


class NoEffect(Exception):
    """An ack or a change that has no effect.

    Attributes:
        code: response code.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class RenewedHandle(NamedTuple):
    """The parts of a new handle. Times are ms; the pop time is since the epoch."""

    pop_time: int
    invisible_time: int
    revive_queue: int


class Finishing:
    """Keeps acks and changes of the invisible time.

    Args:
        resets: pending offset resets of groups: their offsets are not moved.
        freed: called with a queue (topic, group, queue id) that ordered pops may read again.
    """

    def __init__(
        self,
        state: PopTables,
        records: PopRecords,
        orders: QueueOrders,
        *,
        clock: Callable[[], int],
        resets: dict[Key, int],
        freed: Callable[[str, str, int], None],
    ) -> None:
        self._state, self._records, self._orders = state, records, orders
        self._clock, self._resets, self._freed = clock, resets, freed

    def ack(self, topic: str, group: str, handle: Handle, queue_offsets: Sequence[int], *, batch: bool = False) -> None:
        """Ack messages of one checkpoint.

        Args:
            topic: the topic that they are stored in.
            handle: the handle of one of them.
            batch: store one record for all of them.

        Raises:
            NotTaken: the ack is not stored.
        """
        if handle.revive_queue == ORDERED:
            for offset in queue_offsets:
                self._ack_in_order(topic, group, handle, offset)
            return
        ack = pop.Ack(
            topic=topic,
            group=group,
            queue_id=handle.queue_id,
            start_offset=handle.start_offset,
            pop_time=handle.pop_time,
            broker_name=handle.broker_name,
            ack_offset=-1 if batch else queue_offsets[0],
            ack_offsets=tuple(queue_offsets) if batch else None,
        )
        self._put(ack, handle.revive_queue, handle.pop_time + handle.invisible_time)

    def _ack_in_order(self, topic: str, group: str, handle: Handle, queue_offset: int) -> None:
        queue_id = handle.queue_id
        before = self._state.offset(topic, group, queue_id)
        if before is not None and queue_offset < before:
            return  # acked before
        following = self._orders.ack(topic, group, queue_id, queue_offset, handle.pop_time)
        if following >= 0:
            if (topic, group, queue_id) not in self._resets:
                self._state.set_offset(topic, group, queue_id, following)
            if not self._orders.is_blocked(topic, group, queue_id, None, handle.invisible_time):
                self._freed(topic, group, queue_id)
        elif following == -1:
            remark = f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{before}, commit:{queue_offset}, next:-1"
            raise NoEffect(MESSAGE_ILLEGAL, remark)

    def change(
        self,
        topic: str,
        group: str,
        handle: Handle,
        queue_offset: int,
        invisible_time: int,
        *,
        suspend: bool = False,
    ) -> RenewedHandle | None:
        """Make a message visible again ``invisible_time`` ms from now; None if it was already acked.

        Args:
            suspend: it then comes back without counting as consumed once more; pops in order have no such thing.

        Raises:
            NotTaken: the new checkpoint could not be stored; nothing has changed.
        """
        now = self._clock()
        if handle.revive_queue == ORDERED:
            before = self._state.offset(topic, group, handle.queue_id)
            if before is not None and queue_offset < before:
                return None
            until = now + invisible_time
            self._orders.postpone(topic, group, handle.queue_id, queue_offset, handle.pop_time, until)
            return RenewedHandle(handle.pop_time, until - handle.pop_time, ORDERED)
        # the ack of the old handle would match a new checkpoint with the same time, and the message would be lost
        now = max(now, handle.pop_time + 1)
        point = pop.CheckPoint(
            topic=topic,
            group=group,
            queue_id=handle.queue_id,
            start_offset=queue_offset,
            pop_time=now,
            broker_name=handle.broker_name,
            invisible_time=invisible_time,
            count=1,
            distances=(0,),
            suspended=suspend or None,
        )
        # the new checkpoint first: if only one of the two is stored, the message is delivered once too often
        self._put(point, handle.revive_queue, point.visible_time)
        self.ack(topic, group, handle, [queue_offset])
        return RenewedHandle(now, invisible_time, handle.revive_queue)

    def _put(self, record: pop.CheckPoint | pop.Ack, revive_queue: int, visible_time: int) -> None:
        stored = self._records.put(record, revive_queue, visible_time)
        if not stored.ok:
            raise NoEffect(SYSTEM_ERROR, f"{record.unique_key}: {stored.reason}")
