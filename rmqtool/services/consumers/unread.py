"""Messages lost to consumers when the beginning of the log is removed: unconsumed and delayed ones."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from formats.config.files import DelayOffsets
from formats.topics import REVIVE_PREFIX, SCHEDULE, TIMER
from formats.variants.timer import QUEUE_ID
from rmqtool.contract import PlainRow
from rmqtool.services.consumers.groups import ConsumerGroups
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.services.transactions.half_messages import first_behind
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import BatchQueue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.tier.tier import Tier
from rmqtool.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread(PlainRow):
    """Messages of one topic that would be removed before a group has consumed them.

    Attributes:
        group: None for delayed messages that wait for their time.
    """

    group: str | None
    topic: str
    messages: int

    @property
    def words(self) -> str:
        """A sentence about it."""
        number = counted(self.messages, "message")
        if self.group is None:
            return f"{counted(self.messages, 'delayed message waits', 'delayed messages wait')} to be delivered"
        return f"{number} of {self.topic} that group {self.group} has not consumed"


def unread_below(layout: StoreLayout, physical_offset: int, warn: Warn) -> list[Unread]:
    """Unconsumed messages before a physical offset, by group and topic.

    A group without an offset in a queue does not count, as it may begin at the end. Messages in the tier stay. Batch
    queues are left out.
    """
    log, tier = CommitLog(layout), Tier.of(layout)
    counts: dict[tuple[str | None, str], int] = {}
    groups = ConsumerGroups(log, warn)
    for row in groups.lag():
        queue = groups.queues.either(row.topic, row.queueId)
        if row.consumerOffset is None or queue is None or isinstance(queue, BatchQueue):
            continue
        begin = max(row.consumerOffset, row.minOffset or 0)
        uploaded = tier.queues.get((row.topic, row.queueId)) if tier is not None else None
        if uploaded is not None and uploaded.min_offset <= begin:
            begin = max(begin, uploaded.max_offset)  # the tier has them
        going = first_behind(queue, physical_offset) - begin
        if going > 0:
            counts[row.group, row.topic] = counts.get((row.group, row.topic), 0) + going
    waiting = sum(_count_waiting(layout, groups.queues, physical_offset, log.min_offset))
    if waiting:
        counts[None, SCHEDULE] = waiting
    if waiting := sum(_waiting_for_timer(log, groups.queues, physical_offset, warn)):
        counts[None, TIMER] = waiting
    return [
        Unread(group=group, topic=topic, messages=messages)
        for (group, topic), messages in sorted(counts.items(), key=lambda item: (item[0][0] or "", item[0][1]))
    ]


def _waiting_for_timer(log: CommitLog, queues: TopicQueues, physical_offset: int, warn: Warn) -> Iterator[bool]:
    """Whether each message that waits for the timer of 5.x is before an offset."""
    if not TimerFiles(log.layout.passing_over()).present and queues.one(TIMER, QUEUE_ID) is None:
        return
    from rmqtool.services.timers.timers import open_timers  # needs NumPy, and most stores have no timer

    for row in open_timers(log, int(time.time() * 1000), warn, queues).pending():
        if not row.recalled and not (row.topic or "").startswith(REVIVE_PREFIX):  # those are marks of POP
            yield row.physicalOffset < physical_offset


def _count_waiting(layout: StoreLayout, queues: TopicQueues, physical_offset: int, low: int) -> Iterator[int]:
    """Delayed messages before an offset, by level."""
    table = read_config(layout, "delayOffset.json")
    delivered = table.offsets if isinstance(table, DelayOffsets) else {}
    for queue in queues.of(SCHEDULE):
        begin = max(delivered.get(queue.queue_id + 1, 0), first_behind(queue, low))
        yield max(first_behind(queue, physical_offset) - begin, 0)
