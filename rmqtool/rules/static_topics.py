"""Static topics (5.x): a fixed number of queues, each a chain of ranges that queues of brokers hold.

A client sees the queues of the topic, numbered from 0, and their offsets. The broker of a queue's last range leads it:
it takes messages, and translates between the queue of the topic and its own, the physical one. Earlier ranges stay on
the brokers that led before; the leader forwards requests to them.

Source: remoting.protocol.statictopic.TopicQueueMappingUtils, TopicQueueMappingDetail, LogicQueueMappingItem
(5.3.3, 5.5.0).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from formats.config.files_of_5 import LogicQueueMapping, TopicQueueMapping

NO_LEADER = "__syslo__none__"
"""The broker name of a queue that no broker leads."""
BLOCK = 10_000
"""Offsets of a new range begin at a multiple of this."""

Ranges = Sequence[LogicQueueMapping]

_GLOBAL = "__global__"
_MOCK_PREFIX = "__syslo__"


class BadMapping(ValueError):
    """A mapping that brokers refuse."""


def mock_broker_name(scope: str | None) -> str:
    """The broker name that clients see for all queues of a static topic."""
    scope = scope or _GLOBAL
    return _MOCK_PREFIX + (scope.removeprefix("__") if scope == _GLOBAL else scope)


def is_mock_broker(name: str) -> bool:
    """Whether a broker's name is that of all queues of a static topic."""
    return name.startswith(_MOCK_PREFIX)


# -- offsets ----------------------------------------------------------------------------------------------------------


def is_decided(item: LogicQueueMapping) -> bool:
    """Whether the first offset of a range is known. It is not while the range before it can still grow."""
    return item.logic_offset >= 0


def static_offset(item: LogicQueueMapping, physical: int) -> int:
    """The offset in the topic's queue of an offset in a range's physical queue."""
    return item.logic_offset + max(physical - item.start_offset, 0)


def static_offset_within(item: LogicQueueMapping, physical: int) -> int:
    """As :func:`static_offset`, but at most the range's end; -1 if its beginning is not decided."""
    if not is_decided(item):
        return -1
    if item.start_offset <= item.end_offset < physical:
        physical = item.end_offset
    return static_offset(item, physical)


def physical_offset(item: LogicQueueMapping, static: int) -> int:
    """The offset in a range's physical queue of an offset in the topic's queue."""
    return static - item.logic_offset + item.start_offset


def is_ended(item: LogicQueueMapping) -> bool:
    """Whether a range has an end, and something before it."""
    return item.end_offset > item.start_offset


def known_end(item: LogicQueueMapping) -> int:
    """The highest offset in the topic's queue that the mapping itself tells."""
    return item.logic_offset + (item.end_offset - item.start_offset if item.end_offset >= item.start_offset else 0)


def find_range(ranges: Ranges, static: int) -> LogicQueueMapping | None:
    """The range of an offset in the topic's queue: the last decided one that begins at or before it, or the first."""
    decided = [item for item in ranges if is_decided(item)]
    return next((item for item in reversed(decided) if item.logic_offset <= static), decided[0] if decided else None)


def next_range(ranges: Ranges, current: LogicQueueMapping) -> LogicQueueMapping | None:
    """The range after one, if its beginning is decided."""
    for item, following in pairwise(ranges):
        if item.gen == current.gen:
            return following if is_decided(following) else None
    return None


def current_queues(mapping: TopicQueueMapping) -> dict[int, int]:
    """The queues of a topic that a broker leads, each with its physical queue."""
    return {
        queue_id: ranges[-1].queue_id
        for queue_id, ranges in mapping.hosted_queues.items()
        if ranges and ranges[-1].broker_name == mapping.broker_name
    }


