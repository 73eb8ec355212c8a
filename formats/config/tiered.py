"""``config/tieredStoreMetadata.json``: what a 5.x broker has copied to its tiered storage, and the names of segments.

Source: tieredstore.metadata.DefaultMetadataStore and its entities, provider.PosixFileSegment, util.MessageStoreUtil
(5.3.3); store-formats 7.11, 8.7.
"""

# ruff: noqa: RUF009 - member() makes a dataclass field, not a default that instances share

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from hashlib import md5
from typing import ClassVar

from formats.config.beans import Bean, ConfigFile, Nested, member
from formats.config.kinds import INT, LONG, TEXT, Numbered, Table
from formats.fastjson.values import Key, Value
from formats.versions import V5_3, Version

COMMIT_LOG, CONSUME_QUEUE, INDEX = 0, 1, 2  # types of segments
TYPES = {COMMIT_LOG: "COMMIT_LOG", CONSUME_QUEUE: "CONSUME_QUEUE", INDEX: "INDEX"}
SEALED, DELETED = 1, 2  # states; 0 is new
_FILE = re.compile(r"([0-9a-f]{8})([0-9]{20})")
_NO_TIME = 2**63 - 1


class _Ordered(Bean):
    """An object whose members are written in the order in which they are declared."""

    __slots__ = ()

    def write(self, version: Version) -> dict[Key, Value]:
        made = super().write(version)
        declared = [about["name"] for one in fields(self) if (about := one.metadata)]
        first: dict[Key, Value] = {name: made.pop(name) for name in declared if name in made}
        return first | made


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredSegment(_Ordered):
    """One segment (``FileSegmentMetadata``). Times are ms since the epoch; 0 or the greatest number where unknown."""

    path: str = member("path", TEXT, "")  # broker/topic/queue
    type: int = member("type", INT, 0)
    base_offset: int = member("baseOffset", LONG, 0)  # of its first byte among all segments of its path and type
    status: int = member("status", INT, 0)
    size: int = member("size", LONG, 0)  # bytes
    create_timestamp: int = member("createTimestamp", LONG, 0)
    begin_timestamp: int = member("beginTimestamp", LONG, _NO_TIME)  # of its messages
    end_timestamp: int = member("endTimestamp", LONG, _NO_TIME)
    seal_timestamp: int = member("sealTimestamp", LONG, 0)

    @property
    def times(self) -> tuple[int, int] | None:
        """First and last store time of its messages; None where it does not say."""
        known = [time for time in (self.begin_timestamp, self.end_timestamp) if 0 < time < _NO_TIME]
        return (min(known), max(known)) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredQueueName(Bean):
    """Which queue (``MessageQueue``)."""

    topic: str = member("topic", TEXT, "")
    broker_name: str = member("brokerName", TEXT, "")
    queue_id: int = member("queueId", INT, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredQueue(_Ordered):
    """One queue (``QueueMetadata``)."""

    queue: TieredQueueName | None = member("queue", Nested(TieredQueueName))
    min_offset: int = member("minOffset", LONG, 0)
    max_offset: int = member("maxOffset", LONG, 0)  # after the last message
    update_timestamp: int = member("updateTimestamp", LONG, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredTopic(_Ordered):
    """One topic (``TopicMetadata``)."""

    topic_id: int = member("topicId", LONG, 0)
    topic: str = member("topic", TEXT, "")
    status: int = member("status", INT, 0)
    reserve_time: int = member("reserveTime", LONG, -1)  # hours; -1: as the broker's setting says
    update_timestamp: int = member("updateTimestamp", LONG, 0)


_SEGMENTS = Table(Numbered(Nested(TieredSegment), 64))


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredMetadata(ConfigFile):
    """The file (``DefaultMetadataStore.TieredMetadataSerializeWrapper``)."""

    SINCE: ClassVar[Version] = V5_3
    commit_logs: Mapping[str, Mapping[int, TieredSegment]] = member(  # path → base offset
        "commitLogFileSegmentTable", _SEGMENTS, dict
    )
    consume_queues: Mapping[str, Mapping[int, TieredSegment]] = member("consumeQueueFileSegmentTable", _SEGMENTS, dict)
    indexes: Mapping[str, Mapping[int, TieredSegment]] = member("indexFileSegmentTable", _SEGMENTS, dict)
    queues: Mapping[str, Mapping[int, TieredQueue]] = member(  # topic → queue id
        "queueMetadataTable", Table(Numbered(Nested(TieredQueue))), dict
    )
    topics: Mapping[str, TieredTopic] = member("topicMetadataTable", Table(Nested(TieredTopic)), dict)
    topic_serial_number: int = member("topicSerialNumber", LONG, 0)

    def segments(self) -> Iterator[TieredSegment]:
        """Every segment, by type, path and base offset."""
        for table in (self.commit_logs, self.consume_queues, self.indexes):
            for _path, found in sorted(table.items()):
                for _base, segment in sorted(found.items()):
                    yield segment


def hash_of(text: str) -> str:
    """The letters that a name of the tiered storage begins with."""
    return md5(text.encode(), usedforsecurity=False).hexdigest()[:8]


def segment_place(cluster: str, path: str, kind: int, base_offset: int) -> str:
    """Where a segment lies below the directory of the tiered storage, with ``/`` between the parts."""
    name = f"{hash_of(str(base_offset))}{base_offset:020d}"
    return f"{hash_of(cluster)}_{cluster}/{path}/{TYPES[kind]}/{name}"


def base_of(name: str) -> int | None:
    """The base offset that a file name says; None for a name that no segment has."""
    match = _FILE.fullmatch(name)
    return int(match[2]) if match is not None and hash_of(str(int(match[2]))) == match[1] else None
