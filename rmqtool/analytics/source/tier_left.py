"""What a stream has left to read of the messages that were only in tiered storage when it began.

An offset of a stream contains it as ``{"TOPIC/QUEUE": [first, stop]}``. A batch reads what its first offset has and its
last one has not; so a batch that is repeated has the same messages, and none of them twice.
"""

from collections.abc import Mapping
from typing import Any

from rmqtool.analytics.ranges.splits import Split, split_of_tier
from rmqtool.analytics.ranges.tail import Budget
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.store.disk.remote import uri_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.tier.only_tiered import OnlyTiered
from rmqtool.store.tier.tier import Key, Tier

NAME = "tier"
Left = dict[Key, range]


def all_of(layout: StoreLayout) -> Left:
    """Queue offsets whose messages are only in the tier now, if its segments are local files."""
    if tier_sign(layout) is None or uri_of(layout.root) is not None:
        return {}
    return {key: offsets for key, offsets in OnlyTiered(layout).offsets.items() if offsets}


def of_offset(saved: Any) -> Left:
    """What the offset of a store has left.

    Raises:
        BadValue: it has another form.
    """
    value = saved.get(NAME, {}) if isinstance(saved, dict) else {}
    try:
        return {(name.rpartition("/")[0], int(name.rpartition("/")[2])): range(*ends) for name, ends in value.items()}
    except (AttributeError, TypeError, ValueError) as err:
        raise BadValue(f"the checkpoint holds {value!r}, which is not what is left of a tier") from err


def with_left(position: Mapping[str, int], left: Left) -> dict[str, Any]:
    """The offset of a store at this position with this much left."""
    named = {f"{topic}/{queue_id}": [offsets.start, offsets.stop] for (topic, queue_id), offsets in left.items()}
    return {**position, **({NAME: named} if named else {})}


def after_batch(layout: StoreLayout, left: Left, budget: Budget) -> Left:
    """What is left after a batch; what the batch reads is taken from the budget."""
    if budget.unlimited:
        return {}
    tier, after = Tier.of(layout), dict(left)
    for key, offsets in left.items():
        for at in offsets:
            unit = tier.unit(*key, at) if tier is not None else None
            if not budget.take(unit[1] if unit is not None else 0):
                after[key] = range(at, offsets.stop)
                return after
        del after[key]
    return after


def splits_between(layout: StoreLayout, start: Left, end: Left, *, skip_expired: bool) -> list[Split]:
    """Splits of what one offset has left and a later one has not.

    Args:
        skip_expired: leave out what the tier has deleted meanwhile.

    Raises:
        UnreadableStore: the tier has deleted some of it.
    """
    splits: list[Split] = []
    tier = Tier.of(layout) if start else None
    for key, offsets in start.items():
        rest = end.get(key, range(offsets.stop, offsets.stop))
        before = range(offsets.start, min(rest.start, offsets.stop))
        behind = range(max(rest.stop, offsets.start), offsets.stop)
        for part in filter(len, (before, behind)):
            queue = tier.queues.get(key) if tier is not None else None
            there = range(queue.min_offset, queue.max_offset) if queue is not None else range(0)
            if not skip_expired and (part[0] not in there or part[-1] not in there):
                place = f"{layout.root}: {key[0]} queue {key[1]}"
                raise UnreadableStore(f"{place}: the tier has deleted messages of {part.start} to {part.stop - 1}")
            for stretch in tier.stretches(*key, part) if tier is not None else ():
                splits.append(split_of_tier(stretch, len(splits)))
    return splits
