"""Records that dispatch ignores must leave no trace in queues."""

from pathlib import Path

import pytest

from formats.message.build import pack
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES, Release
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import recover
from tests.formats.strategies import a_record

LIGHT = b"INNER_MULTI_DISPATCH\x01%LMQ%a,other\x02INNER_MULTI_QUEUE_OFFSET\x010,0\x02"


@pytest.mark.parametrize(
    ("topic", "allowing"),
    [("T", "4.9 5.3 5.4 5.5"), ("%RETRY%g", "4.9"), ("SCHEDULE_TOPIC_XXXX", "4.9"), ("%DLQ%g", "4.9 5.3 5.4")],
)
@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_copies_go_to_no_light_queue(topic: str, allowing: str, release: Release, tmp_path: Path) -> None:
    """``MixAll.topicAllowsLMQ``: of 5.x, when a message is stored and when it is dispatched."""
    log = tmp_path / "commitlog" / f"{0:020d}"
    log.parent.mkdir()
    record = a_record(
        sys_flag=0,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        topic=topic.encode(),
        properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02",
    )
    log.write_bytes(pack(record).ljust(65536, b"\0"))
    conf = BrokerConf({"mappedFileSizeCommitLog": "65536", "enableMultiDispatch": "true", "enableLmq": "true"})
    recover(StoreLayout(str(tmp_path), conf), release=release)
    expected = str(release) in allowing.split()
    assert (tmp_path / "consumequeue" / "%LMQ%a").exists() == expected
    with Store(tmp_path, write=True, release=release, broker_conf=conf.values) as store:
        sent = store.append(NewMessage(topic=topic, properties={"INNER_MULTI_DISPATCH": "%LMQ%b"})).ok
    assert sent or topic == "SCHEDULE_TOPIC_XXXX"
    assert (tmp_path / "consumequeue" / "%LMQ%b").exists() == (expected and sent)


@pytest.mark.parametrize("kind", [TRANSACTION_NONE, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_only_queued_messages_go_to_further_queues(kind: int, tmp_path: Path) -> None:
    """A half message creates no queue: neither its own nor a light queue that it names."""
    log = tmp_path / "commitlog" / f"{0:020d}"
    log.parent.mkdir()
    raw = pack(a_record(sys_flag=kind, queue_id=3, queue_offset=0, physical_offset=0, properties=LIGHT, topic=b"T"))
    log.write_bytes(raw.ljust(65536, b"\0"))
    (tmp_path / "abort").touch()
    conf = BrokerConf({"mappedFileSizeCommitLog": "65536", "enableMultiDispatch": "true"})
    report = recover(StoreLayout(str(tmp_path), conf))
    assert report.afterStart is not None
    queues = {(q.topic, q.queueId): q.maxOffset for q in report.afterStart.queues}
    queued = kind in (TRANSACTION_NONE, TRANSACTION_COMMIT)
    assert queues == ({("T", 3): 1, ("%LMQ%a", 0): 1, ("other", 3): 1} if queued else {})
