"""Every intact message of a damaged store into one file of another form, and beside it what could not be read.

The file and ``<file>.lost+found`` lie in a directory of their own until both are whole and durable.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from formats.endings import Ending
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
from rmqtool.store.salvage.records import torn_properties
from rmqtool.store.salvage.survey import Survey, moved_words, true_files
from rmqtool.store.tier.left_behind import NotTaken, left_behind
from rmqtool.store.tier.only_tiered import LogWithTier

Tell = Callable[[Damage], None]
WriteAll = Callable[[CommitLog, str, Tell], int]
"""Writes all messages of a log to a file, tells damage as it is met, and returns the number of messages."""

_UNFINISHED = ".rmqtool-part"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What was written, and what was not readable."""

    source: str
    out: str
    form: str
    messages: int
    bytes: int  # of the file
    lostRanges: list[LostRange] = field(default_factory=list)  # the first thousand; the manifest has all
    lostRangeCount: int = 0
    lostBytes: int = 0
    lostFound: str | None = None  # directory of the ranges; None where everything was readable
    warnings: list[str] = field(default_factory=list)
    notTaken: list[NotTaken] = field(default_factory=list)  # messages that are elsewhere: in the tier alone

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


class SalvagedLog(NamedTuple):
    """A log as it can be read.

    Attributes:
        log: its files lie where their records say that they do.
        warnings: what is to be said of that.
        disk: what became of files that cannot be read as a whole; it keeps the copies of them.
    """

    log: CommitLog
    warnings: list[str]
    disk: Readable


def salvaged_log(layout: StoreLayout) -> SalvagedLog:
    """Find out what can be read, and where it belongs.

    Raises:
        UnreadableStore: there is no commit log.
        Refused: the store has a role that forbids it.
    """
    warnings = [*heed(layout, "salvage"), *describe_uncommitted(layout)]
    if (reason := why_unreadable(layout)) is not None:
        raise UnreadableStore(reason)
    log = LogWithTier(layout, Survey.of(layout, layout.commit_log()).first) if tier_sign(layout) else CommitLog(layout)
    if not log.segments.files:
        raise UnreadableStore(f"{layout.root}: no commit log in it")
    disk = Readable()
    log.segments = disk.take(log.segments)
    log.segments, moved, skipped = true_files(log)
    return SalvagedLog(log, warnings + disk.describe() + moved_words(moved, skipped, disk.name), disk)


def salvage_to_file(layout: StoreLayout, out: str, form: str, write: WriteAll) -> FileReport:
    """Write every intact message to a file.

    Args:
        out: the file; must not exist.
        form: what ``write`` writes, for the report.

    Raises:
        Refused: the file exists, lies in the store, or cannot be made.
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
        notTaken=[] if isinstance(log, LogWithTier) and log.tiered.messages else left_behind(layout),
    )


def tell_torn(found: LocatedRecord, tell: Tell) -> None:
    """Tell a message that is taken though the end of its properties is lost."""
    if (torn := torn_properties(found.record)) is not None:
        tell(Damage(found.file.path, found.at, found.physical_offset, found.record.total_size, Ending.DAMAGED, torn))


def _check(layout: StoreLayout, out: str) -> None:
    source, target = os.path.realpath(layout.root), os.path.realpath(out)
    if target.startswith(source + os.sep) or target == source:
        raise Refused(f"{out}: lies in the store that is salvaged: give a place outside of it")
    if os.path.lexists(out):
        raise Refused(f"{out}: exists already: give another name, or move it away")
    if not os.path.isdir(os.path.dirname(out)):
        raise Refused(f"{os.path.dirname(out)}: no such directory: make it first")
