"""What queues and log prove about topics, queue ranges and delivered delay messages, for repairing config files."""

from dataclasses import dataclass, field

from formats.message.properties import DELAY, REAL_TOPIC, UNIQ_KEY, parse
from formats.message.read import SCHEDULE_TOPIC
from rmqtool.store.config.topic_entries import DELAY_TOPIC
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord

_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts about all queues that have a directory or messages.

    Attributes:
        ranges: (lowest, next) queue offset by (topic, queue id), from queue files and log.
        topics: the number of queues that each topic must have had.
        stray: (topic, queue id) that were probably created by a damaged record.
        other: topics with batch consume queues, whose offsets count differently.
        overdue: delay levels whose first message was due before the last message of the log was stored.
        log_end: physical offset at which the log ends; messages after it are cut off.
    """

    ranges: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    stray: list[tuple[str, int]] = field(default_factory=list)
    other: set[str] = field(default_factory=set)
    overdue: set[int] = field(default_factory=set)
    log_end: int = _MOST

    def range_of(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(lowest, next) queue offset; a missing queue is empty."""
        return self.ranges.get((topic, queue_id), (0, 0))


def find_delivered(layout: StoreLayout, evidence: Evidence) -> dict[int, int]:
    """By delay level, the queue offset after the last message whose delivered copy is in the log.

    Levels deliver in order, so all messages before it have been delivered too. Unproved ones are delivered again.
    """
    pending: dict[str, dict[int, int]] = {}  # levels and queue offsets by unique key
    offsets: dict[int, int] = {}
    for item in CommitLog(layout).walk():
        if isinstance(item, LocatedRecord) and item.physical_offset >= evidence.log_end:
            break
        if not isinstance(item, LocatedRecord) or REAL_TOPIC.encode() not in item.record.properties:
            continue
        properties = parse(item.record.properties)
        unique = properties.get(UNIQ_KEY)
        if unique is None or REAL_TOPIC not in properties:
            continue
        if item.record.topic == SCHEDULE_TOPIC:
            pending.setdefault(unique, {})[item.record.queue_id + 1] = item.record.queue_offset
        elif item.record.topic == properties[REAL_TOPIC].encode("utf-8", "surrogateescape"):
            waiting = pending.get(unique, {})
            level = next(iter(waiting), 0) if len(waiting) == 1 else 0
            if DELAY in properties:  # messages delivered by 5.x do not contain their level
                level = _level(properties[DELAY], len(layout.conf.delay_levels))
            if level in waiting:
                offsets[level] = max(offsets.get(level, 0), waiting.pop(level) + 1)
    for level in list(offsets):
        low, high = evidence.range_of(DELAY_TOPIC, level - 1)
        offsets[level] = min(max(offsets[level], low), high)
    return dict(sorted(offsets.items()))


def _level(text: str, most: int) -> int:
    return min(int(text), most) if text.isdecimal() and len(text) < 10 else 0
