"""Our client and Java's with one real broker in one run: rates of sends, of batches, and of consuming a backlog.

Run as ``python -m tests.bench.client [--release 4.9.8|5.3.3] [--messages N] [--profile FILE]``. Java's clients run in a
separate JVM, ours in a separate process; the two take turns, and the better round of each counts.
"""

import argparse
import asyncio
import cProfile
import tempfile
import time
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from rmqtool.client import ClientOptions, From, Message, Producer, PushConsumer, PushOptions, Received
from rmqtool.rules.releases import RELEASES
from tests.interop.broker import VERSIONS, Broker

WANTED = {"16 in flight": 0.4, "batches of 100": 0.8, "backlog": 0.5}
_BODY = bytes(128)
T = TypeVar("T")


def java(clients: Broker, messages: int) -> dict[str, float]:
    """Messages per second of each kind, by Java."""

    def rate(topic: str, count: int, threads: int, batch: int) -> float:
        told = clients.ask("rate", topic=topic, count=count, threads=threads, batch=batch, size=len(_BODY))
        assert not told["failed"], told
        return float(told["rate"])

    rate("Singles", messages // 50, 16, 1)
    singles = rate("Singles", messages // 10, 16, 1)
    rate("Batches", messages // 10, 4, 100)
    batches = rate("Batches", messages, 4, 100)
    return {"16 in flight": singles, "batches of 100": batches}


async def _sent(producer: Producer, topic: str, count: int, workers: int, batch: int) -> float:
    left = count // batch

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            if batch == 1:
                await producer.send(Message(topic, _BODY))
            else:
                await producer.send_batch([Message(topic, _BODY) for _ in range(batch)])

    begin = time.perf_counter()
    await asyncio.gather(*[work() for _ in range(workers)])
    return count / (time.perf_counter() - begin)


async def ours(options: ClientOptions, messages: int) -> dict[str, float]:
    """Messages per second of each kind, by ours."""
    async with Producer(options, "bench") as producer:
        await _sent(producer, "Singles", messages // 50, 16, 1)
        singles = await _sent(producer, "Singles", messages // 10, 16, 1)
        await _sent(producer, "Batches", messages // 10, 4, 100)
        batches = await _sent(producer, "Batches", messages, 4, 100)
    return {"16 in flight": singles, "batches of 100": batches}


async def drained(options: ClientOptions, group: str, count: int) -> float:
    """Messages per second consumed by our push consumer."""
    taken, first = 0, 0.0
    done = asyncio.Event()

    async def take(messages: Sequence[Received]) -> None:
        nonlocal taken, first
        first = first or time.perf_counter()
        taken += len(messages)
        if taken >= count:
            done.set()

    async with PushConsumer(options, group, {"Batches": "*"}, take, PushOptions(start=From.FIRST, batch=32)):
        await asyncio.wait_for(done.wait(), 600)
        return count / (time.perf_counter() - first)


def report(release: str, messages: int, profile: str | None = None) -> dict[str, float]:
    """Measure and print both; returns our rates as multiples of Java's."""
    best: list[dict[str, float]] = [{}, {}]
    with tempfile.TemporaryDirectory(prefix="bench-client-") as work, Broker(release) as broker:
        broker.boot(Path(work, "store"), {"sendThreadPoolQueueCapacity": 100_000})
        addresses = broker.ask("addresses")
        options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
        with Broker(release) as clients:
            clients.connect(addresses["namesrv"], addresses["broker"])

            def measured() -> dict[str, float]:
                with cProfile.Profile() if profile else nullcontext() as watching:
                    result = _run(ours(options, messages))
                if watching is not None:
                    watching.dump_stats(str(profile))
                return result

            for _ in range(2):
                for side, result in zip(best, (java(clients, messages), measured()), strict=True):
                    for name, rate in result.items():
                        side[name] = max(side.get(name, 0.0), rate)
            count = 4 * (messages + messages // 10)
            told = clients.ask("drain", group="java", topic="Batches", count=count)
            assert told["all"], told
            best[0]["backlog"] = float(told["rate"])
            best[1]["backlog"] = _run(drained(options, "ours", count))
            clients.stop()
    ratios = {name: best[1][name] / best[0][name] for name in best[0]}
    for name, ratio in ratios.items():
        print(f"{name:15}  {best[0][name]:12,.0f}  {best[1][name]:12,.0f} /s  {ratio:6.2f}  (wanted {WANTED[name]})")
    return ratios


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop if installed, as serve does."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", choices=VERSIONS, default="4.9.8")
    parser.add_argument("--messages", type=int, default=200_000, help="that are sent in batches in each round")
    parser.add_argument("--profile", metavar="FILE", help="of our sending")
    given = parser.parse_args()
    report(given.release, given.messages, given.profile)


if __name__ == "__main__":
    main()
