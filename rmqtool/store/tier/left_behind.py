"""Messages that are only in the tier, per queue, and the sentences about them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rmqtool.errors import RmqError
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.tier.tier import Key, Tier, local_ranges
from rmqtool.words import command_line, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """Messages of one queue that are only in the tier."""

    topic: str
    queueId: int
    firstOffset: int
    nextOffset: int
    messages: int
    where: str  # directory of the tier


def left_behind(layout: StoreLayout, first_of: Callable[[Key], int | None] | None = None) -> list[NotTaken]:
    """The messages that are only in the tier, per queue; empty for a store without a tier.

    Args:
        first_of: returns the lowest queue offset found in the log, or None; by default the queues determine it.

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
    """Queue offsets whose messages are only in the tier, by queue; for ``first_of`` see :func:`left_behind`."""
    if first_of is None:
        ranges: dict[Key, tuple[int, int]] = {}
        with suppress(RmqError):  # if queues cannot be read, everything in the tier counts
            ranges = local_ranges(layout)
    else:
        firsts = {key: first_of(key) for key in tier.queues}
        ranges = {key: (first, first + 1) for key, first in firsts.items() if first is not None}
    return tier.all_alone(ranges)


def describe_read(left: list[NotTaken]) -> str:
    """A sentence that says that messages are read from the tier."""
    number = sum(queue.messages for queue in left)
    return (
        f"{counted(number, 'message')} of {counted(len(left), 'queue')} {'is' if number == 1 else 'are'} in the tier "
        "alone and read there: physicalOffset is the position in it"
    )


def describe_left(left: list[NotTaken], what: str) -> str | None:
    """A sentence about the messages left behind; None if there are none.

    Args:
        what: what is not done with them, such as "not taken".
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
