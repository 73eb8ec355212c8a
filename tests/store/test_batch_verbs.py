"""Batch queues of 5.x under commands that change a store: clean, import and salvage preserve them."""

import os
from pathlib import Path

from rmqtool import NewMessage, Store
from rmqtool.rules.releases import V5_3
from rmqtool.services.lookup.get_message import first_messages, get_message
from rmqtool.services.lookup.query_time import offset_by_time_batches
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import BATCH_UNIT, StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import BatchQueue, batch_queues_of
from rmqtool.store.repair.expiry import clean
from tests import goldens
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.findings import found_in
from tests.store.test_batch_appends import SMALL, TOPIC, batch, empty

CONF = BrokerConf(SMALL)


def filled(store: Path) -> Path:
    """A store with several files of the log and of the batch queue."""
    empty(store)
    with Store(store, write=True, broker_conf=SMALL, release=V5_3) as opened:
        for number in range(60):
            opened.live.append_encoded(batch())
            opened.append(NewMessage(topic=TOPIC, body=b"x" * 700, keys=f"one-{number}"))
    return store


def queue_of(store: Path, conf: BrokerConf | None = None) -> BatchQueue:
    return next(q for q in batch_queues_of(StoreLayout(str(store), conf)) if q.queue_id == 0)


def test_clean_removes_files_of_batch_queues(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    layout = StoreLayout(str(store), CONF)
    logs = layout.commit_log().files
    assert len(logs) > 3
    for file in logs[:3]:
        os.utime(file.path, (1, 1))
    before = queue_of(store, CONF)
    lowest = before.min_offset(logs[3].base)
    report = clean(layout, reserved_hours=1)
    assert report.newMinPhyOffset == logs[3].base
    after = queue_of(store, CONF)
    gone = [file for file in before.segments.files if not Path(file.path).exists()]
    assert gone
    assert {f"batchconsumequeue/{TOPIC}/0/{file.base:020d}" for file in gone} <= {
        file_gone.file for file_gone in report.files
    }
    # the last unit of each file that went points below the log; the first file that stays leads into it
    for file in after.segments.files[:1]:
        last = before.file_size // BATCH_UNIT - 1
        assert after._unit(file, last).physical_offset >= report.newMinPhyOffset
    low = after.min_offset(report.newMinPhyOffset)
    assert low >= lowest > 0  # a broker looks for it in the first file only
    log = CommitLog(StoreLayout(str(store), CONF))
    assert get_message(log, after, low, 1).status == "FOUND"
    assert [finding for finding in found_in(store, CONF) if finding.severity != "info"] == []


def test_import_keeps_that_a_topic_has_batch_queues(golden: Unpacked, tmp_path: Path) -> None:
    old, new, rows = golden("broker-5.3.3"), tmp_path / "new", tmp_path / "rows.ndjson"
    output = rmqtool("commitlog", "dump", old, "--topic", "BatchQueue", "--output", "ndjson")
    rows.write_text(output.out)
    assert rmqtool("import", new, rows, "--topics-of", old).code == 0
    assert sorted(path.name for path in (new / "batchconsumequeue" / "BatchQueue").iterdir()) == ["0", "1"]
    assert not (new / "consumequeue" / "BatchQueue").exists()
    assert found_in(new) == []
    assert queue_of(new).max_offset == queue_of(old).max_offset == 25
    again = rmqtool("commitlog", "dump", new, "--output", "ndjson").out.splitlines()
    assert len(again) == len(rows.read_text().splitlines()) == 43
    refused = rmqtool("import", tmp_path / "older", rows, "--topics-of", old, "--engine", "4.9")
    assert refused.code == 2
    assert "batch queues" in refused.err
    assert not (tmp_path / "older").exists()


def test_salvage_keeps_batches_and_the_kind_of_their_queues(golden: Unpacked, tmp_path: Path) -> None:
    old, new = golden("broker-5.3.3"), tmp_path / "new"
    assert rmqtool("salvage", old, new).code == 0
    assert [(u.queue_offset, u.batch_num) for u in queue_of(new).entries()] == [
        (u.queue_offset, u.batch_num) for u in queue_of(old).entries()
    ]
    assert [finding for finding in found_in(new) if finding.severity == "error"] == []


def test_every_offset_and_time_inside_a_batch(golden: Unpacked) -> None:
    """Each offset finds its message; each store time of a batch finds its first offset, as in 5.3.3."""
    log = CommitLog(StoreLayout(str(golden("broker-5.3.3"))))
    for queue in batch_queues_of(log.layout):
        for offset in range(queue.max_offset):
            result = first_messages(get_message(log, queue, offset, 1), queue, offset, 1)
            assert [message.record.queue_offset for message in result] == [offset]
    units = [
        (line["cqOffset"], line["batchNum"], line["message"]["storeTimestamp"])
        for line in goldens.messages("broker-5.3.3")
        if (line["cqTopic"], line["cqQueueId"]) == ("BatchQueue", 0)
    ]
    queue = queue_of(golden("broker-5.3.3"))
    assert len(units) == 5
    for offset, _count, time in units:
        first = min(o for o, _c, t in units if t == time)
        # of the last time the last unit is the answer (BatchConsumeQueue.getOffsetInQueueByTime)
        assert offset_by_time_batches(queue, time) == (units[-1][0] if time == units[-1][2] else first), offset
