"""Messages in flight: delivered to consumers of POP groups, and neither acked nor revived.

A group's offset is already past such messages. A broker records them in checkpoints and acks, which wait in the timer
and then in the revive topic. For groups that pop in order it uses ``consumerOrderInfo.json``, and the offset stays
before unacked messages. With ``popConsumerKVServiceEnable`` it uses the database ``kvStore``.

Source: broker.processor.PopReviveService, PopBufferMergeService, broker.offset.ConsumerOrderInfoManager,
broker.pop.PopConsumerService; clients-and-live-admin 1.6 to 1.10.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from formats.config.files import OffsetTable
from formats.config.files_of_5 import ConsumerOrderInfos
from formats.errors import FormatError
from formats.message.properties import KEYS, REAL_TOPIC, TAGS, parse, split_keys
from formats.topics import RETRY_PREFIX, REVIVE_PREFIX
from formats.variants import pop, timer
from formats.variants.pop_store import PopStoreRecord
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.services.delays.delays import number_of
from rmqtool.services.lookup.configs import Warn, known_offsets, look_at_config, offsets_of
from rmqtool.services.lookup.query_time import offset_by_time
from rmqtool.services.lookup.queue_messages import QueueMessage, TopicQueues, messages_of, warn_of_unbuilt
from rmqtool.services.lookup.retry_names import RetryNames, retry_names
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.pop_store import stored_records
from rmqtool.store.queues.timer.files import TimerFiles

Place = tuple[str, str, int]  # topic, group, queue id


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """One message that was delivered to a group and not acked. Times are ms since the epoch.

    ``state``: invisible (no other consumer gets it yet) or due (the broker will revive or deliver it again). ``kind``:
    checkpoint; record (of the database ``kvStore``, instead of a checkpoint); or ordered (then it is also counted in
    the group's lag).
    """

    group: str
    state: str
    kind: str
    topic: str  # where it is stored
    originTopic: str | None  # its original topic, if it was revived before
    queueId: int
    queueOffset: int
    popTimestamp: int
    visibleTimestamp: int
    invisibleTime: int
    reconsumeTimes: int | None  # this and the following fields are None if the message is gone
    msgId: str | None
    tags: str | None
    keys: str | None
    physicalOffset: int | None
    storeTimestamp: int | None
    brokerName: str | None
    putAgain: int  # number of failed attempts to revive it
    attemptId: str | None  # for ordered pops

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**asdict(self), "keys": split_keys(self.keys or "")}


class Handed(NamedTuple):
    """One delivered message."""

    visible_time: int
    pop_time: int
    invisible_time: int
    kind: Literal["checkpoint", "record", "ordered"]
    broker_name: str | None
    put_again: int
    attempt_id: str | None


class PopRecord(NamedTuple):
    """A checkpoint or an ack, with its record.

    Attributes:
        born_time: when the broker created it, ms.
        waits: it is still in the timer.
    """

    event: pop.CheckPoint | pop.Ack
    physical_offset: int
    born_time: int
    waits: bool


class MessagesInFlight:
    """Reads the POP state of one store.

    Memory: some 500 bytes for each open checkpoint, and 100 for each of its acks.

    Args:
        now: ms, to tell which messages are still invisible.
        revived: offsets of the group that reads the revive topics, if they were read already; there may be millions of
            others in their file.
    """

    def __init__(
        self,
        log: CommitLog,
        now: int,
        warn: Warn,
        *,
        topics: TopicQueues | None = None,
        revived: Iterable[OffsetTable] | None = None,
    ) -> None:
        self.log, self.now, self.warn, self._revived = log, now, warn, revived
        self.topics = topics or TopicQueues(log.layout)
        if topics is None:
            warn_of_unbuilt(log, warn)

    @property
    def names(self) -> RetryNames:
        """Parses the names of retry topics."""
        return retry_names(self.log.layout, self.warn)

    def records(self, since: int | None = None) -> Iterator[PopRecord]:
        """Checkpoints and acks of the revive topics, then of the timer.

        Args:
            since: ms; include those that a broker has finished, if they reached the revive topics at this time or
                later.
        """
        topics = self.topics.topics(REVIVE_PREFIX)
        offsets = offsets_of(self._read_revived()) if topics else {}
        for topic in topics:
            for queue in self.topics.of(topic):
                # the offset is that of the last finished record, so a broker continues after it
                low = queue.min_offset(self.log.min_offset)
                dealt = offsets.get((topic, pop.REVIVE_GROUP), {}).get(queue.queue_id, -1)
                start = max(low, dealt + 1) if since is None else offset_by_time(self.log, queue, since)
                for message in messages_of(self.log, queue, self.warn, start):
                    entry, record, properties = message
                    event = self._read(properties, record.body, entry.physical_offset)
                    if event is not None:
                        yield PopRecord(event, entry.physical_offset, record.born_timestamp, waits=False)
        if (
            not TimerFiles(self.log.layout.passing_over()).present
            and self.topics.one(timer.TOPIC, timer.QUEUE_ID) is None
        ):
            return
        from rmqtool.services.timers.timers import open_timers  # needs NumPy, and most stores have no timer

        for waiting in open_timers(self.log, self.now, self.warn, self.topics).messages():
            if waiting.properties.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX):
                event = self._read(waiting.properties, waiting.record.body, waiting.physical_offset)
                if event is not None:
                    yield PopRecord(event, waiting.physical_offset, waiting.record.born_timestamp, waits=True)

    def _read_revived(self) -> Iterable[OffsetTable]:
        if self._revived is not None:
            return self._revived
        return (table for table in known_offsets(self.log.layout, self.warn) if table.group == pop.REVIVE_GROUP)

    @cached_property
    def stored(self) -> list[PopStoreRecord]:
        """Records of the database ``kvStore``, sorted by due time."""
        try:
            return list(stored_records(self.log.layout, self.warn))
        except (CorruptFile, UnreadableStore, MissingRuntime) as err:
            self.warn(f"{err}: what POP groups hold by this database is missing")
            return []

    def _read(self, properties: dict[str, str], body: bytes, physical_offset: int) -> pop.CheckPoint | pop.Ack | None:
        try:
            return pop.read(properties.get(TAGS), bytes(body))
        except FormatError as err:
            self.warn(f"physical offset {physical_offset}: no checkpoint and no ack: {err}: passed over")
            return None

    def find_handed_out(self) -> dict[Place, dict[int, Handed]]:
        """Queue offsets of every message in flight."""
        checkpoints: dict[pop.PopKey, pop.CheckPoint] = {}
        acked: dict[pop.PopKey, set[int]] = {}
        for noted in self.records():
            if isinstance(noted.event, pop.CheckPoint):
                checkpoints[noted.event.key] = noted.event
            else:
                acked.setdefault(noted.event.key, set()).update(noted.event.queue_offsets)
        places: dict[Place, dict[int, Handed]] = {}
        for key, point in checkpoints.items():
            done = acked.get(key, set()) | point.acked_before
            again = number_of(point.put_again) or 0
            handed = Handed(
                point.visible_time, point.pop_time, point.invisible_time, "checkpoint", point.broker_name, again, None
            )
            for offset in point.queue_offsets:
                if offset not in done:
                    _keep(places, (point.topic, point.group, point.queue_id), offset, handed)
        for record in self.stored:
            handed = Handed(
                record.visible_time, record.pop_time, record.invisible_time, "record", None, record.attempts,
                record.attempt_id,
            )  # fmt: skip
            _keep(places, (record.topic, record.group, record.queue_id), record.queue_offset, handed)
        for place, offset, handed in self._ordered_places():
            _keep(places, place, offset, handed)
        return places

    def _ordered_places(self) -> Iterator[tuple[Place, int, Handed]]:
        file = look_at_config(self.log.layout, "consumerOrderInfo.json", self.warn)
        for name, queues in file.table.items() if isinstance(file, ConsumerOrderInfos) else ():
            topic, _at, group = name.partition("@")
            for queue_id, info in queues.items():
                invisible = info.invisible_time or 0
                for bit, offset in enumerate(info.queue_offsets):
                    if not info.commit_bits >> bit & 1:
                        visible = (info.next_visible or {}).get(offset, info.pop_time + invisible)
                        handed = Handed(visible, info.pop_time, invisible, "ordered", None, 0, info.attempt_id)
                        yield (topic, group, queue_id), offset, handed

    def counts(self) -> Counter[Place]:
        """Number of messages in flight in each queue."""
        return Counter({place: len(offsets) for place, offsets in self.find_handed_out().items()})

    def in_flight(self) -> Iterator[InFlight]:
        """Every message in flight, sorted by group, topic, queue and offset."""
        names = self.names
        for (topic, group, queue_id), offsets in sorted(
            self.find_handed_out().items(), key=lambda item: (item[0][1], item[0][0], item[0][2])
        ):
            origin = names.of(topic).origin if topic.startswith(RETRY_PREFIX) else None
            for offset, handed in sorted(offsets.items()):
                yield self._row(topic, group, queue_id, offset, handed, origin)

    def _row(self, topic: str, group: str, queue_id: int, offset: int, handed: Handed, origin: str | None) -> InFlight:
        message = self._message(topic, queue_id, offset)
        record = message.record if message is not None else None
        properties = message.properties if message is not None else {}
        return InFlight(
            group=group,
            state="invisible" if handed.visible_time > self.now else "due",
            kind=handed.kind,
            topic=topic,
            originTopic=origin,
            queueId=queue_id,
            queueOffset=offset,
            popTimestamp=handed.pop_time,
            visibleTimestamp=handed.visible_time,
            invisibleTime=handed.invisible_time,
            reconsumeTimes=record.reconsume_times if record is not None else None,
            msgId=message.message_id if message is not None else None,
            tags=properties.get(TAGS),
            keys=properties.get(KEYS),
            physicalOffset=message.entry.physical_offset if message is not None else None,
            storeTimestamp=record.store_timestamp if record is not None else None,
            brokerName=handed.broker_name,
            putAgain=handed.put_again,
            attemptId=handed.attempt_id,
        )

    def _message(self, topic: str, queue_id: int, offset: int) -> QueueMessage | None:
        queue = self.topics.one(topic, queue_id)
        if queue is None or not queue.min_offset(self.log.min_offset) <= offset < queue.max_offset:
            return None
        entry = queue.entry(offset)
        message = self.log.read(entry.physical_offset, crc=False) if entry is not None else None
        if entry is None or message is None or message.record.topic != topic.encode("utf-8", "surrogateescape"):
            return None
        return QueueMessage(entry, message.record, parse(message.record.properties))


def _keep(handed_out: dict[Place, dict[int, Handed]], place: Place, offset: int, handed: Handed) -> None:
    """Add a message. If its invisible time was changed, it may briefly have two checkpoints: the later one counts."""
    offsets = handed_out.setdefault(place, {})
    if offset not in offsets or offsets[offset].visible_time < handed.visible_time:
        offsets[offset] = handed


Copy = tuple[str, int, int]  # topic, queue id, queue offset


class PopEvent(NamedTuple):
    """One POP event of a group and one copy of a message. Times are ms since the epoch.

    Attributes:
        event: popped, postponed (its invisible time was changed) or acked.
        visible_time: when it becomes visible to others again; None for an ack.
    """

    time: int
    event: str
    topic: str
    queue_id: int
    queue_offset: int
    group: str
    visible_time: int | None
    detail: str | None


def pops_of(popped: MessagesInFlight, copies: set[Copy], since: int) -> Iterator[PopEvent]:
    """POP events of these copies.

    A change of the invisible time stores a checkpoint for the one message and acks the previous one; that ack is left
    out.

    Args:
        since: when the first of the copies was stored, ms.
    """
    topics = {topic for topic, _queue_id, _offset in copies}
    points: dict[tuple[Copy, str], dict[pop.PopKey, pop.CheckPoint]] = {}
    acks: dict[tuple[Copy, str], dict[pop.PopKey, PopRecord]] = {}
    for record in popped.records(since):
        entry = record.event
        if entry.topic not in topics:
            continue
        for offset in entry.queue_offsets:
            copy = (entry.topic, entry.queue_id, offset)
            if copy not in copies:
                continue
            if isinstance(entry, pop.CheckPoint):
                points.setdefault((copy, entry.group), {})[entry.key] = entry
            else:
                acks.setdefault((copy, entry.group), {})[entry.key] = record
    for stored in popped.stored:
        copy = (stored.topic, stored.queue_id, stored.queue_offset)
        if copy in copies:
            yield PopEvent(stored.pop_time, "popped", *copy, stored.group, stored.visible_time, None)
    for place in {**points, **acks}:
        (topic, queue_id, offset), group = place
        superseded: set[pop.PopKey] = set()
        for key, point in sorted(points.get(place, {}).items(), key=lambda item: item[1].pop_time):
            before = [
                former
                for former, ack in acks.get(place, {}).items()
                if former.pop_time < key.pop_time <= ack.born_time and point.queue_offsets == (offset,)
            ]
            superseded.update(before)
            event = "postponed" if before else "popped"
            yield PopEvent(point.pop_time, event, topic, queue_id, offset, group, point.visible_time, None)
            if offset in point.acked_before:
                yield PopEvent(point.pop_time, "acked", topic, queue_id, offset, group, None, "time not known")
        for key, ack in acks.get(place, {}).items():
            if key not in superseded:
                yield PopEvent(ack.born_time, "acked", topic, queue_id, offset, group, None, None)
