"""Consumers that fail, are slow, join and leave, on a real broker: every message is accounted for.

Run as ``python -m tests.interop.consuming_soak [--minutes N] [--release 4.9.8|5.3.3] [--rate N] [--seed N]``. One group
consumes concurrently, another in order, a third (5.3) pops; members join and leave at random, close cleanly or are
dropped, and now and then one of them is a Java consumer. Listeners fail, are slow, and hang. In the end each group has
consumed each message, or has it as a dead letter; orderly consumption skipped none; and memory has not grown.
"""

import argparse
import asyncio
import logging
import random
import resource
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from formats.fastjson.declare import body_of
from formats.remoting.bodies import SetRequestMode
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.client import (
    ClientOptions,
    Cluster,
    FlowLimits,
    From,
    Later,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    PushOptions,
    Received,
    Suspend,
)  # fmt: skip
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.cluster.peers import Peers
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.releases import RELEASES
from tests.interop.broker import VERSIONS, Broker
from tests.interop.test_consuming import PATIENT
from tests.interop.test_serve import make

CONFIG = {"brokerFastFailureEnable": "false", "messageDelayLevel": "1s 1s 2s 2s 3s 3s", "autoCreateTopicEnable": "true"}
TOPIC = "Soaked"
ANY, ORDER, POPS = "soak-any", "soak-order", "soak-pops"
_FAILS, _SLOW, _HANGS = 0.05, 0.02, 0.0005  # chances of a call
_MOST_TRIES = 3


@dataclass
class Account:
    """Results of a group, by message key.

    Attributes:
        done: how often each message was consumed.
        settled: queue → offsets consumed in order.
        jumps: places where orderly consumption skipped a message.
    """

    done: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    settled: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    jumps: list[str] = field(default_factory=list)


