"""Consumer groups: their progress, their lag by queue, and offsets that cannot be right.

Source: broker.processor.AdminBrokerProcessor (getConsumeStats), admin.ConsumeStats; message-services 13, 19.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from formats.config.files import OffsetTable, QueueOffset
from formats.model.topics import TopicConfig
from formats.topics import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS
from rmqtool.contract import PlainRow
from rmqtool.services.lookup.configs import Warn, group_offsets, groups_of, sort_tables, topics_of
from rmqtool.services.lookup.queue_messages import TopicQueues, warn_of_unbuilt
from rmqtool.services.lookup.retry_names import RetryNames
from rmqtool.services.popping.in_flight import MessagesInFlight
from rmqtool.store.layout.paths import BATCH_QUEUES, is_path_name
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import AnyQueue
from rmqtool.store.tier.tier import Tier

if TYPE_CHECKING:
    from rmqtool.services.open_store.store import Store

PROBLEMS = ("ahead", "expired")
QUEUE_KINDS = ("consumequeue", BATCH_QUEUES)
Key = tuple[str, str, int]  # topic, group, queue id


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


class _Place(NamedTuple):
    """One queue of a group, with its range and the group's offset."""

    topic: str
    queue_id: int
    queue: AnyQueue | None
    offset: int | None
    low: int | None  # None, like high, if the queue could not be read
    high: int | None
    state: str


