"""Delayed messages across kills of the broker that delivers them: ``python -m tests.interop.timer_kills``.

A producer sends messages that are due in the same second: by a time of 5.x, so that one slot of the timer has them all,
or by a delay level. The broker is killed as soon as some of them are in their topic, and once more when the next start
has delivered some; then it runs until idle. Counted are deliveries of each message. Compared are a real broker of each
release, and ``serve`` with the rules of each; all flush asynchronously, as by default.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from formats.message.properties import UNIQ_KEY, parse
from rmqtool.client import ClientOptions, Message, Producer
from rmqtool.rules.releases import RELEASES
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.interop.transaction_kills import SIDES, Real, Served, Side, free_ports

CONF = {
    "mappedFileSizeCommitLog": "33554432", "mappedFileSizeConsumeQueue": "2000000", "brokerFastFailureEnable": "false",
    "messageDelayLevel": "15s 1h", "timerWheelEnable": "true",
}  # fmt: skip
TOPIC = "Due"
_DELAY = 15.0  # s


async def go_through(store: Path, side: str, *, level: bool, messages: int = 3000, kills: int = 2) -> Counter[str]:
    """Run the scenario on one side; returns the number of copies of each message in its topic, by unique id."""
    kind, _, engine = side.rpartition("-")
    ports = free_ports()
    release = RELEASES[(engine if kind else side)[:3]]

    def start() -> Side:
        return Served(store, engine, ports, CONF) if kind else Real(store, side, CONF)

    seen = 0
    for turn in range(kills + 1):
        with start() as broker:
            if turn == 0:
                await _send(broker.namesrv, ClientOptions(namesrv=broker.namesrv, release=release), level, messages)
            if turn < kills:
                seen = await _until_more(store, seen)
                broker.kill()
            else:
                await _until_still(store)
    return delivered(store)


async def _send(namesrv: str, options: ClientOptions, level: bool, messages: int) -> None:
    due = int(time.time() * 1000 + 1000 * _DELAY) // 1000 * 1000
    timed = {"delay_level": 1} if level else {"deliver_at": due}
    async with Producer(options, "senders") as producer:
        await producer.send(Message(TOPIC, b"now"))  # the topic exists
        room = asyncio.Semaphore(64)

        async def send(number: int) -> None:
            async with room:
                await producer.send(Message(TOPIC, b"%d" % number, **timed))  # type: ignore[arg-type]

        await asyncio.gather(*map(send, range(messages)))
    assert time.time() * 1000 < due, f"{messages} messages are not sent within {_DELAY} s"


def _in_topic(store: Path) -> int:
    """Number of messages in the topic, by its queue files."""
    count = 0
    for path in store.glob(f"consumequeue/{TOPIC}/*/*"):
        data = path.read_bytes()
        count += sum(data[at + 8 : at + 12] != b"\0\0\0\0" for at in range(0, len(data) - UNIT + 1, UNIT))
    return count


async def _until_more(store: Path, seen: int) -> int:
    """Wait for deliveries beyond those seen before; returns their number."""
    end = time.monotonic() + 60
    while (found := _in_topic(store)) <= max(seen, 1) and time.monotonic() < end:
        await asyncio.sleep(0.002)
    return found


def delivered(store: Path) -> Counter[str]:
    """Copies of each message in the topic, by unique id."""
    found = Counter[str]()
    for item in CommitLog(StoreLayout(str(store), BrokerConf(CONF))).walk():
        if isinstance(item, LocatedRecord) and item.record.topic == TOPIC.encode() and item.record.body != b"now":
            found[parse(item.record.properties)[UNIQ_KEY]] += 1
    return found


async def _until_still(store: Path, seconds: float = 6) -> None:
    """Wait until nothing has been delivered for ``seconds``, at most two minutes."""
    seen, since, end = -1, time.monotonic(), time.monotonic() + 120
    while time.monotonic() < min(since + seconds, end):
        await asyncio.sleep(0.5)
        if (found := _in_topic(store)) != seen:
            seen, since = found, time.monotonic()


def main() -> None:
    """Run the named sides, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sides", nargs="*", default=SIDES, help=", ".join(SIDES))
    parser.add_argument("--messages", type=int, default=3000)
    arguments = parser.parse_args()
    for side in arguments.sides:
        for level in (False, True):
            if not level and side.rpartition("-")[2].startswith("4"):
                continue  # 4.9 has no timer
            with tempfile.TemporaryDirectory() as folder:
                found = asyncio.run(go_through(Path(folder, "store"), side, level=level, messages=arguments.messages))
            times = sorted(Counter(found.values()).items())
            how = "level" if level else "timer"
            sys.stdout.write(f"{side} {how}: {len(found)} of {arguments.messages}, (times, messages) {times}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
