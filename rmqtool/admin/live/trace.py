"""The history of one message of a live cluster: every copy on every broker, and which groups have passed it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from formats.message.ids import is_id
from formats.message.properties import REAL_TOPIC, UNIQ_KEY, parse
from formats.message.read import Record
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE, TRACE
from rmqtool.admin.live.messages import WireMessage, find_by_id, find_by_offset_id, find_keyed
from rmqtool.admin.live.questions import Node, Warn
from rmqtool.admin.live.queues import LiveQueues
from rmqtool.admin.live.transactions import LiveTransactionInfo, LiveTransactions
from rmqtool.contract import message_row, row_dict
from rmqtool.services.lookup.query import Search
from rmqtool.services.lookup.queue_messages import ORIGIN_MESSAGE_ID
from rmqtool.services.trace import (
    Event,
    PassedCopy,
    Trace,
    event_of,
    find_ending,
    is_deliverable,
    kind_of,
    later_events,
    reason_in,
    state_of,
)
from rmqtool.services.trace_reports import Report, reports_in

PASSED = "consumed, filtered or reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvent(Event):
    """One event, on one broker."""

    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTaken(PassedCopy):
    """Whether a group has passed one copy, on one broker."""

    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTrace(Trace):
    """The history of one message of a cluster."""

    events: Sequence[LiveEvent] = ()
    groups: Sequence[LiveTaken] = ()


class LiveTracer:
    """Follows messages of a cluster.

    What brokers do not report is missing: what POP consumers did, SQL conditions of groups, resets of offsets.

    Args:
        now: ms, to tell which deliveries are still to come.
    """

    def __init__(self, queues: LiveQueues, now: int, warn: Warn) -> None:
        self._queues, self._now, self._warn = queues, now, warn

    def trace(self, message_id: str, body: str = "auto", trace_topic: str = TRACE) -> LiveTrace:
        """The history of a message.

        Args:
            message_id: unique id, or the offset id of any copy.
            body: format of the body, see :func:`rmqtool.contract.render_body`.
            trace_topic: where clients report what they do with messages.
        """
        copies = self._copies(message_id)
        events = sorted(
            (self._event(node, record) for node, record in copies),
            key=lambda event: (event.time, event.brokerName, event.physicalOffset),
        )
        unique = next((parse(record.properties).get(UNIQ_KEY) for _node, record in copies), None)
        transaction = self._transaction(unique, events)
        if transaction is not None:
            name = transaction.brokerName
            ends = [LiveEvent(**event.to_dict(), brokerName=name) for event in find_ending(transaction, events)]
            events = sorted([*events, *ends], key=lambda event: event.time)
        contents: dict[str, Any] = {}
        if copies:
            first = min((record for _node, record in copies), key=lambda record: record.store_timestamp)
            row = message_row(first, first.physical_offset, body)
            contents = {name: row[name] for name in ("tags", "keys", "body", "bodyEncoding")}
        state = state_of(events, self._now)
        if transaction is not None and transaction.state is None and state == "transaction pending":
            state = "transaction pending or rolled back"  # brokers of 4.9 do not report which
        return LiveTrace(
            id=message_id,
            msgId=unique if unique is not None or not copies else message_id.upper(),
            state=state,
            scanned=False,
            events=events,
            groups=list(self._groups(events)),
            transaction=transaction,
            reports=self._reports(unique, trace_topic),
            **contents,
        )

    def _reports(self, unique: str | None, topic: str) -> list[Report]:
        queues = self._queues
        nodes = [node for node in queues.nodes if queues.has(node, topic)]
        if unique is None or not nodes:
            return []

        async def fetch(node: Node) -> list[Record]:
            return await find_keyed(queues.questions, self._warn, node, topic, unique)

        answers = queues.run(queues.questions.collect(nodes, fetch))
        return reports_in((record for records in answers.values() for record in records), unique)

    def _copies(self, message_id: str) -> list[tuple[Node, Record]]:
        questions = self._queues.questions
        messages: list[WireMessage] = []
        unique: str | None = message_id
        if is_id(message_id):
            messages = self._queues.run(find_by_offset_id(questions, self._queues.nodes, message_id))
            if messages:
                unique = parse(messages[0].record.properties).get(UNIQ_KEY)
        if unique is not None:
            messages += self._queues.run(find_by_id(questions, self._warn, unique, (), Search()))
        else:
            messages += self._by_origin(message_id.upper())
        return list(
            {
                (message.node, message.physical_offset): (message.node, message.record)
                for message in messages
                if message.node is not None
            }.values()
        )

    def _by_origin(self, message_id: str) -> Iterator[WireMessage]:
        """Copies of a message without a unique id: only those sent back name it, and that name is in no index."""
        for topic in (SCHEDULE, *self._queues.topics_named(RETRY_PREFIX), *self._queues.topics_named(DLQ_PREFIX)):
            for queue in self._queues.queues_of(topic):
                for message in self._queues.messages(queue):
                    if message.properties.get(ORIGIN_MESSAGE_ID) == message_id:
                        yield WireMessage(message.record, queue.node)

    def _event(self, node: Node, record: Record) -> LiveEvent:
        properties = parse(record.properties)
        name, group, detail = kind_of(record, properties, self._queues.names)
        deliver = None
        if name in ("delayed", "retry-delayed"):
            level, table = record.queue_id + 1, self._queues.delays.get(node, ())
            deliver = record.store_timestamp + table[level - 1] if level <= len(table) else None
            queue = next(
                (
                    queue
                    for queue in self._queues.queues_of(SCHEDULE)
                    if (queue.node, queue.queue_id) == (node, record.queue_id)
                ),
                None,
            )
            waits = queue is not None and record.queue_offset >= self._queues.delivered_offset(queue)
            detail = f"level {level} for {properties.get(REAL_TOPIC)}" + (", not delivered yet" if waits else "")
        event = event_of(WireMessage(record), name, group, deliver, detail)
        return LiveEvent(**row_dict(event), brokerName=node.name)

    def _transaction(self, unique: str | None, events: Sequence[LiveEvent]) -> LiveTransactionInfo | None:
        halves = {(event.brokerName, event.queueOffset) for event in events if event.event in ("half", "check")}
        if not halves:
            return None
        for info in LiveTransactions(self._queues, self._warn).all(unique):
            if halves & {(info.brokerName, copy.queueOffset) for copy in info.copies}:
                return info
        return None

    def _groups(self, events: Sequence[LiveEvent]) -> Iterator[LiveTaken]:
        nodes = {node.name: node for node in self._queues.nodes}
        for event in events:
            if not is_deliverable(event):
                continue
            for (node, group, topic, queue_id), offset in sorted(self._queues.offset_of.items()):
                if (node, topic, queue_id) != (nodes[event.brokerName], event.topic, event.queueId):
                    continue
                later = later_events(events, event, group)
                yield LiveTaken(
                    group=group,
                    topic=topic,
                    queueId=queue_id,
                    queueOffset=event.queueOffset,
                    consumerOffset=offset,
                    passed=offset > event.queueOffset,
                    why=reason_in(later, event.queueOffset, offset) or PASSED,
                    brokerName=event.brokerName,
                )