class ConsumerGroups:
    """The groups of one store, compared with its queues.

    Args:
        offsets: replace those in ``consumerOffset.json``, for example those of a broadcasting client.
        pop: count messages held by POP consumers; not for a broadcasting client.
    """

    def __init__(
        self, log: CommitLog, warn: Warn, offsets: Iterable[OffsetTable] | None = None, *, pop: bool = True
    ) -> None:
        self.log, self._warn = log, warn
        self._offsets: dict[str, list[OffsetTable]] = {}  # by group, sorted by topic
        for table in sort_tables(group_offsets(log.layout, warn) if offsets is None else offsets):
            self._offsets.setdefault(table.group, []).append(table)
        self.topics = topics_of(log.layout, warn)
        self.groups = groups_of(log.layout, warn)
        self.queues = TopicQueues(log.layout)
        warn_of_unbuilt(log, warn)
        self._tier = Tier.of(log.layout)
        self._begins: dict[tuple[str, int], int] = {}
        self._in_flight = MessagesInFlight(log, 0, warn, self.queues).counts() if pop else Counter[Key]()

    def holding(self) -> Iterator[Key]:
        """Queues of groups whose POP consumers hold messages."""
        return (key for key, count in self._in_flight.items() if count)

    def lag(self) -> Iterator[GroupLag]:
        """Every queue of every group, sorted by group, topic and queue."""
        for group in sorted(self._offsets):
            for place in self._places(group):
                yield self._lag(group, place)

    def _places(self, group: str) -> Iterator["_Place"]:
        """The queues of a group, sorted by topic and number."""
        for topic, _group, offsets in self._offsets.get(group, ()):
            config = self.topics.topics.get(topic) if self.topics is not None else None
            on_disk = {queue.queue_id: queue for queue in self.queues.every(topic)}
            # of a thousand read queues, leave out those with neither messages nor an offset
            reads = range(config.read_queue_nums) if config is not None else range(0)
            outside = topic_state(topic, -1, config) if self.topics is not None else None
            for queue_id in sorted({*offsets, *(n for n in on_disk if n in reads)}):
                queue, offset = on_disk.get(queue_id), offsets.get(queue_id)
                low: int | None = self._begin(queue) if queue is not None else 0
                high: int | None = queue.max_offset if queue is not None else 0
                if self.log.layout.passed and self._lacks(topic, queue_id, queue):
                    low = high = None
                state = offset_state(offset, low, high, None if queue_id in reads else outside)
                yield _Place(topic, queue_id, queue, offset, low, high, state)

    def _lacks(self, topic: str, queue_id: int, queue: AnyQueue | None) -> bool:
        """Whether something of a queue could not be read."""
        layout = self.log.layout
        paths = [layout.queue_path(topic, queue_id, kind) for kind in QUEUE_KINDS] if is_path_name(topic) else []
        if queue is not None:
            paths = [queue.path]
        return any(map(layout.lacks, paths))

    def _pairs(self) -> set[tuple[str, str]]:
        return {(table.topic, group) for group, tables in self._offsets.items() for table in tables}

    def _lag(self, group: str, place: "_Place") -> GroupLag:
        topic, queue_id, queue, offset, low, high, state = place
        consumed = offset or 0
        last = self._tier_time(topic, queue_id, consumed - 1) if self._tier is not None else 0
        if (
            not last
            and queue is not None
            and 0 < consumed <= (high or 0)
            and (entry := queue.entry(consumed - 1)) is not None
        ):
            message = self.log.read(entry.physical_offset, crc=False)
            last = message.record.store_timestamp if message is not None else 0
        return GroupLag(
            group=group,
            topic=topic,
            queueId=queue_id,
            consumerOffset=offset,
            minOffset=low,
            brokerOffset=high,
            diff=high - consumed if high is not None else None,
            lastTimestamp=last,
            state=state,
            inFlight=self._in_flight[topic, group, queue_id] if self._in_flight else 0,
        )

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
        names = RetryNames(configured, self.topics.topics if self.topics is not None else (), self._pairs())
        for group in sorted({*configured, *self._offsets}):
            topics: set[str] = set()
            queues = diff = retry_diff = problems = in_flight = 0
            unknown = False
            for topic, places in groupby(self._places(group), key=itemgetter(0)):
                count = behind = 0
                for _, queue_id, _, offset, _, high, state in places:  # there may be millions
                    count += 1
                    if high is None:
                        unknown = True
                    elif high > (offset or 0):
                        behind += high - (offset or 0)
                    if state in PROBLEMS:
                        problems += 1
                    if self._in_flight:
                        in_flight += self._in_flight[topic, group, queue_id]
                if topic.startswith(RETRY_PREFIX) and names.of(topic).group == group:
                    retry_diff += behind
                else:
                    topics.add(topic)
                    queues += count
                    diff += behind
            config = configured.get(group)
            dead = self.queues.of(DLQ_PREFIX + group)
            yield GroupInfo(
                group=group,
                configured=config is not None,
                consumeEnable=config.consume_enable if config is not None else None,
                retryMaxTimes=config.retry_max_times if config is not None else None,
                topics=len(topics),
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


def sums(lags: Iterable[GroupLag], *, by_topic: bool) -> Iterator[LagSum]:
    """The sums of sorted lags by group, or by group and topic."""
    rows: list[GroupLag] = []

    def key(lag: GroupLag) -> tuple[str, str]:
        return lag.group, lag.topic if by_topic else ""

    for lag in lags:
        if rows and key(lag) != key(rows[0]):
            yield _sum(rows, by_topic=by_topic)
            rows = []
        rows.append(lag)
    if rows:
        yield _sum(rows, by_topic=by_topic)


def _sum(rows: list[GroupLag], *, by_topic: bool) -> LagSum:
    return LagSum(
        group=rows[0].group,
        topic=rows[0].topic if by_topic else None,
        topics=len({row.topic for row in rows}),
        queues=len(rows),
        diff=total_diff(rows),
        lastTimestamp=max((row.lastTimestamp for row in rows if row.lastTimestamp is not None), default=None),
        problems=sum(row.state in PROBLEMS for row in rows),
        inFlight=None if any(row.inFlight is None for row in rows) else sum(row.inFlight or 0 for row in rows),
    )


def compare(one: Iterable[QueueOffset], other: Iterable[QueueOffset], *, equal: bool = False) -> Iterator[OffsetChange]:
    """The differences between two tables of offsets, sorted by group, topic and queue.

    Args:
        equal: include offsets that do not differ.
    """
    tables: list[dict[tuple[str, str, int], int]] = [
        {(e.group, e.topic, e.queue_id): e.offset for e in entries} for entries in (one, other)
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
