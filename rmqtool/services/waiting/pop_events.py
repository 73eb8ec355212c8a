"""What POP groups did with given messages, from all checkpoints and acks that the store still has."""

from collections.abc import Iterator
from typing import NamedTuple

from formats.variants import pop
from rmqtool.services.waiting.popped import Popped, PopRecord

Copy = tuple[str, int, int]  # topic, queue id, queue offset


class PopEvent(NamedTuple):
    """One thing that a group did with one copy of a message. Times are ms since the epoch.

    Attributes:
        event: popped, postponed (its invisible time was changed) or acked.
        visible_time: until when nobody else gets it; None for an ack.
    """

    time: int
    event: str
    topic: str
    queue_id: int
    queue_offset: int
    group: str
    visible_time: int | None
    detail: str | None


def pops_of(popped: Popped, copies: set[Copy], since: int) -> Iterator[PopEvent]:
    """Everything that was noted of these copies.

    Whoever changes a message's invisible time makes a checkpoint for it alone and acks the former one: that ack is left
    out.

    Args:
        since: when the first of the copies was stored, ms.
    """
    topics = {topic for topic, _queue_id, _offset in copies}
    points: dict[tuple[Copy, str], dict[pop.PopKey, pop.CheckPoint]] = {}
    acks: dict[tuple[Copy, str], dict[pop.PopKey, PopRecord]] = {}
    for record in popped.records(since):
        what = record.what
        if what.topic not in topics:
            continue
        for offset in what.queue_offsets:
            copy = (what.topic, what.queue_id, offset)
            if copy not in copies:
                continue
            if isinstance(what, pop.CheckPoint):
                points.setdefault((copy, what.group), {})[what.key] = what
            else:
                acks.setdefault((copy, what.group), {})[what.key] = record
    for stored in popped.stored:
        copy = (stored.topic, stored.queue_id, stored.queue_offset)
        if copy in copies:
            yield PopEvent(stored.pop_time, "popped", *copy, stored.group, stored.visible_time, None)
    for place in {**points, **acks}:
        (topic, queue_id, offset), group = place
        superseded: set[pop.PopKey] = set()
        for key, point in sorted(points.get(place, {}).items(), key=lambda item: item[1].pop_time):
            before = [
                former
                for former, ack in acks.get(place, {}).items()
                if former.pop_time < key.pop_time <= ack.born_time and point.queue_offsets == (offset,)
            ]
            superseded.update(before)
            event = "postponed" if before else "popped"
            yield PopEvent(point.pop_time, event, topic, queue_id, offset, group, point.visible_time, None)
            if offset in point.acked_before:
                yield PopEvent(point.pop_time, "acked", topic, queue_id, offset, group, None, "time not known")
        for key, ack in acks.get(place, {}).items():
            if key not in superseded:
                yield PopEvent(ack.born_time, "acked", topic, queue_id, offset, group, None, None)
