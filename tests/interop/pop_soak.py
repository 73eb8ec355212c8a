"""POP under kills: messages are sent, popped, acked, postponed and abandoned while the server is killed repeatedly; in
the end each acknowledged message was delivered until it was acked.

    python -m tests.interop.pop_soak --minutes 2
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from formats.message.properties import UNIQ_KEY, parse
from formats.remoting import pop as p
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from formats.variants.pop_handle import Handle, real_topic
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import RemotingError
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.paths import StoreLayout
from tests.interop.serving import NAME, Serving
from tests.server.serving import records, send
from tests.server.test_popping import handles, pop
from tests.store.findings import check_store

_INVISIBLE = 4_000


class Soak:
    """Messages sent, delivered and acked, by key."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sent: set[str] = set()
        self.got: dict[str, int] = {}
        self.acked: set[str] = set()
        self.number = self.again_after_ack = 0

    async def send(self, client: Connection) -> None:
        """Send a message; it counts once acknowledged."""
        self.number += 1
        key = f"k{self.number}"
        fields = send(queue_id=self.number % 4, properties=f"{UNIQ_KEY}\x01{key}")
        if (await client.call(Command(C.SEND_MESSAGE_V2, fields=fields, body=b"x"), 5)).code == 0:
            self.sent.add(key)

    async def pop(self, client: Connection, ack: float) -> int:
        """Pop, and ack about this fraction of the messages."""
        answer = await client.call(pop(max_msg_nums=16, invisible_time=_INVISIBLE, poll_time=200), 10)
        result = list(zip(records(answer.body), handles(answer), strict=True)) if answer.code == 0 else []
        for record, handle in result:
            key = parse(record.properties)[UNIQ_KEY]
            self.got[key] = self.got.get(key, 0) + 1
            self.again_after_ack += key in self.acked
            fields = {
                "consumer_group": "g", "topic": real_topic("Orders", "g", handle.origin), "queue_id": handle.queue_id,
                "offset": handle.queue_offset, "extra_info": _named(handle).text,
            }  # fmt: skip
            if self.random.random() < ack:
                if (await client.call(Command(C.ACK_MESSAGE, fields=to_fields(p.AckMessage(**fields))), 5)).code == 0:  # type: ignore[arg-type]
                    self.acked.add(key)
            elif self.random.random() < 0.3:
                change = p.ChangeInvisible(**fields, invisible_time=2_000)  # type: ignore[arg-type]
                changed = await client.call(Command(C.CHANGE_MESSAGE_INVISIBLETIME, fields=to_fields(change)), 5)
                assert changed.code or from_fields(p.InvisibleChanged, changed.fields).invisible_time == 2_000
        return len(result)


def _named(handle: Handle) -> Handle:
    assert handle.broker_name == NAME
    return handle


async def _work(soak: Soak, address: str, until: float, *, sends: bool) -> None:
    host, _, port = address.rpartition(":")
    while time.monotonic() < until:
        try:
            async with open_connection(host, int(port)) as client:
                while time.monotonic() < until:
                    if sends:
                        await asyncio.gather(*(soak.send(client) for _ in range(20)))
                        await soak.pop(client, 0.7)
                    else:
                        await soak.pop(client, 1.0)
        except RemotingError:
            await asyncio.sleep(0.1)


def run(minutes: float, seed: int) -> None:
    """Run.

    Raises:
    AssertionError: a message was lost, or the store is damaged.
    """
    soak, kills = Soak(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        store, conf = Path(folder, "store"), Path(folder, "broker.conf")
        conf.write_text(
            "mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=60000\nmappedFileSizeTimerLog=520000\n"
        )
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            made = [] if store.exists() else ["--create", "--engine", "5.3"]
            with Serving(store, *made, "--broker-conf", str(conf)) as serving:
                until = time.monotonic() + soak.random.uniform(3, 9)
                asyncio.run(_work(soak, serving.broker, until, sends=True))
                serving.process.kill()
                kills += 1
        with Serving(store, "--broker-conf", str(conf)) as serving:
            for _ in range(60):
                asyncio.run(_work(soak, serving.broker, time.monotonic() + 2, sends=False))
                if soak.sent <= soak.acked:
                    break
            code, stderr = serving.end()
        assert code == 0, stderr
        problems = [finding for finding in check_store(StoreLayout(str(store))) if is_problem(finding)]
        print(
            f"sent {len(soak.sent)}, handed out {sum(soak.got.values())}, acked {len(soak.acked)}, "
            f"again after their ack {soak.again_after_ack}, kills {kills}, not acked {len(soak.sent - soak.acked)}, "
            f"problems {len(problems)}"
        )
        assert soak.sent <= soak.acked
        assert not problems, problems


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    run(given.minutes, given.seed)