class Soak:
    """One run."""

    def __init__(self, broker: Broker, rate: int, seed: int) -> None:
        self.broker, self.rate, self.chance = broker, rate, random.Random(seed)
        self.client = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
        self.accounts = {ANY: Account(), ORDER: Account()}
        if broker.engine != "4.9":
            self.accounts[POPS] = Account()
        self.sent: set[str] = set()
        self.going = True
        self.turns: Counter[str] = Counter()
        base = PushOptions(
            start=From.FIRST, max_tries=_MOST_TRIES, consume_timeout=5, persist_interval=1, rebalance_interval=2,
            lock_interval=2, retry_pause=0.5, suspend_pause=0.05, shutdown_wait=1, batch=4,
            limits=FlowLimits(messages=200, span=2000),
        )  # fmt: skip
        self.options = {
            ANY: base,
            ORDER: replace(base, orderly=True, batch=1, max_tries=-1),
            POPS: replace(base, client_rebalance=False, pop_invisible=6, pop_delays=(1, 1, 2)),
        }

    async def any_order(self, messages: Sequence[Received]) -> Later | None:
        return await self.anyhow(self.accounts[ANY], messages)

    async def popped(self, messages: Sequence[Received]) -> Later | None:
        return await self.anyhow(self.accounts[POPS], messages)

    async def anyhow(self, account: Account, messages: Sequence[Received]) -> Later | None:
        account.calls += 1
        drawn = self.chance.random()
        if drawn < _HANGS:
            await asyncio.sleep(8)  # over the time that it has
        elif drawn < _SLOW:
            await asyncio.sleep(self.chance.random())
        if self.chance.random() < _FAILS:
            first = self.chance.randrange(len(messages))
            self.take(account, messages[:first])
            return Later(first)
        self.take(account, messages)
        return None

    async def in_order(self, messages: Sequence[Received]) -> Suspend | None:
        account = self.accounts[ORDER]
        account.calls += 1
        (message,) = messages
        queue, offset = message.record.queue_id, message.queue_offset
        # a member that went without a word may have had more than it committed; but nothing before was left out
        if offset and offset - 1 not in account.settled[queue]:
            account.jumps.append(f"queue {queue}: {offset} before {offset - 1} was consumed")
        if self.chance.random() < _SLOW:
            await asyncio.sleep(self.chance.random() / 5)
        if self.chance.random() < _FAILS:
            return Suspend()
        account.settled[queue].add(offset)
        self.take(account, messages)
        return None

    def take(self, account: Account, messages: Sequence[Received]) -> None:
        account.done.update(message.keys[0] for message in messages)

    async def send(self) -> None:
        async with Producer(self.client, "soak-producer", PATIENT) as producer:
            number = 0
            while self.going:
                for _ in range(max(self.rate // 20, 1)):
                    key = f"m{number}"
                    await producer.send(Message(TOPIC, key.encode() * 8, keys=[key]))
                    self.sent.add(key)
                    number += 1
                await asyncio.sleep(0.05)

    async def member(self, group: str) -> None:
        """Run members of a group one after another, each for some seconds."""
        listener = {ANY: self.any_order, ORDER: self.in_order, POPS: self.popped}[group]
        while self.going:
            consumer = PushConsumer(self.client, group, {TOPIC: "*"}, listener, self.options[group])
            await consumer.__aenter__()
            end = time.monotonic() + self.chance.uniform(3, 20)
            while self.going and time.monotonic() < end:
                await asyncio.sleep(0.2)
            if self.chance.random() < 0.3 and group != ORDER:
                self.turns["dropped"] += 1
                await self.drop(consumer)
            else:
                self.turns["closed"] += 1
                await consumer.close()

    async def drop(self, consumer: PushConsumer) -> None:
        """End a consumer like a kill: no offset is committed, no broker is notified."""
        for task in consumer._tasks:
            task.cancel()
        for process in consumer._subscriptions.queues.values():
            process.dropped = True
            process.stop()
        consumer._subscriptions.revoke_all()
        for popping in consumer._popping._tasks:
            popping.cancel()
        await consumer._processing.stop(0)
        await consumer._popping._workers.stop(0)
        consumer._closed = True
        for work in list(consumer.cluster._tasks):
            work.cancel()
        await Peers.close(consumer.cluster)

    async def java(self) -> None:
        """Now and then run a Java consumer in the concurrent group; its messages count too."""
        while self.going:
            await asyncio.sleep(self.chance.uniform(3, 8))
            if not self.going:
                return
            await asyncio.to_thread(
                self.broker.ask, "consume", group=ANY, topic=TOPIC, failures=0, most=_MOST_TRIES, level=0,
                instance="soaking",
            )  # fmt: skip
            await asyncio.sleep(self.chance.uniform(3, 8))
            await asyncio.to_thread(self.broker.ask, "leave", instance="soaking")
            self.turns["java"] += 1
            rows = await asyncio.to_thread(self.broker.ask, "take")
            self.accounts[ANY].done.update(row["keys"] for row in rows)

    async def let_pop(self) -> None:
        """Switch a group to POP."""
        address = self.broker.ask("addresses")["broker"]
        request = Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body_of(SetRequestMode(TOPIC, POPS, "POP")))
        async with Cluster(self.client) as cluster:
            await cluster.ask(address, request)

    async def dead(self, group: str) -> set[str]:
        """Keys of the dead letters of a group."""
        collected: set[str] = set()
        async with PullConsumer(self.client) as consumer:
            try:
                queues = await consumer.queues(f"%DLQ%{group}")
                ends = {queue: (await consumer.offsets(queue))[1] for queue in queues}
                await consumer.assign(dict.fromkeys(queues, 0))
                while any(consumer.position(queue) < end for queue, end in ends.items()):
                    collected |= {message.keys[0] for message in await consumer.poll(1)}
            except (ClientError, RemotingError):
                return collected
        return collected

    async def run(self, seconds: float) -> bool:
        """Run everything; returns whether all messages are accounted for."""
        sending = asyncio.create_task(self.send())
        groups = [ANY, ANY, ANY, ORDER, ORDER]
        if POPS in self.accounts:
            await self.let_pop()
            groups += [POPS, POPS, POPS]
        members = [asyncio.create_task(self.member(group)) for group in groups]
        members.append(asyncio.create_task(self.java()))
        begin = time.monotonic()
        memory: list[int] = []
        while time.monotonic() - begin < seconds:
            await asyncio.sleep(min(10, seconds / 6))
            memory.append(_resident())
            failed = [task for task in (sending, *members) if task.done()]
            for task in failed:
                task.result()
            sums = {group: (account.calls, len(account.done)) for group, account in self.accounts.items()}
            print(f"{time.monotonic() - begin:5.0f} s  sent {len(self.sent):,}  {sums}  {memory[-1]} MB", flush=True)
        self.going = False
        await asyncio.gather(sending, *members)
        # what is left is consumed by those who do not fail
        missing = await self.finish()
        for group, keys in missing.items():
            print(f"{group}: {len(keys)} not accounted for {sorted(keys)[:10]}")
        jumps = self.accounts[ORDER].jumps
        again = {group: sum(account.done.values()) - len(account.done) for group, account in self.accounts.items()}
        print(f"members: {dict(self.turns)}; sent {len(self.sent):,}; again {again}; out of order {len(jumps)}")
        print(jumps[:5])
        print(f"memory: {memory[:3]} MB at first, {memory[-3:]} MB at last")
        return not any(missing.values()) and not jumps

    async def finish(self) -> dict[str, set[str]]:
        async def well(messages: Sequence[Received]) -> None:
            self.take(self.accounts[ANY], messages)

        async def pop_well(messages: Sequence[Received]) -> None:
            self.take(self.accounts[POPS], messages)

        global _FAILS, _SLOW
        _FAILS = _SLOW = 0.0
        order = PushConsumer(self.client, ORDER, {TOPIC: "*"}, self.in_order, self.options[ORDER])
        anyhow = PushConsumer(self.client, ANY, {TOPIC: "*"}, well, self.options[ANY])
        async with AsyncExitStack() as stack:
            for consumer in (order, anyhow):
                await stack.enter_async_context(consumer)
            if POPS in self.accounts:
                pops = PushConsumer(self.client, POPS, {TOPIC: "*"}, pop_well, self.options[POPS])
                await stack.enter_async_context(pops)
            for _ in range(240):
                left = {group: self.sent - account.done.keys() for group, account in self.accounts.items()}
                for group in left.keys() - {ORDER}:
                    if left[group]:
                        left[group] -= await self.dead(group)
                if not any(left.values()):
                    break
                await asyncio.sleep(0.5)
        return left


def _resident() -> int:
    """Current memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


def main() -> int:
    """Run and print the result."""
    options = argparse.ArgumentParser(prog="python -m tests.interop.consuming_soak", description=__doc__)
    options.add_argument("--release", choices=VERSIONS, default="5.3.3")
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--rate", type=int, default=400, help="messages a second")
    options.add_argument("--seed", type=int, default=18)
    chosen = options.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="consuming-soak-") as work, Broker(chosen.release) as broker:
        timer = {} if broker.engine == "4.9" else {"timerWheelEnable": "true"}  # in which it keeps what was popped
        broker.boot(Path(work, "store"), CONFIG | timer)
        make(broker, TOPIC)
        well = asyncio.run(Soak(broker, chosen.rate, chosen.seed).run(chosen.minutes * 60))
        broker.stop()
    print("all accounted for" if well else "NOT all accounted for")
    return 0 if well else 1


if __name__ == "__main__":
    raise SystemExit(main())
