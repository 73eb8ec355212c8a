"""Allocation strategies: reference vectors, and invariants for any queues and consumers.

``tests/interop/test_rebalance.py`` compares them with the real client.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.rules import rebalance
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.rebalance import BadAllocation, Strategy

QUEUES = [QueueName("T", broker, n) for broker in ("broker-a", "broker-b") for n in range(4)]
THREE = ["c1", "c2", "c3"]


def short(strategy: Strategy, queues: list[QueueName], consumers: list[str]) -> str:
    """Each consumer's queues, as the broker's last letter and the queue number."""
    taken = [strategy(consumer, queues, consumers) for consumer in consumers]
    return " | ".join(" ".join(f"{q.broker_name[-1]}{q.queue_id}" for q in queues) for queues in taken)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (rebalance.averagely, "a0 a1 a2 | a3 b0 b1 | b2 b3"),
        (rebalance.averagely_by_circle, "a0 a3 b2 | a1 b0 b3 | a2 b1"),
        (rebalance.consistent_hash(), "a0 b0 b3 | a1 a2 b2 | a3 b1"),
    ],
)
def test_vectors(strategy: Strategy, expected: str) -> None:
    assert short(strategy, QUEUES, THREE) == expected


def test_fewer_queues_than_consumers() -> None:
    assert short(rebalance.averagely, QUEUES[:2], THREE) == "a0 | a1 | "
    assert short(rebalance.averagely_by_circle, QUEUES[:2], THREE) == "a0 | a1 | "


def test_machine_rooms() -> None:
    near = [QueueName("T", "r1@x", n) for n in range(5)]
    far = [QueueName("T", name, n) for name in ("r2@y", "x", "r1@a@b", "r1@", "@r1") for n in range(2)]
    assert short(rebalance.by_machine_room({"r1"}), [*near, *far], THREE) == "x0 x3 | x1 x4 | x2"


def test_near_machine_rooms() -> None:
    room: Callable[[str], str] = lambda name: name.split("-")[0]  # noqa: E731
    queues = [QueueName("T", f"{r}-{r}", n) for r in ("x", "y", "z") for n in range(2)]
    strategy = rebalance.near_machine_room(rebalance.averagely, room, room)
    assert short(strategy, queues, ["x-1", "x-2", "y-1"]) == "x0 z0 | x1 z1 | y0 y1"
    with pytest.raises(BadAllocation):
        rebalance.near_machine_room(rebalance.averagely, lambda _name: "", room)("x-1", queues, ["x-1"])


def test_what_the_client_throws_for() -> None:
    for strategy in (rebalance.averagely, rebalance.consistent_hash(), rebalance.by_machine_room(["r"])):
        for arguments in (("", QUEUES, THREE), ("c1", [], THREE), ("c1", QUEUES, [])):
            with pytest.raises(BadAllocation):
                strategy(*arguments)
        assert strategy("stranger", QUEUES, THREE) == []
    assert rebalance.by_config(QUEUES[:1])("anyone", [], []) == QUEUES[:1]
    with pytest.raises(BadAllocation):
        rebalance.consistent_hash(-1)


NAMES = st.text("abc@-é🙂\uff5e", min_size=1, max_size=4)
STRATEGIES = st.sampled_from([rebalance.averagely, rebalance.averagely_by_circle, rebalance.consistent_hash(3)])


@given(
    STRATEGIES,
    st.sets(st.builds(QueueName, st.just("T"), NAMES, st.integers(0, 40)), min_size=1, max_size=30),
    st.sets(NAMES, min_size=1, max_size=8),
)
def test_every_queue_has_one_consumer(strategy: Strategy, queues: set[QueueName], consumers: set[str]) -> None:
    taken = rebalance.owners(strategy, queues, consumers)
    assert set(taken) == queues
    assert all(len(takers) == 1 for takers in taken.values())
    shares = [sum(takers == [consumer] for takers in taken.values()) for consumer in consumers]
    if strategy in (rebalance.averagely, rebalance.averagely_by_circle):
        assert max(shares) - min(shares) <= 1
    rows = rebalance.plan(strategy, queues, consumers, before=consumers)
    assert not any(row.moves for row in rows)


@given(st.integers(1, 60), st.integers(2, 6))
def test_consistent_hash_moves_only_what_the_lost_one_had(count: int, consumers: int) -> None:
    queues = [QueueName("T", "b", n) for n in range(count)]
    ids = [f"c{n}" for n in range(consumers)]
    for row in rebalance.plan(rebalance.consistent_hash(), queues, ids[1:], before=ids):
        assert row.moves == (row.before == "c0")
