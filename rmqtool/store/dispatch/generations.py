"""Generations of a queue: numbering starts again at 0 when its topic is deleted and created again.

The log keeps earlier messages until its files expire. They are in no queue, because other messages have their offsets.

Source: TopicConfigManager.deleteTopicConfig with MessageStore.cleanUnusedTopic, deleteTopics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from formats.arrays import Column
from formats.topics import SCHEDULE, SYSTEM_PREFIX

QueueKey = tuple[str, int]


@dataclass(slots=True)
class Generations:
    """The generations of one queue, according to the log.

    Attributes:
        first, last: physical offsets of the first and last message of the current generation; -1 if none.
        messages: number of messages in the current generation.
        former: number of messages in former generations.
        ended: physical offset of the last message of former generations; -1 if none.
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
        """Take records of the queue in log order; return (rows, whether they begin a generation) for each generation.

        The first record of a generation has queue offset 0 and a later store time than the record before it, which
        excludes records that are repeated by a copied log file.

        Args:
            stored: store timestamps of the records, ms.
            counts: number of messages in each record; one by default.
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


def find_remade(queues: Mapping[QueueKey, tuple[Generations, bool]]) -> dict[str, set[int]]:
    """Return the topics that were deleted and created again, with the ids of their queues without messages since.

    In such a topic, at least one queue has started a new generation, and no existing queue has messages from before.
    The broker's own topics cannot be deleted.

    Args:
        queues: generations of each queue, and whether it has files.
    """
    topics: dict[str, dict[int, tuple[Generations, bool]]] = {}
    for (topic, queue_id), (generations, has_files) in queues.items():
        if generations.messages and topic != SCHEDULE and not topic.lower().startswith(SYSTEM_PREFIX):
            topics.setdefault(topic, {})[queue_id] = generations, has_files
    remade = {}
    for topic, of_topic in topics.items():
        present = [generations for generations, has_files in of_topic.values() if has_files or generations.former]
        ended = max((generations.ended for generations in present), default=-1)
        if ended < 0 or any(generations.first <= ended for generations in present):
            continue
        began = min(generations.first for generations in present)
        remade[topic] = {
            queue_id
            for queue_id, (generations, has_files) in of_topic.items()
            if not has_files and not generations.former and generations.last < began
        }
    return remade
