"""Lag and problems of groups: the golden broker's, and impossible offsets."""

import json
from pathlib import Path
from typing import Any

import pytest

from formats.config.files import QueueOffset
from rmqtool import NewMessage, Store
from rmqtool.contract import PlainRows
from rmqtool.errors import CorruptFile
from rmqtool.services.consumers.groups import ConsumerGroups, GroupLag, compare, sums
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services import lab
from tests.services.build import TIME, Builder, log_of, never


@pytest.mark.parametrize("case", ["broker", "broker-crash"])
def test_the_golden_lags(case: str, golden: Unpacked) -> None:
    """Everything was consumed; the dead letters have no consumer."""
    rows = list(ConsumerGroups(log_of(golden(case)), never).lag())
    assert {(row.diff, row.state) for row in rows} == {(0, "ok")}
    topics: dict[str, dict[str, int]] = {}
    for row in rows:
        of_group = topics.setdefault(row.group, {})
        of_group[row.topic] = of_group.get(row.topic, 0) + (row.consumerOffset or 0)
    assert {group: set(lag_row) for group, lag_row in topics.items()} == lab.CONSUMED
    for lag_row in topics.values():
        assert lag_row == {topic: lab.MESSAGES.get(topic, 0) for topic in lag_row}
    by_topic = list(sums(PlainRows.of(GroupLag, rows), by_topic=True))
    assert [(row.group, row.topic) for row in by_topic] == sorted(
        (g, t) for g, names in lab.CONSUMED.items() for t in names
    )
    assert [row.group for row in sums(PlainRows.of(GroupLag, rows), by_topic=False)] == sorted(lab.CONSUMED)
    assert sum(row.queues for row in by_topic) == len(rows)


def test_the_time_of_the_last_message_consumed(golden: Unpacked) -> None:
    log = log_of(golden("broker"))
    for row in ConsumerGroups(log, never).lag():
        if row.consumerOffset:
            queue = ConsumerGroups(log, never).queues.one(row.topic, row.queueId)
            assert queue is not None
            entry = queue.entry(row.consumerOffset - 1)
            assert entry is not None
            located = log.read(entry.physical_offset)
            assert located is not None
            assert row.lastTimestamp == located.record.store_timestamp
        else:
            assert row.lastTimestamp == 0


def test_the_golden_groups(golden: Unpacked) -> None:
    rows = {row.group: row for row in ConsumerGroups(log_of(golden("broker")), never).infos()}
    assert {group for group, row in rows.items() if row.topics} == set(lab.CONSUMED)
    value = rows["lab-consumer"]
    assert (value.configured, value.retryMaxTimes, value.topics, value.diff, value.deadLetters, value.retryDiff) == (
        *(True, 16, 4, 0, 16, 0),
    )
    assert not rows["CID_RMQ_SYS_TRANS"].configured
    assert rows["TOOLS_CONSUMER"].queues == 0


def lagging(
    tmp_path: Path, offsets: str, warn: Any = never, topics: str | None = None
) -> dict[tuple[str, int], GroupLag]:
    builder = Builder()
    for queue_id, count in ((0, 5), (1, 3), (2, 1)):
        for _ in range(count):
            builder.put("T", queue_id)
    table = topics or '{"topicConfigTable":{"T":{"readQueueNums":3,"writeQueueNums":3}}}'
    store = builder.write(tmp_path, {"consumerOffset.json": offsets, "topics.json": table})
    return {(row.topic, row.queueId): row for row in ConsumerGroups(log_of(store), warn).lag()}


def test_states(tmp_path: Path) -> None:
    rows = lagging(tmp_path, '{"offsetTable":{"T@g":{0:2,1:3,7:0},"U@g":{0:4},"V@g":{0:0}}}')
    assert {key: (row.state, row.consumerOffset, row.diff) for key, row in rows.items()} == {
        ("T", 0): ("behind", 2, 3),
        ("T", 1): ("ok", 3, 0),
        ("T", 2): ("none", None, 1),
        ("T", 7): ("extra-queue", 0, 0),
        ("U", 0): ("ahead", 4, -4),
        ("V", 0): ("unknown-topic", 0, 0),
    }
    assert rows["T", 0].lastTimestamp == TIME + 2


def test_messages_that_are_gone(tmp_path: Path) -> None:
    builder = Builder()
    for _ in range(5):
        builder.put("T")
    store = builder.write(tmp_path, {"consumerOffset.json": '{"offsetTable":{"T@g":{0:1}}}'})
    first = store / "commitlog" / f"{0:020d}"
    # the first file has expired: the queue's first two messages lay in it
    cut = builder.queues["T", 0][2][0]
    second = store / "commitlog" / f"{cut:020d}"
    second.write_bytes(first.read_bytes()[cut:])
    first.unlink()
    (row,) = ConsumerGroups(log_of(store), lambda _text: None).lag()
    assert (row.state, row.minOffset, row.diff, row.lastTimestamp) == ("expired", 2, 4, 0)


def test_without_topics_json_no_topic_is_unknown(tmp_path: Path) -> None:
    warnings: list[str] = []
    rows = lagging(tmp_path, '{"offsetTable":{"T@g":{0:5,9:0}}}', warnings.append, topics="{")
    assert {row.state for row in rows.values()} == {"ok"}
    assert len(warnings) == 1


def test_offsets_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile):
        lagging(tmp_path, '{"offsetTable":')


def test_compare() -> None:
    offsets = [QueueOffset("T", "g", 0, 5), QueueOffset("T", "g", 1, 7), QueueOffset("A", "h", 0, 1)]
    other = [QueueOffset("T", "g", 0, 3), QueueOffset("T", "g", 1, 7), QueueOffset("T", "h", 0, 2)]
    rows = [(r.group, r.topic, r.queueId, r.offset, r.otherOffset, r.change) for r in compare(offsets, other)]
    assert rows == [("g", "T", 0, 5, 3, -2), ("h", "A", 0, 1, None, None), ("h", "T", 0, None, 2, None)]
    assert len(list(compare(offsets, other, equal=True))) == 4
    assert list(compare(offsets, offsets)) == []


def test_an_impossible_offset_takes_nothing_of_another_lag(tmp_path: Path) -> None:
    """A lag of 20 messages, and in another topic an offset 20 beyond the end."""
    path = tmp_path / "store"
    with Store.create(path) as store:
        store.append_many([NewMessage(topic=topic, body=b"x") for topic in ("Ahead", "Behind") for _ in range(20)])
    table = {"Ahead@g": {"0": 40}, "Behind@g": {"0": 0}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    log = CommitLog(StoreLayout(str(path)))
    groups = ConsumerGroups(log, lambda _line: None)
    assert {row.topic: row.diff for row in groups.lag()} == {"Ahead": -20, "Behind": 20}
    assert [row.diff for row in sums(groups.lag_rows(), by_topic=False)] == [20]
    assert {row.topic: row.diff for row in sums(groups.lag_rows(), by_topic=True)} == {"Ahead": 0, "Behind": 20}
    assert [row.diff for row in groups.infos()] == [20]
    asked = rmqtool("report", "lag", path, "--runner", "local", "-o", "ndjson")
    listed = {row["topic"]: (row["lag"], row["largest"]) for row in map(json.loads, asked.out.splitlines())}
    assert listed == {"Ahead": (0, 0), "Behind": (20, 20)}
