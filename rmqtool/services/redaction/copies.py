"""Where a store has its messages: in the log, and copies of them in compaction logs and in the segments of its tier.

Whatever may hold a message and cannot be overwritten is refused by name, so that no copy stays unnoticed.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from formats.endings import Ending
from formats.message.ids import offset_id
from formats.message.properties import UNIQ_KEY, parse
from formats.message.read import Record, read
from formats.variants import dledger
from rmqtool.errors import Refused
from rmqtool.progress import stage
from rmqtool.services.lookup.queue_messages import ORIGIN_MESSAGE_ID
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.runs import runs
from rmqtool.store.disk.directories import each_file
from rmqtool.store.disk.mapping import map_file
from rmqtool.store.disk.segments import Segment, offset_name
from rmqtool.store.disk.sparse import has_bytes, is_zero
from rmqtool.store.layout.paths import BATCH_QUEUES, EXTENSIONS, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord, walk_file
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.log.records import blank_room, is_entries, record_at
from rmqtool.store.queues.compaction import FOLDER, LOGS, QUEUES
from rmqtool.store.tier.tier import log_segments
from rmqtool.words import counted

LOG, COMPACTED, TIERED = "log", "compaction", "tier"
_NAMED = 3  # places that a refusal names
_BLANK = 8  # bytes of an end-of-file blank
_MAGIC = b"\xda\xa3\x20"  # of a record, at its fifth byte
_WITHOUT_BODIES = ("consumequeue", BATCH_QUEUES, EXTENSIONS, "index", os.path.join(FOLDER, QUEUES))


class Remains(NamedTuple):
    """Bytes of a file that belong to no message."""

    file: Segment
    at: int
    length: int


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one kind that consist of messages."""

    place: str
    files: Sequence[Segment]
    end: int | None = None  # of what a broker reads of the log: what follows are remains of messages


class Identities(NamedTuple):
    """By what messages and their copies are recognized."""

    ids: set[str]
    places: set[tuple[bytes, int, int, int]]  # see :func:`place_of_record`; of messages without a unique id

    def has(self, item: LocatedRecord, record: Record, *, in_log: bool) -> bool:
        """Whether a message is one of these; the arguments are those of :func:`ids_of`."""
        return not ids_of(item, record, in_log=in_log).isdisjoint(self.ids) or place_of_record(record) in self.places


def ids_of(item: LocatedRecord, record: Record, *, in_log: bool) -> set[str]:
    """The ids by which a message, or the one that it is a copy of, is known.

    Args:
        item: the record that it is in; the offset id of a batch is not that of its messages.
        in_log: whether its position is one in the log, which an offset id names.
    """
    properties = parse(record.properties)
    ids = {*filter(None, (properties.get(UNIQ_KEY), properties.get(ORIGIN_MESSAGE_ID)))}
    if in_log and record is item.record:
        ids.add(offset_id(record.store_address, record.store_port, item.physical_offset))
    return ids


def place_of_record(record: Record) -> tuple[bytes, int, int, int]:
    """Topic, queue, queue offset and store time, which copies in compaction logs and tiers share."""
    return bytes(record.topic), record.queue_id, record.queue_offset, record.store_timestamp


def files_of(layout: StoreLayout) -> list[Files]:
    """All files that consist of messages.

    Raises:
        Refused: segments of the tier are not here.
        UnreadableStore: a directory cannot be listed.
    """
    log = CommitLog(layout)
    stale = [end for dledger_log in DLedgerLog.of(layout) if (end := dledger_log.find_stale_tail()) is not None]
    found = [Files(LOG, log.segments.files, min(stale, default=None))]
    if compacted := list(_compaction_files(layout)):
        found.append(Files(COMPACTED, compacted))
    if tiered := log_segments(layout):
        found.append(Files(TIERED, tiered))
    return found


def _compaction_files(layout: StoreLayout) -> Iterator[Segment]:
    """The files of all compaction logs, those of unfinished work included."""
    for path in each_file(layout.path(FOLDER, LOGS)):
        if (base := offset_name(os.path.basename(path))) is not None:
            status = os.stat(path)
            yield Segment(path, base, status.st_size, status.st_mtime_ns)


