"""Reads by the rules of 5.3 equal the answers of a real 5.3.3 engine on the same store."""

import shutil
from pathlib import Path

import pytest

from rmqtool.rules.releases import V5_3
from rmqtool.services.lookup.get_message import get_message
from rmqtool.services.lookup.query_time import offset_by_time_v5
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import queues_of
from tests.amounts import by_turns
from tests.interop.engine import Engine, golden_config, unpack_golden

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("case", ["clean", "delay", "ipv6", "broker", "head-file-deleted"])
def test_times_and_pulls(case: str, engine_5: Engine, tmp_path: Path) -> None:
    ours, theirs = unpack_golden(case, tmp_path / "ours"), unpack_golden(case, tmp_path / "theirs")
    layout = StoreLayout(str(ours))
    log = CommitLog(layout)
    queues = {(q.topic, q.queue_id): q for q in queues_of(layout) if q.max_offset}
    times, gets = [], []
    for (topic, queue_id), queue in queues.items():
        low, high = queue.min_offset(log.min_offset, V5_3), queue.max_offset
        stamps = set()
        for entry in queue.entries(low):
            located = log.read(entry.physical_offset)
            assert located is not None
            stamps.update(located.record.store_timestamp + shift for shift in (-1, 0, 1))
        stamps |= {0, 1 << 62}
        times += [(topic, queue_id, stamp) for stamp in sorted(stamps)]
        offsets = {-1, 0, low - 1, low, low + 1, (low + high) // 2, high - 1, high, high + 1, high + 1000}
        gets += [(topic, queue_id, offset, count) for offset in sorted(offsets) for count in (1, 3, 32)]
    answer = engine_5.open(theirs, golden_config(case), times=times, gets=gets, messages=False)
    assert answer["loadOk"]
    for row in answer["offsetByTime"]:
        queue = queues[row["topic"], row["queueId"]]
        assert offset_by_time_v5(log, queue, row["timestamp"]) == row["offset"], row
    for row in answer["getMessage"]:
        queue = queues[row["topic"], row["queueId"]]
        got = get_message(log, queue, row["offset"], row["maxMsgNums"], release=V5_3)
        expected = (row["status"], row["nextBeginOffset"], row["minOffset"], row["maxOffset"], row["count"])
        assert (*got[:4], len(got.messages)) == expected, row
    assert len(answer["offsetByTime"]) > 50
    assert len(answer["getMessage"]) > 50


_SIZES = {"mappedFileSizeCommitLog": 16_384, "mappedFileSizeConsumeQueue": 400}  # 20 entries in each queue file


@by_turns(23)
def test_lowest_offsets_where_the_log_begins_later(engine_5: Engine, tmp_path: Path) -> None:
    """Queues with all, some, whole files of, or no entries before the log's first byte."""
    when_written = {
        "Early": range(20), "EarlyFiles": range(60), "Through": range(100), "Late": range(80, 100),
        "Edge": range(28, 32), "Gap": (*range(30), 99),
    }  # fmt: skip
    messages = [
        {"topic": topic, "queueId": 0, "body": b"%d" % n * 200, "properties": {"UNIQ_KEY": f"{n:032X}"}}
        for n in range(100)
        for topic, times in when_written.items()
        if n in times
    ]
    written = tmp_path / "written"
    engine_5.write(written, messages, _SIZES)
    files = sorted((written / "commitlog").iterdir())
    assert len(files) > 6
    seen = set()
    for gone in range(1, len(files)):
        ours, theirs = tmp_path / f"ours-{gone}", tmp_path / f"theirs-{gone}"
        for copy in (ours, theirs):
            shutil.copytree(written, copy, copy_function=shutil.copy2)
            for file in files[:gone]:
                (copy / "commitlog" / file.name).unlink()
        layout = StoreLayout(str(ours))
        low = CommitLog(layout).min_offset
        queues = {queue.topic: queue for queue in queues_of(layout) if queue.topic in when_written}
        gets = [(topic, 0, 0, 1) for topic in when_written]
        answer = engine_5.open(theirs, _SIZES, gets=gets, messages=False)
        assert answer["loadOk"]
        for row in answer["getMessage"]:
            queue = queues[row["topic"]]
            ends_of_queue = queue.min_offset(low), queue.max_offset  # by the rules of the release that wrote the store
            assert ends_of_queue == (row["minOffset"], row["maxOffset"]), (gone, row)
            seen.add("none" if ends_of_queue[0] == ends_of_queue[1] else "all" if not ends_of_queue[0] else "some")
    assert seen == {"none", "some", "all"}
