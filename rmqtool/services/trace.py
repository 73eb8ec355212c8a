"""The history of one message: every copy that a broker made of it, in log order, and which groups have passed it.

All copies have the producer's unique id; retries and dead letters also name the offset id of the first copy that a
consumer sent back. Brokers do not record what was consumed: an offset beyond a message means that the group consumed
it, filtered it out, or was moved past it. SQL92 filters of subscriptions are stored (consumerFilter.json), tag filters
are not.

Source: message-services 10 to 12, 19.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from formats.config.files import ConsumerFilters, ConsumerOffsets
from formats.errors import FormatError
from formats.message.ids import is_id, parse_offset_id
from formats.message.ids import offset_id as id_of
from formats.message.properties import DELAY, REAL_TOPIC, UNIQ_KEY, parse
from formats.message.read import Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK
from formats.sql92.filter import BadFilter, compile_filter
from formats.topics import DLQ_PREFIX, GIVEN_UP, HALVES, RETRY_PREFIX, SCHEDULE, SYSTEM_TOPICS, TRACE
from rmqtool.contract import PlainRow, message_row
from rmqtool.errors import RmqError
from rmqtool.progress import stage
from rmqtool.services.delays.delays import Delays, number_of
from rmqtool.services.lookup.configs import FILES, Warn, known_offsets, look_at_config, offsets_of
from rmqtool.services.lookup.query import KeyReader, Search, query_id, query_key
from rmqtool.services.lookup.queue_messages import ORIGIN_MESSAGE_ID, TopicQueues, messages_of, warn_of_unbuilt
from rmqtool.services.lookup.retry_names import RetryNames, retry_names
from rmqtool.services.lookup.stored import LogMessage
from rmqtool.services.lookup.topic_names import topics_in
from rmqtool.services.popping.in_flight import MessagesInFlight, pops_of
from rmqtool.services.trace_reports import Report, reports_in
from rmqtool.services.transactions.half_messages import TransactionInfo, Transactions
from rmqtool.store.changes import manifest as manifests
from rmqtool.store.changes.manifest import print_of, same
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.runs import runs
from rmqtool.store.config.release import release_of
from rmqtool.store.disk.directories import is_dir, read_small
from rmqtool.store.index.reader import BadIndex, open_index
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord

NOT_YET = "not yet"
FILTERED = "filtered"
RESET = "reset"
ACKED = "acked"
GIVEN_BACK = "given back"
CONSUMED = "consumed, or filtered by tag"
_RESETS = ("group-reset", "group-clone")


class OffsetReasons:
    """Explains from a store's files why a group's offset is past a message."""

    def __init__(self, layout: StoreLayout, warn: Warn) -> None:
        self._layout, self._warn = layout, warn
        self._filters: ConsumerFilters | None = None
        self._before: Mapping[tuple[str, str, int], int] | None = None

    def why(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        consumer_offset: int,
        properties: Mapping[str, str],
        stored: int,
        events: Collection[str],
    ) -> str:
        """Why a group is past a message, or ``not yet``.

        Args:
            properties: of the message.
            stored: when it was stored, ms.
            events: names of the events of this copy in this group, see :class:`rmqtool.services.trace.Event`.
        """
        if (reason := reason_in(events, queue_offset, consumer_offset)) is not None:
            return reason
        if (condition := self._excluding_filter(group, topic, properties, stored)) is not None:
            return f"{FILTERED}: {condition}"
        before = self._offsets_before_reset().get((topic, group, queue_id))
        if before is not None and before <= queue_offset:
            return RESET
        return CONSUMED

    def _excluding_filter(self, group: str, topic: str, properties: Mapping[str, str], stored: int) -> str | None:
        """The group's SQL92 filter if the message does not match it, else None.

        The filter of a group without consumers is its last one, and tells of what was stored while it had some.
        """
        if self._filters is None:
            config = look_at_config(self._layout, "consumerFilter.json", self._warn)
            self._filters = config if isinstance(config, ConsumerFilters) else ConsumerFilters()
        filters = self._filters.topics.get(topic)
        filter_data = filters.groups.get(group) if filters is not None else None
        if (
            filter_data is None
            or (filter_data.dead and not filter_data.born_time <= stored <= filter_data.dead_time)
            or filter_data.expression_type != "SQL92"
            or filter_data.expression is None
        ):
            return None
        try:
            matches = compile_filter(filter_data.expression, wide=release_of(self._layout).knows_wide_filters)
        except BadFilter:
            return None
        return None if matches(properties) else filter_data.expression

    def _offsets_before_reset(self) -> Mapping[tuple[str, str, int], int]:
        """Offsets before the last reset or clone by rmqtool, if the file it wrote is unchanged; else empty."""
        if self._before is None:
            self._before = {}
            with suppress(OSError, RmqError, FormatError):  # an unreadable backup only means less to explain
                self._before = self._read_replaced_offsets()
        return self._before

    def _read_replaced_offsets(self) -> dict[tuple[str, str, int], int]:
        if not is_dir(self._layout.root):
            return {}
        places = Places.of(self._layout)
        offsets: dict[tuple[str, str, int], int] = {}
        for run in runs(places):
            if run.head is None or run.head.command not in _RESETS or run.state != "done":
                continue
            for action in manifests.read(run.path, places).actions:
                name = action.path.rpartition("/")[2]
                if name not in FILES or action.kept is None or not same(print_of(action.path), action.put):
                    continue
                data = read_small(f"{run.path}/{action.kept}")
                for entry in ConsumerOffsets.parse(data or b"{}").entries():
                    offsets[entry.topic, entry.group, entry.queue_id] = entry.offset
        return offsets


def reason_in(events: Collection[str], queue_offset: int, consumer_offset: int) -> str | None:
    """Why a group is past a message, or ``not yet``, if the events of this copy in this group show it; else None."""
    if "acked" in events:
        return ACKED
    if consumer_offset <= queue_offset:
        return NOT_YET
    return GIVEN_BACK if {"retry", "retry-delayed", "dead-letter", "revived"} & set(events) else None


TAKEN_EVENTS = ("stored", "committed", "delivered", "retry", "revived", "dead-letter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(PlainRow):
    """One event in a message's history. Times are ms since the epoch.

    ``event``: stored, half, check, committed, rolled-back, given-up, delayed, delivered, retry-delayed, retry,
    dead-letter; for POP groups popped, postponed (invisible for longer), acked and revived, with the offsets and the id
    of the popped copy. ``delayed`` and ``retry-delayed`` messages wait until ``deliverTimestamp``; ``popped`` and
    ``postponed`` ones are invisible until then.
    """

    time: int
    event: str
    topic: str
    queueId: int
    queueOffset: int
    physicalOffset: int
    offsetMsgId: str
    reconsumeTimes: int
    group: str | None = None  # of a retry or dead letter
    deliverTimestamp: int | None = None
    detail: str | None = None


def event_of(message: LogMessage, name: str, group: str | None, deliver: int | None, detail: str | None) -> Event:
    """The event that a copy of a message stands for."""
    record = message.record
    return Event(
        time=record.store_timestamp,
        event=name,
        topic=record.topic.decode("utf-8", "replace"),
        queueId=record.queue_id,
        queueOffset=record.queue_offset,
        physicalOffset=message.physical_offset,
        offsetMsgId=offset_id_of(message),
        reconsumeTimes=record.reconsume_times,
        group=group,
        deliverTimestamp=deliver,
        detail=detail,
    )


def later_events(events: Sequence[Event], event: Event, group: str) -> set[str]:
    """Names of the events of a group from one of its copies on."""
    later = {other.event for other in events if other.group == group and other.time >= event.time}
    return later - {event.event if event.group == group else None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedCopy(PlainRow):
    """Whether a group has passed one copy of the message."""

    group: str
    topic: str
    queueId: int
    queueOffset: int
    consumerOffset: int
    passed: bool  # the offset is beyond the message
    why: str  # the reason, or "not yet", as far as the store shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The history of one message."""

    id: str
    msgId: str | None
    state: str  # its current state; "not found" without any copy
    scanned: bool  # the whole log was read
    events: Sequence[Event] = ()
    groups: Sequence[PassedCopy] = ()
    transaction: TransactionInfo | None = None
    tags: str | None = None
    keys: list[str] = field(default_factory=list)
    body: Any = None
    bodyEncoding: str | None = None
    reports: Sequence[Report] = ()  # of clients, in the trace topic

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**asdict(self), "transaction": self.transaction.to_dict() if self.transaction else None}


