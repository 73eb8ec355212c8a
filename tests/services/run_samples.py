"""A store with waiting messages and transactions, and its content."""

import time
from pathlib import Path

from rmqtool import NewMessage, Store
from rmqtool.services.transactions.service import TransactionService
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from tests.services.build import never
from tests.services.live import SIZES, Lab
from tests.store.findings import check_store


def errors(store: Path, settings: dict[str, str]) -> list[str]:
    layout = StoreLayout(str(store), BrokerConf(settings))
    return [finding.code for finding in check_store(layout) if finding.severity == "error"]


def waiting_store(root: Path) -> Path:
    """A store with ten due messages, one that is due in an hour, and three open transactions."""
    lab = Lab(root)
    lab.now = int(time.time() * 1000) - 10_000
    for n in range(10):
        lab.send(str(n), DELAY="1")
    lab.send("late", DELAY="17")
    service = TransactionService(lab.store, lab.state, never)
    for name in ("yes", "no", "odd"):
        assert service.prepare(NewMessage(topic="T", body=name.encode(), properties={"UNIQ_KEY": name}), "G").ok
    lab.state.persist()
    lab.store.close()
    (root / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()))
    return lab.path


def bodies(store: Path, topic: str = "T") -> list[str]:
    with Store(store, broker_conf=SIZES) as opened:
        result = [item.record for item in opened.messages()]
    return [record.body.decode() for record in result if record.topic == topic.encode()]
