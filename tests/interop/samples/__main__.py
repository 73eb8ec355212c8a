"""Create the small stores of ``tests/golden/parts-5.3.3`` with a real 5.3.3 broker, each with special settings.

``python -m tests.interop.samples FOLDER [NAME ...]`` creates ``FOLDER/NAME`` with ``store.tar.xz``, ``broker.conf`` and
``facts.json``: what clients and the admin tool saw. It takes some minutes, as some broker tasks run rarely.
"""

import argparse
import json
import random
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from formats.config.tiered import TieredMetadata
from formats.errors import FormatError
from rmqtool.store.layout.tiered import tiered_queues
from tests.interop import broker as brokers
from tests.interop import engine
from tests.interop.broker import Broker
from tests.interop.sides import SETTINGS

Facts = dict[str, Any]
COMMON = SETTINGS | {"timerWheelEnable": "true", "mappedFileSizeTimerLog": "52000", "mappedFileSizeCommitLog": "262144"}
HOUR = 3_600_000


def send(broker: Broker, topic: str, count: int, queues: int = 4, prefix: str = "k", **more: Any) -> None:
    """Send messages with keys, round robin over queues."""
    for number in range(count):
        broker.ask("send", topic=topic, keys=f"{prefix}{number}", queueId=number % queues, **more)


def make_topic(broker: Broker, topic: str, attributes: str, queues: int) -> None:
    """Create a topic like mqadmin updateTopic."""
    fields = {
        "topic": topic, "readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6",
        "topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102", "topicSysFlag": "0", "order": "false",
        "attributes": attributes,
    }  # fmt: skip
    assert broker.ask("request", code=17, fields=fields)["code"] == 0


def until(so: Callable[[], Any], seconds: float = 120) -> Any:
    """Wait for a condition; returns its value."""
    for _ in range(int(seconds / 0.2)):
        if result := so():
            return result
        time.sleep(0.2)
    raise AssertionError("it does not come")


def pop(broker: Broker, topic: str, least: int, **more: Any) -> list[dict[str, Any]]:
    """Pop at least ``count`` messages, by default for an hour."""
    result: list[dict[str, Any]] = []

    def enough() -> bool:
        given = {"group": "pop-group", "topic": topic, "invisible": HOUR, "poll": 1000, **more}
        result.extend(broker.ask("pop", **given)["messages"])
        return len(result) >= least

    until(enough)
    return result


