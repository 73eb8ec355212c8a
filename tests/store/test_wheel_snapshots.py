"""Snapshots of the timer wheel, which a 5.4 or 5.5 broker writes if timerWheelSnapshotFlush is on."""

import os
import shutil
from pathlib import Path

import pytest

from formats.variants import timer
from rmqtool.errors import Refused
from rmqtool.services.timers.timers import Timers
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.live import LiveTimer
from tests import goldens
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.services.build import never
from tests.store.findings import check_store

CASES = ["broker-5.3.3", "broker-5.5.0"]


@pytest.fixture(params=CASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return goldens.unpack(request.param, tmp_path)


def waiting(store: Path, setting: str = "") -> list[tuple[str, int]]:
    """What waits in the wheel: keys and deliver time."""
    conf = BrokerConf({"timerWheelSnapshotFlush": setting} if setting else {})
    log = CommitLog(StoreLayout(str(store), conf))
    return sorted((row.keys or "", row.deliverTimestamp) for row in Timers(log, 0, never).pending())


def as_snapshot(store: Path) -> Path:
    """Make the wheel a snapshot, and leave a stale wheel and an older snapshot beside it."""
    files = TimerFiles(StoreLayout(str(store)))
    flushed = files.point.last_timer_log_flush_position
    assert flushed > 0
    snapshot = store / f"timerwheel.{flushed}"
    (store / "timerwheel").rename(snapshot)
    for stale in ("timerwheel", "timerwheel.52"):
        with (store / stale).open("wb") as file:
            file.truncate(timer.WHEEL_SIZE)
        os.utime(store / stale, (1_700_000_000, 1_700_000_000))
    return snapshot


def codes(store: Path, setting: str = "") -> set[str]:
    conf = BrokerConf({"timerWheelSnapshotFlush": setting} if setting else {})
    return {finding.code for finding in check_store(StoreLayout(str(store), conf))} - {"conf-size"}


@pytest.mark.parametrize("setting", ["true", ""])
def test_the_newest_is_read(setting: str, store: Path) -> None:
    before, by_code = waiting(store), codes(store)
    assert before
    as_snapshot(store)
    assert waiting(store, setting) == before
    assert codes(store, setting) == by_code


def test_it_counts_only_where_the_setting_is_on(store: Path) -> None:
    snapshot = as_snapshot(store)
    for value, path in (("true", snapshot), ("false", store / "timerwheel")):
        files = TimerFiles(StoreLayout(str(store), BrokerConf({"timerWheelSnapshotFlush": value})))
        assert files.wheel_path == str(path)
    assert TimerFiles(StoreLayout(str(store))).wheel_path == str(snapshot)


def test_how_far_the_log_was_flushed_is_in_its_name(store: Path) -> None:
    snapshot = as_snapshot(store)
    snapshot.rename(store / "timerwheel.104")
    files = TimerFiles(StoreLayout(str(store), BrokerConf({"timerWheelSnapshotFlush": "true"})))
    assert files.point.last_timer_log_flush_position == 104


def test_a_rebuilt_wheel_is_a_plain_one(store: Path) -> None:
    shutil.copytree(store, store.with_name("plain"))
    assert rmqtool("rebuild", store.with_name("plain"), "timer", "--yes").code == 0
    as_snapshot(store)
    result = rmqtool("rebuild", store, "timer", "--yes")
    assert result.code == 0, result.err
    assert [path.name for path in store.glob("timerwheel*")] == ["timerwheel"]
    assert waiting(store) == waiting(store.with_name("plain")) != []
    assert rmqtool("undo", store, "--yes").code == 0
    assert len(list(store.glob("timerwheel*"))) == 3


@by_turns(3)
@pytest.mark.parametrize("verb", ["salvage", "export"])
def test_another_store_has_what_waits(verb: str, store: Path, tmp_path: Path) -> None:
    assert rmqtool(verb, store, tmp_path / "plain").code == 0
    as_snapshot(store)
    assert rmqtool(verb, store, tmp_path / "new").code == 0
    assert waiting(tmp_path / "new") == waiting(tmp_path / "plain") != []


def test_nothing_goes_on_with_it(store: Path) -> None:
    as_snapshot(store)
    with pytest.raises(Refused, match="the wheel is a snapshot"):
        LiveTimer(StoreLayout(str(store)), 0, 0)
