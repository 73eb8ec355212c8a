"""Our services and a complete real broker with its own clients: each finishes what the other has left in flight.

The other tests compare what both have stored for the same sends. Clients and brokers deliver at least once, and repeat
a send after a timeout. So expectations come from the content of the store, and a copy consumed twice counts once.
"""

import shutil
from pathlib import Path
from random import Random
from time import sleep, time
from typing import Any

import pytest

from formats.config.files import DelayOffsets, Topics
from formats.message.properties import REAL_QID, REAL_TOPIC, parse
from formats.message.read import Record
from formats.model.topics import TopicConfig
from formats.topics import GIVEN_UP, HALF, OP, SCHEDULE
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES, V4_9
from rmqtool.services.delays.delays import Delays
from rmqtool.services.delays.delivery import Delivery, deliver_due
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.retries.send_back import SendBackStore
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.transactions.half_messages import Transactions, op_offsets
from rmqtool.services.transactions.rules import CheckRequest, Decision
from rmqtool.services.transactions.service import TransactionService
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.engine import Engine
from tests.interop.sides import (
    DEAD,
    GROUP,
    PRODUCERS,
    RETRY,
    SETTINGS,
    Replay,
    Row,
    begin,
    bodies,
    places,
    records,
    resent,
    same,
    seen_at,
    stored,
    without,
)
from tests.services.build import never
from tests.store.findings import check_store

pytestmark = pytest.mark.interop

TOPICS = ("Delayed", "Payments", "Orders")
TWO_HOURS = 18  # a delay that outlasts every test


def now() -> int:
    return int(time() * 1000)


def our_store(path: Path, engine: str) -> tuple[Store, BrokerState]:
    """An empty store of ours with the clients' topics."""
    store = Store.create(path, broker_conf=SETTINGS, release=RELEASES[engine])
    topics = {name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4) for name in TOPICS}
    (path / "config" / "topics.json").write_bytes(Topics(topics=topics).build())
    return store, BrokerState(store, never)


def message(topic: str, name: str, **properties: str) -> NewMessage:
    named = {"KEYS": name, "TAGS": "tag", "UNIQ_KEY": name.encode().hex().upper().rjust(32, "0"), **properties}
    return NewMessage(topic=topic, body=name.encode(), properties=named)


@by_turns(23)
def test_a_broker_finishes_what_we_have_left(broker: Broker, tmp_path: Path) -> None:
    """Due and future delays, retries, a dead letter and half messages: its consumers get each of them."""
    path = tmp_path / "store"
    store, state = our_store(path, broker.engine)
    back, service = SendBackStore(store, state), TransactionService(store, state, never)
    for n in range(6):
        assert store.append(message("Delayed", f"delay-{n}", DELAY=str(1 + n % 3))).ok
    for n in range(3):
        failed = store.append(message("Orders", f"order-{n}")).physical_offset
        assert back.send_back(GROUP, failed, delay_level=(2, 1, -1)[n])
    for n in range(3):
        half = service.prepare(message("Payments", f"tx-{n}"), PRODUCERS)
        if n < 2:
            service.end(half.physical_offset, half.queue_offset, PRODUCERS, list(Decision)[n])
    Delivery(store, state, never).deliver_due(now() + 1500)  # the two delays of one second
    state.persist()
    store.close()
    broker.boot(path, SETTINGS)
    broker.ask("decide", group=PRODUCERS, answer="commit")
    readers = {"delays": "Delayed", "payments": "Payments", GROUP: "Orders", "dead": DEAD}
    for group, topic in readers.items():
        broker.ask("consume", group=group, topic=topic, failures=0, most=16, level=0)
    broker.ask("check", most=15)

    def consumed(rows: list[Row], group: str, *topics: str) -> bool:
        return seen_at(rows, group) == places(stored(path, *topics))

    def enough(rows: list[Row]) -> bool:
        return (
            sum(bodies(stored(path, "Delayed", RETRY)).values()) == sum(bodies(stored(path, SCHEDULE)).values())
            and bool(asked := broker.ask("asked"))
            and bodies(stored(path, "Payments"))["tx-2"] == len(asked)
            and all(consumed(rows, group, topic, *([RETRY] * (group == GROUP))) for group, topic in readers.items())
        )

    seen = broker.wait_for(enough)
    asked = broker.ask("asked")
    broker.stop()
    assert asked
    assert set(asked) == {"tx-2"}
    assert bodies(stored(path, "Delayed")) == {f"delay-{n}": 1 for n in range(6)}
    assert bodies(stored(path, "Payments")) == {"tx-0": 1, "tx-2": len(asked)}
    assert bodies(stored(path, RETRY)) == {"order-0": 1, "order-1": 1}
    assert bodies(stored(path, DEAD)) == {"order-2": 1}
    assert bodies(stored(path, "Orders")) == {f"order-{n}": 1 for n in range(3)}
    for group, topic in readers.items():
        assert consumed(seen, group, topic, *([RETRY] * (group == GROUP))), group
    assert {(row["keys"], row["reconsumeTimes"]) for row in seen if row["group"] == GROUP} == {
        *((f"order-{n}", 0) for n in range(3)), ("order-0", 1), ("order-1", 1),
    }  # fmt: skip
    conf = BrokerConf(SETTINGS)
    assert [f.code for f in check_store(StoreLayout(str(path), conf)) if f.severity == "error"] == []


