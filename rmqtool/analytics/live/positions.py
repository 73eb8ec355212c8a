"""Positions in the queues of a cluster, and the ranges between them. Pure; nothing is asked of a broker."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from formats.remoting.shapes import MessageQueue
from rmqtool.client.consumer.proof import Last
from rmqtool.errors import BadValue

_SMALL = 1000  # messages of ranges that one task reads
Offsets = dict[str, Any]
"""JSON form of positions: by topic, broker and queue id."""


@dataclass(frozen=True)
class QueuePosition:
    """How far a queue is read.

    Attributes:
        next: queue offset of the next message.
        last: the message before it, which proves that the queue is still the same; None if there is none.
        begin: where the batch that ends here begins, if not where the one before has ended.
    """

    next: int
    last: Last | None = None
    begin: int | None = None


Positions = Mapping[MessageQueue, QueuePosition]


@dataclass(frozen=True)
class Range:
    """Messages of a queue that one task reads: queue offsets [start, stop).

    Attributes:
        first: the message before the whole range of which this is a part, or None.
        last: the last message of the whole range, or None.
    """

    queue: MessageQueue
    start: int
    stop: int
    first: Last | None = None
    last: Last | None = None

    def __len__(self) -> int:
        return self.stop - self.start

    def to_list(self) -> list[Any]:
        """Return the form for JSON."""
        ends = [None if last is None else list(last) for last in (self.first, self.last)]
        queue = self.queue
        return [queue.topic, queue.broker_name, queue.queue_id, self.start, self.stop, *ends]

    @classmethod
    def from_list(cls, values: Any) -> "Range":
        """Create from the result of :meth:`to_list`.

        Raises:
            ValueError, TypeError: it is none.
        """
        topic, broker, queue_id, start, stop, first, last = values
        numbers = (queue_id, start, stop, *(first or ()), *(last or ()))
        texts = isinstance(topic, str) and isinstance(broker, str)
        if not texts or any(type(number) is not int for number in numbers):
            raise ValueError("not a range of a queue")
        ends = [None if each is None else Last(*each) for each in (first, last)]
        return cls(MessageQueue(topic, broker, queue_id), start, stop, *ends)


def to_json(positions: Positions) -> Offsets:
    """Return the JSON form, in the order of the queues."""
    offsets: Offsets = {}
    for queue in sorted(positions):
        position = positions[queue]
        value: dict[str, Any] = {"offset": position.next}
        if position.last is not None:
            value["last"] = list(position.last)
        if position.begin is not None:
            value["from"] = position.begin
        offsets.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = value
    return offsets


def from_json(offsets: Any) -> dict[MessageQueue, QueuePosition]:
    """Return the positions of a JSON form.

    Raises:
        BadValue: it is none.
    """
    try:
        return {
            MessageQueue(topic, broker, int(queue_id)): _position(value)
            for topic, brokers in offsets.items()
            for broker, queues in brokers.items()
            for queue_id, value in queues.items()
        }
    except (ValueError, TypeError, AttributeError, KeyError):
        raise BadValue(
            f"the checkpoint holds {str(offsets)[:200]}, which are not offsets of a live cluster: give the stream a "
            "checkpointLocation of its own"
        ) from None


def _position(value: Any) -> QueuePosition:
    numbers = [value["offset"], *value.get("last", ()), *([value["from"]] if "from" in value else [])]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError
    last = Last(*value["last"]) if "last" in value else None
    if last is not None and last.offset >= value["offset"]:
        raise ValueError
    return QueuePosition(value["offset"], last, value.get("from"))


def ranges_between(start: Positions, end: Positions) -> list[Range]:
    """Return what lies between two positions of each queue."""
    ranges = []
    for queue in sorted(end):
        before, until = start.get(queue), end[queue]
        if before == until:
            continue
        if until.begin is not None or before is None:
            begin, first = until.begin or 0, None
        else:
            begin, first = before.next, before.last
        if begin < until.next:
            ranges.append(Range(queue, begin, until.next, first, until.last))
    return ranges


def divide(ranges: Iterable[Range], least: int | None, most: int | None) -> list[Range]:
    """Divide ranges into parts of about equal size.

    Args:
        least: number of parts, if there are as many messages; a queue that has one and a half times its share or more
            is divided even if there are more queues.
        most: messages of a part.
    """
    whole = list(ranges)
    total = sum(map(len, whole))
    parts = []
    for each in whole:
        count = 1
        if least is not None and total:
            share_of_it = len(each) * least / total
            count = math.ceil(share_of_it) if len(whole) < least else math.floor(share_of_it + 0.5)
        if most is not None:
            count = max(count, -(-len(each) // most))
        count = max(min(count, len(each)), 1)
        edges = [each.start + len(each) * part // count for part in range(count + 1)]
        parts += [replace(each, start=edges[part], stop=edges[part + 1]) for part in range(count)]
    return parts


def join_small(parts: Iterable[Range], least: int | None, most: int | None) -> list[tuple[Range, ...]]:
    """Return what each task reads: small neighbours together, as the start of a task takes longer than reading them.

    Args:
        least, most: as in :func:`divide`.
    """
    listed = list(parts)
    limit = min(_SMALL, _SMALL if most is None else most, sum(map(len, listed)) // (least or 1))
    joined: list[tuple[Range, ...]] = []
    size = 0
    for part in listed:
        if joined and size + len(part) <= limit:
            joined[-1] += (part,)
            size += len(part)
        else:
            joined.append((part,))
            size = len(part)
    return joined


def share(backlogs: Mapping[MessageQueue, int], limit: int) -> dict[MessageQueue, int]:
    """Divide a number of messages among queues in proportion to how many each has waiting.

    Nothing is lost by rounding: the queues with the largest remainders get one more.
    """
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    shares = {queue: waiting * limit // total for queue, waiting in backlogs.items()}
    by_remainder = sorted(backlogs, key=lambda queue: (-(backlogs[queue] * limit % total), queue))
    for queue in by_remainder[: limit - sum(shares.values())]:
        shares[queue] += 1
    return shares
