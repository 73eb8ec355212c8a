"""Recovery of a crashed 5.x store with batch queues and pending timer messages, beside a whole 5.3.3 broker.

Run as ``python -m tests.bench.waiting``. The store has messages in batch queues, as many batches as the clients would
have sent, and messages that wait in the timer; queues and index are lost, wheel and timer log are there. The broker
needs Maven and a JDK; its recovery is the time from the request to start until it serves, less that of the same broker
on an empty store, measured before each of its rounds. Beside wall time stands the processor time of the process: on a
machine that does other things too, only that tells much. Then everything that waits is listed.
"""

import argparse
import json
import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TypedDict

from rmqtool import NewMessage, Store
from rmqtool.cli.render.output import NdjsonWriter, write_all
from rmqtool.rules.releases import V5_3
from rmqtool.services.timers.plain import PlainTimers
from rmqtool.services.timers.timers import Timers
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.recovery.command import recover
from rmqtool.store.repair.rebuild import rebuild
from tests.bench.measure import in_own_process, peak_rss
from tests.interop.broker import Broker, available

MIB = 1 << 20
BATCH = 32  # messages
CONFIG = {
    "timerWheelEnable": "true", "mappedFileSizeCommitLog": str(256 * MIB), "diskMaxUsedSpaceRatio": "99",
    "autoCreateTopicEnable": "true",
}  # fmt: skip
DAY = 86_400_000  # ms


class Figures(TypedDict):
    """Of one side: seconds of each round."""

    wall: list[float]
    processor: list[float]


def make(store: Path, messages: int, timers: int) -> None:
    """A store that a broker stopped cleanly."""
    conf = BrokerConf(CONFIG)
    begin = int(time.time() * 1000) + 3_600_000
    with Store.create(store, broker_conf=CONFIG, release=V5_3) as made:
        table = {
            name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "attributes": attributes}
            for name, attributes in (("Batches", {"queue.type": "BatchCQ"}), ("Timed", {"message.type": "DELAY"}))
        }
        (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    with Store(store, broker_conf=CONFIG, write=True, release=V5_3) as made:
        for first in range(0, messages, BATCH):
            batch = [
                NewMessage(
                    topic="Batches", queue_id=first // BATCH % 4, body=b"x" * 128, properties={"UNIQ_KEY": f"{n:032X}"}
                )
                for n in range(first, min(first + BATCH, messages))
            ]
            made.append_batch(batch)
        for first in range(0, timers, 10_000):
            made.append_many(
                [
                    NewMessage(
                        topic="Timed",
                        body=b"x" * 128,
                        properties={"KEYS": f"k{n}", "UNIQ_KEY": f"{n:032X}", "TIMER_DELIVER_MS": str(begin + n % DAY)},
                    )
                    for n in range(first, min(first + 10_000, timers))
                ]
            )
    rebuild(StoreLayout(str(store), conf), ("timer",))
    shutil.rmtree(f"{store}.rmqtool", ignore_errors=True)


def crash(store: Path) -> None:
    """Leave of a store its log, its timer and its configuration."""
    for name in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(store / name, ignore_errors=True)
    shutil.rmtree(f"{store}.rmqtool", ignore_errors=True)
    for name, content in (("abort", b""), ("lock", b""), ("checkpoint", bytes(4096))):
        (store / name).write_bytes(content)


def measure(store: str) -> tuple[float, float, int, int]:
    """(seconds, seconds of the processor, messages dispatched, bytes of memory) of one recovery."""
    layout = StoreLayout(store, BrokerConf(CONFIG))
    start, used = time.perf_counter(), time.process_time() + _of_children()
    report = recover(layout)
    return (
        time.perf_counter() - start,
        time.process_time() + _of_children() - used,
        report.messagesRedispatched,
        peak_rss(),
    )


def listed(store: str) -> tuple[float, float, int]:
    """(seconds, seconds of the processor, rows) of a list of all that waits, as NDJSON."""
    log = CommitLog(StoreLayout(store, BrokerConf(CONFIG)))
    start, used = time.perf_counter(), time.process_time()
    with open(os.devnull, "w", encoding="utf-8") as out:
        count = write_all(
            NdjsonWriter(out),
            (
                item if isinstance(item, PlainTimers) else item.to_dict()
                for item in Timers(log, int(time.time() * 1000), lambda _text: None).blocks()
            ),
        )
    return time.perf_counter() - start, time.process_time() - used, count


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _boot(store: Path) -> tuple[float, float]:
    """(seconds, seconds of the processor) until a broker serves a store."""
    with Broker("5.3.3") as broker:
        broker.ask("admins")  # the JVM has started
        start, used = time.perf_counter(), _used_by(broker)
        broker.boot(store, CONFIG)
        seconds = time.perf_counter() - start, _used_by(broker) - used
        broker.stop()
    return seconds


def _used_by(broker: Broker) -> float:
    """Seconds of the processor that the judge's process has used."""
    fields = Path(f"/proc/{broker._jvm.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(folder: Path, messages: int, timers: int, rounds: int, *, beside: bool = True) -> dict[str, Figures]:
    """Make the store, recover it by both sides in turn, and print."""
    store = folder / "store"
    make(store, messages, timers)
    size = sum(path.stat().st_blocks for path in (store / "commitlog").iterdir()) * 512
    print(f"{messages} messages in batch queues, {timers} in the timer, {size / MIB:.0f} MiB of log")
    figures: dict[str, Figures] = {}
    most = 0

    def add(side: str, wall: float, processor: float) -> None:
        figures_of_side = figures.setdefault(side, Figures(wall=[], processor=[]))
        figures_of_side["wall"].append(wall)
        figures_of_side["processor"].append(processor)

    for number in range(rounds):
        crash(store)
        wall, processor, dispatched, memory = in_own_process("tests.bench.waiting", "measure", str(store))
        assert dispatched >= timers, dispatched
        add("recover", wall, processor)
        most = max(most, memory)
        add("list", *in_own_process("tests.bench.waiting", "listed", str(store))[:2])
        if beside:
            nothing = _boot(folder / f"empty-{number}")
            crash(store)
            full = _boot(store)
            add("5.3.3", full[0] - nothing[0], full[1] - nothing[1])
    for side, figures_of_side in figures.items():
        walls, processors = (
            f"best {min(f):.2f}, median {median(f):.2f} s"
            for f in (figures_of_side["wall"], figures_of_side["processor"])
        )
        print(f"  {side:8} wall {walls}; processor {processors}")
    print(f"  peak memory of recover {most / MIB:.0f} MiB")
    if beside:
        ours, theirs = figures["recover"], figures["5.3.3"]
        wall, processor = min(ours["wall"]) / min(theirs["wall"]), min(ours["processor"]) / min(theirs["processor"])
        print(f"  recover takes {wall:.2f} of the broker's time, {processor:.2f} of its processor's; target 0.5")
    return figures


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--timers", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", help="where the store is made, instead of the system's temporary directory")
    chosen = options.parse_args()
    reason = available("5.3.3")
    if reason is not None:
        print(f"no broker beside it: {reason}")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        report(Path(folder), chosen.messages, chosen.timers, chosen.rounds, beside=reason is None)


if __name__ == "__main__":
    main()
