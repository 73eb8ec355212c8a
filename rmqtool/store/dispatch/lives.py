"""Lives of a queue: a topic that is deleted and made again numbers its messages from 0 on again.

The log keeps the messages from before until its files expire. No queue has them: others have their queue offsets.

Source: TopicConfigManager.deleteTopicConfig with MessageStore.cleanUnusedTopic, deleteTopics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from formats.topics import SCHEDULE, SYSTEM_PREFIX

Column = np.ndarray[Any, np.dtype[Any]]
QueueKey = tuple[str, int]


@dataclass(slots=True)
class Lives:
    """What the log says of the lives of one queue.

    Attributes:
        first, last: physical offsets of the first and the last message of the present life; -1 without one.
        messages: of the present life.
        former: messages of those before.
        ended: physical offset of the last of them; -1 without one.
    """

    first: int = -1
    last: int = -1
    messages: int = 0
    former: int = 0
    ended: int = -1
    _stored: int = 0

    def take(
        self, queue_offset: Column, physical_offset: Column, stored: Column, counts: Column | None = None
    ) -> list[tuple[slice, bool]]:
        """Take records of the queue, in the order of the log; returns (rows, whether they begin a life) of each life.

        The first one of a life has the queue offset 0, and is younger than the one before it: what a file of the log
        repeats is not.

        Args:
            stored: their store timestamps, ms.
            counts: messages in each record; one unless given.
        """
        if not len(queue_offset):
            return []
        counts = np.ones(len(queue_offset), np.int64) if counts is None else counts
        rows = np.flatnonzero(queue_offset == 0)
        rows = rows[(rows > 0) | (self.last >= 0)]
        before = np.where(rows > 0, stored[rows - 1], self._stored)
        starts: list[int] = rows[stored[rows] > before].tolist()
        if starts:
            start = starts[-1]
            self.former += self.messages + int(counts[:start].sum())
            self.ended = int(physical_offset[start - 1]) if start else self.last
            self.first, self.messages = int(physical_offset[start]), int(counts[start:].sum())
        else:
            self.first = int(physical_offset[0]) if self.first < 0 else self.first
            self.messages += int(counts.sum())
        self.last, self._stored = int(physical_offset[-1]), int(stored[-1])
        bounds = sorted({0, *starts, len(queue_offset)})
        return [(slice(start, stop), start in starts) for start, stop in pairwise(bounds)]


def find_remade(queues: Mapping[QueueKey, tuple[Lives, bool]]) -> dict[str, set[int]]:
    """Topics that were deleted and made again, each with the ids of queues that have nothing since.

    A queue of the topic begins again, and none that is there has messages from before. The topics of a broker's own
    cannot be deleted.

    Args:
        queues: with each whether it has files.
    """
    topics: dict[str, dict[int, tuple[Lives, bool]]] = {}
    for (topic, queue_id), (lives, there) in queues.items():
        if lives.messages and topic != SCHEDULE and not topic.lower().startswith(SYSTEM_PREFIX):
            topics.setdefault(topic, {})[queue_id] = lives, there
    remade = {}
    for topic, of_topic in topics.items():
        present = [lives for lives, there in of_topic.values() if there or lives.former]
        ended = max((lives.ended for lives in present), default=-1)
        if ended < 0 or any(lives.first <= ended for lives in present):
            continue
        began = min(lives.first for lives in present)
        remade[topic] = {
            queue_id
            for queue_id, (lives, there) in of_topic.items()
            if not there and not lives.former and lives.last < began
        }
    return remade
