"""Consumer offsets with their queues (admin.OffsetWrapper, admin.ConsumeStats)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from formats.config.files import ConsumerOffsets
from rmqtool.contract import PlainRow
from rmqtool.errors import UnreadableStore
from rmqtool.services.lookup.configs import FILES, sort_offsets
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.tier.tier import Tier

_RANGES = 1 << 16  # ranges of queues that are remembered


@dataclass(slots=True, kw_only=True)
class OffsetRow(PlainRow):
    """The offset of a group in a queue. ``diff`` counts unconsumed messages; None without the queue."""

    topic: str
    group: str
    queueId: int
    consumerOffset: int
    minOffset: int | None
    brokerOffset: int | None
    diff: int | None
    lag: int | None = field(init=False)  # the same as diff

    def __post_init__(self) -> None:
        self.lag = self.diff


@dataclass(slots=True, kw_only=True)
class StoredOffset(PlainRow):
    """One offset of a group as it is stored."""

    group: str
    topic: str
    queueId: int
    consumerOffset: int


def consumer_offsets(layout: StoreLayout, *, bak: bool = False) -> Iterator[OffsetRow]:
    """Every offset that the store's groups have, sorted by group, topic and queue.

    Raises:
        UnreadableStore: the store has no offsets file.
    """
    tables = [read_config(layout, name, bak=bak) for name in FILES]
    if all(table is None for table in tables):
        suffix = ".bak" if bak else ""
        raise UnreadableStore(f"{layout.path('config', FILES[0] + suffix)}: no such file")
    log_begin, tier, queues = CommitLog(layout).min_offset, Tier.of(layout), TopicQueues(layout)

    @lru_cache(_RANGES)  # many groups have offsets of the same queue
    def range_of(topic: str, queue_id: int) -> tuple[int | None, int | None]:
        if (queue := queues.either(topic, queue_id)) is None:
            return None, None
        low = queue.min_offset(log_begin)
        return low if tier is None else tier.begin(topic, queue_id, low), queue.max_offset

    for entry in sort_offsets(table for file in tables if isinstance(file, ConsumerOffsets) for table in file.tables()):
        low, high = range_of(entry.topic, entry.queue_id)
        yield OffsetRow(
            topic=entry.topic,
            group=entry.group,
            queueId=entry.queue_id,
            consumerOffset=entry.offset,
            minOffset=low,
            brokerOffset=high,
            diff=high - entry.offset if high is not None else None,
        )
