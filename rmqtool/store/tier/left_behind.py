"""What the tier alone has, by queue, and what is said of it to people."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rmqtool.errors import RmqError
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.tier.tier import Key, Tier, local_ranges
from rmqtool.words import command_line, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """Messages of one queue that are in the tier alone."""

    topic: str
    queueId: int
    firstOffset: int
    nextOffset: int
    messages: int
    where: str  # the folder of the tier


def left_behind(layout: StoreLayout, first_of: Callable[[Key], int | None] | None = None) -> list[NotTaken]:
    """Messages that the tier alone has, by queue; nothing for a store without a tier.

    Args:
        first_of: the lowest queue offset that was found in the log, None where there is none; by default as the queues
            tell it.

    Raises:
        UnreadableStore: the tier cannot be read.
    """
    tier = Tier.of(layout)
    if tier is None:
        return []
    return [
        NotTaken(
            topic=topic,
            queueId=queue_id,
            firstOffset=alone.start,
            nextOffset=alone.stop,
            messages=len(alone),
            where=tier.folder or "the tier, whose files are not here",
        )
        for (topic, queue_id), alone in alone_in(layout, tier, first_of).items()
    ]


def alone_in(layout: StoreLayout, tier: Tier, first_of: Callable[[Key], int | None] | None = None) -> dict[Key, range]:
    """Queue offsets whose messages the tier alone has, by queue; ``first_of`` as of :func:`left_behind`."""
    if first_of is None:
        ranges: dict[Key, tuple[int, int]] = {}
        with suppress(RmqError):  # of queues that cannot be read: then all of the tier counts
            ranges = local_ranges(layout)
    else:
        firsts = {key: first_of(key) for key in tier.queues}
        ranges = {key: (first, first + 1) for key, first in firsts.items() if first is not None}
    return tier.all_alone(ranges)


def words_read(left: list[NotTaken]) -> str:
    """That messages come out of the tier, for people."""
    number = sum(loss.messages for loss in left)
    return (
        f"{counted(number, 'message')} of {counted(len(left), 'queue')} {'is' if number == 1 else 'are'} in the tier "
        "alone and read there: physicalOffset is the position in it"
    )


def words_of(left: list[NotTaken], what: str) -> str | None:
    """What was left behind, for people; None for nothing.

    Args:
        what: is not done with these messages, as "not taken".
    """
    if not left:
        return None
    number = sum(queue.messages for queue in left)
    messages, verb, they = counted(number, "message"), *(("is", "it is") if number == 1 else ("are", "they are"))
    return (
        f"{messages} of {counted(len(left), 'queue')} {verb} {what}: {they} in the tier alone "
        f"({left[0].where}). Start the broker, which reads the tier too, and take what it serves "
        f"({command_line('mirror')})"
    )
