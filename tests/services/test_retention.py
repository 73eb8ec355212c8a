"""When files are removed: the plan of a broker's cleaning, and the forecast of disk usage."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from rmqtool.errors import CorruptFile
from rmqtool.rules.retention import HOUR
from rmqtool.services.usage import retention
from rmqtool.services.usage.retention import DAY, Disk, Retention, foresee, policy_of
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.repair.expiry import clean
from tests.conftest import Unpacked
from tests.services.build import never

NOON = int(datetime(2026, 11, 28, 12, tzinfo=UTC).timestamp()) * 1000
EMPTY_DISK = Disk(1 << 40, 0, 1 << 40)


@pytest.fixture
def store(golden_copy: Unpacked) -> Path:
    """A store of four files written an hour apart, the newest at noon."""
    store = golden_copy("clean")
    files = sorted((store / "commitlog").iterdir())
    assert len(files) == 4
    for number, file in enumerate(reversed(files)):
        os.utime(file, ns=(0, (NOON - number * HOUR) * 1_000_000))
    return store


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> list[Disk]:
    """The partition; a test may replace it."""
    disks = [EMPTY_DISK]
    monkeypatch.setattr(Disk, "of", classmethod(lambda _cls, _path: disks[-1]))
    return disks


def foreseen(store: Path, at: int = NOON, **conf: str) -> Retention:
    layout = StoreLayout(str(store), BrokerConf(conf))
    return foresee(CommitLog(layout), at, UTC, never)


def test_files_go_in_the_hours_of_deletion(store: Path) -> None:
    forecast = foreseen(store)
    *going, last = forecast.files
    assert (last.expireTimestamp, last.deleteTimestamp) == (None, None)
    for file in going:
        assert file.expireTimestamp == file.modifiedTimestamp + 72 * HOUR
        assert file.deleteTimestamp is not None
        hour = datetime.fromtimestamp(file.deleteTimestamp / 1000, UTC)
        assert (hour.hour, hour.minute) == (4, 0)
        assert 0 <= file.deleteTimestamp - file.expireTimestamp < DAY
    # those that are old enough go within the hour; each release's own rule: the first that is young ends it
    at = NOON + 6 * DAY + 16 * HOUR + HOUR // 2  # half past four
    assert {file.deleteTimestamp for file in foreseen(store, at).files[:-1]} == {at}


def test_the_order_of_files_counts(store: Path) -> None:
    first = min((store / "commitlog").iterdir())
    os.utime(first, ns=(0, (NOON + 5 * DAY) * 1_000_000))  # touched later than all others
    forecast = foreseen(store)
    assert forecast.files[0].deleteTimestamp is not None
    assert {file.deleteTimestamp for file in forecast.files[:-1]} == {forecast.files[0].deleteTimestamp}
    assert forecast.files[0].deleteTimestamp >= NOON + 8 * DAY


def test_hours_are_of_the_zone_of_the_broker(store: Path) -> None:
    layout = StoreLayout(str(store), BrokerConf({"deleteWhen": "04;16"}))
    for minutes in (0, 330, -570, 480):
        zone = timezone(timedelta(minutes=minutes))
        forecast = foresee(CommitLog(layout), NOON, zone, never)
        for file in forecast.files[:-1]:
            assert file.deleteTimestamp is not None
            moment = datetime.fromtimestamp(file.deleteTimestamp / 1000, zone)
            assert moment.hour in (4, 16)
            assert file.expireTimestamp is not None
            assert file.deleteTimestamp - file.expireTimestamp < 12 * HOUR


def test_a_full_disk_does_not_wait(store: Path, disk: list[Disk]) -> None:
    disk.append(Disk(100, 74, 26))
    assert all(file.deleteTimestamp != file.expireTimestamp for file in foreseen(store).files[:-1])
    disk.append(Disk(1000, 741, 259))  # a broker rounds up
    forecast = foreseen(store)
    assert forecast.usedRatio == 0.75
    assert all(file.deleteTimestamp == file.expireTimestamp for file in forecast.files[:-1])
    assert forecast.levels[0].dayTimestamp == NOON


def test_files_are_those_that_clean_removes(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store / "abort").unlink(missing_ok=True)
    forecast = foreseen(store, fileReservedTime="2")
    for number in range(len(forecast.files) + 3):
        at = NOON - number * HOUR + HOUR // 2
        monkeypatch.setattr("time.time_ns", lambda at=at: at * 1_000_000)
        report = clean(StoreLayout(str(store)), reserved_hours=2, dry_run=True)
        expired = [
            file.file for file in forecast.files if file.expireTimestamp is not None and file.expireTimestamp <= at
        ]
        assert [file.file for file in report.files if file.file.startswith("commitlog")] == expired


def test_what_goes_unread(store: Path) -> None:
    offsets = store / "config" / "consumerOffset.json"
    topics = [path.name for path in (store / "consumequeue").iterdir()]
    offsets.write_text(json.dumps({"offsetTable": {f"{topic}@late": {"0": 0} for topic in topics}}))
    forecast = foreseen(store)
    log = CommitLog(StoreLayout(str(store)))
    going = {file.minPhyOffset: file for file in forecast.files[:-1]}
    wanted: dict[str, list[int]] = {}
    for item in log.walk():
        if isinstance(item, LocatedRecord) and item.file.base in going and item.record.queue_id == 0:
            wanted.setdefault(item.record.topic.decode(), []).append(going[item.file.base].deleteTimestamp or 0)
    assert wanted
    assert {(loss.topic, loss.messages, loss.deleteTimestamp) for loss in forecast.unread if loss.group == "late"} == {
        (topic, len(times), times[0]) for topic, times in wanted.items()
    }


def test_what_came_in(store: Path) -> None:
    log = CommitLog(StoreLayout(str(store)))
    records = [item for item in log.walk() if isinstance(item, LocatedRecord)]
    last = records[-1].record.store_timestamp
    for share in (0.0, 0.3, 0.9, 1.0):
        middle = records[int((len(records) - 1) * share)].record.store_timestamp
        forecast = foreseen(store, middle + DAY)
        first = next(item.physical_offset for item in records if item.record.store_timestamp >= middle)
        assert forecast.dayBytes == log.end()[0] - first
    assert foreseen(store, last + 1 + DAY).dayBytes == 0
    before = foreseen(store, records[0].record.store_timestamp - 1)
    assert (before.dayBytes, before.weekBytes, before.covered) == (0, 0, 0)
    forecast = foreseen(store, last + DAY // 2)
    assert forecast.covered == last + DAY // 2 - records[0].record.store_timestamp
    assert forecast.dayBytes == forecast.weekBytes == log.end()[0] - log.min_offset
    assert foreseen(store, last + 8 * DAY).covered is None


def test_when_the_disk_is_full(store: Path, disk: list[Disk]) -> None:
    log = CommitLog(StoreLayout(str(store)))
    last = log.end()[1]
    assert last is not None
    at = last + 1
    rate = log.end()[0] - log.min_offset  # a day's
    disk.append(Disk(20 * rate, 10 * rate, 10 * rate))
    never_full = foreseen(store, at, fileReservedTime="48")
    assert [level.dayTimestamp for level in never_full.levels] == [None, None, None]
    levels = foreseen(store, at, fileReservedTime="9999").levels
    times = [level.dayTimestamp for level in levels]
    assert [level.ratio for level in levels] == [0.75, 0.85, 0.9]
    assert times[0] is not None
    # 5 of 20 parts are left up to 75 %, and queues and index grow too
    assert 1 * DAY < times[0] - at < 6 * DAY
    assert times[1] is not None
    assert times[2] is None  # a broker removes files of any age before
    forced = foreseen(store, at, fileReservedTime="9999", cleanFileForciblyEnable="false").levels
    assert [level.ratio for level in forced] == [0.75, 0.9]
    assert forced[1].dayTimestamp is not None
    assert forced[1].dayTimestamp > times[1]


@pytest.mark.parametrize("text", ["x", "4;;5", "-1", "04,16"])
def test_settings_that_are_no_hours(text: str) -> None:
    with pytest.raises(CorruptFile, match="deleteWhen"):
        policy_of(BrokerConf({"deleteWhen": text}))


def test_settings_are_clamped_as_a_broker_does() -> None:
    policy = policy_of(
        BrokerConf({"diskMaxUsedSpaceRatio": "99", "diskSpaceCleanForciblyRatio": "99", "deleteWhen": "4;16"})
    )
    assert (policy.used, policy.forced, policy.full, policy.hours) == (0.95, 0.85, 0.9, frozenset((4, 16)))


def test_a_store_without_messages(tmp_path: Path, golden: Unpacked) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker") / "config", store / "config")
    (store / "commitlog").mkdir()
    forecast = foreseen(store)
    assert (forecast.files, forecast.unread, forecast.dayBytes, forecast.covered) == ([], [], 0, None)
    (store / "commitlog").rmdir()
    assert foreseen(store).files == []
    assert retention.policy_of(BrokerConf()).reserved_ms == 72 * HOUR
