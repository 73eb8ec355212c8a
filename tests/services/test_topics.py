"""Topics of the golden broker, and unused topics."""

import json
import shutil

import pytest

from rmqtool.services.lookup.topics import StoreTopics, permission
from tests import goldens
from tests.conftest import Unpacked
from tests.services import lab
from tests.services.build import log_of, never


@pytest.mark.parametrize("case", ["broker", "broker-crash"])
def test_the_golden_topics(case: str, golden: Unpacked) -> None:
    rows = {row.topic: row for row in StoreTopics(log_of(golden(case)), never).summaries()}
    assert {topic: row.messages for topic, row in rows.items() if row.messages} == lab.MESSAGES
    kinds = {topic: row.kind for topic, row in rows.items()}
    assert {t for t, kind in kinds.items() if kind == "normal"} == {
        *("Orders", "Batched", "Delayed", "Sequenced", "Payments"),
    }
    assert kinds["%RETRY%lab-orderly"] == "retry"
    assert kinds["%DLQ%lab-consumer"] == "dlq"
    assert rows["Orders"].perm == "RW"
    assert rows["lab-a"].perm == "RWI"
    assert (rows["Sequenced"].readQueueNums, rows["Sequenced"].queues, rows["Sequenced"].groups) == (4, 3, 1)
    assert not rows["RMQ_SYS_TRANS_OP_HALF_TOPIC"].configured


def test_the_golden_details(golden: Unpacked) -> None:
    topics = StoreTopics(log_of(golden("broker")), never)
    topic_details = topics.details("Orders")
    assert topic_details is not None
    times: dict[int, list[int]] = {}
    for row in goldens.messages("broker"):
        if row["cqTopic"] == "Orders":
            times.setdefault(row["cqQueueId"], []).append(row["message"]["storeTimestamp"])
    assert {
        q.queueId: (q.minOffset, q.maxOffset, q.firstStoreTimestamp, q.lastStoreTimestamp) for q in topic_details.queues
    } == {number: (0, len(of), of[0], of[-1]) for number, of in times.items()}
    assert all(queue.groups == {"lab-consumer": 0} for queue in topic_details.queues)
    assert json.loads(json.dumps(topic_details.to_dict()))["queueTable"][0]["topic"] == "Orders"
    assert topics.details("nothing") is None
    assert topics.details("../config") is None
    empty = topics.details("TBW102")
    assert empty is not None
    assert empty.queues == []


def test_unused(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    assert list(StoreTopics(log_of(store), never).find_unused()) == []
    shutil.rmtree(store / "consumequeue" / "Batched")
    offsets = (store / "config" / "consumerOffset.json").read_text()
    (store / "config" / "consumerOffset.json").write_text(offsets.replace("Sequenced@", "Other@"))
    topics = (store / "config" / "topics.json").read_text()
    (store / "config" / "topics.json").write_text(topics.replace('"Payments":{', '"Paid":{'))
    groups = (store / "config" / "subscriptionGroup.json").read_text()
    (store / "config" / "subscriptionGroup.json").write_text(groups.replace('"lab-orderly":{', '"lab-other":{'))
    names = {row.topic: row.reason for row in StoreTopics(log_of(store), never).find_unused()}
    assert {topic: reason.split()[0] for topic, reason in names.items()} == {
        "Batched": "no",  # messages
        "Paid": "no",  # messages
        "Payments": "not",  # in topics.json
        "Sequenced": "no",  # group
        "%RETRY%lab-orderly": "its",  # group is unknown
    }
    assert names["Sequenced"] == "no group has an offset in it"


@pytest.mark.parametrize(
    ("perm", "text"), [(0, "-"), (6, "RW"), (7, "RWI"), (4, "R"), (2, "W"), (8, "X"), (-1, "XRWI")]
)
def test_permissions(perm: int, text: str) -> None:
    assert permission(perm) == text


def test_topics_of_5_say_what_they_are_for(golden: Unpacked) -> None:
    topics = StoreTopics(log_of(golden("broker-5.3.3")), never)
    result = {topic: topics.summary(topic).nature for topic in topics.names()}
    assert result["BatchQueue"] == ["normal", "batch queue"]
    assert result["Profiles"] == ["normal", "compaction"]
    assert result["Timers"] == ["normal", "delay"]
    assert result["%LMQ%device-0"] == ["normal", "light queue"]
    assert (result["Popped"], result["%RETRY%pop-group_Popped"]) == (["normal"], ["retry"])
