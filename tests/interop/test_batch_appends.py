"""Batches appended to batch queues as a 5.3.3 broker stores those of its clients; a broker can continue from there."""

import base64
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.message.bodies import BatchItem, build_batch
from formats.message.inner import is_inner_batch, messages_in
from formats.message.properties import INNER_BASE, INNER_NUM, UNIQ_KEY
from formats.message.read import Record
from formats.primitives import host_text
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import V5_3
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import batch_queues_of
from rmqtool.store.recovery.command import plan
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.sides import SETTINGS, without
from tests.interop.test_sending import header, pairs
from tests.store.findings import found_in

pytestmark = pytest.mark.interop
TOPIC = "InBatches"
CONF = SETTINGS | {"mapperFileSizeBatchConsumeQueue": str(46 * 3)}
SEND, UPDATE_TOPIC, MAX = 10, 17, 30  # request codes


def make_topic(broker: Broker) -> int:
    fields = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "+queue.type=BatchCQ",
    }  # fmt: skip
    code: int = broker.ask("request", code=UPDATE_TOPIC, fields=fields)["code"]
    return code


def sends(broker: Broker, key: str) -> None:
    """Send batches of 5.x clients, single messages, and a batch as from 4.9 clients, without an id of its own."""
    for size in (5, 1, 7):
        sent: list[dict[str, Any]] = [
            {"topic": TOPIC, "keys": f"{key}-{size}-{n} 键", "body": "消息" * n + "x", "flag": n * 7 - 9}
            for n in range(size)
        ]
        assert broker.ask("sendBatch", messages=sent)["status"] == "SEND_OK"
        assert broker.ask("send", topic=TOPIC, keys=f"{key}-{size}", body="alone", queueId=0)["status"] == "SEND_OK"
    items = [BatchItem(n, b"of 4.9", b"KEYS\x01k%d" % n) for n in range(3)]
    request = {"fields": header(TOPIC, batch="true"), "base64": base64.b64encode(build_batch(items)).decode()}
    assert broker.ask("request", code=SEND, **request)["code"] == 0


def dispatched(broker: Broker, wanted: int) -> bool:
    """Whether the queue reaches its expected length; a broker dispatches slightly after it answers."""
    give_up = time.monotonic() + 20
    while True:
        answer = broker.ask("request", code=MAX, fields={"topic": TOPIC, "queueId": "0"})
        if (result := int(answer["fields"]["offset"])) >= wanted or time.monotonic() > give_up:
            return result == wanted
        time.sleep(0.05)


def as_sent(record: Record) -> NewMessage:
    """A stored record as it was sent, with its stored times and hosts."""
    return NewMessage(
        topic=TOPIC, queue_id=record.queue_id, body=record.body, flag=record.flag,
        properties=without(record, INNER_NUM, INNER_BASE), born_timestamp=record.born_timestamp,
        store_timestamp=record.store_timestamp, born_host=host_text(record.born_address, record.born_port),
        store_host=host_text(record.store_address, record.store_port), reconsume_times=record.reconsume_times,
    )  # fmt: skip


def append_again(store: Store, record_list: list[Record]) -> None:
    """Append messages stored by a broker."""
    old: list[Record] = []
    for record in record_list:
        if is_inner_batch(record.sys_flag):
            assert store.live.append_encoded(as_sent(record)).messages == sum(1 for _ in messages_in(record))
        elif record.body != b"of 4.9":
            assert store.append(as_sent(record)).ok
        else:
            old.append(record)
    first = as_sent(old[0])
    # what the broker adds to each message it adds to the batch here
    common = {name: value for name, value in first.property_map().items() if name != "KEYS"}
    items = [BatchItem(message.flag, message.body, b"KEYS\x01k%d" % n) for n, message in enumerate(old)]
    done = store.live.append_encoded(replace(first, body=build_batch(items), properties=common, flag=0))
    assert done.messages == len(old)


def stored(store: Path) -> list[Record]:
    """The records of a topic."""
    walked = CommitLog(StoreLayout(str(store), BrokerConf(CONF))).walk()
    return [item.record for item in walked if isinstance(item, LocatedRecord) and item.record.topic == TOPIC.encode()]


def queue_files(store: Path) -> dict[str, bytes]:
    folder = store / "batchconsumequeue"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("0*") if path.is_file()}


def conf() -> BrokerConf:
    return BrokerConf(CONF)


@by_turns(23)
@pytest.mark.xdist_group("broker-5.3.3")
def test_batches_as_a_broker_stores_them(broker_5: Broker, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    broker_5.boot(theirs, CONF)
    assert make_topic(broker_5) == 0
    assert make_topic(broker_5) == 1  # nobody changes the kind of queues that are there
    sends(broker_5, "first")
    broker_5.stop()
    theirs_stored = stored(theirs)
    assert [is_inner_batch(record.sys_flag) for record in theirs_stored] == [True, False] * 3 + [False] * 3
    Store.create(ours, broker_conf=CONF, release=V5_3).close()
    (ours / "config").mkdir(exist_ok=True)
    shutil.copy(theirs / "config" / "topics.json", ours / "config" / "topics.json")
    with Store(ours, write=True, broker_conf=CONF) as store:
        append_again(store, theirs_stored)
    for first, second in zip(theirs_stored, stored(ours), strict=True):
        assert first._replace(properties=b"") == second._replace(properties=b"")
        assert pairs(first.properties) == pairs(second.properties)
    assert len(queue_files(theirs)) > 2
    assert queue_files(ours) == queue_files(theirs)
    assert plan(StoreLayout(str(ours), conf())).clean

    broker_5.boot(ours, CONF)
    sends(broker_5, "second")
    assert dispatched(broker_5, 2 * (5 + 1 + 1 + 1 + 7 + 1 + 3))
    broker_5.stop()
    with Store(ours, write=True, broker_conf=CONF) as store:
        result = store.append_batch([NewMessage(topic=TOPIC, body=b"last", keys=f"k{n}") for n in range(4)])
        assert [message.queue_offset for message in result] == [38, 39, 40, 41]
    (queue,) = batch_queues_of(StoreLayout(str(ours), conf()))
    assert queue.max_offset == 42
    assert not [finding for finding in found_in(ours) if finding.code.startswith("bcq")]
    assert UNIQ_KEY in without(theirs_stored[0])