@by_turns(23)
def test_we_finish_what_a_broker_has_left(broker: Broker, tmp_path: Path) -> None:
    """The reverse; then the broker returns and its consumers get what we delivered."""
    path = tmp_path / "store"
    broker.boot(path, SETTINGS)
    for topic in TOPICS:
        broker.ask("topic", topic=topic)
    broker.ask("consume", group=GROUP, topic="Orders", failures=1, most=16, level=TWO_HOURS)
    for n in range(4):
        broker.ask("send", topic="Delayed", keys=f"delay-{n}", level=TWO_HOURS - n % 2)
        broker.ask("send", topic="Orders", keys=f"order-{n}")
        broker.ask("sendHalf", topic="Payments", keys=f"tx-{n}", group=PRODUCERS, answer="unknown", checked="unknown")
    waiting = {f"{name}-{n}" for name in ("delay", "order") for n in range(4)}
    first = broker.wait_for(lambda _rows: set(bodies(stored(path, SCHEDULE))) == waiting)
    broker.stop()
    in_flight = stored(path, SCHEDULE)
    assert set(bodies(in_flight)) == waiting
    delivered_by_them = len(
        stored(path, "Delayed", RETRY)
    )  # of what a client had to send again, with a level of its own
    assert bodies(stored(path, HALF)) == {f"tx-{n}": 1 for n in range(4)}
    clock = [now()]

    def wait(millis: int) -> None:
        clock[0] += millis

    def decide(request: CheckRequest) -> Decision:
        return Decision.COMMIT if request.record.body in (b"tx-0", b"tx-1") else Decision.ROLLBACK

    with Store(path, write=True, broker_conf=SETTINGS, clock=lambda: clock[0]) as opened:
        assert opened.live.release.name == broker.engine
        report = RunLoop(opened, never, decide).run(wait, until=now() + 3 * 3_600_000)
    assert (report.delivered, report.committed, report.rolledBack) == (len(in_flight) - delivered_by_them, 2, 2)
    targets = [(parse(record.properties)[REAL_TOPIC], record.body) for record in in_flight]
    assert sorted((r.topic.decode(), r.body) for r in stored(path, "Delayed", RETRY)) == sorted(targets)
    assert bodies(stored(path, "Payments")) == {"tx-0": 1, "tx-1": 1}
    broker.boot(path, SETTINGS)
    readers = {GROUP: (RETRY, "Orders"), "delays": ("Delayed",), "payments": ("Payments",)}
    for group, topics in readers.items():
        broker.ask("consume", group=group, topic=topics[-1], failures=0, most=16, level=0)

    def consumed(rows: list[Row], group: str) -> bool:
        return seen_at([*first, *rows], group) == places(stored(path, *readers[group]))

    seen = broker.wait_for(lambda rows: all(consumed(rows, group) for group in readers))
    broker.stop()
    assert all(consumed(seen, group) for group in readers)
    assert {row["keys"] for row in seen if row["group"] == GROUP and row["reconsumeTimes"] == 1} == {
        f"order-{n}" for n in range(4)
    }


# -- the same sends, done by both -------------------------------------------------------------------------------------