def pop_store(broker: Broker, store: Path, config: dict[str, str]) -> Facts:
    """POP groups with messages in kvStore: acked, postponed, revived and popped again, in flight."""
    config |= {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
    broker.boot(store, config)
    broker.ask("topic", topic="Popped")
    send(broker, "Popped", 16)
    rows = {row["keys"]: row for row in pop(broker, "Popped", 16)}
    for key in ("k0", "k1", "k2", "k3", "k4", "k5"):
        broker.ask("ack", group="pop-group", topic="Popped", handle=rows[key]["handle"])
    broker.ask("invisible", group="pop-group", topic="Popped", handle=rows["k6"]["handle"], ms=2 * HOUR)
    for key in ("k7", "k8"):  # come back at once, and k7 is popped again
        broker.ask("invisible", group="pop-group", topic="Popped", handle=rows[key]["handle"], ms=1000)
    again = pop(broker, "Popped", 1, count=1)
    retried = again[0]["keys"]
    until(lambda: len(again) == 1 and count_of(broker, "%RETRY%pop-group_Popped") == 2)
    other = pop(broker, "Popped", 3, group="other-group", count=3, queueId=2)
    held = sorted(set(rows) - {f"k{n}" for n in (0, 1, 2, 3, 4, 5, 7, 8)})
    broker.stop()
    return {
        "held": {"pop-group": held, "other-group": sorted(row["keys"] for row in other)},
        "postponed": "k6",
        "retried": retried,
        "waiting": "k8" if retried == "k7" else "k7",
    }


def count_of(broker: Broker, topic: str) -> int:
    """Number of messages in queue 0 of a topic."""
    fields = {"topic": topic, "queueId": "0"}
    return int((broker.ask("request", code=30, fields=fields)["fields"] or {}).get("offset", 0))


def config_v2(broker: Broker, store: Path, config: dict[str, str]) -> Facts:
    """Topics, groups and consumer offsets in config/rdb."""
    config["configManagerVersion"] = "v2"
    broker.boot(store, config)
    for group in ("billing", "audit"):
        arguments = ["updateSubGroup", "-b", broker.ask("addresses")["broker"], "-g", group, "-r", "5"]
        assert not broker.ask("admin", arguments=arguments, seconds=60)["failed"]
    for topic in ("Orders", "Payments"):  # of topics that it makes by itself 5.3.3 writes nothing into this database
        make_topic(broker, topic, "+message.type=NORMAL", 4)
        send(broker, topic, 20)
    broker.ask("consume", group="billing", topic="Orders", failures=0, most=3, level=0)
    broker.wait_for(lambda rows: len(rows) >= 20)
    for queue_id in range(4):
        broker.ask("setOffset", group="audit", topic="Payments", queueId=queue_id, offset=queue_id)
    # consumers tell their progress every five seconds
    until(lambda: sum(progress_of(broker, "billing").values()) == 20)
    told = {group: progress_of(broker, group) for group in ("billing", "audit")}
    broker.stop()
    return {"progress": told}


def progress_of(broker: Broker, group: str) -> dict[str, int]:
    """Topic and queue → the group's offset, as answered by the broker."""
    result = {}
    for topic in ("Orders", "Payments"):
        for queue_id in range(4):
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
            answer = broker.ask("request", code=14, fields=fields)
            if answer["code"] == 0:
                result[f"{topic} {queue_id}"] = int(answer["fields"]["offset"])
    return result


def tiered(broker: Broker, store: Path, config: dict[str, str]) -> Facts:
    """Queues copied to tiered storage, in files."""
    config |= {
        "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
        "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
        "tieredStoreFilePath": str(store / "tieredstore"),
        "tieredStoreGroupCommitTimeout": "100",
        "tieredStoreIndexFileMaxHashSlotNum": "20",
        "tieredStoreIndexFileMaxIndexNum": "400",
        "tieredStoreCommitLogMaxSize": "2000",
        "tieredStoreConsumeQueueMaxSize": "100",
    }
    broker.boot(store, config)
    for topic in ("Orders", "Payments"):
        broker.ask("topic", topic=topic)
        send(broker, topic, 40)
    metadata = store / "config" / "tieredStoreMetadata.json"

    def copied() -> bool:
        try:
            body = TieredMetadata.parse(metadata.read_bytes())
        except (FormatError, OSError):
            return False  # it is being written
        return sum(queue.maxOffset for queue in tiered_queues(body) if queue.topic in ("Orders", "Payments")) == 80

    until(copied, 300)  # the dispatcher looks every 20 seconds
    broker.stop()
    return {"messages": 10}


def controller(broker: Broker, store: Path, config: dict[str, str]) -> Facts:
    """A master of three epochs."""
    port = random.randint(20_000, 30_000)
    config |= {"enableControllerMode": "true", "controllerAddr": f"127.0.0.1:{port}", "allAckInSyncStateSet": "false"}
    with _controller(store.parent, port):
        for number in range(3):
            broker.boot(store, config)
            broker.ask("topic", topic="Orders")
            until(lambda number=number: _sent(broker, number))
            broker.stop()
    return {"epochs": 3}


def _sent(broker: Broker, number: int) -> bool:
    try:
        send(broker, "Orders", 8, prefix=f"e{number}-")
    except AssertionError:
        return False  # no master yet
    return True


@contextmanager
def _controller(folder: Path, port: int) -> Any:
    source = Path(__file__).with_name("Controller.java")
    opened = "--add-opens=java.base/java.lang=ALL-UNNAMED"  # its library for copies of objects looks into them
    command = ["java", *engine._JVM_OPTIONS, opened, f"-Duser.home={folder}", "-cp", brokers._classpath("5.3.3")]
    with open(folder / "controller.log", "wb") as output:
        jvm = subprocess.Popen([*command, str(source), str(folder), str(port)], stdin=subprocess.PIPE, stderr=output,
                               stdout=output, cwd=folder)  # fmt: skip
        try:
            yield
        finally:
            assert jvm.stdin is not None
            jvm.stdin.close()
            jvm.wait(30)


def dledger(broker: Broker, store: Path, config: dict[str, str]) -> Facts:
    """A DLedger log of one node."""
    port = random.randint(20_000, 30_000)
    config |= {
        "enableDLegerCommitLog": "true", "dLegerGroup": "lab-a", "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-127.0.0.1:{port}", "preferredLeaderId": "n0", "timerWheelEnable": "false",
    }  # fmt: skip
    broker.boot(store, config)
    broker.ask("topic", topic="Orders")
    until(lambda: _sent(broker, 0))
    broker.stop()
    return {"messages": 8}


def rolled(broker: Broker, store: Path, config: dict[str, str]) -> Facts:
    """Timer messages beyond the window, batch queues, a compacted topic and light queues."""
    config |= {
        "timerRollWindowSlot": "4", "enableLmq": "true", "enableMultiDispatch": "true", "enableCompaction": "true",
        "mapperFileSizeBatchConsumeQueue": "4600", "compactionMappedFileSize": "131072",
        "compactionCqMappedFileSize": "4600", "maxOffsetMapSize": "1048576",
    }  # fmt: skip
    broker.boot(store, config)
    attributes = {
        "Batches": "+queue.type=BatchCQ",
        "Latest": "+cleanup.policy=COMPACTION",
        "Timed": "+message.type=DELAY",
    }
    for topic, attribute in attributes.items():
        make_topic(broker, topic, attribute, 2)
    broker.ask("topic", topic="Orders")
    for number in range(6):
        at = str(int(time.time() * 1000) + HOUR + number)
        broker.ask("send", topic="Timed", keys=f"far-{number}", properties={"TIMER_DELIVER_MS": at})
        properties = {"INNER_MULTI_DISPATCH": f"%LMQ%device-{number % 2}"}
        broker.ask("send", topic="Orders", keys=f"lmq-{number}", properties=properties)
        broker.ask("send", topic="Latest", keys=f"p{number % 2}", body=f"version {number}")
        broker.ask("sendBatch", messages=[{"topic": "Batches", "keys": f"b{number}-{n}"} for n in range(5)])
    send(broker, "Orders", 12)
    time.sleep(15)  # timers roll, and the compaction begins
    held = pop(broker, "Orders", 6, count=6)
    broker.stop()
    return {"pending": 6, "held": sorted(row["keys"] for row in held)}


MAKERS: dict[str, Callable[[Broker, Path, dict[str, str]], Facts]] = {
    "pop-store": pop_store,
    "config-v2": config_v2,
    "tiered": tiered,
    "controller": controller,
    "dledger": dledger,
    "rolled": rolled,
}


def make(name: str, folder: Path) -> None:
    """Create one store."""
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    store = place / "store"
    store.mkdir(parents=True)
    config = dict(COMMON)
    with Broker("5.3.3") as broker:
        facts = MAKERS[name](broker, store, config)
    (place / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    root = str(store)
    lines = [f"{key}={value.replace(root, '/data/store')}\n" for key, value in sorted(config.items())]
    (place / "broker.conf").write_text("storePathRootDir=/data/store\n" + "".join(lines))
    with tarfile.open(place / "store.tar.xz", "w:xz") as packed:
        packed.add(store, "store", filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def main() -> None:
    """Create the named stores, or all."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("names", nargs="*", default=list(MAKERS))
    chosen = options.parse_args()
    for name in chosen.names:
        make(name, chosen.folder)


if __name__ == "__main__":
    main()
