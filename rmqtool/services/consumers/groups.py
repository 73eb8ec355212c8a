"""Consumer groups: their progress, their lag by queue, and offsets that cannot be right.

Source: broker.processor.AdminBrokerProcessor (getConsumeStats), admin.ConsumeStats; message-services 13, 19.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from formats.config.files import OffsetTable, QueueOffset
from formats.model.topics import TopicConfig
from formats.topics import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS
from formats.variants.pop import REVIVE_GROUP
from rmqtool.contract import PlainRow, PlainRows
from rmqtool.services.lookup.configs import Warn, group_offsets, groups_of, sort_tables, topics_of
from rmqtool.services.lookup.queue_messages import TopicQueues, warn_of_unbuilt
from rmqtool.services.lookup.retry_names import RetryNames
from rmqtool.services.popping.in_flight import MessagesInFlight
from rmqtool.store.layout.paths import QUEUE_KINDS, is_path_name
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import AnyQueue
from rmqtool.store.tier.tier import Tier

if TYPE_CHECKING:
    from rmqtool.services.open_store.store import Store

PROBLEMS = ("ahead", "expired")
Key = tuple[str, str, int]  # topic, group, queue id
_ROWS = 1 << 12  # rows at a time
_TOPICS = 1 << 14  # topics that are remembered


@dataclass(slots=True, kw_only=True)
class GroupLag(PlainRow):
    """One queue of a group, as the broker counts its lag.

    ``state``: ok, behind, none (no offset yet: counts as 0), expired (the next message to consume is gone), ahead (the
    offset is beyond the queue's end), unknown-topic (topics.json has no such topic), extra-queue (the topic has no such
    read queue), unknown (the broker does not report the queue's end). What a live cluster does not report is None.
    """

    group: str
    topic: str
    queueId: int
    consumerOffset: int | None
    minOffset: int | None
    brokerOffset: int | None
    diff: int | None
    lastTimestamp: int | None  # store time of the last message consumed; 0 if it has expired
    state: str
    inFlight: int | None = 0  # popped and not acked; below the offset, so not in diff, unless popped in order
    lag: int | None = field(init=False)  # the same as diff

    def __post_init__(self) -> None:
        self.lag = self.diff

    @property
    def behind(self) -> int:
        """Its contribution to a sum: an offset beyond the queue's end is not a negative lag."""
        return max(self.diff or 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSum(PlainRow):
    """The lags of one group, or of one group in one topic, added up."""

    group: str
    topic: str | None
    topics: int
    queues: int
    diff: int | None
    lastTimestamp: int | None  # of the queue consumed last
    problems: int  # queues whose offset cannot be right
    inFlight: int | None = 0  # as for a queue
    lag: int | None = field(init=False)  # the same as diff

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", self.diff)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo(PlainRow):
    """One group known to the store."""

    group: str
    configured: bool  # subscriptionGroup.json has it
    consumeEnable: bool | None
    retryMaxTimes: int | None
    topics: int  # with offsets, without its retry topics
    queues: int
    diff: int | None  # without its retry topics
    retryDiff: int | None
    deadLetters: int | None
    problems: int
    inFlight: int | None = 0  # of all its topics
    lag: int | None = field(init=False)  # the same as diff
    retryLag: int | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", self.diff)
        object.__setattr__(self, "retryLag", self.retryDiff)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange(PlainRow):
    """One offset in two snapshots; None if missing in one."""

    group: str
    topic: str
    queueId: int
    offset: int | None
    otherOffset: int | None
    change: int | None


@dataclass(frozen=True, slots=True)
class _Topic:
    """The queues of a topic, as every group meets them.

    Attributes:
        queues: those on disk, by number.
        readable: numbers of those that consumers read, sorted.
        ranges: lowest and highest offset of each queue so far; both None if it could not be read.
        absent: the range of a queue that is not on disk; None if it must be looked for.
        reads: the topic's read queues.
        outside: the state of any other queue.
    """

    queues: dict[int, AnyQueue]
    readable: frozenset[int]
    ranges: dict[int, tuple[int | None, int | None]]
    absent: tuple[int | None, int | None] | None
    reads: range
    outside: str | None


class ConsumerGroups:
    """The groups of one store, compared with its queues.

    Args:
        offsets: replace those in ``consumerOffset.json``, for example those of a broadcasting client.
        wanted: whether the offsets of a group in a topic are part of the answer.
        pop: count messages held by POP consumers; not for a broadcasting client.
    """

    def __init__(
        self,
        log: CommitLog,
        warn: Warn,
        offsets: Iterable[OffsetTable] | None = None,
        *,
        wanted: Callable[[str, str], bool] = lambda _group, _topic: True,
        pop: bool = True,
    ) -> None:
        self.log, self._warn = log, warn
        self._offsets: list[OffsetTable] = []  # sorted by group and topic
        revived: list[OffsetTable] = []  # kept, as the file may have millions of offsets: it is read once
        for table in sort_tables(group_offsets(log.layout, warn) if offsets is None else offsets):
            if table.group == REVIVE_GROUP:
                revived.append(table)
            if wanted(table.group, table.topic):
                self._offsets.append(table)
        self.topics = topics_of(log.layout, warn)
        self.groups = groups_of(log.layout, warn)
        self.queues = TopicQueues(log.layout)
        warn_of_unbuilt(log, warn)
        self._tier = Tier.of(log.layout)
        self._topics: dict[str, _Topic] = {}
        self._begins: dict[tuple[str, int], int] = {}
        in_flight = MessagesInFlight(log, 0, warn, topics=self.queues, revived=revived)
        self._in_flight = in_flight.counts() if pop else Counter[Key]()

    def held_queues(self) -> Iterator[Key]:
        """Queues of groups whose POP consumers hold messages."""
        return (key for key, count in self._in_flight.items() if count)

    def lag(self, *, behind: bool = False) -> Iterator[GroupLag]:
        """Every queue of every group, sorted by group, topic and queue.

        Args:
            behind: leave out queues without lag.
        """
        for rows in self.lag_rows():
            for row in (rows.only("diff", lambda diff: (diff or 0) > 0) if behind else rows).dicts():
                del row["lag"]  # as diff
                yield GroupLag(**row)

    def lag_rows(self) -> Iterator[PlainRows]:
        """As :meth:`lag`, by the thousand."""
        values: list[tuple[Any, ...]] = []
        in_flight = 0
        for group, tables in groupby(self._offsets, attrgetter("group")):
            for topic, of_topic, offsets in self._with_queues(tables):
                for queue_id, offset, low, high, state in self._places(topic, of_topic, offsets):
                    diff = high - (offset or 0) if high is not None else None
                    last = self._last_time(topic, queue_id, of_topic.queues.get(queue_id), offset, high)
                    if self._in_flight:
                        in_flight = self._in_flight[topic, group, queue_id]
                    values.append((group, topic, queue_id, offset, low, high, diff, last, state, in_flight, diff))
                if len(values) >= _ROWS:
                    yield PlainRows(GroupLag, values)
                    values = []
        if values:
            yield PlainRows(GroupLag, values)

    def _with_queues(self, tables: Iterable[OffsetTable]) -> Iterator[tuple[str, _Topic, Mapping[int, int]]]:
        """The topics of a group with their queues, and with its offsets."""
        for topic, _group, offsets in tables:
            if topic not in self._topics:
                if len(self._topics) >= _TOPICS:
                    self._topics.clear()
                self._topics[topic] = self._topic(topic)
            yield topic, self._topics[topic], offsets

    def _topic(self, topic: str) -> _Topic:
        config = self.topics.topics.get(topic) if self.topics is not None else None
        queues = {queue.queue_id: queue for queue in self.queues.every(topic)}
        # of a thousand read queues, leave out those with neither messages nor an offset
        reads = range(config.read_queue_nums) if config is not None else range(0)
        return _Topic(
            queues,
            frozenset(n for n in queues if n in reads),
            {},
            None if queues or self.log.layout.passed else (0, 0),
            reads,
            topic_state(topic, -1, config) if self.topics is not None else None,
        )

    def _places(
        self, topic: str, of_topic: _Topic, table: Mapping[int, int]
    ) -> Iterator[tuple[int, int | None, int | None, int | None, str]]:
        """Number, offset, lowest and highest offset, and state of the queues of a group in a topic, by number."""
        offsets: dict[int, int | None] = dict(table.items())
        if not offsets.keys() >= of_topic.readable:
            offsets = dict.fromkeys(of_topic.readable) | offsets
        ranges, absent, reads, outside = of_topic.ranges, of_topic.absent, of_topic.reads, of_topic.outside
        for queue_id in sorted(offsets):
            offset, bounds = offsets[queue_id], ranges.get(queue_id, absent)
            if bounds is None:
                bounds = ranges[queue_id] = self._range(topic, queue_id, of_topic.queues.get(queue_id))
            low, high = bounds
            yield queue_id, offset, low, high, offset_state(offset, low, high, None if queue_id in reads else outside)

    def _range(self, topic: str, queue_id: int, queue: AnyQueue | None) -> tuple[int | None, int | None]:
        bounds = (self._begin(queue), queue.max_offset) if queue is not None else (0, 0)
        if self.log.layout.passed and self._lacks(topic, queue_id, queue):  # reading the queue may have shown it
            return None, None
        return bounds

    def _lacks(self, topic: str, queue_id: int, queue: AnyQueue | None) -> bool:
        """Whether something of a queue could not be read."""
        layout = self.log.layout
        paths = [layout.queue_path(topic, queue_id, kind) for kind in QUEUE_KINDS] if is_path_name(topic) else []
        if queue is not None:
            paths = [queue.path]
        return any(map(layout.lacks, paths))

    @cached_property
    def _retry_names(self) -> RetryNames:
        return RetryNames(
            self.groups.groups if self.groups is not None else (),
            self.topics.topics if self.topics is not None else (),
            (table[:2] for table in self._offsets),
        )

    def _each(self, configured: Iterable[str]) -> Iterator[tuple[str, Iterable[OffsetTable]]]:
        """Every group that is configured or has an offset, sorted, with its tables; there may be a million."""
        waiting = deque(sorted(configured))
        for group, tables in groupby(self._offsets, attrgetter("group")):
            while waiting and waiting[0] <= group:
                if (name := waiting.popleft()) != group:
                    yield name, ()
            yield group, tables
        for name in waiting:
            yield name, ()

    def _last_time(
        self, topic: str, queue_id: int, queue: AnyQueue | None, offset: int | None, high: int | None
    ) -> int:
        """Store time of the last message that was consumed, ms; 0 if there is none, or it is gone."""
        if not offset:
            return 0
        if self._tier is not None and (last := self._tier_time(topic, queue_id, offset - 1)):
            return last
        if queue is None or not 0 < offset <= (high or 0) or (entry := queue.entry(offset - 1)) is None:
            return 0
        message = self.log.read(entry.physical_offset, crc=False)
        return message.record.store_timestamp if message is not None else 0

    def _begin(self, queue: AnyQueue) -> int:
        """The lowest offset that consumers can read: the tier's, if there is one. Cached per queue."""
        key = queue.topic, queue.queue_id
        if key not in self._begins:
            low = queue.min_offset(self.log.min_offset)
            self._begins[key] = low if self._tier is None else self._tier.begin(*key, low)
        return self._begins[key]

    def _tier_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of a message in the tier; 0 if missing."""
        record = self._tier.record(topic, queue_id, offset) if self._tier is not None and offset >= 0 else None
        return record.store_timestamp if record is not None else 0

    def infos(self) -> Iterator[GroupInfo]:
        """Every group that has a configuration or an offset, sorted."""
        configured = self.groups.groups if self.groups is not None else {}
        dead_letters = {name for name in self.queues.names() if name.startswith(DLQ_PREFIX)}
        for group, tables in self._each(configured):
            topics = queues = diff = retry_diff = problems = in_flight = 0
            unknown = False
            for topic, of_topic, offsets in self._with_queues(tables):
                count = behind = 0
                for queue_id, offset, _, high, state in self._places(topic, of_topic, offsets):  # there may be millions
                    count += 1
                    if high is None:
                        unknown = True
                    elif high > (offset or 0):
                        behind += high - (offset or 0)
                    if state in PROBLEMS:
                        problems += 1
                    if self._in_flight:
                        in_flight += self._in_flight[topic, group, queue_id]
                if topic.startswith(RETRY_PREFIX) and self._retry_names.of(topic).group == group:
                    retry_diff += behind
                else:
                    topics += 1
                    queues += count
                    diff += behind
            config = configured.get(group)
            dead = self.queues.of(DLQ_PREFIX + group) if DLQ_PREFIX + group in dead_letters else []
            yield GroupInfo(
                group=group,
                configured=config is not None,
                consumeEnable=config.consume_enable if config is not None else None,
                retryMaxTimes=config.retry_max_times if config is not None else None,
                topics=topics,
                queues=queues,
                diff=None if unknown else diff,
                retryDiff=None if unknown else retry_diff,
                deadLetters=sum(queue.max_offset - self._begin(queue) for queue in dead),
                problems=problems,
                inFlight=in_flight,
            )


def topic_state(topic: str, queue_id: int, config: TopicConfig | None) -> str | None:
    """The state of a queue that contradicts the broker's topic table, or None."""
    if config is None:
        # 4.9 does not enter every internal topic, and light queues have no topic of their own
        return None if topic in SYSTEM_TOPICS or topic.startswith(LMQ_PREFIX) else "unknown-topic"
    return None if 0 <= queue_id < config.read_queue_nums else "extra-queue"


def offset_state(offset: int | None, low: int | None, high: int | None, wrong: str | None) -> str:
    """The state of a group in a queue.

    Args:
        low, high: the range of the queue; None if it is not known.
        wrong: the answer of :func:`topic_state`.
    """
    consumed = offset or 0
    if high is not None and consumed > high:
        return "ahead"
    if offset is not None and low is not None and consumed < low:
        return "expired"
    if wrong is not None or high is None:
        return wrong or "unknown"
    return "none" if offset is None and high else "behind" if high > consumed else "ok"


def oldest_unread(log: CommitLog, queues: TopicQueues, row: GroupLag) -> int | None:
    """The store time (ms) of a group's oldest unread message in a queue; None if there is none, or it is gone."""
    queue = queues.one(row.topic, row.queueId)
    entry = queue.entry(max(row.consumerOffset or 0, row.minOffset or 0)) if queue is not None else None
    message = log.read(entry.physical_offset, crc=False) if entry is not None else None
    return message.record.store_timestamp if message is not None else None


def total_diff(rows: Iterable[GroupLag]) -> int | None:
    """The sum of lags; None if one of them is not known."""
    total = 0
    for row in rows:
        if row.diff is None:
            return None
        total += row.behind
    return total


def sums(lags: Iterable[PlainRows], *, by_topic: bool) -> Iterator[LagSum]:
    """The sums of sorted lags by group, or by group and topic."""
    total: _Total | None = None
    for rows in lags:
        for key, values in groupby(rows.values, itemgetter(0, 1) if by_topic else itemgetter(0)):
            if total is None or key != total.key:
                if total is not None:
                    yield total.row(by_topic=by_topic)
                total = _Total(key)
            total.add([*values])
    if total is not None:
        yield total.row(by_topic=by_topic)


class _Total:
    """A sum of lags, to which rows are added."""

    def __init__(self, key: object) -> None:
        self.key = key
        self._group = ""
        self._topics: set[str] = set()
        self._rows = self._problems = 0
        self._diff: int | None = 0
        self._in_flight: int | None = 0
        self._last: int | None = None

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        """Add rows as their values."""
        groups, topics, _, _, _, _, diffs, times, states, in_flight, *_ = zip(*rows, strict=True)
        self._group = groups[0]
        self._topics.update(topics)
        self._rows += len(rows)
        self._problems += sum(map(states.count, PROBLEMS))
        known = None not in diffs and self._diff is not None
        self._diff = (self._diff or 0) + sum(diff for diff in diffs if diff > 0) if known else None
        known = None not in in_flight and self._in_flight is not None
        self._in_flight = (self._in_flight or 0) + sum(in_flight) if known else None
        self._last = max((time for time in (self._last, *times) if time is not None), default=None)

    def row(self, *, by_topic: bool) -> LagSum:
        """The sum of the rows."""
        return LagSum(
            group=self._group,
            topic=min(self._topics) if by_topic else None,
            topics=len(self._topics),
            queues=self._rows,
            diff=self._diff,
            lastTimestamp=self._last,
            problems=self._problems,
            inFlight=self._in_flight,
        )


def compare(
    this: Iterable[QueueOffset], other: Iterable[QueueOffset], *, equal: bool = False
) -> Iterator[OffsetChange]:
    """The differences between two tables of offsets, sorted by group, topic and queue.

    Args:
        equal: include offsets that do not differ.
    """
    tables: list[dict[tuple[str, str, int], int]] = [
        {(e.group, e.topic, e.queue_id): e.offset for e in entries} for entries in (this, other)
    ]
    for key in sorted({*tables[0], *tables[1]}):
        ours, theirs = (table.get(key) for table in tables)
        if equal or ours != theirs:
            yield OffsetChange(
                group=key[0],
                topic=key[1],
                queueId=key[2],
                offset=ours,
                otherOffset=theirs,
                change=theirs - ours if ours is not None and theirs is not None else None,
            )


def consumer_groups(store: "Store") -> list[GroupInfo]:
    """Every consumer group of a store that has a configuration or an offset, with the sums of its lag."""
    return list(ConsumerGroups(store.log, store.warnings.append).infos())


def consumer_lag(store: "Store", group: str | None = None, topic: str | None = None) -> list[GroupLag]:
    """The lag of consumer groups, queue by queue; optionally of one group or topic."""
    rows = ConsumerGroups(store.log, store.warnings.append).lag()
    return [row for row in rows if (group is None or row.group == group) and (topic is None or row.topic == topic)]