def trace(
    log: CommitLog,
    message_id: str,
    now: int,
    warn: Warn,
    *,
    scan: bool = False,
    body: str = "auto",
    trace_topic: str = TRACE,
) -> Trace:
    """The history of a message.

    Args:
        message_id: unique id, or the offset id of any copy.
        now: ms, to tell which deliveries are still to come.
        scan: read the whole log even if the index has the message; done anyway if it has nothing or is damaged.
        body: format of the body, see :func:`rmqtool.contract.render_body`.
        trace_topic: where clients report what they do with messages.
    """
    return _Tracer(log, now, warn).run(message_id, scan=scan, body=body, trace_topic=trace_topic)


def topics_with_key(layout: StoreLayout, key: str) -> list[str]:
    """Topics with indexed messages that have this key; system and group topics only if there are no others."""
    reader = KeyReader(layout, lambda _text: None)
    topics = [topic for topic in sorted(topics_in(layout)) if reader.query(topic, key, Search(limit=1))]
    return [topic for topic in topics if topic not in SYSTEM_TOPICS and not topic.startswith("%")] or topics


class _Tracer:
    def __init__(self, log: CommitLog, now: int, warn: Warn) -> None:
        self.log, self.now, self.warn = log, now, warn
        self.topics = TopicQueues(log.layout)
        warn_of_unbuilt(log, warn)
        self.copies: dict[int, LocatedRecord] = {}
        self.names = retry_names(log.layout, warn)

    def run(self, message_id: str, *, scan: bool, body: str, trace_topic: str) -> Trace:
        scan = scan or any(isinstance(file, BadIndex) for file in open_index(self.log.layout))
        first = self._by_offset_id(message_id)
        unique = parse(first.record.properties).get(UNIQ_KEY) if first is not None else message_id
        if first is not None:
            self._add_copy(first)
        if unique is not None and not scan:
            for message in query_id(self.log.layout, unique, Search(), self.warn):
                self._add_copy(message)
        scanned = scan or not self.copies
        if scanned:
            self._scan(unique, message_id)
        elif unique is None:
            self._by_origin(message_id)
        events = sorted(self._events(), key=lambda event: event.physicalOffset)
        transaction = self._transaction(unique, events)
        if transaction is not None:
            events = sorted([*events, *find_ending(transaction, events)], key=lambda event: event.time)
        events = self._with_pops(events)
        return Trace(
            id=message_id,
            msgId=unique if self.copies else None,
            state=state_of(events, self.now),
            scanned=scanned,
            events=events,
            groups=list(self._groups(events)),
            transaction=transaction,
            reports=self._reports(unique, trace_topic) if self.copies else (),
            **self._contents(body),
        )

    def _reports(self, unique: str | None, topic: str) -> list[Report]:
        if unique is None or not is_dir(self.log.layout.path("consumequeue", topic)):
            return []
        messages = query_key(self.log.layout, topic, unique, Search(), self.warn)
        return reports_in((message.record for message in messages), unique)

    def _contents(self, form: str) -> dict[str, Any]:
        """Tag, keys and body, which all copies share."""
        if not self.copies:
            return {}
        first = self.copies[min(self.copies)]
        row = message_row(first.record, first.physical_offset, form)
        return {name: row[name] for name in ("tags", "keys", "body", "bodyEncoding")}

    def _with_pops(self, events: list[Event]) -> list[Event]:
        """The events, with those of POP groups added, sorted by time."""
        copies = {(event.topic, event.queueId, event.queueOffset): event for event in events if is_deliverable(event)}
        if not copies:
            return events
        since = min(event.time for event in copies.values())
        pops = [
            replace(
                copies[pop.topic, pop.queue_id, pop.queue_offset],
                time=pop.time,
                event=pop.event,
                group=pop.group,
                deliverTimestamp=pop.visible_time,
                detail=pop.detail,
            )
            for pop in pops_of(MessagesInFlight(self.log, self.now, self.warn, topics=self.topics), set(copies), since)
        ]
        return sorted([*events, *pops], key=lambda event: event.time) if pops else events

    def _add_copy(self, message: LocatedRecord) -> None:
        self.copies[message.physical_offset] = message

    def _by_offset_id(self, message_id: str) -> LocatedRecord | None:
        if not is_id(message_id):
            return None
        position = parse_offset_id(message_id).physical_offset
        message = self.log.read(position, crc=False) if position >= 0 else None
        return message if message is not None and offset_id_of(message) == message_id.upper() else None

    def _scan(self, unique: str | None, message_id: str) -> None:
        """Read the whole log for copies, by unique id and by origin."""
        wanted = {unique, message_id} - {None}
        low = max(self.log.min_offset, 0)
        with stage("reading the log", max(self.log.written_end - low, 0)) as reading:
            for item in self.log.walk(crc=False):
                reading.done = item.physical_offset - low
                if isinstance(item, Damage):
                    self.warn(f"{item.path}: byte {item.at}: {item.reason}: {item.length} bytes skipped")
                    continue
                properties = parse(item.record.properties)
                if {properties.get(UNIQ_KEY), properties.get(ORIGIN_MESSAGE_ID)} & wanted or offset_id_of(
                    item
                ) in wanted:
                    self._add_copy(item)

    def _by_origin(self, message_id: str) -> None:
        """Find copies of a message without a unique id: only copies sent back name it, and that name is not indexed."""
        for topic in (SCHEDULE, *self.topics.topics(RETRY_PREFIX), *self.topics.topics(DLQ_PREFIX)):
            for queue in self.topics.of(topic):
                for entry, _record, properties in messages_of(self.log, queue, self.warn):
                    if properties.get(ORIGIN_MESSAGE_ID) == message_id.upper():
                        message = self.log.read(entry.physical_offset, crc=False)
                        if message is not None:
                            self._add_copy(message)

    def _events(self) -> Iterator[Event]:
        delays = Delays(self.log, self.now, self.warn, self.topics)
        for message in self.copies.values():
            record, properties = message.record, parse(message.record.properties)
            name, group, detail = kind_of(record, properties, self.names)
            deliver = None
            if name in ("delayed", "retry-delayed"):
                level = record.queue_id + 1
                queue = self.topics.one(SCHEDULE, record.queue_id)
                entry = queue.entry(record.queue_offset) if queue is not None else None
                delay = delays.delay(level)
                if entry is not None and entry.physical_offset == message.physical_offset:
                    deliver = delays.deliver_time(level, entry)
                elif delay is not None:
                    deliver = record.store_timestamp + delay
                waits = record.queue_offset >= delays.start(level)
                detail = f"level {level} for {properties.get(REAL_TOPIC)}" + (", not delivered yet" if waits else "")
            yield event_of(message, name, group, deliver, detail)

    def _transaction(self, unique: str | None, events: list[Event]) -> TransactionInfo | None:
        halves = {event.queueOffset for event in events if event.event in ("half", "check")}
        if not halves:
            return None
        for info in Transactions(self.log, self.warn).all():
            if halves & {copy.queueOffset for copy in info.copies} and unique in (None, info.msgId):
                return info
        return None

    def _groups(self, events: list[Event]) -> Iterator[PassedCopy]:
        offsets = offsets_of(known_offsets(self.log.layout, self.warn))
        reasons = OffsetReasons(self.log.layout, self.warn)
        for event in events:
            if not is_deliverable(event):
                continue
            for (topic, group), queues in sorted(offsets.items()):
                if topic == event.topic and (offset := queues.get(event.queueId)) is not None:
                    later = later_events(events, event, group)
                    properties = parse(self.copies[event.physicalOffset].record.properties)
                    yield PassedCopy(
                        group=group,
                        topic=topic,
                        queueId=event.queueId,
                        queueOffset=event.queueOffset,
                        consumerOffset=offset,
                        passed=offset > event.queueOffset,
                        why=reasons.why(
                            group, topic, event.queueId, event.queueOffset, offset, properties, event.time, later
                        ),
                    )


