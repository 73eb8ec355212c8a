"""Look-ups in the tier, for what the local log has no more. A physical offset there is the position in the tier.

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


def only_tiered(layout: StoreLayout, asked: Callable[[str, int], bool]) -> "OnlyTiered | None":
    """What the tier alone has of some queues; None where that is nothing, or cannot be read here."""
    if tier_sign(layout) is None:
        return None
    from rmqtool.store.tier.only_tiered import OnlyTiered

    found = OnlyTiered(layout)
    return found if any(asked(*key) for key in found.offsets) else None


def get_tiered(
    tiered: "OnlyTiered | None", topic: str, queue_id: int, offset: int, max_msg_nums: int, high: int
) -> GetResult[LocatedRecord] | None:
    """One pull from the tier, of up to so many messages that it alone has; None where that is not what answers it.

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
    """Messages of a queue that the tier alone has, as :func:`messages_of` gives those of the log."""
    for _topic, _queue_id, entry in tiered.units(lambda *queue: queue == (topic, queue_id)):
        record = tiered.record(topic, queue_id, entry.queue_offset)
        if record is not None:
            yield QueueMessage(entry, record, parse(record.properties))


def tiered_by_time(
    layout: StoreLayout, topic: str, queue_id: int, timestamp: int
) -> tuple[int, LocatedRecord | None] | None:
    """(queue offset, message) of the first one stored at a time or later that the tier alone has; None without any."""
    tiered = only_tiered(layout, lambda *queue: queue == (topic, queue_id))
    at = tiered.offset_by_time(topic, queue_id, timestamp) if tiered is not None else None
    if tiered is None or at is None:
        return None
    found = next(
        (item for item in tiered.walk_queue(topic, queue_id, range(at, at + 1)) if isinstance(item, LocatedRecord)),
        None,
    )
    return at, found
