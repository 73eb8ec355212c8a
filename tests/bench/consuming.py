"""A backlog on a real broker, consumed by Java's push consumer and by ours in one run: messages per second.

Run as ``python -m tests.bench.consuming [--release 4.9.8|5.3.3] [--messages N] [--size BYTES] [--profile]``. Both get
up to 32 messages per call of the listener, and are measured from their first message to their last. Ours runs on uvloop
if installed.
"""

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rmqtool.client import ClientOptions, From, PushConsumer, PushOptions, Received
from rmqtool.rules.releases import RELEASES
from tests.interop.broker import VERSIONS, Broker

WANTED = 0.5


async def drain(broker: Broker, group: str, count: int) -> float:
    """Messages per second of our consumer."""
    left, first, begin, done = count, 0.0, time.process_time(), asyncio.Event()

    async def listen(messages: Sequence[Received]) -> None:
        nonlocal left, first
        first = first or time.perf_counter()
        left -= len(messages)
        if left <= 0:
            done.set()

    client = ClientOptions(namesrv=broker.namesrv, release=RELEASES[broker.engine])
    options = PushOptions(start=From.FIRST, batch=32)
    async with PushConsumer(client, group, {"Backlog": "*"}, listen, options):
        await done.wait()
        seconds, cpu = time.perf_counter() - first, time.process_time() - begin
    print(f"{'':7}ours took {cpu / count * 1e6:.1f} us of one core a message")
    return count / seconds


def report(release: str, messages: int, size: int, profile: bool) -> float:
    """Measure both three times and print; returns the best ratio of a round."""
    best = 0.0
    with tempfile.TemporaryDirectory(prefix="bench-consuming-") as work, Broker(release) as broker:
        broker.boot(Path(work, "store"), {})
        told = broker.ask("rate", topic="Backlog", count=messages, threads=4, batch=100, size=size)
        assert not told["failed"], told
        for turn in range(3):
            java = broker.ask("drain", group=f"java-{turn}", topic="Backlog", count=messages)
            assert java["all"], java
            profiling = cProfile.Profile(time.process_time) if profile and turn == 2 else Nothing()
            with profiling as profiled, asyncio.Runner(loop_factory=_loop()) as runner:
                ours = runner.run(drain(broker, f"ours-{turn}", messages))
            if isinstance(profiled, cProfile.Profile):
                pstats.Stats(profiled).sort_stats("tottime").print_stats(40)
            ratio = ours / float(java["rate"])
            best = max(best, ratio)
            print(f"{release}  java {java['rate']:>9,.0f}/s  ours {ours:>9,.0f}/s  {ratio:.2f}  (wanted {WANTED})")
        broker.stop()
    return best


def _loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's event loop if installed, as in serve."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


class Nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def main() -> int:
    """Run and print the result."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.consuming", description=__doc__)
    options.add_argument("--release", choices=VERSIONS, help="of the broker and the Java client; else both")
    options.add_argument("--messages", type=int, default=300_000)
    options.add_argument("--size", type=int, default=128)
    options.add_argument("--profile", action="store_true", help="of our third turn")
    chosen = options.parse_args()
    result = [
        report(release, chosen.messages, chosen.size, chosen.profile)
        for release in ([chosen.release] if chosen.release else VERSIONS)
    ]
    return 0 if min(result) >= WANTED else 1


if __name__ == "__main__":
    raise SystemExit(main())
