"""Our services and a whole real broker, driven by its own clients: what one has left in flight the other finishes.

Each test also compares what both have stored for the same sends.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import time
from typing import Any

import pytest

from formats.config_files import DelayOffsets, TopicConfig, Topics
from formats.message import Record
from formats.properties import parse
from rmqtool import Message, Store
from rmqtool.services.broker_state import BrokerState
from rmqtool.services.delivery import Delivery, deliver_due
from rmqtool.services.queue_messages import DLQ_PREFIX, HALF, OP, RETRY_PREFIX, SCHEDULE
from rmqtool.services.run_loop import RunLoop
from rmqtool.services.send_back import SendBack
from rmqtool.services.transaction_service import CheckRequest, Decision, TransactionService
from rmqtool.store.broker_conf import BrokerConf
from rmqtool.store.check import check_store
from rmqtool.store.commit_log import Found
from rmqtool.store.layout import StoreLayout
from tests.interop.broker import Broker, available
from tests.interop.engine import Engine
from tests.services.build import never

pytestmark = pytest.mark.interop

SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
    "transactionCheckInterval": "1500",
    "transactionTimeOut": "1000",
    "flushDelayOffsetInterval": "1000",
    "flushConsumerOffsetInterval": "1000",
    "waitTimeMillsInSendQueue": "5000",
    "diskMaxUsedSpaceRatio": "99",
}
GROUP, PRODUCERS = "lab-consumer", "lab-tx"
TOPICS = ("Delayed", "Payments", "Orders")
Row = dict[str, Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    if reason := available():
        pytest.skip(reason)
    with Broker() as made:
        yield made


def now() -> int:
    return int(time() * 1000)


def records(store: Path) -> list[Record]:
    with Store(store, broker_conf=SETTINGS) as opened:
        return [item.record for item in opened.messages() if isinstance(item, Found)]


def stored(store: Path, topic: str, body: str | None = None) -> list[Record]:
    return [r for r in records(store) if r.topic.decode() == topic and body in (None, r.body.decode())]


def keys(rows: list[Row], topic: str) -> Counter[str]:
    return Counter(row["keys"] for row in rows if row["topic"] == topic)


def our_store(path: Path) -> tuple[Store, BrokerState]:
    """An empty store of ours with the topics that the clients use."""
    store = Store.create(path, broker_conf=SETTINGS)
    topics = {name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4) for name in TOPICS}
    (path / "config" / "topics.json").write_bytes(Topics(topics=topics).build())
    return store, BrokerState(store, never)


def message(topic: str, name: str, **properties: str) -> Message:
    named = {"KEYS": name, "TAGS": "tag", "UNIQ_KEY": name.encode().hex().upper().rjust(32, "0"), **properties}
    return Message(topic=topic, body=name.encode(), properties=named)


def test_a_broker_finishes_what_we_have_left(broker: Broker, tmp_path: Path) -> None:
    """Delays that are due and that are not, retries, a dead letter and half messages: its consumers get each."""
    path = tmp_path / "store"
    store, state = our_store(path)
    back, service = SendBack(store, state), TransactionService(store, state, never)
    for n in range(6):
        assert store.append(message("Delayed", f"delay-{n}", DELAY=str(1 + n % 3))).ok
    for n in range(3):
        failed = store.append(message("Orders", f"order-{n}")).physical_offset
        assert back.send_back(GROUP, failed, delay_level=(2, 1, -1)[n])
    for n in range(3):
        half = service.prepare(message("Payments", f"tx-{n}"), PRODUCERS)
        if n < 2:
            service.end(half.physical_offset, half.queue_offset, PRODUCERS, list(Decision)[n])
    Delivery(store, state, never).deliver_due(now() + 1500)  # of the delays, the two of a second
    state.persist()
    store.close()
    broker.boot(path, SETTINGS)
    broker.ask("decide", group=PRODUCERS, answer="commit")
    for topic in (*TOPICS, DLQ_PREFIX + GROUP):
        group = GROUP if topic == "Orders" else f"other-{TOPICS.index(topic) if topic in TOPICS else 9}"
        broker.ask("consume", group=group, topic=topic, failures=0, most=16, level=0)
    wanted = {
        "Delayed": {f"delay-{n}": 1 for n in range(6)},
        "Payments": {"tx-0": 1, "tx-2": 1},
        # as new, and the ones that were given back once more from the retry topic
        "Orders": {"order-0": 2, "order-1": 2, "order-2": 1},
        DLQ_PREFIX + GROUP: {"order-2": 1},
    }
    count = sum(sum(names.values()) for names in wanted.values())
    seen = broker.wait_for(lambda rows: len(rows) >= count)
    broker.stop()
    assert {topic: keys(seen, topic) for topic in wanted} == wanted
    assert Counter(row["reconsumeTimes"] for row in seen if row["topic"] == "Orders") == {0: 3, 1: 2}
    conf = BrokerConf(SETTINGS)
    assert [f.code for f in check_store(StoreLayout(str(path), conf)) if f.severity == "error"] == []


def test_we_finish_what_a_broker_has_left(broker: Broker, tmp_path: Path) -> None:
    """The other way round; then the broker comes back and its consumers get what we delivered."""
    path = tmp_path / "store"
    broker.boot(path, SETTINGS | {"transactionCheckInterval": "600000"})
    for topic in TOPICS:
        broker.ask("topic", topic=topic)
    broker.ask("consume", group=GROUP, topic="Orders", failures=1, most=16, level=4)
    for n in range(4):
        broker.ask("send", topic="Delayed", keys=f"delay-{n}", level=4 + n % 2)
        broker.ask("send", topic="Orders", keys=f"order-{n}")
        broker.ask("sendHalf", topic="Payments", keys=f"tx-{n}", group=PRODUCERS, answer="unknown", checked="unknown")
    broker.wait_for(lambda rows: len(rows) >= 4 and len(stored(path, SCHEDULE)) == 8)
    broker.stop()
    assert len(stored(path, SCHEDULE)) == 8
    clock = [now()]

    def wait(millis: int) -> None:
        clock[0] += millis

    def decide(request: CheckRequest) -> Decision:
        return Decision.COMMIT if request.record.body in (b"tx-0", b"tx-1") else Decision.ROLLBACK

    with Store(path, write=True, broker_conf=SETTINGS, clock=lambda: clock[0]) as opened:
        report = RunLoop(opened, never, decide).run(wait, until=now() + 70_000)
    assert (report.delivered, report.committed, report.rolledBack) == (8, 2, 2)
    assert {r.body.decode() for r in stored(path, RETRY_PREFIX + GROUP)} == {f"order-{n}" for n in range(4)}
    broker.boot(path, SETTINGS)
    broker.ask("consume", group=GROUP, topic="Orders", failures=0, most=16, level=0)
    broker.ask("consume", group="other", topic="Delayed", failures=0, most=16, level=0)
    broker.ask("consume", group="third", topic="Payments", failures=0, most=16, level=0)
    seen = broker.wait_for(lambda rows: len(rows) >= 10)
    broker.stop()
    assert keys(seen, "Delayed") == {f"delay-{n}": 1 for n in range(4)}
    assert keys(seen, "Payments") == {"tx-0": 1, "tx-1": 1}
    assert keys(seen, "Orders") == {f"order-{n}": 1 for n in range(4)}
    assert {row["reconsumeTimes"] for row in seen if row["topic"] == "Orders"} == {1}


# -- the same sends, done by both -------------------------------------------------------------------------------------


def about(record: Record) -> tuple[Any, ...]:
    """What a stored message is, without what the clock, the network and the sender's id make of it."""
    properties = parse(record.properties)
    for name in ("UNIQ_KEY", "CLUSTER", "ORIGIN_MESSAGE_ID", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"):
        properties.pop(name, None)
    fixed = (record.topic, record.queue_id, record.sys_flag, record.flag, record.reconsume_times, record.body)
    return (*fixed, record.prepared_transaction_offset > 0, tuple(sorted(properties.items())))


def replayed(theirs: Path, path: Path) -> tuple[Store, BrokerState, list[int]]:
    """Our store beside theirs, and the clock that it goes by."""
    store, clock = None, [0]
    store = Store.create(path, broker_conf=SETTINGS, clock=lambda: clock[0])
    clock[0] = records(theirs)[0].store_timestamp
    return store, BrokerState(store, never), clock


def same(theirs: Path, ours: Path, topics: set[str]) -> None:
    """Both have stored the same messages in each queue, in the same order."""
    for topic in topics:
        sides = [sorted((r.queue_id, r.queue_offset, about(r)) for r in stored(side, topic)) for side in (theirs, ours)]
        assert sides[0] == sides[1], topic
        assert sides[0]


def without(record: Record, *names: str) -> dict[str, str]:
    return {name: value for name, value in parse(record.properties).items() if name not in names}


def test_delay_as_the_broker_does_it(broker: Broker, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    broker.boot(theirs, SETTINGS)
    broker.ask("topic", topic="Delayed")
    for n in range(8):
        broker.ask("send", topic="Delayed", keys=f"delay-{n}", level=1 + n % 2)
    broker.ask("consume", group="c", topic="Delayed", failures=0, most=16, level=0)
    assert len(broker.wait_for(lambda rows: len(rows) >= 8)) == 8
    broker.stop()
    store, state, clock = replayed(theirs, ours)
    for record in stored(theirs, SCHEDULE):
        named = parse(record.properties)
        clock[0] = record.store_timestamp
        sent = without(record, "REAL_TOPIC", "REAL_QID")
        target = (named["REAL_TOPIC"], int(named["REAL_QID"]))
        assert store.append(Message(topic=target[0], queue_id=target[1], body=record.body, properties=sent)).ok
    for record in stored(theirs, "Delayed"):
        clock[0] = max(clock[0], record.store_timestamp)
        end = store.live.end
        assert Delivery(store, state, never).deliver_due(clock[0], lambda end=end: store.live.end > end).delivered == 1  # type: ignore[misc]
    state.persist()
    store.close()
    same(theirs, ours, {SCHEDULE, "Delayed"})
    offsets = [(side / "config" / "delayOffset.json").read_text() for side in (theirs, ours)]
    assert offsets[0] == offsets[1]


def test_retry_as_the_broker_does_it(broker: Broker, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    broker.boot(theirs, SETTINGS)
    broker.ask("topic", topic="Orders")
    for n in range(4):
        broker.ask("send", topic="Orders", keys=f"order-{n}")
    broker.ask("consume", group=GROUP, topic="Orders", failures=9, most=2, level=1)
    dead = DLQ_PREFIX + GROUP
    seen = broker.wait_for(lambda rows: len(rows) >= 12 and len(stored(theirs, dead)) == 4)
    broker.stop()
    assert keys(seen, "Orders") == {f"order-{n}": 3 for n in range(4)}
    store, state, clock = replayed(theirs, ours)
    back = SendBack(store, state)
    places: dict[tuple[bytes, int], int] = {}
    for record in records(theirs):
        topic, named = record.topic.decode(), parse(record.properties)
        clock[0] = max(clock[0], record.store_timestamp)
        end = store.live.end
        if topic in (SCHEDULE, dead):
            level = int(named["DELAY"]) if topic == SCHEDULE else 0
            failed = places[record.body, record.reconsume_times - 1]
            assert back.send_back(GROUP, failed, delay_level=level, max_reconsume_times=2)
        elif topic == RETRY_PREFIX + GROUP:
            done = Delivery(store, state, never).deliver_due(clock[0], lambda end=end: store.live.end > end)  # type: ignore[misc]
            assert done.delivered == 1
            places[record.body, record.reconsume_times] = end
        elif topic == "Orders":
            plain = Message(topic=topic, queue_id=record.queue_id, body=record.body, properties=named)
            places[record.body, 0] = store.append(plain).physical_offset
    state.persist()
    store.close()
    same(theirs, ours, {"Orders", SCHEDULE, RETRY_PREFIX + GROUP, dead})
    tables = [Topics.parse((side / "config" / "topics.json").read_bytes()).topics for side in (theirs, ours)]
    for topic in (RETRY_PREFIX + GROUP, dead):
        assert tables[0][topic] == tables[1][topic]


def test_transactions_as_the_broker_does_them(broker: Broker, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    settings = SETTINGS | {"transactionCheckMax": "2"}
    broker.boot(theirs, settings)
    broker.ask("topic", topic="Payments")
    gone = "TRANS_CHECK_MAX_TIME_TOPIC"
    for n, answer in enumerate(("commit", "rollback", "unknown")):
        names = {"topic": "Payments", "group": PRODUCERS}
        broker.ask("sendHalf", keys=f"tx-{n}", answer=answer, checked="unknown", **names)
    broker.ask("consume", group="c", topic="Payments", failures=0, most=16, level=0)
    seen = broker.wait_for(lambda rows: bool(rows and stored(theirs, gone)))
    broker.stop()
    assert keys(seen, "Payments") == {"tx-0": 1}
    assert [record.body for record in stored(theirs, gone)] == [b"tx-2"]
    clock = [0]
    store = Store.create(ours, broker_conf=settings, clock=lambda: clock[0])
    state = BrokerState(store, never)
    service = TransactionService(store, state, never)
    places: dict[str, Any] = {}
    for record in records(theirs):
        topic, named, name = record.topic.decode(), parse(record.properties), record.body.decode()
        clock[0] = max(clock[0], record.store_timestamp)
        end = store.live.end
        if topic == HALF and "TRANSACTION_CHECK_TIMES" not in named:
            sent = without(record, "REAL_TOPIC", "REAL_QID")
            half = Message(topic="Payments", queue_id=int(named["REAL_QID"]), body=record.body, properties=sent,
                           born_timestamp=record.born_timestamp)  # fmt: skip
            places[name] = service.prepare(half, PRODUCERS)
        elif topic in (HALF, gone):
            service.check(lambda _request: Decision.UNKNOWN, lambda end=end: store.live.end > end)  # type: ignore[misc]
            assert store.live.end > end
        elif topic == "Payments" or (topic == OP and name == "1"):
            half_of = places["tx-0" if topic == "Payments" else "tx-1"]
            decision = Decision.COMMIT if topic == "Payments" else Decision.ROLLBACK
            service.end(half_of.physical_offset, half_of.queue_offset, PRODUCERS, decision)
    state.persist()
    store.close()
    same(theirs, ours, {HALF, OP, "Payments", gone})


def test_delivery_as_the_engine_of_4_9_8_does_it(engine_4: Engine, tmp_path: Path) -> None:
    """The scheduler is part of the store's own jar: messages of every kind, some due, from an offset in the middle."""
    clock = [now() - 20_000]
    ours = tmp_path / "ours"
    store = Store.create(ours, broker_conf=SETTINGS, clock=lambda: clock[0])
    state = BrokerState(store, never)
    assert store.append(message("RMQ_SYS_TRANS_HALF_TOPIC", "dropped", DELAY="1")).ok
    rng = Random(4)
    hosts = ("10.1.2.3:4", "[2001:db8::7]:65535", "192.168.1.9:10911")
    for n in range(300):
        properties = {
            "UNIQ_KEY": f"{n:032X}",
            "DELAY": str(rng.choice((1, 2, 3, 4, 18))),
            "区域": "华东😀"[: n % 3 + 1],
        }
        properties |= rng.choice(({}, {"TAGS": "t", "KEYS": "a b"}, {"WAIT": "true"}, {"RETRY_TOPIC": "X"}))
        sent = Message(
            topic=rng.choice(("T", "%RETRY%g", "第三")), queue_id=n % 5, body=rng.randbytes(n % 90),
            properties=properties,
            flag=n - 100, sys_flag=rng.choice((0, 1, 8)), born_timestamp=clock[0] - n, born_host=rng.choice(hosts),
            store_host=rng.choice(hosts), reconsume_times=n % 17,
        )  # fmt: skip
        assert store.append(sent).ok
    state.set_delay_offset(2, 7)
    state.persist()
    store.close()
    theirs = tmp_path / "theirs"
    shutil.copytree(ours, theirs)
    said = engine_4.open(theirs, SETTINGS, deliver=True, lingerMillis=4000)
    assert said["loadOk"], said
    clock[0] = now()
    with Store(ours, write=True, broker_conf=SETTINGS, clock=lambda: clock[0]) as opened:
        done = deliver_due(opened, clock[0], lambda _text: None)
    assert done.delivered > 100
    assert (done.discarded, done.stuck, done.skipped) == (1, [], 0)
    sides = [
        {
            (record.topic, record.queue_id, parse(record.properties)["UNIQ_KEY"]): record._replace(
                properties=b"", physical_offset=0, store_timestamp=0, queue_offset=0
            )._asdict()
            | {"properties": parse(record.properties)}
            for record in records(side)
        }
        for side in (theirs, ours)
    ]
    assert len(sides[1]) == 301 + done.delivered
    assert sides[0] == sides[1]
    assert len(records(theirs)) == len(records(ours))
    files = [(side / "config" / "delayOffset.json").read_bytes() for side in (theirs, ours)]
    assert files[0] == files[1]
    assert DelayOffsets.parse(files[1]).offsets.keys() == {1, 2, 3}
