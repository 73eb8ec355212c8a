"""Every allocation strategy gives the same result as the real 4.9.8 client's class, on random queues and consumers."""

import random
from typing import Any

import pytest

from rmqtool.rules import rebalance
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.rebalance import BadAllocation, Strategy
from tests.amounts import by_turns
from tests.interop.client import Client

pytestmark = pytest.mark.interop
STRATEGIES = ("AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY", "CONSISTENT_HASH")


def as_json(queues: list[QueueName]) -> list[dict[str, Any]]:
    return [{"topic": q.topic, "broker": q.broker_name, "id": q.queue_id} for q in queues]


def from_json(rows: list[dict[str, Any]]) -> list[QueueName]:
    return [QueueName(row["topic"], row["broker"], row["id"]) for row in rows]


class Case:
    """One random situation, with names that sort and hash in unusual ways."""

    def __init__(self, seed: int) -> None:
        pick = random.Random(seed)
        brokers = pick.sample(
            ["broker-a", "broker-b", "r1@a", "r1@b", "r2@a", "r3@", "@x", "r1@a@b", "é", "🙂", "\uff5e"], 4
        )
        self.queues = [
            QueueName("T", broker, number) for broker in brokers for number in range(pick.choice([0, 1, 2, 3, 7, 16]))
        ]
        ids = [f"10.0.0.{n}@{n * 7}" for n in range(9)] + ["é@1", "🙂@1", "\uff5e@1", "", "c-1", "c-11"]
        self.consumers = pick.sample(ids, pick.choice([0, 1, 1, 2, 3, 5, 12]))
        if self.consumers and pick.random() < 0.1:
            self.consumers.append(self.consumers[0])
        pick.shuffle(self.queues)
        self.configured = pick.sample(self.queues, min(3, len(self.queues)))
        self.rooms = pick.sample(["r1", "r2", "r3", ""], 2)
        self.room_of = {name: pick.choice(["r1", "r2", "r3"]) for name in (*brokers, *ids, "stranger")}
        if pick.random() < 0.1:
            self.room_of[pick.choice(brokers)] = ""
        self.inner = pick.choice(["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
        self.nodes = pick.choice([0, 0, 0, 1, 100])  # 0: the default

    def strategy(self, name: str) -> Strategy:
        """Ours."""
        if name == "AVG":
            return rebalance.averagely
        if name == "AVG_BY_CIRCLE":
            return rebalance.averagely_by_circle
        if name == "CONFIG":
            return rebalance.by_config(self.configured)
        if name == "MACHINE_ROOM":
            return rebalance.by_machine_room(self.rooms)
        if name == "CONSISTENT_HASH":
            return rebalance.consistent_hash(self.nodes or rebalance.VIRTUAL_NODES)
        return rebalance.near_machine_room(
            self.strategy(self.inner), self.room_of.__getitem__, self.room_of.__getitem__
        )


@by_turns(2)
@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies(name: str, client: Client) -> None:
    gave = refused = 0
    for seed in range(250):
        case = Case(seed)
        queues, consumers = rebalance.sort(case.queues, case.consumers)
        text = client.ask("sort", queues=as_json(case.queues), cids=case.consumers)
        assert (queues, consumers) == (from_json(text["queues"]), text["cids"])
        for consumer in dict.fromkeys([*consumers, "stranger"]):
            text = client.ask(
                "allocate",
                strategy=name,
                inner=case.inner,
                cid=consumer,
                queues=as_json(queues),
                cids=consumers,
                configured=as_json(case.configured),
                rooms=case.rooms,
                roomOf=case.room_of,
                count=case.nodes,
            )
            try:
                ours = case.strategy(name)(consumer, queues, consumers)
            except BadAllocation:
                assert "error" in text, (seed, consumer)
                refused += 1
                continue
            assert ours == from_json(text["queues"]), (seed, consumer)
            gave += len(ours)
    assert gave > 500
    assert refused > 5 or name == "CONFIG"


def test_a_plan_gives_every_queue_to_one_consumer(client: Client) -> None:
    queues = [QueueName("Orders", broker, n) for broker in ("b-1", "b-2") for n in range(8)]
    for strategy in (rebalance.averagely, rebalance.averagely_by_circle, rebalance.consistent_hash()):
        rows = rebalance.plan(strategy, queues, ["c3", "c1", "c2"], before=["c1", "c2"])
        assert [QueueName(row.topic, row.brokerName, row.queueId) for row in rows] == sorted(queues)
        assert {row.consumer for row in rows} == {"c1", "c2", "c3"}
        assert all(row.moves == (row.consumer != row.before) for row in rows)
