"""Invariants of a process queue and a group's offsets, for any order of pulls, calls and messages sent back."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from formats.message.build import compose, pack
from formats.message.read import Record, read
from formats.primitives import java_hash
from formats.remoting.bodies import TopicRouteData
from formats.remoting.shapes import BrokerData, MappingInfo, MessageQueue, QueueData
from rmqtool.client import FlowLimits, Received
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.routes import Route
from rmqtool.client.consumer.assignment import share
from rmqtool.client.consumer.process_queue import ProcessQueue
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.consumer.subscriptions import Assigned, Subscriptions, subscription_data, tags_of
from rmqtool.rules import rebalance
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.rebalance import Strategy

QUEUE = MessageQueue("T", "a", 0)
LIMITS = FlowLimits(messages=6, size=60, span=12)


def message(offset: int, size: int = 1) -> Received:
    data = pack(
        compose(
            topic=b"T", queue_id=0, queue_offset=offset, physical_offset=offset * 100, body=b"x" * size,
            born_timestamp=1, born_address=b"\x7f\0\0\1", born_port=1, store_timestamp=1, store_address=b"\x7f\0\0\1",
            store_port=1,
        )
    )  # fmt: skip
    record = read(data, 0, len(data))
    assert isinstance(record, Record)
    return Received(QUEUE, record)


class Consuming(RuleBasedStateMachine):
    """A broker's queue, a process queue, and listeners that end in any order, late or never.

    The committed offset may never pass a message that is neither consumed nor sent back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.log: dict[int, int] = {}  # queue offset to size of the body
        self.next = self.pulled = 0
        self.process = ProcessQueue(QUEUE)
        self.working: dict[int, float] = {}  # since when a listener has it
        self.waiting: list[int] = []
        self.settled: set[int] = set()  # consumed, or sent back

    @rule(sizes=st.lists(st.integers(0, 30), max_size=6), gap=st.integers(0, 9))
    def store(self, sizes: list[int], gap: int) -> None:
        """Store messages, some of which the filter excludes."""
        self.next += gap
        for size in sizes:
            self.log[self.next] = size
            self.next += 1

    @rule(most=st.integers(1, 4))
    def pull(self, most: int) -> None:
        if self.process.full(LIMITS):
            return
        result = [offset for offset in self.log if offset >= self.pulled][:most]
        new = self.process.put([message(offset, self.log[offset]) for offset in reversed(result)])
        assert [received.queue_offset for received in new] == result
        assert self.process.put(new) == []  # what comes twice is taken once
        self.waiting += result
        self.pulled = result[-1] + 1 if result else self.next
        if not len(self.process):
            self.process.advance(self.pulled)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(offset)
        self.working[offset] = self.now
        self.process.start([message(offset)], self.now)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), well=st.booleans())
    def end(self, data: st.DataObject, well: bool) -> None:
        """End a call; if it failed and the message cannot be sent back, the message waits for another try."""
        offset = data.draw(st.sampled_from(sorted(self.working)))
        del self.working[offset]
        ended = message(offset, self.log[offset])
        if well or ended not in self.process:
            self.finish(ended)
        else:
            self.process.give_back([ended])
            self.waiting.append(offset)

    def finish(self, received: Received) -> None:
        self.settled.add(received.queue_offset)
        done = self.process.remove([received])
        if done is not None:
            self.process.advance(done)

    @rule(seconds=st.floats(0, 8))
    def time_passes(self, seconds: float) -> None:
        """Send back messages that a listener has had for more than ten seconds, oldest first."""
        self.now += seconds
        head = [offset for offset in self.log if offset < self.pulled and offset not in self.settled]
        expected = []
        for offset in head[:16]:
            if offset not in self.working or self.now - self.working[offset] <= 10:
                break
            expected.append(offset)
        overdue = self.process.overdue(self.now, 10)
        assert [received.queue_offset for received in overdue] == expected
        for received in overdue:
            self.finish(received)

    @invariant()
    def nothing_is_passed(self) -> None:
        unsettled = [offset for offset in self.log if offset not in self.settled]
        assert (self.process.consumed or 0) <= min(unsettled, default=self.next)

    @invariant()
    def no_more_than_allowed_waits(self) -> None:
        held = [offset for offset in self.log if offset < self.pulled and offset not in self.settled]
        assert len(self.process) == len(held)
        assert self.process.size == sum(self.log[offset] for offset in held)
        span = max(held) - min(held) if held else 0
        assert self.process.full(LIMITS) == (len(held) > 6 or self.process.size > 60 or span > 12)

    def teardown(self) -> None:
        """Once everything is consumed, the committed offset is after the last pulled message."""
        for offset in [*self.waiting, *self.working]:
            if message(offset) in self.process:
                self.finish(message(offset, self.log[offset]))
        assert len(self.process) == self.process.size == 0
        if self.settled:
            assert self.process.consumed in {self.pulled, max(self.settled) + 1}


