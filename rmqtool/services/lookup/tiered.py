"""Look-ups in the tier, for messages that the local log no longer has. Their physical offset is the tier's position.

Source: tieredstore.TieredMessageStore (fetchFromCurrentStore, getOffsetInQueueByTime).
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from formats.message.properties import parse
from rmqtool.rules.statuses import GetStatus
from rmqtool.services.lookup.get_message import GetResult
from rmqtool.services.lookup.queue_messages import QueueMessage
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.log.commit_log import LocatedRecord

if TYPE_CHECKING:
    from rmqtool.store.tier.only_tiered import OnlyTiered


def only_tiered(layout: StoreLayout, selected: Callable[[str, int], bool]) -> "OnlyTiered | None":
    """Messages of the given queues that only the tier has; None if there are none, or the tier cannot be read here."""
    if tier_sign(layout) is None:
        return None
    from rmqtool.store.tier.only_tiered import OnlyTiered

    tiered = OnlyTiered(layout)
    return tiered if any(selected(*key) for key in tiered.offsets) else None


def get_tiered(
    tiered: "OnlyTiered | None", topic: str, queue_id: int, offset: int, max_msg_nums: int, high: int
) -> GetResult[LocatedRecord] | None:
    """One pull of at most ``max_msg_nums`` messages that only the tier has; None if the local queue answers it.

    Args:
        high: the offset after the queue's last message.
    """
    alone = tiered.offsets.get((topic, queue_id), range(0)) if tiered is not None else range(0)
    if tiered is None or offset >= alone.stop:
        return None
    if offset < alone.start:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, alone.start, alone.start, high, [])
    stop = min(offset + max(max_msg_nums, 1), alone.stop)
    messages = [
        item for item in tiered.walk_queue(topic, queue_id, range(offset, stop)) if isinstance(item, LocatedRecord)
    ]
    status = GetStatus.FOUND if messages else GetStatus.MESSAGE_WAS_REMOVING
    return GetResult(status, stop, alone.start, max(high, alone.stop), messages)


def messages_of_tier(tiered: "OnlyTiered", topic: str, queue_id: int) -> Iterator[QueueMessage]:
    """Messages of a queue that only the tier has, as :func:`messages_of` does for the log."""
    for _topic, _queue_id, entry in tiered.units(lambda *queue: queue == (topic, queue_id)):
        record = tiered.record(topic, queue_id, entry.queue_offset)
        if record is not None:
            yield QueueMessage(entry, record, parse(record.properties))


def tiered_by_time(
    layout: StoreLayout, topic: str, queue_id: int, timestamp: int
) -> tuple[int, LocatedRecord | None] | None:
    """(queue offset, message) of the first message that only the tier has and that was stored at or after a time, or
    None.
    """
    tiered = only_tiered(layout, lambda *queue: queue == (topic, queue_id))
    at = tiered.offset_by_time(topic, queue_id, timestamp) if tiered is not None else None
    if tiered is None or at is None:
        return None
    message = next(
        (item for item in tiered.walk_queue(topic, queue_id, range(at, at + 1)) if isinstance(item, LocatedRecord)),
        None,
    )
    return at, message
