"""Offsets of many groups of the same queues: each queue is looked at once, not once a group."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.services.lookup.offsets import consumer_offsets
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import AnyQueue
from tests.conftest import Unpacked


@pytest.fixture
def store(golden_copy: Unpacked) -> Path:
    return golden_copy("clean")


def test_each_queue_is_looked_at_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_begin = CommitLog(StoreLayout(str(store))).min_offset
    topic, queue = next(
        (topic, queue)
        for queues in [TopicQueues(StoreLayout(str(store)))]
        for topic in queues.topics()
        if (queue := queues.either(topic, 0)) is not None
    )
    low, high = queue.min_offset(log_begin), queue.max_offset
    assert high > 0
    groups = ",".join(f'"{topic}@g{number}":{{0:{number},77:1}}' for number in range(50))
    (store / "config").mkdir(exist_ok=True)
    (store / "config/consumerOffset.json").write_text(f'{{"offsetTable":{{{groups}}}}}')
    looked: Counter[str] = Counter()
    existing = TopicQueues.existing

    def look(self: TopicQueues, topic: str) -> Iterator[AnyQueue]:
        looked[topic] += 1
        return existing(self, topic)

    monkeypatch.setattr(TopicQueues, "existing", look)
    rows = [row for rows in consumer_offsets(StoreLayout(str(store))) for row in rows.dicts()]
    assert looked == {topic: 1}
    assert len(rows) == 100
    for row in rows:
        there = row["queueId"] == 0
        assert (row["minOffset"], row["brokerOffset"]) == ((low, high) if there else (None, None))
        assert row["lag"] == (high - row["consumerOffset"] if there else None)
