"""Whether a delayed message was delivered: then a copy with its own topic follows it in the log."""

from mmap import mmap

from formats.layouts.codes import MAGIC_V1
from formats.message.properties import DELAY, REAL_TOPIC, UNIQ_KEY, parse
from formats.message.read import Record, read
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog

_MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]  # shared by both versions
_MOST_TRIED = 64  # possible record beginnings tried before a property


def was_delivered(log: CommitLog, physical_offset: int) -> bool:
    """Whether the log contains the delivered copy of a delayed message.

    The copy has the same unique id and level, and the real topic of the delayed message; a message without unique id
    proves nothing.
    """
    message = log.read(physical_offset, crc=False)
    if message is None:
        return False
    properties = parse(message.record.properties)
    unique, topic = properties.get(UNIQ_KEY), properties.get(REAL_TOPIC)
    if not unique or topic is None:
        return False
    for file in log.segments:
        if file.end <= physical_offset:
            continue
        begin = max(message.physical_offset + message.record.total_size - file.base, 0)
        try:
            for record in _records_with(file, unique.encode("utf-8", "surrogateescape"), begin):
                copy = parse(record.properties)
                same = copy.get(UNIQ_KEY) == unique and copy.get(DELAY) in (None, properties.get(DELAY))
                if same and record.topic == topic.encode("utf-8", "surrogateescape"):
                    return True
        finally:
            file.release()
    return False


def _records_with(file: Segment, mark: bytes, at: int) -> "list[Record]":
    """Records of one file, from a position on, that contain a byte string."""
    view = file.view()
    mapped: mmap | bytes = view.obj  # type: ignore[assignment]
    records = []
    while (hit := mapped.find(mark, at)) >= 0:
        at = hit + len(mark)
        before = hit
        for _ in range(_MOST_TRIED):
            before = mapped.rfind(_MAGIC_PREFIX, 0, before)
            if before < 4:
                break
            record = read(view, before - 4, file.size, crc=False)
            if isinstance(record, Record) and before - 4 + record.total_size > hit:
                records.append(record)
                at = before - 4 + record.total_size
                break
    return records