@by_turns(23)
def test_delay_as_the_broker_does_it(broker: Broker, tmp_path: Path) -> None:
    theirs, ours = begin(broker, tmp_path, "Delayed")
    for n in range(8):
        broker.ask("send", topic="Delayed", keys=f"delay-{n}", level=1 + n % 2, queueId=n % 4)
    broker.ask("consume", group="c", topic="Delayed", failures=0, most=16, level=0)
    broker.wait_for(
        lambda rows: len(stored(theirs, "Delayed")) == 8 and seen_at(rows, "c") == places(stored(theirs, "Delayed"))
    )
    broker.stop()
    replay = Replay(theirs, ours, broker.engine)
    for record in replay.theirs:
        replay.at(record)
        if record.topic.decode() == SCHEDULE:
            named = parse(record.properties)
            replay.send(record, named[REAL_TOPIC], int(named[REAL_QID]), without(record, REAL_TOPIC, REAL_QID))
        else:
            replay.deliver(record)
    replay.close()
    assert bodies(stored(theirs, "Delayed")) == {f"delay-{n}": 1 for n in range(8)}
    same(theirs, ours, {SCHEDULE, "Delayed"})
    offsets = [DelayOffsets.parse((side / "config" / "delayOffset.json").read_bytes()) for side in (theirs, ours)]
    assert offsets[0].offsets == offsets[1].offsets
    if broker.engine == "4.9":  # 5.x puts a version before the table
        assert (theirs / "config" / "delayOffset.json").read_text() == (
            ours / "config" / "delayOffset.json"
        ).read_text()


@by_turns(23)
def test_retry_as_the_broker_does_it(broker: Broker, tmp_path: Path) -> None:
    """Sent back up to the limit; also if a client failed to, and sent its message to the retry topic."""
    theirs, ours = begin(broker, tmp_path, "Orders")
    for n in range(4):
        broker.ask("send", topic="Orders", keys=f"order-{n}")
    broker.ask("consume", group=GROUP, topic="Orders", failures=9, most=2, level=1)
    names = {f"order-{n}" for n in range(4)}
    seen = broker.wait_for(lambda _rows: set(bodies(stored(theirs, DEAD))) == names)
    broker.stop()
    assert set(bodies(stored(theirs, DEAD))) == names
    assert {(row["keys"], row["reconsumeTimes"]) for row in seen} == {(name, n) for name in names for n in range(3)}
    replay = Replay(theirs, ours, broker.engine)
    back = SendBackStore(replay.store, replay.state)
    copies: dict[tuple[bytes, int, str | None], int] = {}
    for record in replay.theirs:
        topic, named = record.topic.decode(), parse(record.properties)
        replay.at(record)
        again = named.get("RECONSUME_TIME")
        if topic == "Orders":
            copies[record.body, 0, None] = replay.send(record, topic, record.queue_id, named)
        elif named.get(REAL_TOPIC) == topic:
            copies[record.body, record.reconsume_times, again] = replay.deliver(record)
        elif again == str(record.reconsume_times):
            assert back.send_to_retry(resent(record), 2).ok
        else:
            failed = copies[record.body, record.reconsume_times - 1, again]
            level = int(named["DELAY"]) if topic == SCHEDULE else 0
            assert back.send_back(GROUP, failed, delay_level=level, max_reconsume_times=2)
    replay.close()
    same(theirs, ours, {"Orders", SCHEDULE, RETRY, DEAD})
    tables = [Topics.parse((side / "config" / "topics.json").read_bytes()).topics for side in (theirs, ours)]
    for topic in (RETRY, DEAD):
        assert tables[0][topic] == tables[1][topic]


def ended(store: Path) -> list[int]:
    """Half-queue offsets named by op messages."""
    return [offset for record in stored(store, OP) for offset in op_offsets(record, parse(record.properties)) or ()]


@by_turns(11)
def test_transactions_as_the_broker_does_them(broker: Broker, tmp_path: Path) -> None:
    theirs, ours = begin(broker, tmp_path, "Payments")
    for n, answer in enumerate(("commit", "rollback", "unknown")):
        names = {"topic": "Payments", "group": PRODUCERS}
        broker.ask("sendHalf", keys=f"tx-{n}", answer=answer, checked="unknown", **names)
        broker.wait_for(lambda _rows, n=n: len(ended(theirs)) == min(n + 1, 2))  # type: ignore[misc]
    broker.ask("consume", group="c", topic="Payments", failures=0, most=16, level=0)
    for _ in range(3):
        sleep(0.01)  # what the round before has put back must be older than this one
        broker.ask("check", most=2)
    seen = broker.wait_for(lambda rows: bool(rows) and len(broker.ask("asked")) == 2)
    asked = broker.ask("asked")
    broker.stop()
    assert asked == ["tx-2", "tx-2"]
    assert seen_at(seen, "c") == places(stored(theirs, "Payments"))
    assert [record.body for record in stored(theirs, GIVEN_UP)] == [b"tx-2"]
    replay = Replay(theirs, ours, broker.engine, transactionCheckMax="2")
    service = TransactionService(replay.store, replay.state, never)
    halves: dict[str, Any] = {}
    for record in replay.theirs:
        topic, named, name = record.topic.decode(), parse(record.properties), record.body.decode()
        replay.at(record)
        end = replay.store.live.end
        if topic == HALF and "TRANSACTION_CHECK_TIMES" not in named:
            half = NewMessage(
                topic="Payments", queue_id=int(named[REAL_QID]), body=record.body,
                properties=without(record, REAL_TOPIC, REAL_QID), born_timestamp=record.born_timestamp,
            )  # fmt: skip
            halves[name] = service.prepare(half, PRODUCERS)
        elif topic in (HALF, GIVEN_UP):
            service.check(lambda _request: Decision.UNKNOWN, lambda end=end: replay.store.live.end > end)  # type: ignore[misc]
            assert replay.store.live.end > end
        elif topic == "Payments" or (topic == OP and ended_by(record) == [1]):
            half_of = halves["tx-0" if topic == "Payments" else "tx-1"]
            decision = Decision.COMMIT if topic == "Payments" else Decision.ROLLBACK
            service.end(half_of.physical_offset, half_of.queue_offset, PRODUCERS, decision)
    replay.close()
    same(theirs, ours, {HALF, OP, "Payments", GIVEN_UP})