TestConsuming = Consuming.TestCase
TestConsuming.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class Ordering(RuleBasedStateMachine):
    """An orderly listener that succeeds, suspends, commits and rolls back at random, with batches and dead letters.

    It gets messages in order of their offsets, and every committed message was consumed or is a dead letter.
    """

    def __init__(self) -> None:
        super().__init__()
        self.process = ProcessQueue(QUEUE)
        self.next = 0
        self.open: list[int] = []  # had by the listener, not committed
        self.done: set[int] = set()  # committed, or dead
        self.tries: dict[int, int] = {}

    @rule(gaps=st.lists(st.integers(0, 3), max_size=6))
    def pull(self, gaps: list[int]) -> None:
        result = []
        for gap in gaps:
            self.next += gap
            result.append(message(self.next))
            self.next += 1
        self.process.put(result)

    @rule(
        most=st.integers(1, 3),
        text=st.sampled_from(["well", "commit", "roll back", "again", "some are dead"]),
        data=st.data(),
    )
    def call(self, most: int, text: str, data: st.DataObject) -> None:
        taken = self.process.take(most)
        offsets = [received.queue_offset for received in taken]
        held = [offset for offset in self.pulled() if offset not in self.open]
        assert offsets == held[:most]
        assert [received.reconsume_times for received in taken] == [self.tries.get(offset, 0) for offset in offsets]
        if not taken:
            return
        if text in ("well", "commit"):
            self.open += offsets
            if text == "commit":
                self.commit()
        elif text == "roll back":
            self.open += offsets
            self.process.put_back(self.process.taken)
            self.open.clear()
        else:
            dead = data.draw(st.sets(st.sampled_from(taken))) if text == "some are dead" and len(taken) > 1 else set()
            again = [replace(received, retried=received.retried + 1) for received in taken if received not in dead]
            self.process.discard(dead)
            self.process.put_back(again)
            self.done |= {received.queue_offset for received in dead}
            self.tries |= {received.queue_offset: received.reconsume_times for received in again}

    def pulled(self) -> list[int]:
        return [received.queue_offset for received in self.process._held.values()]

    def commit(self) -> None:
        offset = self.process.settle()
        assert offset is not None
        self.done |= set(self.open)
        self.open.clear()
        self.process.consumed = offset

    @invariant()
    def nothing_is_passed(self) -> None:
        waiting = self.pulled()
        assert waiting == sorted(waiting)
        assert not self.done & set(waiting)
        assert [received.queue_offset for received in self.process.taken] == self.open
        assert (self.process.consumed or 0) <= min(waiting, default=self.next)
        assert self.process.waiting == (len(waiting) > len(self.open))
        assert self.process.size == len(waiting)


