"""Consumer offsets with their queues (admin.OffsetWrapper, admin.ConsumeStats)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from formats.config.files import ConsumerOffsets
from rmqtool.contract import PlainRow, PlainRows
from rmqtool.errors import UnreadableStore
from rmqtool.services.lookup.configs import FILES, Warn, load_config, sort_tables
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.tier.tier import Tier

_TOPICS = 1 << 14  # topics that are remembered
_NO_RANGE: tuple[None, None] = None, None


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


def consumer_offsets(
    layout: StoreLayout,
    *,
    bak: bool = False,
    warn: Warn | None = None,
    wanted: Callable[[str, str], bool] = lambda _group, _topic: True,
) -> Iterator[PlainRows]:
    """Every offset that the store's groups have, `OffsetRow` rows, sorted by group, topic and queue.

    Args:
        bak: read the broker's previous file.
        warn: read it where the file is missing or broken, as a broker does, and call this; None to raise.
        wanted: selects offsets by group and topic.

    Raises:
        UnreadableStore: the store has no offsets file.
    """
    tables = [read_config(layout, name, bak=bak) if warn is None else load_config(layout, name, warn) for name in FILES]
    if all(table is None for table in tables):
        suffix = ".bak" if bak else ""
        raise UnreadableStore(f"{layout.path('config', FILES[0] + suffix)}: no such file")
    log_begin, tier, queues = CommitLog(layout).min_offset, Tier.of(layout), TopicQueues(layout)

    @lru_cache(_TOPICS)  # many groups have offsets in the same topic
    def ranges_of(topic: str) -> dict[int, tuple[int, int]]:
        ranges = {}
        for queue in queues.existing(topic):
            low = queue.min_offset(log_begin)
            low = low if tier is None else tier.begin(topic, queue.queue_id, low)
            ranges[queue.queue_id] = low, queue.max_offset
        return ranges

    stored = (table for file in tables if isinstance(file, ConsumerOffsets) for table in file.tables())
    for topic, group, offsets in sort_tables(table for table in stored if wanted(table.group, table.topic)):
        ranges, values = ranges_of(topic), []
        for queue_id, offset in sorted(offsets.items()):
            low, high = ranges.get(queue_id, _NO_RANGE)
            diff = high - offset if high is not None else None
            values.append((topic, group, queue_id, offset, low, high, diff, diff))
        yield PlainRows(OffsetRow, values)
