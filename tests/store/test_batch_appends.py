"""Appends to topics with batch queues: each batch becomes one record, single messages stay single."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.message.bodies import BatchItem, build_batch
from formats.message.inner import BATCH_BITS
from formats.message.properties import parse
from formats.primitives import COMPRESSED
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import V5_3
from rmqtool.store.append.answers import Illegal
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import batch_queues_of
from rmqtool.store.recovery.command import plan, recover
from tests import goldens
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.store.findings import found_in

CASE, TOPIC = "broker-5.3.3", "BatchQueue"
END = 25  # of queue 0
SMALL = {"mapperFileSizeBatchConsumeQueue": str(46 * 4), "mappedFileSizeCommitLog": "16384"}
NAMED = {"UNIQ_KEY": "A" * 32}
ITEMS = [BatchItem(n, b"body %d" % n, b"KEYS\x01key%d\x02TAGS\x01t\x02" % n) for n in range(4)]
NUMBERED = BatchItem(0, b"x", b"INNER_NUM\x015\x02INNER_BASE\x010")


def batch(**fields: Any) -> NewMessage:
    return NewMessage(**{"topic": TOPIC, "body": build_batch(ITEMS), "properties": NAMED, **fields})


def units(store: Path, queue_id: int = 0) -> list[tuple[int, int]]:
    """(first queue offset, messages) of each unit."""
    queue = next(q for q in batch_queues_of(StoreLayout(str(store))) if (q.topic, q.queue_id) == (TOPIC, queue_id))
    return [(entry.queue_offset, entry.batch_num) for entry in queue.entries()]


def empty(path: Path) -> Path:
    """An empty store with a topic with batch queues."""
    Store.create(path, broker_conf=SMALL, release=V5_3).close()
    table = {TOPIC: {"topicName": TOPIC, "attributes": {"queue.type": "BatchCQ"}}}
    config = {"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1}, "topicConfigTable": table}
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "topics.json").write_text(json.dumps(config))
    return path


def files(store: Path, *folders: str) -> dict[str, bytes]:
    paths = (path for folder in folders for path in (store / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(store)): path.read_bytes() for path in paths}


def test_batches_go_on_behind_what_a_broker_has_left(tmp_path: Path) -> None:
    root = goldens.unpack(CASE, tmp_path)
    before = len(units(root))
    with Store(root, write=True) as store:
        done = store.live.append_encoded(batch())
        assert (done.queue_offset, done.messages) == (END, 4)
        old = store.live.append_encoded(batch(properties={}))  # of a client of 4.9: no id of its own
        assert (old.queue_offset, old.messages) == (END + 4, 4)
        assert store.append(NewMessage(topic=TOPIC, body=b"alone")).queue_offset == END + 8
        rows = store.append_batch([NewMessage(topic=TOPIC, body=b"b%d" % n, keys=f"k{n}", flag=n) for n in range(3)])
        assert [row.queue_offset for row in rows] == [END + 9, END + 10, END + 11]
        assert len({row.physical_offset for row in rows}) == 1
        assert store.append_many([NewMessage(topic=TOPIC, body=b"m")] * 300)[-1].queue_offset == END + 311
        store.live.dispatch()
        assert store.get(TOPIC, 0, END, 32).next_begin_offset == END + 32
    assert units(root)[before:] == [(END, 4), *((END + 4 + n, 1) for n in range(5)), (END + 9, 3)] + [
        (END + 12 + n, 1) for n in range(300)
    ]
    assert plan(StoreLayout(str(root))).clean
    assert not [finding for finding in found_in(root) if finding.severity != "info"]
    dumped = rmqtool("commitlog", "dump", root, "--topic", TOPIC, "--body", "hex", "-o", "ndjson").out.splitlines()
    last = [row for row in map(json.loads, dumped) if row["queueId"] == 0 and END <= row["queueOffset"] < END + 12]
    bodies = [*(item.body for item in ITEMS), *(item.body for item in ITEMS), b"alone", b"b0", b"b1", b"b2"]
    assert [(row["queueOffset"], bytes.fromhex(row["body"])) for row in last] == [
        (END + n, body) for n, body in enumerate(bodies)
    ]
    assert [row["keys"] for row in last[:4]] == [["key0"], ["key1"], ["key2"], ["key3"]]
    assert [row["flag"] for row in last[-3:]] == [0, 1, 2]


def test_the_record_says_its_numbers(tmp_path: Path) -> None:
    root = empty(tmp_path / "s")
    with Store(root, write=True, broker_conf=SMALL) as store:
        store.append(NewMessage(topic=TOPIC, body=b"alone"))
        # numbers of the place that it comes from, as in a row of a dump: they are those of the new place then
        moved = batch(sys_flag=BATCH_BITS, properties={"INNER_BASE": "77", "INNER_NUM": "9", "a": "b"})
        result = store.append(moved)
        located = CommitLog(store.layout).read(result.physical_offset)
    assert result.queue_offset == 1
    assert located is not None
    assert located.record.sys_flag == BATCH_BITS
    assert parse(located.record.properties) == {"a": "b", "INNER_NUM": "4", "INNER_BASE": "1"}
    assert units(root) == [(0, 1), (1, 4)]


@by_turns(2)
@pytest.mark.parametrize(
    "message",
    [
        batch(topic="Plain", sys_flag=BATCH_BITS),
        batch(sys_flag=BATCH_BITS, body=b"no batch"),
        batch(sys_flag=BATCH_BITS, body=b""),
        batch(sys_flag=BATCH_BITS | COMPRESSED),
        batch(sys_flag=BATCH_BITS | 4),
        batch(sys_flag=BATCH_BITS, properties={"DELAY": "3"}),
        batch(sys_flag=BATCH_BITS, body=build_batch([BatchItem(0, b"", b"")] * 32768)),
        batch(properties={"INNER_NUM": "4"}),
        batch(properties=b"INNER_NUM\x014\x02INNER_BASE\x010"),
        batch(sys_flag=BATCH_BITS, properties={"a": "x" * 32750}),  # the base has no room any more
    ],
    ids=["plain topic", "no batch", "empty", "compressed", "half", "delayed", "many", "number", "numbers", "long"],
)
def test_what_no_broker_takes_is_refused_in_every_way(message: NewMessage, tmp_path: Path) -> None:
    with Store(empty(tmp_path / "s"), write=True, broker_conf=SMALL) as store:
        assert not store.append(message).ok
        many = store.append_many([NewMessage(topic=TOPIC)] * 150 + [message] + [NewMessage(topic=TOPIC)] * 150)
        assert [result.ok for result in many] == [True] * 150 + [False] + [True] * 150
        with pytest.raises(Illegal):
            store.append_batch([NewMessage(topic=message.topic), message])
        assert store.append(NewMessage(topic=TOPIC)).queue_offset == 300
    assert plan(StoreLayout(str(tmp_path / "s"), BrokerConf(SMALL))).clean


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([NewMessage(topic=TOPIC), NewMessage(topic=TOPIC, queue_id=1)], "one queue"),
        ([NewMessage(topic=TOPIC), NewMessage(topic="Plain")], "one queue"),
        ([NewMessage(topic=TOPIC), NewMessage(topic=TOPIC, born_timestamp=1)], "same times"),
        ([NewMessage(topic=TOPIC), NewMessage(topic=TOPIC, sys_flag=1)], "same times"),
        ([NewMessage(topic=TOPIC, born_host="1.2.3.4:5"), NewMessage(topic=TOPIC)], "same times"),
        ([batch(sys_flag=BATCH_BITS)] * 2, "no other"),
        ([NewMessage(topic=TOPIC, properties={"DELAY": "1"})] * 2, "delayed"),
    ],
)
def test_what_one_record_cannot_say(messages: list[NewMessage], text: str, tmp_path: Path) -> None:
    with Store(empty(tmp_path / "s"), write=True, broker_conf=SMALL) as store:
        with pytest.raises(Illegal, match=text):
            store.append_batch(messages)
        assert store.live.end == 0


@pytest.mark.parametrize("items", [[ITEMS[0], NUMBERED], [NUMBERED]])
def test_numbers_inside_a_batch_that_is_stored_message_by_message(items: list[BatchItem], tmp_path: Path) -> None:
    """Dispatch would take a message with these numbers for a batch."""
    with Store(empty(tmp_path / "s"), write=True, broker_conf=SMALL) as store:
        with pytest.raises(Illegal):
            store.live.append_encoded(batch(body=build_batch(items), properties={}))
        with pytest.raises(Illegal):
            store.live.append_encoded(batch(body=b"\0\0\0\x09", properties={}))
        assert store.live.end == 0
        assert store.live.append_encoded(batch(body=build_batch(items))).messages == len(items)


def test_nothing_goes_into_further_queues_of_batch_queues(tmp_path: Path) -> None:
    conf = SMALL | {"enableMultiDispatch": "true", "enableLmq": "true"}
    with Store(empty(tmp_path / "s"), write=True, broker_conf=conf) as store:
        assert not store.append(NewMessage(topic=TOPIC, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})).ok
        assert not store.append(NewMessage(topic="Plain", properties={"INNER_MULTI_DISPATCH": f"%LMQ%a,{TOPIC}"})).ok
        assert store.append(NewMessage(topic="Plain", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})).ok


def _mixed(store: Store, put: Callable[[Store, list[NewMessage]], object]) -> None:
    alone = [NewMessage(topic=TOPIC, body=b"%d" % n, queue_id=n % 2, keys=f"k{n % 9}") for n in range(90)]
    whole = [batch(sys_flag=BATCH_BITS, queue_id=n % 2) for n in range(30)]
    put(store, [message for n in range(30) for message in (*alone[3 * n : 3 * n + 3], whole[n])])


def test_many_are_stored_like_one_by_one(tmp_path: Path) -> None:
    stores = [empty(tmp_path / name) for name in ("one", "many")]
    puts: list[Callable[[Store, list[NewMessage]], object]] = [
        lambda store, messages: [store.append(message) for message in messages],
        lambda store, messages: store.append_many(messages),
    ]
    for root, put in zip(stores, puts, strict=True):
        with Store(root, write=True, broker_conf=SMALL, clock=lambda: 1_795_000_000_000) as store:
            _mixed(store, put)
    singly, many = (files(root, "commitlog", "batchconsumequeue") for root in stores)
    assert len([name for name in singly if name.startswith("batch")]) > 20
    assert singly == many
    assert units(stores[0]) == units(stores[1])


def test_a_killed_writer_loses_nothing(tmp_path: Path) -> None:
    """Appended but not dispatched: recovery creates the units that the append would have created at its end."""
    killed, closed = empty(tmp_path / "killed"), tmp_path / "closed"
    with Store(killed, write=True, broker_conf=SMALL, clock=lambda: 1_795_000_000_000) as store:
        _mixed(store, lambda store, messages: store.append_many(messages))
    shutil.copytree(killed, closed)
    for root in (killed, closed):
        with Store(root, write=True, broker_conf=SMALL, clock=lambda: 1_795_000_000_000) as store:
            _mixed(store, lambda store, messages: store.append_many(messages))
            if root == killed:
                store.live.abandon()
    assert files(killed, "batchconsumequeue") != files(closed, "batchconsumequeue")
    recover(StoreLayout(str(killed), BrokerConf(SMALL)))
    assert files(killed, "commitlog", "batchconsumequeue") == files(closed, "commitlog", "batchconsumequeue")


@pytest.mark.parametrize("records", [True, False])
def test_a_dump_is_appended_again(records: bool, tmp_path: Path) -> None:
    root = goldens.unpack(CASE, tmp_path)
    before = units(root)
    more = ["--records"] if records else []
    dumped = rmqtool("commitlog", "dump", root, "--topic", TOPIC, "--body", "base64", "-o", "ndjson", *more)
    rows = tmp_path / "rows.ndjson"
    rows.write_text(dumped.out)
    result = rmqtool("append", root, rows, "-o", "ndjson")
    assert (result.code, len(result.out.splitlines())) == (0, 11 if records else 43)
    if records:
        assert units(root) == before + [(END + base, count) for base, count in before]
    else:
        assert units(root) == before + [(END + n, 1) for n in range(END)]
    assert plan(StoreLayout(str(root))).clean
