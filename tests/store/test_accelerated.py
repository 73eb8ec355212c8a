"""What 5.5 does after an unclean stop where enableAcceleratedRecovery or checkCommitLogOffsetOnRecover is on.

The real engines are asked the same by :mod:`tests.interop.differential`.
"""

from pathlib import Path
from typing import Any

import pytest

from formats import checkpoint
from rmqtool.rules.releases import V5_4, V5_5
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import plan
from rmqtool.store.recovery.report import RecoveryReport
from tests import goldens

CRASHED = "broker-5.5.0-crash"
ACCELERATED, OFFSETS = "enableAcceleratedRecovery", "checkCommitLogOffsetOnRecover"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A killed broker's store."""
    return goldens.unpack(CRASHED, tmp_path)


def planned(store: Path, *settings: str, **options: Any) -> RecoveryReport:
    """The plan of a recovery, with settings switched on."""
    conf = load(str(goldens.STORES_OF_5_5 / CRASHED / "broker.conf"))
    conf.values |= dict.fromkeys(settings, "true")
    return plan(StoreLayout(str(store), conf), exactly=True, **options)


def records(store: Path) -> list[LocatedRecord]:
    layout = StoreLayout(str(store), load(str(goldens.STORES_OF_5_5 / CRASHED / "broker.conf")))
    return [item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]


def flushed_to(store: Path, physical_offset: int) -> None:
    """Queues were flushed up to there before the kill, says the checkpoint."""
    path = store / "checkpoint"
    point = checkpoint.parse(path.read_bytes())
    path.write_bytes(checkpoint.build(point._replace(logics_physical_offset=physical_offset)))


def spoil(record: LocatedRecord) -> None:
    """A wrong byte in its body."""
    write(record, record.record.total_size - len(record.record.properties) - len(record.record.topic) - 8, b"\xff\xff")


def write(record: LocatedRecord, at: int, what: bytes) -> None:
    with open(record.file.path, "r+b") as file:
        file.seek(record.at + at)
        file.write(what)


def test_it_begins_where_queues_were_flushed(store: Path) -> None:
    last_file = [item for item in records(store) if item.file.path == records(store)[-1].file.path]
    first, middle = last_file[0], last_file[len(last_file) // 2]
    flushed_to(store, middle.physical_offset)
    slow, fast = planned(store), planned(store, ACCELERATED)
    assert slow.stop == fast.stop
    assert slow.afterStart == fast.afterStart
    assert slow.messagesRedispatched - fast.messagesRedispatched == len(last_file) // 2
    spoil(last_file[1])  # before that place it does not look
    slow, fast = planned(store), planned(store, ACCELERATED)
    assert slow.stop is not None
    assert slow.stop.physicalOffset == first.physical_offset + first.record.total_size
    assert fast.afterLoad.maxPhyOffset == records(store)[-1].physical_offset + records(store)[-1].record.total_size


def test_the_log_ends_where_no_message_begins_there(store: Path) -> None:
    last = records(store)[-1]
    flushed_to(store, last.physical_offset - 7)
    assert planned(store, ACCELERATED).afterLoad.maxPhyOffset == last.physical_offset - 7
    assert planned(store).afterLoad.maxPhyOffset == last.physical_offset + last.record.total_size


def test_without_that_place_a_broker_does_not_load(store: Path) -> None:
    flushed_to(store, 0)
    report = planned(store, ACCELERATED, release=V5_5)
    assert not report.loadOk
    assert "says no logicsPhysicalOffset" in report.refusals[0]
    assert planned(store, release=V5_5).loadOk


def test_5_4_knows_no_such_place_for_queues_in_files(store: Path) -> None:
    """It compares store times with the checkpoint, less 3 seconds, and so begins at the first file here."""
    flushed_to(store, 0)
    report = planned(store, ACCELERATED, release=V5_4)
    assert report.loadOk
    names = [Path(item.file.path).name for item in records(store)]
    assert (report.startFile, planned(store, release=V5_5).startFile) == (
        f"commitlog/{names[0]}",
        f"commitlog/{names[-1]}",
    )


def test_a_checkpoint_without_that_place_shows_5_4(store: Path) -> None:
    assert planned(store).engine == V5_5.name
    flushed_to(store, 0)
    assert planned(store).engine == V5_4.name


def test_nor_where_that_place_lies_behind_the_log(store: Path) -> None:
    flushed_to(store, records(store)[-1].file.end + 1)
    assert not planned(store, ACCELERATED).loadOk
    assert planned(store).loadOk


def test_a_message_of_another_place_ends_the_log(store: Path) -> None:
    last = records(store)[-1]
    write(last, 28, (1 << 40).to_bytes(8, "big"))
    end = last.physical_offset + last.record.total_size
    assert planned(store).afterLoad.maxPhyOffset == end
    report = planned(store, OFFSETS)
    assert report.afterLoad.maxPhyOffset == last.physical_offset
    assert report.stop is not None
    assert report.stop.reason == f"record that says physical offset {1 << 40} (checkCommitLogOffsetOnRecover)"
    (store / "abort").unlink()  # after a clean stop it is not looked at
    assert planned(store, OFFSETS).afterLoad.maxPhyOffset == end