def round_up(offset: int, block: int) -> int:
    """Where a new range begins: behind all offsets that the one before it may still reach."""
    blocks, rest = divmod(offset, block)
    return (blocks + (1 if rest < block // 2 else 2)) * block


# -- checks -----------------------------------------------------------------------------------------------------------


def check_ranges(ranges: Ranges) -> None:
    """Check the ranges of one queue.

    Raises:
        BadMapping: their offsets or generations do not increase.
    """
    following: LogicQueueMapping | None = None
    for item in reversed(ranges):
        if item.start_offset < 0 or item.gen < 0 or item.queue_id < 0:
            raise BadMapping("The field is illegal, should not be negative")
        if following is not None and not is_decided(item):
            raise BadMapping("The non-latest item has negative logic offset")
        if following is not None and item.gen >= following.gen:
            raise BadMapping("The gen does not increase monotonically")
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            raise BadMapping("The endOffset is smaller than the start offset")
        if following is not None and is_decided(following):
            if item.logic_offset >= following.logic_offset:
                raise BadMapping("The base logic offset does not increase monotonically")
            if known_end(item) >= following.logic_offset:
                raise BadMapping("The max logic offset does not increase monotonically")
        following = item


def merge_mappings(old: TopicQueueMapping | None, new: TopicQueueMapping, *, force: bool = False) -> TopicQueueMapping:
    """The mapping of a broker after a change: queues that the new one does not name stay.

    Args:
        force: skip the comparison with the old mapping.

    Raises:
        BadMapping: a broker refuses the change.
    """
    for ranges in new.hosted_queues.values():
        check_ranges(ranges)
    if old is None:
        return new
    merged = replace(new, hosted_queues={**old.hosted_queues, **new.hosted_queues})
    if force:
        return merged
    if new.epoch < old.epoch:
        raise BadMapping(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
    if new.scope != old.scope:
        raise BadMapping(f"Can't accept data with unmatched scope {new.scope} != {old.scope}")
    for queue_id, before in old.hosted_queues.items():
        after = new.hosted_queues.get(queue_id)
        if after is not None:
            _check_kept(before, after, same_epoch=new.epoch == old.epoch)
        elif new.epoch == old.epoch:
            raise BadMapping("Cannot accept equal epoch with null data")
    return merged


def _check_kept(before: Ranges, after: Ranges, *, same_epoch: bool) -> None:
    if not before:
        return
    if not after:
        raise BadMapping("The new item list is null or empty")
    known = {item.gen: item for item in before}
    for item in after:
        old = known.get(item.gen)
        if old is not None and (
            (old.broker_name, old.queue_id, old.start_offset) != (item.broker_name, item.queue_id, item.start_offset)
            or (old.logic_offset != -1 and old.logic_offset != item.logic_offset)
        ):
            raise BadMapping(f"The item of gen {item.gen} is immutable")
    old, new = before[-1], after[-1]
    if same_epoch and (old.gen, old.broker_name, old.queue_id, old.start_offset) != (
        new.gen, new.broker_name, new.queue_id, new.start_offset,
    ):  # fmt: skip
        raise BadMapping("The new leader is different but epoch equal")


# -- the parts of several brokers -------------------------------------------------------------------------------------


def chains_of(mappings: Iterable[TopicQueueMapping]) -> dict[int, tuple[LogicQueueMapping, ...]]:
    """The ranges of each queue of a topic, oldest first, from the parts of its brokers.

    Brokers that led a queue keep what they know of it: the newest range counts, and one whose beginning is decided.
    """
    chains: dict[int, tuple[LogicQueueMapping, ...]] = {}
    for mapping in mappings:
        for queue_id, ranges in mapping.hosted_queues.items():
            if ranges and (queue_id not in chains or _age(ranges) > _age(chains[queue_id])):
                chains[queue_id] = tuple(ranges)
    return dict(sorted(chains.items()))


def _age(ranges: Ranges) -> tuple[int, bool, int]:
    last = ranges[-1]
    return last.gen, is_decided(last), len(ranges)


def is_pending(queue_id: int, chain: Ranges, mappings: Mapping[str, TopicQueueMapping]) -> bool:
    """Whether the broker of the last range does not know yet that it leads a queue, or where the range begins."""
    last = chain[-1]
    mapping = mappings.get(last.broker_name or "")
    known = () if mapping is None else mapping.hosted_queues.get(queue_id, ())
    return not is_decided(last) or not known or known[-1] != last


def share_out(total: int, now: Mapping[str, int], brokers: Iterable[str]) -> dict[str, int]:
    """How many queues each broker is to lead, as even as possible: those that lead most now get one more."""
    ordered = sorted(brokers, key=lambda name: (-now.get(name, 0), name))
    least, more = divmod(total, len(ordered))
    return {name: least + (at < more) for at, name in enumerate(ordered)}
