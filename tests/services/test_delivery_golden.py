"""Our services repeat what the golden broker did, with a controlled clock: the same messages in the same queues."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.message.ids import parse_offset_id
from formats.message.properties import DELAY, REAL_QID, REAL_TOPIC, UNIQ_KEY, parse
from formats.message.read import Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK
from formats.topics import DLQ_PREFIX, GIVEN_UP, HALF, OP, RETRY_PREFIX, SCHEDULE
from rmqtool import Store
from rmqtool.rules.releases import V4_9
from rmqtool.services.delays.delivery import Delivery
from rmqtool.services.lookup.queue_messages import ORIGIN_MESSAGE_ID
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.retries.send_back import SendBackStore
from rmqtool.services.sending.copies import copy_of
from rmqtool.services.transactions.rules import Decision
from rmqtool.services.transactions.service import TransactionService
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.conftest import Unpacked
from tests.services.build import log_of, never
from tests.store.helpers import conf_of

MAX_RECONSUME, CHECKED = 2, "TRANSACTION_CHECK_TIMES"
Place = tuple[str, int, int]


def records(log: CommitLog) -> Iterator[Record]:
    for item in log.walk():
        assert isinstance(item, LocatedRecord)
        yield item.record


def place(record: Record) -> Place:
    return record.topic.decode(), record.queue_id, record.queue_offset


class Replay:
    """Repeats the action behind each record of a golden log, in order and at its time."""

    def __init__(self, golden: CommitLog, root: Path, settings: dict[str, str]) -> None:
        self.now = 0
        self.store = Store.create(root / "ours", broker_conf=settings, release=V4_9, clock=lambda: self.now)
        self.state = BrokerState(self.store, never)
        self.delivery = Delivery(self.store, self.state, never)
        self.transactions = TransactionService(self.store, self.state, never)
        self.back = SendBackStore(self.store, self.state)
        self.golden = {record.physical_offset: record for record in records(golden)}
        self.ended: set[int] = set()
        self.retried: dict[tuple[str, int], Place] = {}  # unique id, times: the copy that failed
        self.halves: dict[int, Place] = {}

    def ours(self, at: Place) -> int:
        """The physical offset of a message in our store."""
        self.store.dispatch()
        return self.store.get(*at).messages[0].physical_offset

    def all(self) -> None:
        for record in self.golden.values():
            self.now = record.store_timestamp
            before = self.store.live.end
            self.one(record, parse(record.properties))
            assert self.store.live.end > before or record.topic.decode() == OP, place(record)

    def one(self, record: Record, properties: dict[str, str]) -> None:
        topic, queue_id, _offset = place(record)
        unique = properties.get(UNIQ_KEY, "")
        before = self.store.live.end
        moved = {name: value for name, value in properties.items() if name not in (REAL_TOPIC, REAL_QID)}

        def changed() -> bool:
            return self.store.live.end > before

        if topic == HALF:
            self.halves[record.physical_offset] = place(record)
            if CHECKED in properties:
                self.transactions.check(lambda _request: Decision.UNKNOWN, changed)
            else:
                target = copy_of(record, properties[REAL_TOPIC], int(properties[REAL_QID]), moved, sys_flag=4)
                assert self.transactions.prepare(target, properties["PGROUP"]).ok
        elif topic == GIVEN_UP:
            self.transactions.check(lambda _request: Decision.UNKNOWN, changed)
        elif topic == OP or record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
            half = (HALF, 0, int(record.body)) if topic == OP else self.halves[record.prepared_transaction_offset]
            if half[2] not in self.ended:
                self.ended.add(half[2])
                decision = Decision.ROLLBACK if topic == OP else Decision.COMMIT
                self.transactions.end(self.ours(half), half[2], "lab-tx", decision)
        elif record.reconsume_times and not topic.startswith(RETRY_PREFIX):
            group = (properties[REAL_TOPIC] if topic == SCHEDULE else topic).removeprefix(RETRY_PREFIX)
            times = record.reconsume_times - 1
            origin = self.golden[parse_offset_id(properties[ORIGIN_MESSAGE_ID]).physical_offset]
            failed = self.retried[unique, times] if times else place(origin)
            level = int(properties[DELAY])
            if topic.startswith(DLQ_PREFIX):
                level = 0 if times >= MAX_RECONSUME else -1
            elif level == 3 + times:
                level = 0  # as the broker chooses
            group = group.removeprefix(DLQ_PREFIX)
            assert self.back.send_back(group, self.ours(failed), delay_level=level, max_reconsume_times=MAX_RECONSUME)
        elif DELAY in properties and topic != SCHEDULE:
            if topic.startswith(RETRY_PREFIX):
                self.retried[unique, record.reconsume_times] = place(record)
            assert self.delivery.deliver_due(self.now, changed).delivered == 1
        elif topic == SCHEDULE:
            assert self.store.append(copy_of(record, properties[REAL_TOPIC], int(properties[REAL_QID]), moved)).ok
        else:
            plain = copy_of(record, topic, queue_id, {})
            plain.properties = record.properties
            assert self.store.append(plain).ok


def comparable(record: Record, places: dict[int, Place]) -> dict[str, Any]:
    """Everything in a message except position and times."""
    row = record._asdict()
    for name in ("physical_offset", "store_timestamp", *(("born_timestamp",) if record.topic.decode() == OP else ())):
        del row[name]
    row["properties"] = properties = parse(record.properties)
    row["prepared_transaction_offset"] = places.get(record.prepared_transaction_offset) if record.sys_flag & 12 else 0
    if ORIGIN_MESSAGE_ID in properties:
        properties[ORIGIN_MESSAGE_ID] = str(places[parse_offset_id(properties[ORIGIN_MESSAGE_ID]).physical_offset])
    return row


def by_queue(log: CommitLog) -> dict[Place, dict[str, Any]]:
    all_records = list(records(log))
    places = {record.physical_offset: place(record) for record in all_records}
    return {place(record): comparable(record, places) for record in all_records}


@pytest.mark.parametrize("case", ["broker", "broker-crash"])
def test_the_golden_broker_again(case: str, golden: Unpacked, tmp_path: Path) -> None:
    scenario = {"transactionTimeOut": "2000", "transactionCheckMax": "3"}
    theirs = log_of(golden(case), **conf_of(case).values)
    replay = Replay(theirs, tmp_path, conf_of(case).values | scenario)
    replay.all()
    replay.state.persist()
    replay.store.close()
    ours = by_queue(log_of(tmp_path / "ours", **conf_of(case).values))
    wanted = by_queue(theirs)
    assert ours.keys() == wanted.keys()
    for key, row in wanted.items():
        assert ours[key] == row, key


def test_the_delayed_messages_of_the_golden_engine(golden_copy: Unpacked) -> None:
    """All levels, unusual properties and hosts: each message arrives in its own queue, unchanged, at its second."""
    store, settings = golden_copy("delay"), conf_of("delay").values
    waiting = [record for record in records(log_of(store, **settings)) if record.topic == SCHEDULE.encode()]
    now = [waiting[-1].store_timestamp]
    with Store(store, write=True, broker_conf=settings, clock=lambda: now[0]) as opened:
        end = opened.live.end
        state = BrokerState(opened, never)
        delivery = Delivery(opened, state, never)
        while (time := delivery.next_time(now[0])) is not None:
            now[0] = time
            assert delivery.deliver_due(time).delivered > 0
        state.persist()
    delivered = [record for record in records(log_of(store, **settings)) if record.physical_offset >= end]
    assert len(delivered) == len(waiting) == 43
    delays = {n + 1: delay for n, delay in enumerate(conf_of("delay").delay_levels)}
    sources = {parse(record.properties)[UNIQ_KEY]: record for record in waiting}
    for record in delivered:
        properties = parse(record.properties)
        source = sources.pop(properties[UNIQ_KEY])
        assert (record.topic.decode(), record.queue_id) == (properties[REAL_TOPIC], int(properties[REAL_QID]))
        assert record.store_timestamp >= source.store_timestamp + delays[int(properties[DELAY])]
        changed = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "total_size")
        assert record == source._replace(**{name: getattr(record, name) for name in changed})
    assert not sources
