"""Consumer groups: how far each has come, in which queues it lags, and where its offsets cannot be right.

Source: broker.processor.AdminBrokerProcessor (getConsumeStats), admin.ConsumeStats; message-services 13, 19.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from formats.config.files import QueueOffset
from formats.model.groups import SubscriptionGroup
from formats.model.topics import TopicConfig
from formats.topics import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS
from rmqtool.services.lookup.configs import Warn, group_offsets, groups_of, topics_of
from rmqtool.services.lookup.queue_messages import TopicQueues, warn_of_unbuilt
from rmqtool.services.lookup.retry_names import RetryNames
from rmqtool.services.popping.in_flight import MessagesInFlight
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import AnyQueue
from rmqtool.store.tier.tier import Tier

if TYPE_CHECKING:
    from rmqtool.services.open_store.store import Store

PROBLEMS = ("ahead", "expired")
Key = tuple[str, str, int]  # topic, group, queue id


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """One queue of a group, as the broker counts its lag.

    ``state``: ok, behind, none (no offset yet: counts as 0), expired (the next message to consume is gone), ahead (the
    offset is beyond the queue's end), unknown-topic (topics.json has no such topic), extra-queue (the topic has no such
    read queue), unknown (the broker does not tell how far the queue goes). What a live cluster does not tell is None.
    """

    group: str
    topic: str
    queueId: int
    consumerOffset: int | None
    minOffset: int | None
    brokerOffset: int | None
    diff: int | None
    lastTimestamp: int | None  # store time of the last message that was consumed; 0 where it is gone
    state: str
    inFlight: int | None = 0  # handed out by POP and not acked; below the offset, so not in diff, unless in order
    lag: int | None = field(init=False)  # diff, by the word that people use

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", self.diff)

    @property
    def behind(self) -> int:
        """What it adds to a sum: an offset beyond the queue's end is no lag of less than nothing."""
        return max(self.diff or 0, 0)

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSum:
    """The lags of one group, or of one group in one topic, added up."""

    group: str
    topic: str | None
    topics: int
    queues: int
    diff: int | None
    lastTimestamp: int | None  # of the queue that was consumed last
    problems: int  # queues whose offset cannot be right
    inFlight: int | None = 0  # as of a queue
    lag: int | None = field(init=False)  # diff, by the word that people use

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", self.diff)

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """One group that the store knows of."""

    group: str
    configured: bool  # subscriptionGroup.json has it
    consumeEnable: bool | None
    retryMaxTimes: int | None
    topics: int  # that it has offsets in, without its retry topics
    queues: int
    diff: int | None  # without its retry topics
    retryDiff: int | None
    deadLetters: int | None
    problems: int
    inFlight: int | None = 0  # of all its topics
    lag: int | None = field(init=False)  # diff, by the word that people use
    retryLag: int | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", self.diff)
        object.__setattr__(self, "retryLag", self.retryDiff)

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """One offset in two snapshots; None where one of them has none."""

    group: str
    topic: str
    queueId: int
    offset: int | None
    otherOffset: int | None
    change: int | None

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


L = TypeVar("L", bound=GroupLag)


class ConsumerGroups:
    """The groups of one store beside its queues.

    Args:
        offsets: in place of those in ``consumerOffset.json``, for example of a broadcasting client.
        pop: count what POP consumers hold; not for offsets of a broadcasting client.
    """

    def __init__(
        self, log: CommitLog, warn: Warn, offsets: Iterable[QueueOffset] | None = None, *, pop: bool = True
    ) -> None:
        self.log, self._warn = log, warn
        # group to topic to queue to offset: with millions of them, a key for each would take most of the memory
        self._offsets: dict[str, dict[str, dict[int, int]]] = {}
        for entry in group_offsets(log.layout, warn) if offsets is None else offsets:
            queues = self._offsets.setdefault(entry.group, {}).setdefault(entry.topic, {})
            queues[entry.queue_id] = entry.offset
        self.topics = topics_of(log.layout, warn)
        self.groups = groups_of(log.layout, warn)
        self.queues = TopicQueues(log.layout)
        warn_of_unbuilt(log, warn)
        self._tier = Tier.of(log.layout)
        self._begins: dict[tuple[str, int], int] = {}
        self._in_flight = MessagesInFlight(log, 0, warn, self.queues).counts() if pop else Counter[Key]()

    def lag(self) -> Iterator[GroupLag]:
        """Every queue of every group, sorted by group, topic and queue."""
        for group in sorted(self._offsets):
            yield from self._lag_of(group)

    def _lag_of(self, group: str) -> Iterator[GroupLag]:
        for topic, offsets in sorted(self._offsets.get(group, {}).items()):
            config = self.topics.topics.get(topic) if self.topics is not None else None
            reads = range(config.read_queue_nums) if config is not None else range(0)
            on_disk = {queue.queue_id: queue for queue in self.queues.every(topic)}
            # of a topic of a thousand read queues those that have neither messages nor an offset say nothing
            for queue_id in sorted({*offsets, *(n for n in on_disk if n in reads)}):
                state = topic_state(topic, queue_id, config) if self.topics is not None else None
                yield self._lag(group, topic, queue_id, on_disk.get(queue_id), offsets.get(queue_id), state)

    def _pairs(self) -> set[tuple[str, str]]:
        return {(topic, group) for group, topics in self._offsets.items() for topic in topics}

    def _lag(
        self, group: str, topic: str, queue_id: int, queue: AnyQueue | None, offset: int | None, state: str | None
    ) -> GroupLag:
        low = self._begin(queue) if queue is not None else 0
        high = queue.max_offset if queue is not None else 0
        consumed = offset or 0
        last = self._tier_time(topic, queue_id, consumed - 1)
        if not last and queue is not None and 0 < consumed <= high and (entry := queue.entry(consumed - 1)) is not None:
            found = self.log.read(entry.physical_offset, crc=False)
            last = found.record.store_timestamp if found is not None else 0
        return lag_row(
            group=group,
            topic=topic,
            queueId=queue_id,
            consumerOffset=offset,
            minOffset=low,
            brokerOffset=high,
            lastTimestamp=last,
            state=state,
            inFlight=self._in_flight[topic, group, queue_id],
        )

    def _begin(self, queue: AnyQueue) -> int:
        """The lowest offset that consumers get: the tier's, where there is one; looked for once for each queue."""
        key = queue.topic, queue.queue_id
        if key not in self._begins:
            low = queue.min_offset(self.log.min_offset)
            self._begins[key] = low if self._tier is None else self._tier.begin(*key, low)
        return self._begins[key]

    def _tier_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of a message that the tier has; 0 without it."""
        record = self._tier.record(topic, queue_id, offset) if self._tier is not None and offset >= 0 else None
        return record.store_timestamp if record is not None else 0

    def infos(self) -> Iterator[GroupInfo]:
        """Every group that has a configuration or an offset, sorted."""
        configured = self.groups.groups if self.groups is not None else {}
        names = RetryNames(configured, self.topics.topics if self.topics is not None else (), self._pairs())
        for group in sorted({*configured, *self._offsets}):
            dead = self.queues.of(DLQ_PREFIX + group)
            yield group_info(
                group,
                [configured[group]] if group in configured else [],
                list(self._lag_of(group)),
                names,
                sum(queue.max_offset - self._begin(queue) for queue in dead),
            )


def topic_state(topic: str, queue_id: int, config: TopicConfig | None) -> str | None:
    """What is wrong with a queue by the broker's table of topics; None where nothing is."""
    if config is None:
        # 4.9 does not write every internal topic into the table, and light queues stand for no topic
        return None if topic in SYSTEM_TOPICS or topic.startswith(LMQ_PREFIX) else "unknown-topic"
    return None if 0 <= queue_id < config.read_queue_nums else "extra-queue"