def ended_by(record: Record) -> list[int] | None:
    return op_offsets(record, parse(record.properties))


@by_turns(11)
@pytest.mark.xdist_group("broker-5.3.3")
def test_one_op_message_of_5_3_ends_many_half_messages(broker_5: Broker, tmp_path: Path) -> None:
    """4.9 writes one for each; we read the collected ones, and check only the others."""
    path = tmp_path / "store"
    broker_5.boot(path, SETTINGS | {"transactionOpBatchInterval": "2000"})
    broker_5.ask("topic", topic="Payments")
    for n in range(8):
        broker_5.ask(
            "sendHalf", topic="Payments", keys=f"tx-{n}", group=PRODUCERS, checked="unknown",
            answer=("commit", "rollback", "commit", "unknown")[n % 4],
        )  # fmt: skip

    broker_5.wait_for(lambda _rows: len(ended(path)) == 6)
    broker_5.stop()
    assert sorted(ended(path)) == [0, 1, 2, 4, 5, 6]
    assert len(stored(path, OP)) < 6
    log = CommitLog(StoreLayout(str(path), BrokerConf(SETTINGS)))
    states = {info.keys: info.state for info in Transactions(log, never).all()}
    assert states == {f"tx-{n}": ("committed", "rolled-back", "committed", "pending")[n % 4] for n in range(8)}
    asked: list[bytes] = []

    def decide(request: CheckRequest) -> Decision:
        asked.append(request.record.body)
        return Decision.ROLLBACK

    with Store(path, write=True, broker_conf=SETTINGS) as opened:
        state = BrokerState(opened, never)
        done = TransactionService(opened, state, never).check(decide)
    assert asked == [b"tx-3", b"tx-7"]
    assert done.rolledBack == 2


def test_delivery_as_the_engine_of_4_9_8_does_it(engine_4: Engine, tmp_path: Path) -> None:
    """The scheduler is part of the store's jar: messages of every kind, some due, from an offset in the middle."""
    clock = [now() - 20_000]
    ours = tmp_path / "ours"
    store = Store.create(ours, broker_conf=SETTINGS, release=V4_9, clock=lambda: clock[0])
    state = BrokerState(store, never)
    assert store.append(message("RMQ_SYS_TRANS_HALF_TOPIC", "dropped", DELAY="1")).ok
    rng = Random(4)
    hosts = ("10.1.2.3:4", "[2001:db8::7]:65535", "192.168.1.9:10911")
    for n in range(300):
        properties = {
            "UNIQ_KEY": f"{n:032X}",
            "DELAY": str(rng.choice((1, 2, 3, 17, 18))),
            "区域": "华东😀"[: n % 3 + 1],
        }
        properties |= rng.choice(({}, {"TAGS": "t", "KEYS": "a b"}, {"WAIT": "true"}, {"RETRY_TOPIC": "X"}))
        sent = NewMessage(
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
    for _ in range(20):  # until it has had enough time
        answer = engine_4.open(theirs, SETTINGS, deliver=True, lingerMillis=3000, messages=False)
        assert answer["loadOk"], answer
        delays = Delays(CommitLog(StoreLayout(str(theirs), BrokerConf(SETTINGS))), now(), never)
        if not any(delays.due(level) for level in (1, 2, 3)):
            break
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