TestOrdering = Ordering.TestCase
TestOrdering.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(messages=st.integers(-1, 50), size=st.integers(-1, 50), queues=st.integers(0, 9))
def test_limits_of_a_topic_are_divided(messages: int, size: int, queues: int) -> None:
    limits = FlowLimits(messages=7, size=70, span=5, topic_messages=messages, topic_size=size)
    each = limits.of_queue(queues)
    if queues and messages >= 0:
        assert each.messages == max(1, messages // queues)
    else:
        assert each.messages == 7
    assert each.size == (max(1, size // queues) if queues and size >= 0 else 70)
    assert each.span == 5


def test_offsets_of_a_queue() -> None:
    process = ProcessQueue(QUEUE, 4)
    assert (process.consumed, process.position) == (None, 4)
    process.put([message(6)])
    assert process.position == 6
    process.advance(7)
    process.advance(5)
    assert (process.consumed, process.position) == (7, 7)


def test_the_offset_of_a_queue_that_is_given_up_meanwhile_is_not_kept() -> None:
    cluster = Cluster(ClientOptions(namesrv="127.0.0.1:9"))
    subscriptions = Subscriptions[Assigned](cluster, Puller(cluster, "g"))
    others = MessageQueue("T", "a", 1)
    kept: dict[MessageQueue, int] = {}

    async def write(offsets: Mapping[MessageQueue, int]) -> None:
        kept.update(offsets)
        subscriptions.revoke(others)

    subscriptions.store.write = write  # type: ignore[method-assign]
    subscriptions.assign(Assigned(QUEUE, 5, consumed=5))
    subscriptions.assign(Assigned(others, 7, consumed=7))
    asyncio.run(subscriptions.keep())
    assert kept == {QUEUE: 5}


@pytest.mark.parametrize(
    ("text", "tags"),
    [("*", []), ("", []), (" a ", ["a"]), ("a||b ||  a", ["a", "b"]), ("a || ", ["a"])],
)
def test_expressions(text: str, tags: list[str]) -> None:
    assert tags_of(text) == tags
    made = subscription_data("T", tags, 5)
    assert (made.sub_string, made.tags_set, made.sub_version) == (" || ".join(tags) or "*", tags, 5)
    assert made.code_set == [java_hash(tag) for tag in tags]


STRATEGIES: Mapping[str, Strategy] = {
    "average": rebalance.averagely,
    "circle": rebalance.averagely_by_circle,
    "consistent hash": rebalance.consistent_hash(),
    "machine room": rebalance.by_machine_room(["r0", "r1"]),
    "near machine room": rebalance.near_machine_room(
        rebalance.averagely, lambda name: name.split("@")[0], lambda name: f"r{len(name) % 3}"
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
@given(
    rooms=st.lists(st.sampled_from(["r0", "r1"]), min_size=1, max_size=4),
    queues=st.integers(1, 9),
    members=st.sets(st.text("abc@#1", min_size=1, max_size=6), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_each_queue_is_one_members(name: str, rooms: list[str], queues: int, members: set[str], order: Any) -> None:
    """In whatever order members learn of queues and members."""
    names = [f"{room}@{number}" for number, room in enumerate(rooms)]
    all_queues = [MessageQueue("T", broker, n) for broker in names for n in range(queues)]
    taken: list[MessageQueue] = []
    for member in members:
        seen, ids = list(all_queues), list(members)
        order.shuffle(seen)
        order.shuffle(ids)
        taken += share(STRATEGIES[name], member, seen, ids)
    assert sorted(taken) == sorted(all_queues)
    assert share(STRATEGIES[name], "a stranger", all_queues, sorted(members)) == set()


def test_a_configured_share_is_taken_as_it_is() -> None:
    configured = rebalance.by_config([QueueName("T", "a", 3)])
    assert share(configured, "me", [QUEUE], ["me", "you"]) == {MessageQueue("T", "a", 3)}


def static_route(*infos: MappingInfo) -> Route:
    brokers = [BrokerData("c", name, {0: f"127.0.0.1:{at}"}) for at, name in enumerate("ab", 1)]
    queues = [QueueData(name, 4, 4, 6) for name in "ab"]
    mappings = {info.bname or "": info for info in infos}
    return Route.of("T", TopicRouteData(brokers, queues, topic_queue_mapping_by_broker=mappings))


def mapping(broker: str, epoch: int, ids: dict[int, int], total: int = 4) -> MappingInfo:
    return MappingInfo("T", "__global__", total, broker, epoch, curr_id_map=ids)


def test_queues_of_a_static_topic_are_those_of_the_newest_mapping() -> None:
    """Ids are those of the topic; the broker that led a queue before is not asked. One without a leader is missed."""
    route = static_route(mapping("a", 2, {0: 3}), mapping("b", 1, {0: 0, 2: 1, 1: 2}))
    places = [(queue.broker_name, queue.queue_id) for queue in route.readable]
    assert places == [("a", 0), ("b", 1), ("b", 2), ("__syslo__none__", 3)]
    assert [queue.queue_id for queue in route.writable] == [0, 1, 2]


def test_members_share_a_static_topic_as_those_of_java() -> None:
    """In the order of its queues, not of their brokers."""
    route = static_route(mapping("a", 1, {1: 0, 3: 1}), mapping("b", 1, {0: 0, 2: 1}))
    shares = [share(rebalance.averagely, member, route.readable, ["x", "y"], route.shared_as) for member in ("x", "y")]
    assert [sorted(queue.queue_id for queue in mine) for mine in shares] == [[0, 1], [2, 3]]
    assert {queue.broker_name for queue in shares[0]} == {"a", "b"}
