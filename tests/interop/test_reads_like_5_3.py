"""Reads by the rules of 5.3 equal what a real 5.3.3 engine answers on the same store."""

from pathlib import Path

import pytest

from rmqtool.services.lookup.get_message import get_message
from rmqtool.services.lookup.query_time import offset_by_time_v5
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import queues_of
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
        low, high = queue.min_offset(log.min_offset, "5.3"), queue.max_offset
        stamps = set()
        for entry in queue.entries(low):
            found = log.read(entry.physical_offset)
            assert found is not None
            stamps.update(found.record.store_timestamp + shift for shift in (-1, 0, 1))
        stamps |= {0, 1 << 62}
        times += [(topic, queue_id, stamp) for stamp in sorted(stamps)]
        offsets = {-1, 0, low - 1, low, low + 1, (low + high) // 2, high - 1, high, high + 1, high + 1000}
        gets += [(topic, queue_id, offset, count) for offset in sorted(offsets) for count in (1, 3, 32)]
    said = engine_5.open(theirs, golden_config(case), times=times, gets=gets, messages=False)
    assert said["loadOk"]
    for row in said["offsetByTime"]:
        queue = queues[row["topic"], row["queueId"]]
        assert offset_by_time_v5(log, queue, row["timestamp"]) == row["offset"], row
    for row in said["getMessage"]:
        queue = queues[row["topic"], row["queueId"]]
        got = get_message(log, queue, row["offset"], row["maxMsgNums"], engine="5.3")
        expected = (row["status"], row["nextBeginOffset"], row["minOffset"], row["maxOffset"], row["count"])
        assert (*got[:4], len(got.messages)) == expected, row
    assert len(said["offsetByTime"]) > 50
    assert len(said["getMessage"]) > 50
