"""Lag of groups, round by round: how fast it shrinks, and when nothing is left."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rmqtool.contract import PlainRow
from rmqtool.services.consumers.groups import PROBLEMS, GroupLag

Place = tuple[str, str, str | None, int]
"""A group in a queue: group, topic, broker (None in a store), queue id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedLag(PlainRow):
    """One row of one round. Rates are messages per second since the round before; None in the first."""

    time: int  # of the round, ms
    group: str
    topic: str | None  # None if topics are added up
    queueId: int | None  # None if queues are added up
    brokerName: str | None
    queues: int
    diff: int | None
    change: int | None  # of diff, since the round before
    inRate: float | None  # stored in its queues
    outRate: float | None  # consumed
    drainSeconds: float | None  # until nothing is left at these rates; None if it does not shrink
    oldestTimestamp: int | None  # store time of the oldest unread message
    problems: int


def place_of(row: GroupLag) -> Place:
    """The place of a row."""
    return row.group, row.topic, getattr(row, "brokerName", None), row.queueId


class LagWatch:
    """Compares each round with the one before.

    Args:
        by: what a row stands for: ``queue``, ``topic`` or ``group``.
    """

    def __init__(self, by: str) -> None:
        self._by = by
        self._before: dict[Place, GroupLag] = {}
        self._time = 0

    def next_round(self, lags: Iterable[GroupLag], oldest: Mapping[Place, int], now: int) -> list[WatchedLag]:
        """The rows of a round, in the order of the lags.

        Args:
            oldest: store times (ms) of the oldest unread messages, as far as they are known.
            now: ms.
        """
        seconds = (now - self._time) / 1000
        current = {place_of(row): row for row in lags}
        rows: dict[tuple[object, ...], WatchedLag] = {}
        for place, lag in current.items():
            row = self._row(place, lag, self._before.get(place), seconds, oldest.get(place), now)
            key = (row.group, row.topic, row.brokerName, row.queueId)
            rows[key] = _add(rows[key], row) if key in rows else row
        self._before, self._time = current, now
        return [replace(row, drainSeconds=_drain(row)) for row in rows.values()]

    def _row(
        self, place: Place, lag: GroupLag, before: GroupLag | None, seconds: float, oldest: int | None, now: int
    ) -> WatchedLag:
        known = before if seconds > 0 else None
        return WatchedLag(
            time=now,
            group=lag.group,
            topic=lag.topic if self._by != "group" else None,
            queueId=lag.queueId if self._by == "queue" else None,
            brokerName=place[2] if self._by == "queue" else None,
            queues=1,
            diff=lag.diff if self._by == "queue" or lag.diff is None else lag.behind,
            change=_difference(lag.diff, known.diff) if known is not None else None,
            inRate=_rate(lag.brokerOffset, known.brokerOffset, seconds) if known is not None else None,
            outRate=_rate(lag.consumerOffset or 0, known.consumerOffset or 0, seconds) if known is not None else None,
            drainSeconds=None,
            oldestTimestamp=oldest,
            problems=int(lag.state in PROBLEMS),
        )


def _difference(now: int | None, before: int | None) -> int | None:
    return now - before if now is not None and before is not None else None


def _rate(now: int | None, before: int | None, seconds: float) -> float | None:
    difference = _difference(now, before)
    return round(difference / seconds, 1) if difference is not None else None


def _sum(first: float | None, second: float | None) -> float | None:
    return round(first + second, 1) if first is not None and second is not None else None


def _add(first: WatchedLag, second: WatchedLag) -> WatchedLag:
    times = [time for time in (first.oldestTimestamp, second.oldestTimestamp) if time is not None]
    return replace(
        first,
        queues=first.queues + second.queues,
        diff=None if first.diff is None or second.diff is None else first.diff + second.diff,
        change=None if first.change is None or second.change is None else first.change + second.change,
        inRate=_sum(first.inRate, second.inRate),
        outRate=_sum(first.outRate, second.outRate),
        oldestTimestamp=min(times, default=None),
        problems=first.problems + second.problems,
    )


def _drain(row: WatchedLag) -> float | None:
    if row.diff == 0:
        return 0.0
    if row.diff is None or row.inRate is None or row.outRate is None or row.outRate <= row.inRate:
        return None
    return round(row.diff / (row.outRate - row.inRate), 1)
