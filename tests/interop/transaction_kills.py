"""Half messages across kills of the broker that checks them: ``python -m tests.interop.transaction_kills``.

A producer sends half messages without reporting the outcome, and answers each check with a commit. The broker is killed
five times, each time 1.7 s after its start, before it has persisted the position of its check; then it runs until idle.
Counted are deliveries of each message, and half messages at the end. Compared are a real broker of each release, and
``serve`` with the rules of each.
"""

import argparse
import asyncio
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from formats.message.properties import UNIQ_KEY, parse
from formats.topics import HALF
from rmqtool.client import ClientOptions, Message, State, TransactionProducer
from rmqtool.rules.releases import RELEASES
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.interop.broker import Broker
from tests.interop.serving import Serving

CONF = {
    "mappedFileSizeCommitLog": "8388608", "transactionCheckInterval": "500", "transactionTimeOut": "500",
    "transactionCheckMax": "1000", "brokerFastFailureEnable": "false",
}  # fmt: skip
TOPIC = "Paid"
SIDES = ("4.9.8", "5.3.3", "5.5.0", "serve-4.9", "serve-5.3", "serve-5.5")


class Side(Protocol):
    """A broker on a store, in a separate process."""

    namesrv: str

    def kill(self) -> None:
        """Kill it like a power cut, except that written data is kept."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Served(Serving):
    """``serve``."""

    def __init__(self, store: Path, engine: str, ports: tuple[int, int], settings: dict[str, str]) -> None:
        conf = store.parent / "broker.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        listen, namesrv = (f"127.0.0.1:{port}" for port in ports)
        args = ("--create", "--engine", engine, "--broker-conf", str(conf))
        super().__init__(store, *args, listen=listen, namesrv=namesrv)

    def kill(self) -> None:
        """End it."""
        self.end(signal.SIGKILL)


class Real(Broker):
    """A real broker."""

    def __init__(self, store: Path, version: str, settings: dict[str, str]) -> None:
        super().__init__(version)
        self.boot(store, dict(settings))


class Outcome(NamedTuple):
    """The result.

    Attributes:
        delivered: number of copies of each message in its topic, by unique id.
        halves: number of records in the half topic.
    """

    delivered: Counter[str]
    halves: int


async def go_through(store: Path, side: str, *, messages: int = 50, kills: int = 5, apart: float = 1.7) -> Outcome:
    """Run the scenario on one side."""
    kind, _, engine = side.rpartition("-")
    ports = free_ports()

    def start() -> Side:
        return Served(store, engine, ports, CONF) if kind else Real(store, side, CONF)

    for turn in range(kills + 1):
        with start() as broker:
            options = ClientOptions(namesrv=broker.namesrv, release=RELEASES[(engine if kind else side)[:3]])
            async with TransactionProducer(options, "payers", lambda _: State.COMMIT) as producer:
                began = time.monotonic()
                if turn == 0:
                    for n in range(messages):
                        await producer.send_in_transaction(Message(TOPIC, b"%d" % n), lambda *_: State.UNKNOWN)
                    began = time.monotonic()
                else:
                    await producer.send(Message("Other", b"known to the broker"))
                if turn < kills:
                    await asyncio.sleep(max(0.0, began + apart - time.monotonic()))
                    broker.kill()
                else:
                    await _until_still(store)
    return outcome(store)


def outcome(store: Path) -> Outcome:
    """The result in a store."""
    delivered, halves = Counter[str](), 0
    for item in CommitLog(StoreLayout(str(store), BrokerConf(CONF))).walk():
        if isinstance(item, LocatedRecord):
            halves += item.record.topic == HALF.encode()
            if item.record.topic == TOPIC.encode():
                delivered[parse(item.record.properties)[UNIQ_KEY]] += 1
    return Outcome(delivered, halves)


async def _until_still(store: Path, seconds: float = 6) -> None:
    """Wait until nothing has been stored for ``seconds``, at most a minute."""
    seen, since, end = -1, time.monotonic(), time.monotonic() + 60
    while time.monotonic() < min(since + seconds, end):
        await asyncio.sleep(0.5)
        result = outcome(store)
        total = result.halves + result.delivered.total()
        if total != seen:
            seen, since = total, time.monotonic()


def free_ports() -> tuple[int, int]:
    """Two ports of this machine that are free now."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def main() -> None:
    """Run the named sides, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sides", nargs="*", default=SIDES, help=", ".join(SIDES))
    for side in parser.parse_args().sides:
        with tempfile.TemporaryDirectory() as folder:
            result = asyncio.run(go_through(Path(folder, "store"), side))
        times = sorted(Counter(result.delivered.values()).items())
        sys.stdout.write(
            f"{side}: {len(result.delivered)} messages, (times, messages) {times}; {result.halves} halves\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
