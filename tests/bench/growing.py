"""New topics and groups on our broker: cost of each further thousand relative to the first, and starts with many.

Run as ``python -m tests.bench.growing [--count N] [--clients N] [--topics N]``. Each client sends its next request
after the last answer: a message to a missing topic, or the heartbeat of a consumer of a new group. The broker's CPU
time counts, as wall-clock time depends on other load.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from threading import Thread
from typing import IO, NamedTuple

from formats.fastjson.declare import body_of
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, SubscriptionData
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from tests.interop.serving import Serving

MOST = 2.0  # times the first part that the last one may take
_PARTS = 10


class Part(NamedTuple):
    """CPU seconds of the broker, and wall-clock seconds of a part."""

    used: float
    passed: float


def _topic(number: int) -> Command:
    header = h.Send(
        producer_group="p", topic=f"Topic-{number}", default_topic="TBW102", default_topic_queue_nums=1, queue_id=0,
        sys_flag=0, born_timestamp=1_795_000_000_000, flag=0, properties="",
    )  # fmt: skip
    return Command(RequestCode.SEND_MESSAGE, fields=to_fields(header), body=b"first")


def _group(number: int) -> Command:
    subscription = SubscriptionData(topic="TBW102", sub_string="*", sub_version=1)
    consumer = ConsumerData(
        consume_from_where="CONSUME_FROM_LAST_OFFSET", consume_type="CONSUME_PASSIVELY", group_name=f"group-{number}",
        message_model="CLUSTERING", subscription_data_set=[subscription],
    )  # fmt: skip
    return Command(
        RequestCode.HEART_BEAT, body=body_of(b.HeartbeatData(f"client-{number}", consumer_data_set=[consumer]))
    )


KINDS: dict[str, Callable[[int], Command]] = {"topics": _topic, "groups": _group}


def _used(pid: int) -> float:
    ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _read_all(file: IO[str]) -> None:
    for _line in file:
        pass


async def _ask(connection: Connection, make: Callable[[int], Command], numbers: Iterator[int]) -> None:
    for number in numbers:  # which all clients share
        answer = await connection.call(make(number), 600)
        assert not answer.code, answer.remark


async def _grow(serving: Serving, make: Callable[[int], Command], count: int, clients: int) -> list[Part]:
    host, _, port = serving.broker.rpartition(":")
    parts = []
    async with AsyncExitStack() as opened:
        asking = [
            await opened.enter_async_context(open_connection(host, int(port), timeout=30)) for _ in range(clients)
        ]
        for part in range(_PARTS):
            numbers = iter(range(part * count // _PARTS, (part + 1) * count // _PARTS))
            used, begun = _used(serving.process.pid), time.perf_counter()
            await asyncio.gather(*(_ask(asked, make, numbers) for asked in asking))
            parts.append(Part(_used(serving.process.pid) - used, time.perf_counter() - begun))
    return parts


class Start(NamedTuple):
    """CPU and wall-clock seconds until ``serve`` printed its address."""

    used: float
    passed: float


def _start(store: Path) -> Start:
    begun = time.perf_counter()
    with Serving(store) as serving:
        result = Start(_used(serving.process.pid), time.perf_counter() - begun)
        assert serving.end()[0] == 0
    return result


def starts(folder: Path, topics: int, clients: int) -> tuple[Start, Start]:
    """Starts of ``serve`` after a kill and after a clean stop, on a store with many topics of one message each."""
    with Serving(folder / "started", "--create", "--engine", "5.3") as serving:
        draining = Thread(target=_read_all, args=(serving.process.stderr,))
        draining.start()
        asyncio.run(_grow(serving, _topic, topics, clients))
        serving.process.kill()
        serving.process.wait()
        draining.join()
    return _start(folder / "started"), _start(folder / "started")


def report(folder: Path, count: int, clients: int) -> dict[str, list[Part]]:
    """Grow a store of each kind, and print the cost of each part."""
    result = {}
    for kind, make in KINDS.items():
        with Serving(folder / kind, "--create", "--engine", "5.3") as serving:
            draining = Thread(target=_read_all, args=(serving.process.stderr,))
            draining.start()  # a line for each topic is more than a pipe holds
            result[kind] = parts = asyncio.run(_grow(serving, make, count, clients))
            serving.process.terminate()
            assert serving.process.wait(60) == 0
            draining.join()
        first, last = parts[0], parts[-1]
        print(f"{count} new {kind} by {clients} clients, s of the processor (and on the clock) for each tenth:")
        print("  " + ", ".join(f"{part.used:.2f} ({part.passed:.1f})" for part in parts))
        ratio = last.used / max(first.used, 0.01)
        print(f"  the last takes {ratio:.2f} times the first (wanted: at most {MOST:g})")
    return result


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--topics", type=int, default=2500, help="of the store that is started on")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-growing-") as work:
        report(Path(work), given.count, given.clients)
        killed, clean = starts(Path(work), given.topics, given.clients)
        print(f"{given.topics} topics, start after a kill and after a clean stop, s of the processor (on the clock):")
        print(f"  {killed.used:.2f} ({killed.passed:.1f}), {clean.used:.2f} ({clean.passed:.1f})")
        print(f"  the first takes {killed.used / clean.used:.2f} times as long: queues and index are proved by the log")


if __name__ == "__main__":
    main()
