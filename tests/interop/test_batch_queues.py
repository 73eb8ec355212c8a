"""Batch queues as read by a real 5.3.3 broker, and as rebuilt by it when the advice of ``check`` is followed."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.services.lookup.get_message import get_message
from rmqtool.services.lookup.query_time import offset_by_time_batches
from rmqtool.store.layout.paths import BATCH_UNIT, StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import batch_queues_of
from rmqtool.store.recovery.command import recover
from tests import goldens
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop.broker import Broker
from tests.store.findings import found_in

pytestmark = pytest.mark.interop
CASE = "broker-5.3.3"
TOPIC = "BatchQueue"
PULL, BY_TIME, MAX, MIN = 11, 29, 30, 31  # request codes
_SUBSCRIBED = 4  # the bit of a pull that brings its own subscription
_FOUND = {0: "FOUND", 19: "OFFSET_OVERFLOW_ONE", 21: "MOVED"}  # response codes
_MOVED = {"OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY"}


def config() -> dict[str, Any]:
    # its timers and transaction checks would go on where it was stopped, which is not asked here
    settings: dict[str, Any] = dict(goldens.about(CASE)["config"])
    return settings | {"transactionCheckInterval": 3_600_000}


def batch_files(store: Path) -> dict[str, bytes]:
    folder = store / "batchconsumequeue"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("0*") if path.is_file()}


def fields(**more: object) -> dict[str, str]:
    return {name: str(value) for name, value in ({"topic": TOPIC} | more).items()}


@by_turns(23)
def test_offsets_pulls_and_times(broker_5: Broker, tmp_path: Path) -> None:
    ours, theirs = goldens.unpack(CASE, tmp_path / "ours"), goldens.unpack(CASE, tmp_path / "theirs")
    log = CommitLog(StoreLayout(str(ours)))
    broker_5.boot(theirs, config())
    pulls = 0
    for queue in batch_queues_of(log.layout):
        number = queue.queue_id
        for code, offset in ((MAX, queue.max_offset), (MIN, queue.min_offset(log.min_offset))):
            stderr = broker_5.ask("request", code=code, fields=fields(queueId=number))
            assert (stderr["code"], int(stderr["fields"]["offset"])) == (0, offset)
        units = list(queue.entries())
        for offset in range(-1, queue.max_offset + 3):
            for most in (1, 7, 8, 22, 32):
                pull = fields(
                    consumerGroup="g", queueId=number, queueOffset=offset, maxMsgNums=most, sysFlag=_SUBSCRIBED,
                    commitOffset=0, suspendTimeoutMillis=0, subscription="*", subVersion=0, expressionType="TAG",
                )  # fmt: skip
                stderr = broker_5.ask("request", code=PULL, fields=pull)
                got = get_message(log, queue, offset, most)
                status = "MOVED" if got.status in _MOVED else got.status
                ranges = [int(stderr["fields"][name]) for name in ("nextBeginOffset", "minOffset", "maxOffset")]
                assert (_FOUND[stderr["code"]], *ranges) == (status, *got[1:4]), (number, offset, most)
                pulls += 1
        times = {0, 1 << 62}
        for unit in units:
            located = log.read(unit.physical_offset)
            assert located is not None
            times.update(located.record.store_timestamp + shift for shift in (-1, 0, 1))
        for time in sorted(times):
            stderr = broker_5.ask("request", code=BY_TIME, fields=fields(queueId=number, timestamp=time))
            assert int(stderr["fields"]["offset"]) == offset_by_time_batches(queue, time), (number, time)
    broker_5.stop()
    assert pulls > 200


@by_turns(23)
@pytest.mark.parametrize("damage", ["gone", "hole", "base"])
def test_a_queue_is_made_anew_as_check_advises(damage: str, broker_5: Broker, tmp_path: Path) -> None:
    store = goldens.unpack(CASE, tmp_path)
    queue = store / "batchconsumequeue" / TOPIC / "0"
    file = queue / f"{0:020d}"
    whole = batch_files(store)
    if damage == "gone":
        shutil.rmtree(queue)
    else:
        data = bytearray(file.read_bytes())
        data[BATCH_UNIT + (35 if damage == "base" else 0) : 2 * BATCH_UNIT] = bytes(
            11 if damage == "base" else BATCH_UNIT
        )
        file.write_bytes(data)
    findings = [finding for finding in found_in(store) if finding.code.startswith("bcq-")]
    assert findings
    rebuild = ("rmqtool", "rebuild", "STORE", "consumequeue")
    assert {step.command for finding in findings for step in finding.steps} == {rebuild}
    made = shutil.copytree(store, tmp_path / "made")
    assert rmqtool("rebuild", made, "consumequeue", "--yes").code == 0
    assert batch_files(made) == whole
    if queue.exists():
        shutil.move(queue, tmp_path / "moved")
    shutil.move(store / "checkpoint", tmp_path / "checkpoint")
    (store / "abort").touch()  # as a broker leaves it that was killed
    recover(StoreLayout(str(shutil.copytree(store, tmp_path / "ours"))))
    broker_5.boot(store, config())
    broker_5.stop()
    assert batch_files(store) == batch_files(tmp_path / "ours") == whole


@by_turns(23)
@pytest.mark.parametrize(
    "damage", ["log cut in a batch", "log cut behind a batch", "units lost", "units and marker lost"]
)
def test_recovery_leaves_what_a_broker_leaves(damage: str, broker_5: Broker, tmp_path: Path) -> None:
    """After a kill, except for the last damage: after a clean stop a broker does not look for missing units."""
    theirs = goldens.unpack(CASE, tmp_path)
    whole = batch_files(theirs)
    layout = StoreLayout(str(theirs))
    units = sorted(
        (unit for queue in batch_queues_of(layout) for unit in queue.entries()), key=lambda u: u.physical_offset
    )
    (theirs / "abort").touch()
    if damage.startswith("log"):
        unit = units[3]  # the last batch, of 15 messages; single messages follow
        cut = unit.physical_offset + (100 if damage == "log cut in a batch" else unit.size)
        with open(theirs / "commitlog" / f"{0:020d}", "r+b") as log:
            log.seek(cut)
            log.write(bytes(200_481 - cut))
    else:
        for path in (theirs / "batchconsumequeue" / TOPIC).glob("*/0*"):
            data = path.read_bytes()
            path.write_bytes(data[: 2 * BATCH_UNIT] + bytes(len(data) - 2 * BATCH_UNIT))
        if damage == "units and marker lost":
            (theirs / "abort").unlink()
    damaged = batch_files(theirs)
    ours = shutil.copytree(theirs, tmp_path / "ours")
    recover(StoreLayout(str(ours)), exactly=True)
    queues = [queue for queue in batch_queues_of(StoreLayout(str(ours))) if queue.topic == TOPIC]
    broker_5.boot(theirs, config())
    for queue in queues:
        answer = broker_5.ask("request", code=MAX, fields=fields(queueId=queue.queue_id))
        assert int(answer["fields"]["offset"]) == queue.max_offset
    broker_5.stop()
    left, result = batch_files(theirs), batch_files(ours)
    if damage.startswith("log"):
        assert len(result) == 2
        for name, data in result.items():  # a broker leaves the bytes of what it cuts, and so it may come back
            units_left = len(data.rstrip(b"\0")) // BATCH_UNIT + 1
            assert left[name][: units_left * BATCH_UNIT] == data[: units_left * BATCH_UNIT]
            assert units_left < len(whole[name].rstrip(b"\0")) // BATCH_UNIT + 1
    else:
        assert result == left == (whole if damage == "units lost" else damaged)
