"""The segment files of a 5.x broker's tiered storage (``PosixFileSegment``).

Source: tieredstore.provider.PosixFileSegment, tieredstore.MessageStoreConfig (5.3.3); store-formats 8.7.
"""

from dataclasses import dataclass, field

from formats.config.tiered import TYPES, TieredMetadata, base_of
from rmqtool.store.disk.directories import DirectoryEntry
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.layout.tier_signs import is_cluster, tiered_folder

Key = tuple[str, int, int]  # broker/topic/queue, type, base offset
_KINDS = {name: number for number, name in TYPES.items()}


@dataclass(frozen=True, slots=True)
class TieredFiles:
    """The segments of one tiered storage.

    Attributes:
        folder: their directory; None if they are not local files.
        segments: the existing segments.
        foreign: paths of files that are not segments.
    """

    folder: str | None
    segments: dict[Key, Segment] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)


def tiered_files(layout: StoreLayout) -> TieredFiles:
    """List every segment file of a store's tier.

    Raises:
        UnreadableStore: a directory cannot be listed.
    """
    folder = tiered_folder(layout)
    files = TieredFiles(folder)
    for cluster in layout.entries_at(folder) if folder is not None else ():
        if cluster.is_dir() and is_cluster(cluster.name):
            _walk(layout, cluster, (), files)
        else:
            files.foreign.append(cluster.path)
    return files


def _walk(layout: StoreLayout, folder: DirectoryEntry, above: tuple[str, ...], files: TieredFiles) -> None:
    """Collect the files below ``broker/topic/queue/TYPE``."""
    for entry in layout.entries_at(folder.path):
        if entry.is_dir():
            _walk(layout, entry, (*above, entry.name), files)
            continue
        base = base_of(entry.name)
        if base is None or len(above) < 2 or above[-1] not in _KINDS:
            files.foreign.append(entry.path)
        else:
            key = "/".join(above[:-1]), _KINDS[above[-1]], base
            files.segments[key] = Segment(entry.path, base, entry.size, entry.mtime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredQueueInfo:
    """One queue of the tiered storage, from its metadata. Times are ms since the epoch, or None if unknown."""

    topic: str
    queueId: int
    minOffset: int
    maxOffset: int
    segments: int
    bytes: int  # of log and queue
    firstStoreTimestamp: int | None
    lastStoreTimestamp: int | None


def tiered_queues(metadata: TieredMetadata) -> list[TieredQueueInfo]:
    """Every queue in the metadata, sorted by topic and queue id."""
    infos = []
    for topic, queues in sorted(metadata.queues.items()):
        for queue_id, queue in sorted(queues.items()):
            broker = queue.queue.broker_name if queue.queue is not None else ""
            path = f"{broker}/{topic}/{queue_id}"
            logs = list(metadata.commit_logs.get(path, {}).values())
            units = [segment for _base, segment in sorted(metadata.consume_queues.get(path, {}).items())]
            segments = [*logs, *units]
            times = [time for segment in logs for time in segment.times or ()]
            infos.append(
                TieredQueueInfo(
                    topic=topic,
                    queueId=queue_id,
                    # the queue's own fields lag behind, and start at -1
                    minOffset=units[0].base_offset // UNIT if units else queue.min_offset,
                    maxOffset=(units[-1].base_offset + units[-1].size) // UNIT if units else queue.max_offset,
                    segments=len(segments),
                    bytes=sum(segment.size for segment in segments),
                    firstStoreTimestamp=min(times, default=None),
                    lastStoreTimestamp=max(times, default=None),
                )
            )
    return infos
