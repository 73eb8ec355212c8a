"""Messages that are only in the tier: count and describe them, and read them if the segments are files."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge

from formats.message.read import Record
from rmqtool.errors import RmqError
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.queues.reader import QueueEntry
from rmqtool.store.tier.tier import Key, Stretch, Tier, local_ranges
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


def find_only_tiered(layout: StoreLayout, first_of: Callable[[Key], int | None] | None = None) -> list[NotTaken]:
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
    """Queue offsets whose messages are only in the tier, by queue; for ``first_of`` see :func:`find_only_tiered`."""
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


class OnlyTiered:
    """The messages that are only in the tier, if its segments are local files.

    Args:
        layout: the store.
        first_of: see :func:`find_only_tiered`.

    Attributes:
        offsets: of every queue with such messages.
        holes: further queue offsets to read from the tier: of messages that the log should have, and does not.

    Raises:
        UnreadableStore: the tier cannot be read.
    """

    def __init__(self, layout: StoreLayout, first_of: Callable[[Key], int | None] | None = None) -> None:
        tier = Tier.of(layout) if tier_sign(layout) is not None else None
        self._tier = tier if tier is not None and tier.folder is not None else None
        self.offsets = alone_in(layout, self._tier, first_of) if self._tier is not None else {}
        self.holes: list[tuple[Key, range]] = []

    @property
    def ends(self) -> dict[Key, int]:
        """The queue offset after the last message of every queue in the tier."""
        return {key: queue.max_offset for key, queue in self._tier.queues.items()} if self._tier is not None else {}

    @property
    def messages(self) -> int:
        """Number of these messages."""
        return sum(map(len, self.offsets.values()))

    def stretches(self, asked: Callable[[str, int], bool] | None = None) -> Iterator[Stretch]:
        """The ranges of files that contain them.

        Args:
            asked: whether a queue is wanted (topic, queue id); by default all are.
        """
        for (topic, queue_id), offsets in (*self.offsets.items(), *self.holes):
            if self._tier is not None and (asked is None or asked(topic, queue_id)):
                yield from self._tier.stretches(topic, queue_id, offsets)

    def walk(self, asked: Callable[[str, int], bool] | None = None) -> Iterator[LocatedRecord | Damage]:
        """All of them, queue by queue; their physical offset is the position in the tier.

        Args:
            asked: see :meth:`stretches`.
        """
        for (topic, queue_id), offsets in (*self.offsets.items(), *self.holes):
            if self._tier is not None and (asked is None or asked(topic, queue_id)):
                yield from self._tier.walk(topic, queue_id, offsets)

    def units(self, asked: Callable[[str, int], bool]) -> Iterator[tuple[str, int, QueueEntry]]:
        """(topic, queue id, entry) of each of them, as in the tier; for ``asked`` see :meth:`stretches`."""
        for (topic, queue_id), offsets in self.offsets.items():
            for at in offsets if self._tier is not None and asked(topic, queue_id) else ():
                if self._tier is not None and (unit := self._tier.unit(topic, queue_id, at)) is not None:
                    yield topic, queue_id, QueueEntry(at, *unit)

    def record(self, topic: str, queue_id: int, queue_offset: int) -> Record | None:
        """See :meth:`Tier.record`."""
        return self._tier.record(topic, queue_id, queue_offset) if self._tier is not None else None

    def walk_queue(self, topic: str, queue_id: int, offsets: range) -> Iterator[LocatedRecord | Damage]:
        """See :meth:`Tier.walk`."""
        return self._tier.walk(topic, queue_id, offsets) if self._tier is not None else iter(())

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int | None:
        """The first queue offset whose message was stored at or after a time; None without any."""
        if self._tier is None:
            return None
        return self._tier.offset_by_time(topic, queue_id, self.offsets[topic, queue_id].stop, timestamp)

    def by_time(self) -> Iterator[LocatedRecord | Damage]:
        """All of them ordered by store time, as far as each queue's own order allows."""
        if (tier := self._tier) is None:
            return iter(())
        queues = (_with_times(tier.walk(*key, offsets)) for key, offsets in self.offsets.items())
        return (item for _time, item in merge(*queues, key=lambda timed: timed[0]))


def _with_times(items: Iterator[LocatedRecord | Damage]) -> Iterator[tuple[int, LocatedRecord | Damage]]:
    time = 0
    for item in items:
        time = max(time, item.record.store_timestamp) if isinstance(item, LocatedRecord) else time
        yield time, item


class LogWithTier(CommitLog):
    """The commit log, preceded by the messages that are only in the tier.

    Args:
        layout: the store.
        first_of: see :func:`find_only_tiered`.
    """

    def __init__(self, layout: StoreLayout, first_of: Callable[[Key], int | None] | None = None) -> None:
        super().__init__(layout)
        self.tiered = OnlyTiered(layout, first_of)

    def walk(
        self, start: int | None = None, stop: int | None = None, *, crc: bool = True
    ) -> Iterator[LocatedRecord | Damage]:
        """Like the commit log's; a given range only covers the log, since positions in the tier are different."""
        if start is None and stop is None:
            yield from self.tiered.walk()
        yield from super().walk(start, stop, crc=crc)
