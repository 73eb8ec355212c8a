"""A group on a simulated broker: members join, leave, fail and lose requests, at random from a seed."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.remoting.shapes import MessageQueue
from rmqtool.client import (
    FlowLimits,
    From,
    Later,
    LitePullConsumer,
    PollOptions,
    PushConsumer,
    PushOptions,
    Received,
    Suspend,
)
from rmqtool.client.cluster.errors import ClientError
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.rebalance import averagely, averagely_by_circle, consistent_hash
from tests.amounts import by_turns
from tests.client.simulated import GROUP, TOPIC, Broker, Member, simulate

OPTIONS = PushOptions(
    start=From.FIRST, max_tries=3, consume_timeout=60, limits=FlowLimits(20, 400, 40), shutdown_wait=5
)
POLLS = PollOptions(start=From.FIRST, batch=4, ahead=3)
STRATEGIES = (averagely, averagely_by_circle, consistent_hash())
COUNT = 120


class Polling:
    """A polling member that processes each message before the next poll."""

    def __init__(self, member: Member, life: "Life") -> None:
        self.inner = LitePullConsumer(member, GROUP, replace(POLLS, strategy=life.options.strategy))
        self.life = life

    async def __aenter__(self) -> None:
        await self.inner.__aenter__()
        await self.inner.subscribe(TOPIC)
        self._work = asyncio.create_task(self.work())

    async def work(self) -> None:
        while True:
            try:
                result = await self.inner.poll(1)
            except (ClientError, RemotingError):
                continue
            for message in result:
                if self.life.chance.random() < self.life.slow:
                    await asyncio.sleep(self.life.chance.uniform(0, 90))
                self.life.done.add(int(message.body))

    def queues(self) -> list[MessageQueue]:
        return self.inner.assignment()

    def behind(self, ends: dict[MessageQueue, int]) -> bool:
        consumed = self.inner._subscriptions.next_offsets()
        return any(consumed.get(queue, 0) < ends.get(queue, 0) for queue in self.queues())

    async def close(self) -> None:
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        await self.inner.close()


class Life:
    """A group whose members join and leave, and the state of its messages."""

    def __init__(
        self, seed: int, queues: int, lost: float, *, orderly: bool = False, polling: bool = False, strategy: int = 0
    ) -> None:
        self.chance = random.Random(seed)
        self.broker = Broker(self.chance, queues, lost)
        self.orderly, self.polling = orderly, polling
        self.options = replace(OPTIONS, orderly=orderly, max_tries=-1 if orderly else 3, strategy=STRATEGIES[strategy])
        self.fails, self.slow = 0.15, 0.1
        self.done: set[int] = set()
        self.consumed: dict[MessageQueue, int] = defaultdict(int)  # in order: the offset behind the last one
        self.in_call: dict[MessageQueue, int] = defaultdict(int)
        self.broker.checks.append(self.check)
        self.settled: dict[MessageQueue, set[int]] = defaultdict(set)
        self.number = 0

    def check(self, queue: MessageQueue, offset: int) -> None:
        """Check that the committed offset does not pass a message that is neither consumed nor sent back."""
        if queue.topic == TOPIC:
            keys = [stored.key for stored in self.broker.queues[queue][:offset]]
            back = {stored.key for stored in self.broker.queues[self.broker.retry]} | self.broker.dead
            missing = [key for key in keys if key not in self.done and key not in back]
            assert not missing, f"{queue} is at {offset}, and {missing} are not done"

    async def listen(self, messages: Sequence[Received]) -> Later | Suspend | None:
        queue, offset = messages[0].queue, messages[0].queue_offset
        if self.orderly:
            self.in_call[queue] += 1
            assert self.in_call[queue] == 1, f"{queue}: two at a time"
            assert offset <= self.consumed[queue], f"{queue}: {offset} before {self.consumed[queue]}"
        try:
            if self.chance.random() < self.slow:
                await asyncio.sleep(self.chance.uniform(0, 5 if self.orderly else 90))
        finally:
            self.in_call[queue] -= 1
        if self.chance.random() < self.fails:
            if self.orderly:
                return Suspend()
            if self.chance.random() < 0.5:
                raise ValueError("no")
            return Later()
        self.done |= {int(message.body) for message in messages}
        self.consumed[queue] = max(self.consumed[queue], offset + 1)
        return None

    async def come(self) -> "tuple[PushConsumer | Polling, Member]":
        self.number += 1
        member = Member(self.broker, f"m{self.number}")
        consumer: PushConsumer | Polling = Polling(member, self)
        if not self.polling:
            consumer = PushConsumer(member, GROUP, {TOPIC: "*"}, self.listen, self.options)
        await consumer.__aenter__()
        return consumer, member

    async def kill(self, consumer: PushConsumer | Polling, member: Member) -> None:
        """Kill a member; the broker sees its connection end."""
        member.gone = True
        if isinstance(consumer, Polling):
            await consumer.close()  # whatever it says, nobody hears it
            self.broker.leave(member.client_id)
            return
        for task in consumer._tasks:
            task.cancel()
        for process in consumer._subscriptions.queues.values():
            process.dropped = True
            process.stop()
        await consumer._processing.stop(0)
        self.broker.leave(member.client_id)

    async def live(self) -> None:
        members: list[tuple[PushConsumer | Polling, Member]] = [await self.come()]
        for key in range(COUNT):
            self.broker.put(self.chance.choice(self.broker.names), key)
            await asyncio.sleep(self.chance.uniform(0, 2))
            drawn = self.chance.random()
            if drawn < 0.04 and len(members) < 5:
                members.append(await self.come())
            elif drawn < 0.07 and len(members) > 1:
                consumer, _ = members.pop(self.chance.randrange(len(members)))
                await consumer.close()
            elif drawn < 0.09 and len(members) > 1:
                await self.kill(*members.pop(self.chance.randrange(len(members))))
        # no more faults: all of it ends well, and each queue is one member's
        self.broker.lost = self.fails = self.slow = 0
        ends = {queue: len(self.broker.queues[queue]) for queue in self.broker.names if self.broker.queues[queue]}
        async with asyncio.timeout(3600):
            while len(self.done | self.broker.dead) < COUNT:
                await asyncio.sleep(1)
            while sorted(queue for consumer, _ in members for queue in consumer.queues()) != self.broker.names:
                await asyncio.sleep(1)
            # where two have held a queue for a while, the one that keeps it may be behind what the other has committed
            while {queue: self.broker.committed.get(queue) for queue in ends} != ends or any(
                isinstance(consumer, Polling) and consumer.behind(ends) for consumer, _ in members
            ):
                await asyncio.sleep(1)
        for consumer, _ in members:
            await consumer.close()
        assert {queue: self.broker.committed[queue] for queue in ends} == ends


@by_turns(2)
@pytest.mark.parametrize("how", [{}, {"orderly": True}, {"polling": True}], ids=["any order", "in order", "polls"])
@given(
    seed=st.integers(0, 1 << 32), queues=st.integers(1, 6), lost=st.sampled_from([0, 0.01, 0.1]),
    strategy=st.integers(0, len(STRATEGIES) - 1),
)  # fmt: skip
@settings(max_examples=8, deadline=None)
def test_nothing_is_lost_and_order_is_kept(
    how: dict[str, bool], seed: int, queues: int, lost: float, strategy: int
) -> None:
    async def test() -> None:
        await Life(seed, queues, lost, strategy=strategy, **how).live()

    simulate(test())