def offset_id_of(message: LogMessage) -> str:
    """The offset id of a stored message."""
    return id_of(message.record.store_address, message.record.store_port, message.physical_offset)


def is_deliverable(event: Event) -> bool:
    """Whether consumers get this copy."""
    return event.event in TAKEN_EVENTS


def kind_of(record: Record, properties: dict[str, str], names: RetryNames) -> tuple[str, str | None, str | None]:
    """(event, group, detail) of a copy."""
    topic = record.topic.decode("utf-8", "replace")
    target = properties.get(REAL_TOPIC, "")
    if topic in HALVES:
        times = number_of(properties.get("TRANSACTION_CHECK_TIMES"))
        if times is not None:
            return "check", None, f"check {times}, put back"
        again = "TRAN_PREPARED_QUEUE_OFFSET" in properties
        return ("check", None, "put back until its time has come") if again else ("half", None, f"for {target}")
    if topic == GIVEN_UP:
        return "given-up", None, f"after {properties.get('TRANSACTION_CHECK_TIMES', '?')} checks"
    if topic == SCHEDULE:
        if target.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return "retry-delayed", names.of(target).group, None
        return "delayed", None, None
    if topic.startswith(RETRY_PREFIX):
        group, origin = names.of(topic)
        return "retry" if origin is None else "revived", group, f"delivery {record.reconsume_times + 1}"
    if topic.startswith(DLQ_PREFIX):
        return "dead-letter", topic.removeprefix(DLQ_PREFIX), f"after {record.reconsume_times} failed deliveries"
    if record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
        return "committed", None, None
    if DELAY in properties and target == topic:
        return "delivered", None, f"after level {properties[DELAY]}"
    return "stored", None, None


