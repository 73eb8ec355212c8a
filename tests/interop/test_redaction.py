"""Real brokers boot redacted stores, and deliver every message: overwritten ones with their new bodies."""

import shutil
import time
from pathlib import Path

import pytest

from formats.message.properties import UNIQ_KEY, parse
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.redaction.copies import files_of, walk
from rmqtool.services.redaction.redact import redact
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import LocatedRecord
from tests import roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.test_dledger_queues import free_port
from tests.interop.test_serve import make
from tests.interop.tier_damage import pull
from tests.services.build import log_of

pytestmark = pytest.mark.interop
_SIZES = {"mappedFileSizeCommitLog": "131072", "mappedFileSizeConsumeQueue": "2000"}
_SETTINGS = {**_SIZES, "brokerFastFailureEnable": "false", "maxHashSlotNum": "200", "maxIndexNum": "800"}
_DISPATCHED = 3  # s, in which a new leader has committed its log and put it into queues
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
@by_turns(17)
@pytest.mark.parametrize("more", [{}, _ROCKS], ids=["files", "rocksdb"])
def test_the_newest_broker_boots_it(more: dict[str, str], brokers_5_5: tuple[Broker, Broker], tmp_path: Path) -> None:
    check(brokers_5_5[0], tmp_path, more)


_COPIES = [
    (roles.DLEDGER, "n0", "5.3.3", {"log"}),
    (roles.OLD_DLEDGER, "n0", "4.9.8", {"log"}),
    (roles.TIERED, "a", "5.3.3", {"log", "tier"}),
    (roles.NEW_TIERED, "a", "5.5.0", {"log", "tier"}),
]


@by_turns(23)
@pytest.mark.parametrize(
    ("case", "name", "release", "places"),
    [pytest.param(*row, marks=pytest.mark.xdist_group(f"broker-{row[2]}"), id=f"{row[0]}-{row[1]}") for row in _COPIES],
)
def test_real_brokers_serve_what_dledger_logs_and_tiers_have_then(
    case: str, name: str, release: str, places: set[str], tmp_path: Path
) -> None:
    """Every message that the broker delivers has its new body if it was overwritten, else the one that it had."""
    if reason := brokers.available(release):
        pytest.skip(reason)
    node = roles.unpack(case, name, tmp_path)
    if "tier" in places:
        assert rmqtool("recover", node.store, "--yes", *node.options()).code == 0
        shutil.rmtree(f"{node.store}.rmqtool")
    layout = StoreLayout(str(node.store), load(str(node.conf)))
    items = [item for files in files_of(layout) for item in walk(files, "reading") if isinstance(item, LocatedRecord)]
    before = {_place(item): bytes(item.record.body) for item in items}
    ids = sorted({parse(item.record.properties).get(UNIQ_KEY, "") for item in items if item.record.body} - {""})[::3]
    report = redact(layout, Selection(), ids)
    assert {row.place for row in report.messages} == places
    gone = {(row.topic, row.queueId, row.queueOffset) for row in report.messages}
    # after a kill, a 5.3.3 start cuts queue entries, and messages that come due take their queue offsets
    (node.store / "abort").unlink(missing_ok=True)
    peers = {"dLegerPeers": f"{name}-127.0.0.1:{free_port()}", "preferredLeaderId": ""} if name != "a" else {}
    served = {False: 0, True: 0}
    with brokers.Broker(release) as broker:
        broker.boot(node.store, node.settings | peers)
        time.sleep(_DISPATCHED if peers else 0)
        for (topic, queue_id, offset), body in before.items():
            if (record := pull(broker, topic, queue_id, offset)) is None:
                continue
            redacted = (topic, queue_id, offset) in gone
            served[redacted] += 1
            assert bytes(record.body) == (b"*" * record.body_length if redacted else body)
        broker.stop()
    assert min(served.values()) > 30, served


def _place(item: LocatedRecord) -> tuple[str, int, int]:
    return item.record.topic.decode(), item.record.queue_id, item.record.queue_offset
