"""Compare the store of a real broker and its clients with ours after the same sends."""

from collections import Counter
from pathlib import Path
from typing import Any

from formats.message.properties import DELAY, REAL_QID, REAL_TOPIC, parse
from formats.message.read import Record
from formats.topics import DLQ_PREFIX, RETRY_PREFIX
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import RELEASES
from rmqtool.services.delays.delivery import Delivered, Delivery
from rmqtool.services.open_store.broker_state import BrokerState
from tests.interop.broker import Broker
from tests.services.build import never

SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
    "transactionCheckInterval": "600000",  # nothing is checked but when a test says so
    "transactionTimeOut": "1",
    "flushDelayOffsetInterval": "1000",
    "flushConsumerOffsetInterval": "1000",
    "diskMaxUsedSpaceRatio": "99",
}
GROUP, PRODUCERS = "lab-consumer", "lab-tx"
RETRY, DEAD = RETRY_PREFIX + GROUP, DLQ_PREFIX + GROUP
Row = dict[str, Any]


def records(store: Path) -> list[Record]:
    """Every message of a store, in log order."""
    with Store(store, broker_conf=SETTINGS) as opened:
        return [item.record for item in opened.messages()]


def stored(store: Path, *topics: str) -> list[Record]:
    """The messages of some topics, in log order."""
    return [record for record in records(store) if record.topic.decode() in topics]


def bodies(record_list: list[Record]) -> Counter[str]:
    """Number of messages per body."""
    return Counter(record.body.decode() for record in record_list)


def places(record_list: list[Record]) -> set[int]:
    """Positions of messages in the log, to distinguish a copy consumed twice from two copies."""
    return {record.physical_offset for record in record_list}


def seen_at(rows: list[Row], group: str) -> set[int]:
    """Positions of the messages that a group has got."""
    return {row["physicalOffset"] for row in rows if row["group"] == group}


def about(record: Record) -> tuple[Any, ...]:
    """A stored message without fields that depend on clock, network and the sender's id."""
    properties = parse(record.properties)
    for name in ("UNIQ_KEY", "__transactionId__", "CLUSTER", "ORIGIN_MESSAGE_ID"):
        properties.pop(name, None)
    for name in ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"):
        properties.pop(name, None)
    fixed = (record.topic, record.queue_id, record.sys_flag, record.flag, record.reconsume_times, record.body)
    return (*fixed, record.prepared_transaction_offset > 0, tuple(sorted(properties.items())))


def without(record: Record, *names: str) -> dict[str, str]:
    """The properties of a message, without some of them."""
    return {name: value for name, value in parse(record.properties).items() if name not in names}


def resent(record: Record) -> NewMessage:
    """The message that a client sent to the group's retry topic, reconstructed from the stored one."""
    return NewMessage(
        topic=RETRY, body=record.body, flag=record.flag, sys_flag=record.sys_flag,
        properties=without(record, REAL_TOPIC, REAL_QID), reconsume_times=record.reconsume_times,
    )  # fmt: skip


def same(theirs: Path, ours: Path, topics: set[str]) -> None:
    """Check that both have the same messages in each queue, in the same order."""
    for topic in topics:
        sides = [sorted((r.queue_id, r.queue_offset, about(r)) for r in stored(side, topic)) for side in (theirs, ours)]
        assert sides[0] == sides[1], topic
        assert sides[0]


class Replay:
    """Repeats on our store what was done to theirs, at the same times.

    Attributes:
        clock: time of our store, ms.
    """

    def __init__(self, theirs: Path, ours: Path, engine: str, **settings: str) -> None:
        self.theirs = records(theirs)
        self.clock = self.theirs[0].store_timestamp
        self.store = Store.create(
            ours, broker_conf=SETTINGS | settings, release=RELEASES[engine], clock=lambda: self.clock
        )
        self.state = BrokerState(self.store, never)

    def at(self, record: Record) -> None:
        """Set the clock to the time at which they stored a message."""
        self.clock = max(self.clock, record.store_timestamp)

    def send(self, record: Record, topic: str, queue_id: int, properties: dict[str, str]) -> int:
        """Append a message as its producer sent it; returns its physical offset."""
        result = self.store.append(
            NewMessage(
                topic=topic, queue_id=queue_id, body=record.body, properties=properties, flag=record.flag,
                sys_flag=record.sys_flag, born_timestamp=record.born_timestamp,
            )
        )  # fmt: skip
        assert result.ok, result
        return result.physical_offset

    def deliver(self, record: Record) -> int:
        """Deliver the next message of the level of one of their messages; returns our position.

        They have one task per level; only the stored messages show the order among levels.
        """
        delivery, done, end = Delivery(self.store, self.state, never), Delivered(), self.store.live.end
        level, delays = int(parse(record.properties)[DELAY]), delivery._delays(self.clock)
        delivery._deliver(delays, level, delays.due(level)[:1], done, lambda: False)
        assert done.delivered == 1
        return end

    def close(self) -> None:
        """Persist the offsets and close the store."""
        self.state.persist()
        self.store.close()


def begin(broker: Broker, folder: Path, topic: str) -> tuple[Path, Path]:
    """Boot a real broker on a new store and make a topic; where its store is, and where ours is to be."""
    theirs = folder / "theirs"
    broker.boot(theirs, SETTINGS)
    broker.ask("topic", topic=topic)
    return theirs, folder / "ours"