def lag_row(*, state: str | None, row: type[L] = GroupLag, **fields: Any) -> L:  # type: ignore[assignment]
    """A queue of a group, where its offsets and what is known of its topic are known.

    Args:
        state: what its topic says of it, where that is the state; None otherwise.
        fields: those of a row without ``diff`` and ``state``. An offset that is None is not known, except the group's.
    """
    offset, low, high = fields["consumerOffset"], fields["minOffset"], fields["brokerOffset"]
    consumed = offset or 0
    if high is not None and consumed > high:
        state = "ahead"
    elif offset is not None and low is not None and consumed < low:
        state = "expired"
    elif state is None:
        state = "none" if offset is None and high else "behind" if (high or 0) > consumed else "ok"
        state = "unknown" if high is None else state
    return row(diff=None if high is None else high - consumed, state=state, **fields)


def group_info(
    group: str,
    configs: Sequence[SubscriptionGroup],
    rows: Sequence[GroupLag],
    names: RetryNames,
    dead_letters: int | None,
) -> GroupInfo:
    """A group, and the sums of its queues.

    Args:
        configs: its settings, of each broker that has some. What they do not agree in is None.
    """
    retries = {topic for row in rows if (topic := row.topic).startswith(RETRY_PREFIX)}
    retries = {topic for topic in retries if names.of(topic).group == group}
    own = [row for row in rows if row.topic not in retries]
    enabled, times = {one.consume_enable for one in configs}, {one.retry_max_times for one in configs}
    return GroupInfo(
        group=group,
        configured=bool(configs),
        consumeEnable=enabled.pop() if len(enabled) == 1 else None,
        retryMaxTimes=times.pop() if len(times) == 1 else None,
        topics=len({row.topic for row in own}),
        queues=len(own),
        diff=_total(own),
        retryDiff=_total([row for row in rows if row.topic in retries]),
        deadLetters=dead_letters,
        problems=sum(row.state in PROBLEMS for row in rows),
        inFlight=_sum_in_flight(rows),
    )


def _total(rows: Sequence[GroupLag]) -> int | None:
    return None if any(row.diff is None for row in rows) else sum(row.behind for row in rows)


def _sum_in_flight(rows: Iterable[GroupLag]) -> int | None:
    counts = [row.inFlight for row in rows]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def sums(lags: Iterable[GroupLag], *, by_topic: bool) -> Iterator[LagSum]:
    """Lags added up by group, or by group and topic; they must come sorted."""
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
        diff=_total(rows),
        lastTimestamp=max((row.lastTimestamp for row in rows if row.lastTimestamp is not None), default=None),
        problems=sum(row.state in PROBLEMS for row in rows),
        inFlight=_sum_in_flight(rows),
    )


def compare(one: Iterable[QueueOffset], other: Iterable[QueueOffset], *, equal: bool = False) -> Iterator[OffsetChange]:
    """What differs between two tables of offsets, sorted by group, topic and queue.

    Args:
        equal: also tell what does not differ.
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
    """How far groups have come, queue by queue; all of them, or those of one group or topic."""
    rows = ConsumerGroups(store.log, store.warnings.append).lag()
    return [row for row in rows if (group is None or row.group == group) and (topic is None or row.topic == topic)]
