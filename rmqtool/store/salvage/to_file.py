"""Write every intact message of a damaged store to a single file, and the unreadable parts next to it.

The file and ``<file>.lost+found`` are built in a temporary directory until both are complete and durable.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from formats.endings import Ending
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.files import rename
from rmqtool.store.disk.readable import Readable
from rmqtool.store.disk.work_folder import WorkFolder
from rmqtool.store.layout.paths import StoreLayout, checked_path
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.dledger import describe_uncommitted, why_unreadable
from rmqtool.store.roles.table import heed
from rmqtool.store.salvage.lost_found import NAME, LostFound, LostRange
from rmqtool.store.salvage.records import span_of, torn_properties
from rmqtool.store.salvage.survey import Survey, describe_misnamed, true_files
from rmqtool.store.tier.only_tiered import LogWithTier, NotTaken, find_only_tiered
from rmqtool.store.tier.tier import Key

ReportDamage = Callable[[Damage], None]
WriteAll = Callable[[CommitLog, str, ReportDamage], int]
"""Writes all messages of a log to a file, reports damage as it is found, and returns the number of messages."""

_UNFINISHED = ".rmqtool-part"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The result of a salvage to a file."""

    source: str
    out: str
    form: str
    messages: int
    bytes: int  # size of the file
    lostRanges: list[LostRange] = field(default_factory=list)  # the first thousand; the manifest has all
    lostRangeCount: int = 0
    lostBytes: int = 0
    lostFound: str | None = None  # directory of the lost ranges; None if there are none
    warnings: list[str] = field(default_factory=list)
    notTaken: list[NotTaken] = field(default_factory=list)  # messages left out because they are only in the tier

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


class SalvagedLog(NamedTuple):
    """A log in readable form.

    Attributes:
        log: its files are at the places that their records state.
        warnings: for the user.
        disk: copies of the files that are not fully readable.
    """

    log: CommitLog
    warnings: list[str]
    disk: Readable


def salvaged_log(layout: StoreLayout) -> SalvagedLog:
    """Determine what can be read of a log, and where it belongs.

    Raises:
        UnreadableStore: there is no commit log.
        Refused: a role of the store forbids it.
    """
    warnings = [*heed(layout, "salvage"), *describe_uncommitted(layout)]
    if (reason := why_unreadable(layout)) is not None:
        raise UnreadableStore(reason)
    log = LogWithTier(layout, Survey.of(layout, layout.commit_log()).first) if tier_sign(layout) else CommitLog(layout)
    if not log.segments.files and not (isinstance(log, LogWithTier) and log.tiered.ends):
        raise UnreadableStore(f"{layout.root}: no commit log in it")
    disk = Readable()
    log.segments = disk.take(log.segments)
    log.segments, moved, skipped = true_files(log)
    if isinstance(log, LogWithTier):
        log.tiered.holes = [*_holes_in(log)]
    return SalvagedLog(log, warnings + disk.describe() + describe_misnamed(moved, skipped, disk.name), disk)


def _holes_in(log: LogWithTier) -> Iterator[tuple[Key, range]]:
    """Queue offsets that a log lacks and its tier has, between and after those in the log."""
    ends, following = log.tiered.ends, dict[Key, int]()
    for item in CommitLog.walk(log) if ends else ():
        if isinstance(item, Damage) or item.record.sys_flag & TRANSACTION_MASK not in (
            TRANSACTION_NONE, TRANSACTION_COMMIT,
        ):  # fmt: skip
            continue
        record = item.record
        key = record.topic.decode("utf-8", "surrogateescape"), record.queue_id
        if key not in ends:
            continue
        begin = following.get(key, record.queue_offset)
        if begin < min(record.queue_offset, ends[key]):
            yield key, range(begin, min(record.queue_offset, ends[key]))
        following[key] = max(begin, record.queue_offset + span_of(record))
    yield from ((key, range(begin, ends[key])) for key, begin in following.items() if begin < ends[key])


def salvage_to_file(layout: StoreLayout, out: str, form: str, write: WriteAll) -> FileReport:
    """Write every intact message to a file.

    Args:
        out: the file; it must not exist.
        form: the format written by ``write``, for the report.

    Raises:
        Refused: the file exists, is inside the store, or cannot be created.
        UnreadableStore: the source has no commit log.
    """
    out = checked_path(out)
    beside = f"{out}.{NAME}"
    _check(layout, out)
    log, warnings, disk = salvaged_log(layout)
    try:
        with WorkFolder(out + _UNFINISHED, holds=("messages", NAME), takes_back=beside) as work:
            if os.path.lexists(beside):
                raise Refused(f"{beside}: exists already: give another name, or move it away")
            unfinished, ranges = os.path.join(work.path, "messages"), os.path.join(work.path, NAME)
            lost = LostFound(layout.root, ranges, os.path.basename(beside), disk.name)
            messages = write(log, unfinished, lost.damage)
            lost.close()
            sync(unfinished)
            if lost.count:
                work.move_out(ranges, beside)
            rename(unfinished, out)
            sync(os.path.dirname(out))
    except OSError as err:
        raise Refused(f"{out}: cannot be written: {os.strerror(err.errno or 0)}") from err
    return FileReport(
        source=layout.root,
        out=out,
        form=form,
        messages=messages,
        bytes=os.path.getsize(out),
        lostRanges=lost.ranges,
        lostRangeCount=lost.count,
        lostBytes=lost.bytes,
        lostFound=beside if lost.count else None,
        warnings=warnings,
        notTaken=[] if isinstance(log, LogWithTier) and log.tiered.ends else find_only_tiered(layout),
    )


def report_torn(located: LocatedRecord, report: ReportDamage) -> None:
    """Report a message that was copied although the end of its properties is lost."""
    if (torn := torn_properties(located.record)) is not None:
        report(
            Damage(
                located.file.path, located.at, located.physical_offset, located.record.total_size, Ending.DAMAGED, torn
            )
        )


def _check(layout: StoreLayout, out: str) -> None:
    source, target = os.path.realpath(layout.root), os.path.realpath(out)
    if target.startswith(source + os.sep) or target == source:
        raise Refused(f"{out}: lies in the store that is salvaged: give a place outside of it")
    if os.path.lexists(out):
        raise Refused(f"{out}: exists already: give another name, or move it away")
    if not os.path.isdir(os.path.dirname(out)):
        raise Refused(f"{os.path.dirname(out)}: no such directory: make it first")
