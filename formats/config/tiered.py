"""``config/tieredStoreMetadata.json``: segments of a 5.x broker's tiered storage; and names of segments.

Source: tieredstore.metadata.DefaultMetadataStore and its entities, provider.PosixFileSegment, util.MessageStoreUtil
(5.3.3); store-formats 7.11, 8.7.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from formats.config.file import ConfigFile
from formats.fastjson.declare import Bean, Int, Long, member
from formats.versions import V5_3, Version

COMMIT_LOG, CONSUME_QUEUE, INDEX = 0, 1, 2  # types of segments
TYPES = {COMMIT_LOG: "COMMIT_LOG", CONSUME_QUEUE: "CONSUME_QUEUE", INDEX: "INDEX"}
SEALED, DELETED = 1, 2  # states; 0 is new
_FILE = re.compile(r"([0-9a-f]{8})([0-9]{20})")
_NO_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredSegment(Bean):
    """One segment (``FileSegmentMetadata``). Times are ms since the epoch; 0 or the maximum if unknown."""

    ORDERED: ClassVar[bool] = True
    path: str = ""  # broker/topic/queue
    type: Int = 0
    base_offset: Long = 0  # of its first byte among all segments of its path and type
    status: Int = 0
    size: Long = 0  # bytes
    create_timestamp: Long = 0
    begin_timestamp: Long = _NO_TIME  # first and last store time of its messages
    end_timestamp: Long = _NO_TIME
    seal_timestamp: Long = 0

    @property
    def times(self) -> tuple[int, int] | None:
        """First and last store time of its messages; None if unknown."""
        known = [time for time in (self.begin_timestamp, self.end_timestamp) if 0 < time < _NO_TIME]
        return (min(known), max(known)) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredQueueName(Bean):
    """The name of a queue (``MessageQueue``)."""

    topic: str = ""
    broker_name: str = ""
    queue_id: Int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredQueue(Bean):
    """One queue (``QueueMetadata``)."""

    ORDERED: ClassVar[bool] = True
    queue: TieredQueueName | None = None
    min_offset: Long = 0
    max_offset: Long = 0  # after the last message
    update_timestamp: Long = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredTopic(Bean):
    """One topic (``TopicMetadata``)."""

    ORDERED: ClassVar[bool] = True
    topic_id: Long = 0
    topic: str = ""
    status: Int = 0
    reserve_time: Long = -1  # hours; -1: the broker's setting
    update_timestamp: Long = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredMetadata(ConfigFile):
    """The file (``DefaultMetadataStore.TieredMetadataSerializeWrapper``)."""

    SINCE: ClassVar[Version] = V5_3
    commit_logs: Mapping[str, Mapping[Long, TieredSegment]] = member(
        "commitLogFileSegmentTable", dict
    )  # path → base offset
    consume_queues: Mapping[str, Mapping[Long, TieredSegment]] = member("consumeQueueFileSegmentTable", dict)
    indexes: Mapping[str, Mapping[Long, TieredSegment]] = member("indexFileSegmentTable", dict)
    queues: Mapping[str, Mapping[Int, TieredQueue]] = member("queueMetadataTable", dict)  # topic → queue id
    topics: Mapping[str, TieredTopic] = member("topicMetadataTable", dict)
    topic_serial_number: Long = 0

    def segments(self) -> Iterator[TieredSegment]:
        """Every segment, by type, path and base offset."""
        for table in (self.commit_logs, self.consume_queues, self.indexes):
            for _path, by_offset in sorted(table.items()):
                for _base, segment in sorted(by_offset.items()):
                    yield segment


def hash_of(text: str) -> str:
    """The hash that names in tiered storage begin with."""
    from hashlib import md5  # which loads OpenSSL, and most stores have no tier

    return md5(text.encode(), usedforsecurity=False).hexdigest()[:8]


def base_of(name: str) -> int | None:
    """The base offset in a file name; None if it is not the name of a segment."""
    match = _FILE.fullmatch(name)
    return int(match[2]) if match is not None and hash_of(str(int(match[2]))) == match[1] else None