def find_ending(info: TransactionInfo, events: Sequence[Event]) -> Iterator[Event]:
    """The rollback of a transaction, which leaves no copy of the message."""
    if info.state == "rolled-back" and info.endTimestamp is not None:
        newest = info.copies[-1]
        half = next((event for event in events if event.physicalOffset == newest.physicalOffset), events[-1])
        yield Event(
            time=info.endTimestamp,
            event="rolled-back",
            topic=half.topic,
            queueId=half.queueId,
            queueOffset=half.queueOffset,
            physicalOffset=half.physicalOffset,
            offsetMsgId=half.offsetMsgId,
            reconsumeTimes=half.reconsumeTimes,
            detail=f"op message {info.opQueueOffset}",
        )


def state_of(events: Sequence[Event], now: int) -> str:
    """The current state of the message."""
    if not events:
        return "not found"
    last = events[-1]
    if last.event in ("delayed", "retry-delayed") and (last.detail or "").endswith("not delivered yet"):
        due = last.deliverTimestamp is not None and last.deliverTimestamp <= now
        return "due, not delivered" if due else "waiting for its time"
    texts = {
        "half": "transaction pending",
        "check": "transaction pending",
        "delayed": "delivered, but the delivered copy was not found",
        "retry-delayed": "delivered, but the delivered copy was not found",
        "popped": "popped, not acked",
        "postponed": "popped, not acked",
    }
    return texts.get(last.event, last.event)
