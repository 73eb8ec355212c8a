"""``serve --follow`` beside a writing real broker: consumers get its messages; nothing is changed."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.serving import Serving
from tests.interop.test_serve import make, write_orders

pytestmark = pytest.mark.interop
_SMALL = {
    "mappedFileSizeCommitLog": "131072", "mappedFileSizeConsumeQueue": "2000", "brokerFastFailureEnable": "false",
    "fileReservedTime": "0", "cleanResourceInterval": "200", "deletePhysicFilesInterval": "1",
    "destroyMapedFileIntervalForcibly": "1", "deleteConsumeQueueFilesInterval": "1", "maxHashSlotNum": "200",
    "maxIndexNum": "800", "deleteWhen": "00",
}  # fmt: skip


def snapshot(store: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(store)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }


def files(store: Path) -> set[str]:
    return {path.name for path in (store / "commitlog").iterdir()}


def until(what: Callable[[], bool]) -> None:
    for _ in range(600):
        if what():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen")


@by_turns(23)
def test_what_a_live_broker_stores_is_served_at_once(broker: Broker, clients: Broker, tmp_path: Path) -> None:
    """Files roll and expire, the broker is restarted; each message is delivered once."""
    store, sent = tmp_path / "store", []
    store.mkdir()
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in _SMALL.items()))

    def send(count: int, topic: str = "Orders") -> None:
        prefix = f"m{len(sent)}-"
        broker.ask("sendMany", topic=topic, count=count, threads=4, how="sync", prefix=prefix)
        sent.extend(f"{prefix}{number}" for number in range(count))

    def all_seen() -> None:
        seen = clients.wait_for(lambda rows: len(rows) >= len(sent), 60)
        assert Counter(row["keys"] for row in seen) == Counter(sent)

    broker.boot(store, _SMALL)
    make(broker, "Orders")
    send(200)
    offsets = tmp_path / "offsets.csv"
    with Serving(store, "--follow", "--offsets", str(offsets), "--broker-conf", str(conf)) as serving:
        clients.connect(serving.namesrv, serving.broker)
        clients.ask("consume", group="following", topic="Orders", failures=0, most=1, level=0)
        all_seen()
        first = files(store)
        while len(files(store) - first) <= 1:  # several files of the log and of each queue
            send(300)
            all_seen()
        began = time.monotonic()
        send(1)
        all_seen()
        took = time.monotonic() - began
        assert took < 30, took  # far above a second on a busy machine alone; without notice it would be never
        assert broker.ask("request", code=329, fields={})["code"] == 0
        until(lambda: not first & files(store))
        send(100)
        all_seen()
        clients.ask("consume", group="late", topic="Orders", failures=0, most=1, level=0, instance="late")
        low = clients.ask("pull", group="p", topic="Orders", queueId=0, offset=0, count=1)
        assert low["min"] > 0
        broker.stop()
        broker.boot(store, _SMALL)
        make(broker, "New")
        clients.ask("stop")
        clients.connect(serving.namesrv, serving.broker)
        sent.clear()
        clients.ask("consume", group="following", topic="Orders", failures=0, most=1, level=0)
        clients.ask("consume", group="following-new", topic="New", failures=0, most=1, level=0, instance="new")
        send(100)
        send(50, "New")
        all_seen()
        clients.stop()
        broker.stop()
        before = snapshot(store)
        assert serving.end()[0] == 0
    assert snapshot(store) == before
    assert "following,Orders" in offsets.read_text()


@by_turns(11)
def test_a_store_that_nobody_writes_is_not_touched(broker: Broker, clients: Broker, tmp_path: Path) -> None:
    store = write_orders(broker, tmp_path, _SMALL, 300)
    before = snapshot(store)
    with Serving(store, "--follow", "--offsets", str(tmp_path / "offsets.csv")) as serving:
        clients.connect(serving.namesrv, serving.broker)
        clients.ask("consume", group="g", topic="Orders", failures=0, most=1, level=0)
        assert len(clients.wait_for(lambda rows: len(rows) >= 300, 60)) == 300
        clients.stop()
        assert serving.end()[0] == 0
    assert snapshot(store) == before
