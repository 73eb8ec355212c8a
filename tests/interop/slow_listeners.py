"""Memory of consumers of each kind with a slow listener and a backlog on a real broker.

Run as ``python -m tests.interop.slow_listeners [--release 4.9.8|5.3.3] [--megabytes N] [--seconds N]``. Each kind runs
in its own process, with a listener that takes a second per message. Its memory grows to what its options allow, however
large the backlog is.
"""

import argparse
import asyncio
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from formats.fastjson.declare import body_of
from formats.remoting.bodies import SetRequestMode
from formats.remoting.codes import RequestCode
from rmqtool.client import (
    ClientOptions,
    Cluster,
    FlowLimits,
    From,
    LitePullConsumer,
    PollOptions,
    PushConsumer,
    PushOptions,
    Received,
)
from rmqtool.rules.releases import RELEASES
from tests.interop.broker import VERSIONS, Broker

TOPIC = "Backlog"
_BODY = 100_000  # bytes
_QUEUES = 4
_SLACK = 16 << 20  # bytes: what is on the way, and what the allocator keeps
PUSH = PushOptions(start=From.FIRST, limits=FlowLimits(size=8 << 20), concurrency=4, shutdown_wait=0.5)
KINDS: dict[str, PushOptions | PollOptions] = {
    "push": PUSH,
    "in order": replace(PUSH, orderly=True),
    "pop": replace(PUSH, client_rebalance=False, pop_limit=96, pop_invisible=300),
    "poll": PollOptions(start=From.FIRST, ahead=16, batch=32),
}
ALLOWED = {
    "push": _QUEUES * PUSH.limits.size,
    "in order": _QUEUES * PUSH.limits.size,
    "pop": 96 * _BODY,
    "poll": 16 * 32 * _BODY,
}
"""Bytes of bodies that the options of each kind let wait."""


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def consume(kind: str, client: ClientOptions, seconds: float) -> tuple[int, int, int]:
    """Number of messages passed to the listener, and memory in bytes, initial and peak."""
    taken = 0

    async def listen(messages: Sequence[Received]) -> None:
        nonlocal taken
        await asyncio.sleep(1)
        taken += len(messages)

    async def poll(consumer: LitePullConsumer) -> None:
        nonlocal taken
        async for _message in consumer:
            await asyncio.sleep(1)
            taken += 1

    before = most = _resident()
    async with AsyncExitStack() as stack:
        options = KINDS[kind]
        if isinstance(options, PollOptions):
            polls = await stack.enter_async_context(LitePullConsumer(client, "slow-poll", options))
            await polls.subscribe(TOPIC)
            polling = asyncio.create_task(poll(polls))
            stack.callback(polling.cancel)
        else:
            group = f"slow-{kind.replace(' ', '-')}"
            await stack.enter_async_context(PushConsumer(client, group, {TOPIC: "*"}, listen, options))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(0.05)
            most = max(most, _resident())
    return taken, before, most


def _one(arguments: tuple[str, str, str, float]) -> tuple[int, int, int]:
    kind, namesrv, engine, seconds = arguments
    return asyncio.run(consume(kind, ClientOptions(namesrv=namesrv, release=RELEASES[engine]), seconds))


async def _let_pop(broker: Broker) -> None:
    request = body_of(SetRequestMode(TOPIC, "slow-pop", "POP"))
    async with Cluster(ClientOptions(namesrv=broker.namesrv)) as cluster:
        mode = cluster.request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=request)
        await cluster.ask(broker.ask("addresses")["broker"], mode)


def measure(release: str, megabytes: int, seconds: float) -> bool:
    """Measure and print all kinds; returns whether each stayed within its limit."""
    well = True
    with tempfile.TemporaryDirectory(prefix="slow-listeners-") as work, Broker(release) as broker:
        timer = {} if broker.engine == "4.9" else {"timerWheelEnable": "true"}  # in which it keeps what was popped
        broker.boot(Path(work, "store"), timer)
        count = megabytes * 1_000_000 // _BODY
        told = broker.ask("rate", topic=TOPIC, count=count, threads=2, batch=8, size=_BODY)
        assert not told["failed"], told
        if broker.engine != "4.9":
            asyncio.run(_let_pop(broker))
        for kind in KINDS:
            if kind == "pop" and broker.engine == "4.9":
                continue
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                taken, before, most = pool.apply(_one, [(kind, broker.namesrv, broker.engine, seconds)])
            fine = taken > 0 and most - before <= ALLOWED[kind] + _SLACK
            well &= fine
            print(
                f"{release}  {kind:9}  backlog {megabytes} MB, consumed {taken * _BODY / 1e6:4.1f} MB; "
                f"memory {before >> 20} MB before, at most {(most - before) >> 20} MB more "
                f"(allowed {(ALLOWED[kind] + _SLACK) >> 20}){'' if fine else '  TOO MUCH'}",
                flush=True,
            )
        broker.stop()
    return well


def main() -> int:
    """Run and print the result."""
    options = argparse.ArgumentParser(prog="python -m tests.interop.slow_listeners", description=__doc__)
    options.add_argument("--release", choices=VERSIONS, default="5.3.3")
    options.add_argument("--megabytes", type=int, default=400)
    options.add_argument("--seconds", type=float, default=20, help="for each kind")
    chosen = options.parse_args()
    return 0 if measure(chosen.release, chosen.megabytes, chosen.seconds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
