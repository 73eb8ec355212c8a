"""Rates, time to drain and sums of the lag of groups, round by round."""

from typing import Any

from rmqtool.services.consumers.groups import GroupLag
from rmqtool.services.consumers.watch import LagWatch, place_of


def lag(queue_id: int, offset: int | None, end: int | None, **more: Any) -> GroupLag:
    fields: dict[str, Any] = {
        "group": "g", "topic": "T", "queueId": queue_id, "consumerOffset": offset, "minOffset": 0, "brokerOffset": end,
        "diff": end - (offset or 0) if end is not None else None, "lastTimestamp": None, "state": "behind",
    }  # fmt: skip
    return GroupLag(**fields | more)


def test_rates_and_the_time_that_is_left() -> None:
    watch = LagWatch("queue")
    first = lag(0, 100, 300)
    (row,) = watch.next_round([first], {place_of(first): 7}, 10_000)
    assert (row.diff, row.change, row.inRate, row.outRate, row.drainSeconds) == (200, None, None, None, None)
    assert row.oldestTimestamp == 7
    (row,) = watch.next_round([lag(0, 180, 320)], {}, 12_000)
    assert (row.diff, row.change, row.inRate, row.outRate) == (140, -60, 10.0, 40.0)
    assert row.drainSeconds == 4.7
    (row,) = watch.next_round([lag(0, 190, 350)], {}, 14_000)
    assert (row.change, row.drainSeconds) == (20, None), "it grows"
    (row,) = watch.next_round([lag(0, 350, 350)], {}, 16_000)
    assert (row.diff, row.drainSeconds) == (0, 0.0)


def test_sums_and_what_is_not_known() -> None:
    watch = LagWatch("topic")
    rows = [lag(0, 0, 10), lag(1, 20, 10, state="ahead"), lag(2, None, 5)]
    (row,) = watch.next_round(rows, {place_of(rows[0]): 5, place_of(rows[2]): 3}, 1000)
    assert (row.queues, row.diff, row.problems, row.oldestTimestamp) == (3, 15, 1, 3)
    assert (row.queueId, row.brokerName, row.topic) == (None, None, "T")
    (row,) = watch.next_round([lag(0, 5, 10), lag(1, 20, 10), lag(2, None, 5)], {}, 2000)
    assert (row.inRate, row.outRate) == (0.0, 5.0)
    (row,) = watch.next_round([lag(0, 5, 10), lag(1, None, None, diff=None)], {}, 3000)
    assert (row.diff, row.inRate, row.drainSeconds) == (None, None, None)


def test_queues_that_come_and_go() -> None:
    watch = LagWatch("group")
    watch.next_round([lag(0, 0, 10)], {}, 1000)
    (row,) = watch.next_round([lag(0, 1, 10), lag(1, 0, 7)], {}, 2000)
    assert (row.diff, row.outRate) == (16, None), "a queue without a round before has no rate"
    assert watch.next_round([], {}, 3000) == []
