"""Files in a store with queues and tables in RocksDB: the timer and the config files."""

from pathlib import Path

import pytest

from formats.config.files import DelayOffsets
from rmqtool.services.timers.timers import Timers
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.repair.rebuild import rebuild
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services.build import log_of, never
from tests.store.findings import check_store

CASE = "rocksdb-5.3.3"


def codes(store: Path) -> set[str]:
    return {finding.code for finding in check_store(StoreLayout(str(store)))}


def waiting(store: Path) -> list[tuple[str | None, int]]:
    return sorted((row.keys, row.deliverTimestamp) for row in Timers(log_of(store), 0, never).pending())


def without_timer(store: Path) -> Path:
    (store / "timerwheel").unlink()
    for path in (store / "timerlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    return store


def test_the_timer_is_made_anew_from_the_queue_in_the_database(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    before = waiting(store)
    assert len(before) == 6
    without_timer(store)
    assert "timer-lost" in codes(store)
    assert rebuild(StoreLayout(str(store)), ("timer",)).queueEntries == 6
    assert waiting(store) == before
    assert codes(store) == {"store-role"}


def test_a_database_that_is_behind_the_log_makes_no_timer(golden_copy: Unpacked) -> None:
    store = golden_copy(f"{CASE}-crash")
    (store / "abort").unlink()
    result = rmqtool("rebuild", store, "timer", "--dry-run")
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert "up to physical offset 0 only" in result.err


@pytest.mark.parametrize("case", [CASE, "broker-5.3.3"])
def test_lost_delay_offsets_of_5_3(case: str, golden_copy: Unpacked) -> None:
    """Messages delivered by 5.x do not have their level; with tables in RocksDB the offsets are left alone."""
    store = golden_copy(case)
    delays = read_config(StoreLayout(str(store)), "delayOffset.json")
    for path in (store / "config").glob("delayOffset.json*"):
        path.unlink()
    before = {path: path.read_bytes() for path in (store / "config").rglob("*") if path.is_file()}
    result = rmqtool("rebuild", store, "config", "--yes")
    assert result.code == 0, result.err
    in_rocksdb = "what is in RocksDB (config/consumerOffsets, config/subscriptionGroups, config/topics)"
    assert (in_rocksdb in result.err) == (case == CASE)
    table = read_config(StoreLayout(str(store)), "delayOffset.json")
    assert isinstance(table, DelayOffsets)
    assert isinstance(delays, DelayOffsets)
    assert table.offsets == {level: offset for level, offset in delays.offsets.items() if offset}
    assert all(path.read_bytes() == content for path, content in before.items())
