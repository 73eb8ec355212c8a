"""Backups of a store that a real broker writes: restored, they have what it acknowledged, and it boots them."""

import threading
import time
from pathlib import Path

import pytest

from rmqtool.store.backup.create import create_backup
from rmqtool.store.backup.use import restore, verify
from rmqtool.store.check.run import check_store
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import LocatedRecord
from tests.interop.broker import Broker
from tests.interop.test_serve import make
from tests.services.build import log_of

pytestmark = pytest.mark.interop
_SIZES = {"mappedFileSizeCommitLog": "131072", "mappedFileSizeConsumeQueue": "2000"}
_SETTINGS = {**_SIZES, "brokerFastFailureEnable": "false", "maxHashSlotNum": "200", "maxIndexNum": "800"}


def test_under_load(broker: Broker, tmp_path: Path) -> None:
    store, home = tmp_path / "store", tmp_path / "backups"
    store.mkdir()
    broker.boot(store, _SETTINGS)
    make(broker, "Orders")
    names: list[str] = []

    def back_up() -> None:
        for number in range(3):
            time.sleep(0.3)
            layout = StoreLayout(str(store), BrokerConf(_SIZES))
            names.append(create_backup(layout, str(home), lambda _text: None, incremental=number > 0).name)

    broker.ask("sendMany", topic="Orders", count=300, threads=4, how="sync", prefix="before-")
    thread = threading.Thread(target=back_up)
    thread.start()
    for number in range(40):
        broker.ask("sendMany", topic="Orders", count=100, threads=4, how="sync", prefix=f"during{number}-")
        if not thread.is_alive():
            break
    thread.join()
    broker.stop()
    assert len(names) == 3
    assert list(verify(str(home))) == []
    for number, name in enumerate(names):
        new = tmp_path / f"restored-{number}"
        restore(str(home), str(new), name=name, conf=BrokerConf(_SIZES))
        layout = StoreLayout(str(new), BrokerConf(_SIZES))
        assert [finding for finding in check_store(layout) if finding.severity == "error"] == []
        items = list(log_of(new, **_SIZES).walk())
        assert all(isinstance(item, LocatedRecord) for item in items)
    last = tmp_path / "restored-2"
    stored = sum(
        isinstance(item, LocatedRecord) and item.record.topic == b"Orders" for item in log_of(last, **_SIZES).walk()
    )
    assert stored >= 300
    broker.boot(last, _SETTINGS)
    broker.ask("consume", group="restored", topic="Orders", failures=0, most=1, level=0)
    seen = broker.wait_for(lambda rows: len(rows) >= stored)
    keys = [row["keys"] for row in seen]
    assert {f"before-{number}" for number in range(300)} <= {*keys}
    assert len(keys) == len({*keys}) == stored
    broker.stop()
