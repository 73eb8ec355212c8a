"""Compacted topics as read by a real 5.3.3 broker, also after we have rebuilt their logs."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rmqtool.services.lookup.compacted import get_compacted, latest
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import LocatedRecord
from rmqtool.store.queues.compaction import CompactionQueue, key_of
from rmqtool.store.repair.rebuild import rebuild
from tests import goldens
from tests.amounts import by_turns
from tests.interop.broker import Broker

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]
CASE = "compaction-5.3.3"
PULL, SUBSCRIBED = 11, 4
_FOUND = {0: "FOUND", 19: "OFFSET_OVERFLOW_ONE", 21: "MOVED"}
_MOVED = {"OFFSET_OVERFLOW_BADLY"}
_NONE = {"NO_MESSAGE_IN_QUEUE", "OFFSET_FOUND_NULL"}


def config() -> dict[str, Any]:
    hour = 3_600_000  # nothing is to be compacted, checked or removed meanwhile
    rest = {"compactionScheduleInternal": hour, "transactionCheckInterval": hour, "fileReservedTime": 480_000}
    return dict(goldens.about(CASE)["config"]) | rest | {"enableCompaction": "true"}


def pulled(broker: Broker, topic: str, queue: int, offset: int, most: int) -> tuple[str, list[int]]:
    fields = {
        "topic": topic, "consumerGroup": "g", "queueId": queue, "queueOffset": offset, "maxMsgNums": most,
        "sysFlag": SUBSCRIBED, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
    answer = broker.ask("request", code=PULL, fields={name: str(value) for name, value in fields.items()})
    ranges = [int(answer["fields"][name]) for name in ("nextBeginOffset", "minOffset", "maxOffset")]
    return _FOUND[answer["code"]], ranges


def consumed(broker: Broker, topic: str, queue: int, offset: int = 0) -> list[tuple[int, str, str]]:
    """Everything that a consumer gets from an offset."""
    listed: list[tuple[int, str, str]] = []
    status = "FOUND"
    while status == "FOUND":
        answer = broker.ask("pull", group="g", topic=topic, queueId=queue, offset=offset, count=32)
        status, offset = answer["status"], answer["next"]
        listed += [(row["queueOffset"], row["keys"], row["body"]) for row in answer["messages"]]
    return listed


def ours(store: Path, topic: str, queue: int) -> list[tuple[int, str, str]]:
    rows = CompactionQueue(StoreLayout(str(store)), topic, queue).read()
    return [(r.record.queue_offset, *_key_and_body(r)) for r in rows]


def _key_and_body(located: LocatedRecord) -> tuple[str, str]:
    return key_of(located), located.record.body.decode()


@by_turns(23)
@pytest.mark.parametrize("case", [CASE, f"{CASE}-crash"])
def test_pulls(case: str, broker_5: Broker, tmp_path: Path) -> None:
    store, theirs = goldens.unpack(case, tmp_path / "ours"), goldens.unpack(case, tmp_path / "theirs")
    layout = StoreLayout(str(store))
    broker_5.boot(theirs, config())
    for topic, number in (("Prices", 0), ("Users", 1)):
        queue = CompactionQueue(layout, topic, number)
        for offset in (0, 2, 3, 83, 88, 89, 90, 95, 96, 500):
            for most in (2, 32):
                status, *ranges, _messages = get_compacted(queue, offset, most)
                expected = "MOVED" if status in _MOVED else "OFFSET_OVERFLOW_ONE" if status in _NONE else status
                place = topic, number, offset, most
                assert pulled(broker_5, *place) == (expected, ranges), place
        got = consumed(broker_5, topic, number)
        assert got == ours(store, topic, number)
        newest = {key: (offset, body) for offset, key, body in got}
        assert {(m.record.queue_offset, m.record.body.decode()) for m in latest(layout, topic)} >= set(newest.values())
    broker_5.stop()


@by_turns(23)
@pytest.mark.parametrize("damage", ["unpaired", "policy set late"])
def test_a_broker_goes_on_with_what_was_rebuilt(damage: str, broker_5: Broker, tmp_path: Path) -> None:
    store = goldens.unpack(CASE, tmp_path)
    queue = CompactionQueue(StoreLayout(str(store)), "Prices", 0)
    if damage == "unpaired":
        Path(queue.queue.files[1].path).unlink()
        refused = shutil.copytree(store, tmp_path / "refused")  # the broker's process keeps its lock file open
        with pytest.raises(AssertionError, match="does not take this store"):
            broker_5.boot(refused, config())
    else:
        shutil.rmtree(store / "compaction")
    sizes = BrokerConf({name: str(value) for name, value in goldens.about(CASE)["config"].items()})
    rebuild(StoreLayout(str(store), sizes), ("compaction",))
    expected = ours(store, "Prices", 0)
    assert [row[0] for row in expected][-3:] == [93, 94, 95]
    broker_5.boot(store, config())
    assert consumed(broker_5, "Prices", 0) == expected
    sent = broker_5.ask("send", topic="Prices", keys="prices-new", queueId=0, body="new")
    assert sent["queueOffset"] == 96
    last: list[tuple[int, str, str]] = []
    for _look in range(600):  # it is dispatched a moment later
        last = consumed(broker_5, "Prices", 0, expected[-1][0] + 1)
        if last:
            break
        time.sleep(0.1)
    assert last == [(96, "prices-new", "new")]
    broker_5.stop()
