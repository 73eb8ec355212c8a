"""Consumer offsets beside the queues that they point into (admin.OffsetWrapper, admin.ConsumeStats)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from formats.config.files import ConsumerOffsets
from rmqtool.errors import UnreadableStore
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import open_any_queue
from rmqtool.store.tier.tier import Tier

FILES = ("consumerOffset.json", "lmqConsumerOffset.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """How far one group has come in one queue. ``diff`` is what it has not consumed yet; None without the queue."""

    topic: str
    group: str
    queueId: int
    consumerOffset: int
    minOffset: int | None
    brokerOffset: int | None
    diff: int | None
    lag: int | None = field(init=False)  # diff, by the word that people use

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", self.diff)

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffset:
    """One offset of a group as it is stored."""

    group: str
    topic: str
    queueId: int
    consumerOffset: int

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


OFFSET_FIELDS = tuple(OffsetRow.__dataclass_fields__)


def consumer_offsets(layout: StoreLayout, *, bak: bool = False) -> Iterator[OffsetRow]:
    """Every offset that the store's groups have, sorted by group, topic and queue.

    Raises:
        UnreadableStore: the store has no offsets file.
    """
    tables = [read_config(layout, name, bak=bak) for name in FILES]
    entries = [entry for table in tables if isinstance(table, ConsumerOffsets) for entry in table.entries()]
    if all(table is None for table in tables):
        suffix = ".bak" if bak else ""
        raise UnreadableStore(f"{layout.path('config', FILES[0] + suffix)}: no such file")
    log_begin, tier = CommitLog(layout).min_offset, Tier.of(layout)
    for entry in sorted(entries, key=lambda e: (e.group, e.topic, e.queue_id)):
        queue = open_any_queue(layout, entry.topic, entry.queue_id) if entry.queue_id >= 0 else None
        high = queue.max_offset if queue else None
        low = queue.min_offset(log_begin) if queue else None
        if tier is not None and low is not None:
            low = tier.begin(entry.topic, entry.queue_id, low)
        yield OffsetRow(
            topic=entry.topic,
            group=entry.group,
            queueId=entry.queue_id,
            consumerOffset=entry.offset,
            minOffset=low,
            brokerOffset=high,
            diff=high - entry.offset if high is not None else None,
        )
