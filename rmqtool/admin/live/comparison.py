"""A store directory beside a live broker: what one has and the other lacks.

The directory may be a backup, a rescued store or the disk of a slave. The broker keeps running, so queues are
compared by their ranges, and messages by a sample of those that both have.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from formats.message.properties import parse_raw
from formats.message.read import Record
from formats.topics import SYSTEM_TOPICS
from rmqtool.admin.live.info import TABLES, fetch_table
from rmqtool.admin.live.questions import Node, Session, Unanswered, Warn
from rmqtool.admin.live.queues import LiveQueue, LiveQueues
from rmqtool.client.cluster.errors import ClientError
from rmqtool.errors import BadValue, CorruptFile, UnreadableStore
from rmqtool.services.comparison.stores import OFFSETS, Difference, differing_values, json_text
from rmqtool.services.lookup.configs import known_offsets, sort_offsets
from rmqtool.services.lookup.queue_messages import TopicQueues, messages_of
from rmqtool.store.config.files import raw_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue

_FIELDS = (
    "physical_offset", "store_timestamp", "born_timestamp", "body_crc", "body_length", "flag", "reconsume_times",
)  # fmt: skip
Key = tuple[str, int]  # topic, queue id


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterComparison:
    """The result.

    Attributes:
        broker: name of the broker.
        differences: first is the store, second the broker.
        sampled: number of messages that were compared.
        only_store, only_broker: numbers of messages that one of them has, by the ranges of queues.
    """

    broker: str
    differences: list[Difference]
    sampled: int
    only_store: int
    only_broker: int


def compare_with_broker(
    layout: StoreLayout, session: Session, broker: str | None, sample: int, warn: Warn, say: Warn
) -> ClusterComparison:
    """Compare a store with one broker.

    Args:
        broker: its name; by default that in the store's broker.conf, or the only one.
        sample: number of messages of each queue to compare.
        warn: called with each reason why something was not compared.
        say: called with what brokers do not report.

    Raises:
        BadValue: there are several brokers, and none is named; or there is none of that name.
        ClientError, RemotingError: the broker does not answer.
    """
    queues = LiveQueues(session, warn)
    node = _choose(queues, broker or layout.conf.text("brokerName"))
    comparison = _Comparison(layout, queues, node, warn, say)
    rows = [*comparison.settings(), *comparison.offsets(), *comparison.queues()]
    sampled = comparison.sample(sample)
    return ClusterComparison(
        broker=node.name,
        differences=[*rows, *comparison.records],
        sampled=sampled,
        only_store=sum(row.messages or 0 for row in rows if row.what == "onlyFirst"),
        only_broker=sum(row.messages or 0 for row in rows if row.what == "onlySecond"),
    )


def _choose(queues: LiveQueues, name: str | None) -> Node:
    names = ", ".join(node.name for node in queues.nodes)
    if name is None and len(queues.nodes) > 1:
        raise BadValue(f"give --broker, one of {names}")
    node = next((node for node in queues.nodes if name in (None, node.name)), None)
    if node is None:
        raise BadValue(f"no broker {name} is registered: give --broker, one of {names}")
    if node not in queues.tables:
        raise ClientError(f"broker {node.name} does not answer: {'; '.join(queues.questions.reasons())}")
    return node


def _is_empty(table: Any) -> bool:
    """Whether a table of a broker has no entry."""
    return isinstance(table, dict) and not any(
        value for name, value in table.items() if isinstance(value, dict) and name != "dataVersion"
    )


class _Comparison:
    def __init__(self, layout: StoreLayout, queues: LiveQueues, node: Node, warn: Warn, say: Warn) -> None:
        self._layout, self._queues, self._node, self._warn, self._say = layout, queues, node, warn, say
        self._log, self._topics = CommitLog(layout), TopicQueues(layout)
        self._common: list[tuple[PlainQueue, LiveQueue, range]] = []
        self.records: list[Difference] = []

    def settings(self) -> Iterator[Difference]:
        """Topics, groups and delay offsets."""
        for name in TABLES:
            if name in OFFSETS:
                continue
            try:
                ours = raw_config(self._layout, name)
            except UnreadableStore:
                ours = None
            except CorruptFile as err:
                self._warn(f"{err}: not compared")
                continue
            try:
                theirs = self._queues.run(fetch_table(self._queues.questions, self._node, name))
            except Unanswered:
                continue  # it is reported
            if ours is None and _is_empty(theirs):
                continue  # a broker that has nothing to write has not written the file yet
            for path, this, other in differing_values("", ours, theirs):
                yield Difference(
                    part="config", what=name, name=path or None, first=json_text(this), second=json_text(other)
                )

    def offsets(self) -> Iterator[Difference]:
        """Offsets of groups."""
        if self._node not in self._queues.offsets:
            return  # it is reported
        theirs = {
            (group, topic, queue_id): offset
            for (node, group, topic, queue_id), offset in self._queues.offset_of.items()
            if node == self._node
        }
        ours = {
            (entry.group, entry.topic, entry.queue_id): entry.offset
            for entry in sort_offsets(known_offsets(self._layout, self._warn))
        }
        for key in sorted({*ours, *theirs}):
            if ours.get(key) != theirs.get(key):
                group, topic, queue_id = key
                yield Difference(
                    part="offset", what="offset", topic=topic, queueId=queue_id, group=group,
                    first=json_text(ours.get(key)), second=json_text(theirs.get(key)),
                )  # fmt: skip

    def queues(self) -> Iterator[Difference]:
        """Ranges of queues, and the messages that only one side has."""
        here: dict[Key, PlainQueue] = {
            (topic, queue.queue_id): queue for topic in self._topics.topics() for queue in self._topics.of(topic)
        }
        table = self._queues.tables[self._node]
        self._queues.load(table)
        there: dict[Key, LiveQueue] = {
            (topic, queue.queue_id): queue
            for topic in table
            if not self._queues.is_missing(topic)
            for queue in self._queues.queues_of(topic)
            if queue.node == self._node
        }
        for key in sorted({*here, *there}):
            if key[0] in table and self._queues.is_missing(key[0]):
                continue  # it is reported
            if key not in there and key[0] not in table:
                if key[0] not in SYSTEM_TOPICS:
                    yield from self._range_rows(key, self._range(here[key]), None)
                else:
                    self._say(f"{self._node.name} does not tell of {key[0]}: not compared")
                continue
            ours = self._range(here[key]) if key in here else range(0)
            theirs = range(there[key].min_offset, there[key].max_offset) if key in there else range(0)
            yield from self._range_rows(key, ours, theirs)
            both = range(max(ours.start, theirs.start), min(ours.stop, theirs.stop))
            if both:
                self._common.append((here[key], there[key], both))

    def _range(self, queue: PlainQueue) -> range:
        return range(queue.min_offset(self._log.min_offset), queue.max_offset)

    def _range_rows(self, key: Key, ours: range, theirs: range | None) -> Iterator[Difference]:
        topic, queue_id = key
        for what, this, other in (("onlyFirst", ours, theirs or range(0)), ("onlySecond", theirs or range(0), ours)):
            for part in _without(this, other):
                yield Difference(
                    part="messages", what=what, topic=topic, queueId=queue_id, fromOffset=part.start,
                    toOffset=part.stop, messages=len(part),
                )  # fmt: skip

    def sample(self, count: int) -> int:
        """Compare some messages of each queue that both have; returns how many."""
        wanted = {(live, offset): queue for queue, live, both in self._common for offset in _spread(both, count)}
        theirs = self._queues.pick(wanted)
        for place, record in theirs.items():
            self._compare(wanted[place], place, record)
        return len(theirs)

    def _compare(self, queue: PlainQueue, place: tuple[LiveQueue, int], theirs: Record | None) -> None:
        live, offset = place
        message = next(messages_of(self._log, queue, self._warn, offset, offset + 1), None)
        about: dict[str, Any] = {
            "topic": live.topic,
            "queueId": live.queue_id,
            "fromOffset": offset,
            "toOffset": offset + 1,
        }
        if message is None or theirs is None:
            if message is not None or theirs is not None:
                what = "onlySecond" if message is None else "onlyFirst"
                self.records.append(Difference(part="record", what=what, messages=1, **about))
            return
        fields = _values(message.record), _values(theirs)
        differing = [name for name in fields[0] if fields[0][name] != fields[1][name]]
        if differing:
            texts = [json_text({name: table[name] for name in differing}) for table in fields]
            self.records.append(
                Difference(
                    part="record", what=",".join(differing), messages=1, first=texts[0], second=texts[1], **about
                )
            )


def _values(record: Record) -> Mapping[str, object]:
    values: dict[str, object] = {name: getattr(record, name) for name in _FIELDS}
    properties = parse_raw(record.properties)
    # brokers add these to what they hand out
    values["properties"] = {
        name.decode("utf-8", "replace"): text.decode("utf-8", "replace")
        for name, text in properties.items()
        if name not in (b"MIN_OFFSET", b"MAX_OFFSET")
    }
    return values


def _without(this: range, other: range) -> Iterator[range]:
    """The parts of a range that another does not have."""
    before = range(this.start, min(this.stop, other.start)) if other else this
    after = range(max(this.start, other.stop), this.stop) if other else range(0)
    yield from (part for part in (before, after) if part)


def _spread(offsets: range, count: int) -> list[int]:
    """Up to ``count`` offsets, evenly, with the first and the last."""
    if len(offsets) <= count:
        return list(offsets)
    if count == 1:
        return [offsets[0]]
    return sorted({offsets[round(n * (len(offsets) - 1) / (count - 1))] for n in range(count)})
