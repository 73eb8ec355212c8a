"""A complete 5.3.3 broker continues from salvaged kvStore records, and from a timer with queues in RocksDB."""

from dataclasses import replace
from pathlib import Path

import pytest

from formats.variants.pop_store import FAMILY, PLACE, PopStoreRecord
from tests import goldens, rocks
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.interop.broker import Broker
from tests.interop.sides import SETTINGS
from tests.rocks import build_key
from tests.store.test_rocks_parts import without_timer

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]
CONFIG = SETTINGS | {"timerWheelEnable": "true", "mappedFileSizeTimerLog": "52000"}


def _long_ago(families: rocks.Families) -> None:
    records = [PopStoreRecord.parse(value) for value in families[FAMILY].values()]
    moved = [replace(record, pop_time=record.pop_time - 86_400_000) for record in records]
    families[FAMILY] = {build_key(record.key): record.value() for record in moved}


@by_turns(11)
def test_messages_in_flight_come_back_in_a_salvaged_store(
    broker_5: Broker, golden_copy: Unpacked, tmp_path: Path
) -> None:
    """Messages whose invisible time of some hours is over, and the one that was already waiting."""
    store, new, told = golden_copy("pop-store"), tmp_path / "new", goldens.facts("pop-store")
    rocks.change(store / PLACE, _long_ago)
    conf = goldens.PARTS_OF_5 / "pop-store" / "broker.conf"
    assert rmqtool("salvage", store, new, "--broker-conf", conf).code == 0
    config = CONFIG | {"mappedFileSizeCommitLog": "262144"}
    config |= {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
    broker_5.boot(new, config)
    expected = {*told["held"]["pop-group"], told["retried"], told["waiting"]}
    seen: list[str] = []
    for _ in range(120):
        given = {"group": "pop-group", "topic": "Popped", "invisible": 60_000, "poll": 1000}
        seen += [row["keys"] for row in broker_5.ask("pop", **given)["messages"]]
        if set(seen) >= expected:
            break
    broker_5.stop()
    # what was popped from the retry topic comes twice: how far a broker had read there it does not write down
    assert set(seen) == expected


@by_turns(11)
def test_a_timer_that_was_made_anew_beside_queues_in_rocksdb(broker_5: Broker, golden_copy: Unpacked) -> None:
    store = without_timer(golden_copy("rocksdb-5.3.3"))
    assert rmqtool("rebuild", store, "timer", "--yes").code == 0
    broker_5.boot(store, CONFIG | {"mappedFileSizeCommitLog": "524288", "storeType": "defaultRocksDB"})
    broker_5.ask("consume", group="late-group", topic="Timers", failures=0, most=3, level=0)
    expected = sorted([*(f"later-{number}" for number in range(5)), "recall-0"])
    late = lambda rows: sorted(row["keys"] for row in rows if row["keys"] in expected)  # noqa: E731
    seen = broker_5.wait_for(lambda rows: len(late(rows)) >= len(expected))
    broker_5.stop()
    assert late(seen) == expected