def walk(files: Files, name: str) -> Iterator[LocatedRecord | Damage | Remains]:
    """Everything in files, in order: messages, damage, and bytes that are neither, such as remains of earlier messages.

    Args:
        name: what the progress display says.
    """
    with stage(name, sum(file.size for file in files.files)) as reading:
        for number, file in enumerate(files.files):
            begun = reading.done
            end = file.size if files.end is None else min(max(files.end - file.base, 0), file.size)
            at, in_log = 0, files.place == LOG
            last = not in_log or number == len(files.files) - 1
            for item in walk_file(file, 0, end, last=last, crc=False) if end else ():
                if item.at >= end:
                    break
                if isinstance(item, Damage):
                    at = item.at + item.length
                    if not is_zero(file.path, item.at, at):
                        yield item
                else:
                    at = item.at + item.record.total_size
                    yield item
                reading.done = begun + at
            at = _end_of_records(file, at) if end == file.size else end
            used = has_bytes(file.path, at, file.size)
            if used > at:
                yield Remains(file, at, used - at)
            file.release()
            reading.done = begun + file.size


def _end_of_records(file: Segment, at: int) -> int:
    """The end of what a broker reads of a file: after its blank, if it has one.

    Args:
        at: end of its last record.
    """
    view = file.map()
    if is_entries(view):
        while (
            isinstance(entry := dledger.read_entry(view, at, file.size), dledger.DLedgerEntry) and not entry.body_size
        ):
            at += dledger.HEAD_SIZE
    end = record_at(view, at, file.size)
    if not isinstance(end, Record) and end.ending is Ending.FILLER and blank_room(view, at) == file.size - at:
        return at + _BLANK
    return at


def refuse_damage(layout: StoreLayout, damaged: Sequence[Damage]) -> None:
    """Refuse to go on if there are places whose messages cannot be read.

    Raises:
        Refused: there are; names them.
    """
    if not damaged:
        return
    named = ", ".join(f"{os.path.relpath(d.path, layout.root)} at byte {d.at} ({d.length} B)" for d in damaged[:_NAMED])
    more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
    cure = f"{layout.command('recover')} ends the log before damage at its end"
    if layout.dledger_dirs():
        cure = "The brokers of its group, started together, bring its end up to date"
    raise Refused(
        f"{layout.root}: damage that may hold messages, which would stay as they are: {named}{more}. {cure}; "
        f"{layout.command('salvage', 'NEWSTORE')} makes a store without damage, which can be redacted"
    )


def refuse_other_copies(layout: StoreLayout, wanted: Identities, known: Collection[str]) -> None:
    """Refuse to go on if another file of the store has one of the messages, such as a copy that somebody has made.

    Args:
        known: real paths of the files that consist of messages.

    Raises:
        Refused: there is such a file; names it.
    """
    places = [layout.root, *layout.commit_log_paths, *layout.dledger_paths()]
    skipped = {os.path.realpath(layout.path(name)) for name in _WITHOUT_BODIES}
    if having := _first_having(places, wanted, known, skipped):
        raise Refused(
            f"{having[0]}: has a copy of {counted(having[1], 'message')} to be overwritten, and is no file that a "
            "broker reads: delete it or move it away first"
        )


def warn_of_kept_copies(
    layout: StoreLayout, wanted: Identities, files: Iterable[Segment], links: Mapping[int, int]
) -> Iterator[str]:
    """Warnings of copies outside the store: files that earlier changes have kept, and other names of these files.

    Args:
        links: how many names of a file, by its inode, are overwritten too.
    """
    for run in runs(Places.of(layout)):
        if having := _first_having([run.path], wanted):
            messages = counted(having[1], "message")
            yield f"{run.path} keeps copies of {messages} from before: delete it if they must not stay"
    linked = [file.path for file in files if (status := os.stat(file.path)).st_nlink > links.get(status.st_ino, 1)]
    if linked:
        yield (
            f"{linked[0]} {f'and {len(linked) - 1} more have' if len(linked) > 1 else 'has'} another hard link, as a "
            "backup makes it: it keeps what is overwritten here"
        )


def _first_having(
    folders: Iterable[str], wanted: Identities, known: Collection[str] = (), skipped: Collection[str] = ()
) -> tuple[str, int] | None:
    """The path of the first file below folders that has wanted messages, and their number; None without any."""
    seen = set(known)
    for path in (file for folder in folders for file in each_file(folder, skipped)):
        if (real := os.path.realpath(path)) not in seen:
            seen.add(real)
            if messages := _count_in(path, wanted):
                return path, messages
    return None


def _count_in(path: str, wanted: Identities) -> int:
    """The number of wanted messages in any file, wherever they begin."""
    mapped = map_file(path)
    view, at, messages = memoryview(mapped), 0, 0
    segment = Segment(path, 0, len(view), 0)
    while (magic := mapped.find(_MAGIC, at)) >= 0:
        at = magic + 1
        record = read(view, magic - 4, len(view), crc=False) if magic >= 4 else None
        if isinstance(record, Record):
            item = LocatedRecord(segment, magic - 4, record)
            messages += any(wanted.has(m, m.record, in_log=False) for m in item.messages())
    return messages
