"""Real brokers boot redacted stores, and deliver every message: overwritten ones with their new bodies."""

from pathlib import Path

import pytest

from rmqtool.services.lookup.selection import Selection
from rmqtool.services.redaction import redact
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from tests.interop.broker import Broker
from tests.interop.test_serve import write_orders

pytestmark = pytest.mark.interop
_SIZES = {"mappedFileSizeCommitLog": "131072", "mappedFileSizeConsumeQueue": "2000"}
_SETTINGS = {**_SIZES, "brokerFastFailureEnable": "false", "maxHashSlotNum": "200", "maxIndexNum": "800"}


def test_a_real_broker_boots_it(broker: Broker, tmp_path: Path) -> None:
    store = write_orders(broker, tmp_path, _SETTINGS, 600)
    keys = tuple(f"k{number}" for number in range(0, 600, 5))
    report = redact(StoreLayout(str(store), BrokerConf(_SIZES)), Selection(keys=keys), ())
    assert len(report.messages) == 120
    before = {path: path.read_bytes() for path in (store / "commitlog").iterdir()}
    broker.boot(store, _SETTINGS)
    broker.ask("consume", group="after", topic="Orders", failures=0, most=1, level=0)
    seen = broker.wait_for(lambda rows: len(rows) >= 600)
    broker.stop()
    assert sorted(row["keys"] for row in seen) == sorted(f"k{number}" for number in range(600))
    for path, data in before.items():
        assert path.read_bytes()[: len(data.rstrip(b"\0"))] == data.rstrip(b"\0")
