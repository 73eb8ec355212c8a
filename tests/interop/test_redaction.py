"""Real brokers boot redacted stores, and deliver every message: overwritten ones with their new bodies."""

from pathlib import Path

import pytest

from rmqtool.services.lookup.selection import Selection
from rmqtool.services.redaction import redact
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.test_serve import make
from tests.services.build import log_of

pytestmark = pytest.mark.interop
_SIZES = {"mappedFileSizeCommitLog": "131072", "mappedFileSizeConsumeQueue": "2000"}
_SETTINGS = {**_SIZES, "brokerFastFailureEnable": "false", "maxHashSlotNum": "200", "maxIndexNum": "800"}
_ROCKS = {"storeType": "defaultRocksDB", "indexRocksDBEnable": "true", "timerRocksDBEnable": "true"}


def check(broker: Broker, folder: Path, more: dict[str, str]) -> None:
    """Of 600 messages every fifth is overwritten; some are delayed or batched, so that there are copies."""
    store, settings = folder / "store", _SETTINGS | more
    store.mkdir()
    broker.boot(store, settings)
    make(broker, "Orders")
    for number in range(600):
        level = {"level": 1} if number % 10 == 5 else {}
        broker.ask("send", topic="Orders", keys=f"k{number}", body=f"the body of {number:06d}, and no other", **level)
    broker.ask("consume", group="before", topic="Orders", failures=0, most=1, level=0)
    assert len(broker.wait_for(lambda rows: len(rows) >= 600)) == 600
    broker.stop()
    redacted = [*range(0, 600, 5)]
    layout = StoreLayout(str(store), BrokerConf(_SIZES | more))
    report = redact(layout, Selection(keys=tuple(f"k{number}" for number in redacted)), ())
    assert len(report.messages) == 120 + 60, "a delayed message is there twice"
    gone = [f"the body of {number:06d}".encode() for number in redacted]
    kept = f"the body of {1:06d}".encode()
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert not [(path, body) for path, data in files.items() for body in gone if body in data]
    assert any(kept in data for data in files.values())
    before = [item.record.body for item in log_of(store, **_SIZES).walk()]  # type: ignore[union-attr]
    broker.boot(store, settings)
    broker.ask("consume", group="after", topic="Orders", failures=0, most=1, level=0)
    seen = broker.wait_for(lambda rows: len(rows) >= 600)
    broker.stop()
    assert sorted(row["keys"] for row in seen) == sorted(f"k{number}" for number in range(600))
    after = [item.record.body for item in log_of(store, **_SIZES).walk()]  # type: ignore[union-attr]
    assert after[: len(before)] == before


def test_a_real_broker_boots_it(broker: Broker, tmp_path: Path) -> None:
    check(broker, tmp_path, {})


@pytest.mark.xdist_group("broker-5.5.0")
@by_turns(7)
@pytest.mark.parametrize("more", [{}, _ROCKS], ids=["files", "rocksdb"])
def test_the_newest_broker_boots_it(more: dict[str, str], brokers_5_5: tuple[Broker, Broker], tmp_path: Path) -> None:
    check(brokers_5_5[0], tmp_path, more)
