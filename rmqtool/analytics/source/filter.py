"""Converts conditions on columns to what a reader can use: a :class:`MessageChoice`, and ids to look up.

The caller checks the rows again, so the result may let more rows through, but never fewer.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rmqtool.analytics.table.choice import MessageChoice

_RANGES = {"physicalOffset": ("start", "stop"), "queueOffset": ("queue_start", "queue_stop")}
_SETS = {"topic": "topics", "queueId": "queues", "tags": "tags", "key": "keys"}


class Condition(NamedTuple):
    """One comparison of a column; in a list, all conditions must hold.

    ``op`` is ``=``, ``in``, ``<``, ``<=``, ``>`` or ``>=``, and for the column ``keys`` also ``has`` (an element).
    """

    column: str
    op: str
    value: Any


@dataclass(frozen=True)
class Wanted:
    """The rows that a query asks for.

    Attributes:
        choice: filter applied to each message.
        ids: values of ``msgId`` to look up, any of which may match; not used as a filter.
    """

    choice: MessageChoice = field(default_factory=MessageChoice)
    ids: tuple[str, ...] = ()

    def narrow(self, conditions: Iterable[Condition]) -> "Wanted":
        """Add conditions that must hold too; conditions that cannot be used here are ignored."""
        wanted = self
        for condition in conditions:
            wanted = _narrow(wanted, condition)
        return wanted


def _narrow(wanted: Wanted, condition: Condition) -> Wanted:
    column, op, value = condition
    choice = wanted.choice
    if op == "=" and column == "keys" and isinstance(value, list) and value:
        column, op, value = "keys", "has", value[0]
    if value is None or (op == "in" and None in value):
        return wanted  # the comparison is null
    if column == "msgId" and op in ("=", "in"):
        return replace(wanted, ids=_both(wanted.ids, (value,) if op == "=" else tuple(value)))
    if column == "keys":
        if op != "has":
            return wanted
        column, op = "key", "="
    if column in _SETS and op in ("=", "in"):
        name = _SETS[column]
        values = _both(getattr(choice, name), (value,) if op == "=" else tuple(value))
        changed: dict[str, Any] = {name: values}
        return replace(wanted, choice=replace(choice, **changed))
    if column in _RANGES and op in ("=", "<", "<=", ">", ">="):
        return replace(wanted, choice=_in_range(choice, *_RANGES[column], *_bounds(op, value, value)))
    if column == "storeTimestamp" and op in ("=", "<", "<=", ">", ">=") and isinstance(value, datetime):
        millis = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000
        # half a microsecond: the precision of a float of this size
        low, high = math.floor(millis + 0.0005), math.ceil(millis - 0.0005)
        return replace(wanted, choice=_in_range(choice, "since", "until", *_bounds(op, low, high)))
    return wanted


def _both(previous: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the intersection of two sets. If it is empty, no rows match, and either set is good enough."""
    common = tuple(value for value in values if value in previous) if previous else tuple(dict.fromkeys(values))
    return common or previous


def _bounds(op: str, low: int, high: int) -> tuple[int | None, int | None]:
    """Return (first, exclusive end) for a comparison with a number between ``low`` and ``high``."""
    first = {"=": high, ">=": high, ">": low + 1}.get(op)
    end = {"=": low + 1, "<": high, "<=": low + 1}.get(op)
    return first, end


def _in_range(
    choice: MessageChoice, first_name: str, end_name: str, first: int | None, end: int | None
) -> MessageChoice:
    known_first, known_end = getattr(choice, first_name), getattr(choice, end_name)
    firsts = [bound for bound in (known_first, first) if bound is not None]
    ends = [bound for bound in (known_end, end) if bound is not None]
    changed: dict[str, Any] = {first_name: max(firsts, default=None), end_name: min(ends, default=None)}
    return replace(choice, **changed)
