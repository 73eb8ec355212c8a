"""Remove expired files like a broker's cleaning service, but on demand and while no broker is running.

Source: store.DefaultMessageStore (CleanCommitLogService, CleanConsumeQueueService), MappedFileQueue,
index.IndexService, timer.TimerMessageStore; store-engine 6. The age of a commit-log file is its modification time. The
last file of the log, of each queue, of the index and of the timer log is never removed.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from formats import checkpoint
from formats.errors import FormatError
from formats.index import HEADER_SIZE, read_header
from formats.queues.consume import is_ext_address, read, real_offset
from rmqtool.errors import BadValue, Refused, UnreadableStore
from rmqtool.progress import stage
from rmqtool.rules.retention import DEFAULT_RESERVED_HOURS, HOUR
from rmqtool.store.changes import manifest as manifests
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.signals import Signals
from rmqtool.store.changes.writing import changing, pending_runs
from rmqtool.store.disk.durable import remove_in_order, sync
from rmqtool.store.disk.files import remove
from rmqtool.store.disk.mapping import read_at
from rmqtool.store.disk.segments import Segment, Segments, offset_name
from rmqtool.store.layout.paths import BATCH_UNIT, UNIT, StoreLayout
from rmqtool.store.queues.batch import batch_queues_of
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.queues.reader import runs_of
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.releases.rules import rules_for
from rmqtool.store.roles.table import heed
from rmqtool.store.tier.tier import DO_NOT_START, Tier, local_ranges, refuse_dangers
from rmqtool.words import command_line, counted

if TYPE_CHECKING:
    from rmqtool.store.append.live import LiveStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredFile:
    """One file to be removed."""

    file: str  # relative to the store
    bytes: int  # length of the file
    diskBytes: int  # space it takes on disk
    modified: int  # ms


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanReport:
    """The expired files."""

    store: str
    reservedHours: float
    minPhyOffset: int  # before the removal
    newMinPhyOffset: int  # after the removal
    files: list[ExpiredFile] = field(default_factory=list)
    diskBytes: int = 0
    unread: list[dict[str, Any]] = field(default_factory=list)  # group, topic, messages; from callers that know groups
    warnings: list[str] = field(default_factory=list)
    applied: bool = False
    deleted: bool = False  # permanently; otherwise they are in the backup
    backup: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


def _expired_log(files: list[Segment], older_than_ns: int, most: int | None) -> list[Segment]:
    """Oldest first, up to the first file that has not expired; never the last."""
    expired: list[Segment] = []
    for file in files[:-1]:
        if file.mtime_ns > older_than_ns or (most is not None and len(expired) >= most):
            break
        expired.append(file)
    return expired


def _expired_queue(segments: Segments, low: int, unit: int = UNIT) -> list[Segment]:
    """Files whose last entry, of ``unit`` bytes, points before the log's beginning.

    Entries of both forms begin with the physical offset.
    """
    expired: list[Segment] = []
    for file in segments.files[:-1]:
        units = file.size // unit
        last = read(file.read((units - 1) * unit, UNIT)).physical_offset if units else -1
        if last >= low:
            break
        expired.append(file)
    return expired


def _expired_extension(queue: Segments, extension: Segments, low: int) -> list[Segment]:
    """Files of a queue's extension that are entirely before the unit that its first live entry points to."""
    for file in queue.files:
        live = (
            int(code)
            for _first, units in runs_of(file.path, 0, file.size // UNIT)
            for code in units["tags_code"][units["physical_offset"] >= low][:1]
        )
        first = next(live, 0)
        live.close()
        if is_ext_address(first):
            return [file for file in extension.files[:-1] if file.end <= real_offset(first)]
    return []


def _expired_index(paths: list[str], low: int) -> list[str]:
    expired = []
    for path in paths[:-1]:
        try:
            header = read_header(read_at(path, 0, HEADER_SIZE))
        except FormatError:
            break
        if header.end_physical_offset >= low:
            break
        expired.append(path)
    return expired


def _dispatched_end(layout: StoreLayout, log: list[Segment]) -> int:
    """Physical offset up to which queues no longer need the log. Messages after it may be missing in queues, or are
    read by the recovery of a store that was not closed."""
    known, size = -1, layout.queue_size()
    for topic, queue_id, path in layout.queue_dirs():
        queue = QueueBuilder(topic, queue_id, path, size, str, layout.files_in(path))
        queue.recover()
        known = max(known, queue.max_physical_offset)
    for batch in batch_queues_of(layout):
        known = max(known, batch.recovered.max_physical_offset)
    if not layout.aborted:
        return known
    point = checkpoint.parse(layout.checkpoint() or b"")
    number, _why = rules_for(layout).rules.first_checked(log, point, known, aborted=True)
    return min(known, log[number].base)


def _plan(
    layout: StoreLayout, reserved_ms: int, most: int | None, flushed: int | None = None
) -> tuple[list[str], int, int, list[str]]:
    """(paths, lowest physical offset before, and after the removal, warnings).

    Args:
        flushed: where the log ends up to which queues are durable, of a store that is open for writing. The timer then
            keeps its files, which it has open.
    """
    log = layout.commit_log().files
    older_than = (time.time_ns() // 1_000_000 - reserved_ms) * 1_000_000
    expired = _expired_log(log, older_than, most)
    dispatched = flushed if flushed is not None else _dispatched_end(layout, log) if expired else 0
    gone = [file for file in expired if file.end <= dispatched]
    warnings = []
    if kept := len(expired) - len(gone):
        first = "recover" if layout.aborted else "dispatch"
        warnings.append(
            f"{kept} expired files of the log hold messages that may not be in their queues yet; their queue offsets "
            f"would be lost with the files: {command_line(*first.split(), layout.root)} first"
        )
    before = log[0].base if log else -1
    low = log[len(gone)].base if log else -1
    paths = [file.path for file in gone]
    if low > 0:
        for topic, queue_id, path in layout.queue_dirs():
            queue = Segments.of([path])
            expired = _expired_queue(queue, low)
            paths += [file.path for file in expired]
            extension = Segments.of([layout.queue_path(topic, queue_id, "consumequeue_ext")])
            if extension.files:
                rest = Segments(queue.files[len(expired) :], [])
                paths += [file.path for file in _expired_extension(rest, extension, low)]
        for batch in batch_queues_of(layout):
            paths += [file.path for file in _expired_queue(batch.segments, low, BATCH_UNIT)]
        paths += _expired_index(layout.index_paths(), low)
        paths += [file.path for file in TimerFiles(layout).find_expired(low)] if flushed is None else []
    return paths, before, low, warnings


def reserved_hours_of(layout: StoreLayout) -> float:
    """``fileReservedTime``, 72 by default.

    Raises:
        Refused: it is not a number of hours.
    """
    text = layout.conf.text("fileReservedTime") or str(DEFAULT_RESERVED_HOURS)
    if not text.isdecimal() or len(text) > 9:
        raise Refused(f"{layout.conf.path}: fileReservedTime={text} is not a number of hours")
    return float(text)


def clean_open(store: "LiveStore") -> CleanReport:
    """Delete what has expired in a store that is open for writing, as its broker does when it is told to.

    Queues are durable before: a recovery after a kill needs none of these files.

    Raises:
        Refused: its queues would no longer fit the tier.
        OSError: a file cannot be removed; those before it are.
    """
    layout, hours = store.layout, reserved_hours_of(store.layout)
    store.settle()
    paths, before, low, warnings = _plan(layout, int(hours * HOUR), None, store.end)
    report = _report(layout, hours, paths, before, low, warnings)
    if paths:
        refuse_dangers(layout, _dangers(layout, paths, low))
        remove_in_order(paths)
    return replace(report, applied=bool(paths), deleted=bool(paths))


def clean(
    layout: StoreLayout,
    *,
    reserved_hours: float | None = None,
    most_files: int | None = None,
    dry_run: bool = False,
    delete: bool = False,
    backup: str | None = None,
    shown: CleanReport | None = None,
    guard: Callable[[CleanReport], None] | None = None,
) -> CleanReport:
    """Remove expired files of the log, then files of queues and index that point before its new beginning.

    Args:
        reserved_hours: age at which a commit-log file expires; None for ``fileReservedTime``, 72 by default.
        most_files: maximum number of log files to remove.
        dry_run: only report.
        delete: delete permanently, which frees space at once, even on a full disk; otherwise files go to the backup. If
            such a run is killed, run it again.
        shown: a plan that was confirmed; anything that differs from it is refused.
        guard: called with the plan under the lock, before anything is removed; may refuse it.

    Raises:
        Refused: the store is in use, a role forbids it, its queues would no longer fit the tier, or the plan has
            changed.
        BadValue: the age is not a number of hours.
        Interrupted: SIGINT or SIGTERM.
    """
    role_warnings = heed(layout, "clean")
    if reserved_hours is None:
        reserved_hours = reserved_hours_of(layout)
    if not 0 <= reserved_hours < float("inf"):
        raise BadValue(f"--hours {reserved_hours}: not a number of hours")
    reserved_ms = int(reserved_hours * HOUR)
    if dry_run:
        paths, before, low, warnings = _plan(layout, reserved_ms, most_files)
        role_warnings += [f"{DO_NOT_START}: {danger}" for danger in _dangers(layout, paths, low)]
        report = _report(layout, reserved_hours, paths, before, low, role_warnings + warnings)
        for pending in pending_runs(Places.of(layout), backup):
            report.warnings.extend((pending.action(), *pending.warnings(layout.root)))
        return report
    with changing(layout, "clean", backup) as change:
        if change.finished is not None and change.finished[1] == "clean":
            # this command completes that run; the number of files asked for then has been removed
            return _report_finished(layout, reserved_hours, change.finished[0])
        paths, before, low, warnings = _plan(layout, reserved_ms, most_files)
        report = _report(layout, reserved_hours, paths, before, low, role_warnings + warnings)
        if paths:
            refuse_dangers(layout, _dangers(layout, paths, low))
        if shown is not None and shown.files != report.files:
            raise Refused(
                f"{layout.root}: other files have expired since the plan was shown: nothing was changed; run it again"
            )
        if not paths:
            return report
        if guard is not None:
            guard(report)
        kept = None
        if delete:
            _delete(layout, paths, report.files, change.signals, limited=most_files is not None)
        else:
            for path in paths:
                change.remove(path)
            kept = change.path
            change.commit()
    return replace(report, applied=True, deleted=delete, backup=kept)


def _dangers(layout: StoreLayout, paths: list[str], low: int) -> list[str]:
    """What a broker would do to the tier without these files, with the log beginning at ``low``; one sentence each."""
    tier = Tier.of(layout) if paths else None
    return [danger.words for danger in tier.dangers(local_ranges(layout, low=low))] if tier is not None else []


def _report_finished(layout: StoreLayout, reserved_hours: float, folder: str) -> CleanReport:
    """The report of an interrupted run that has just been completed."""
    places = Places.of(layout)
    actions = [action for action in manifests.read(folder, places).actions if action.kept is not None]
    report = _report(layout, reserved_hours, [os.path.join(folder, str(action.kept)) for action in actions], -1, -1)
    bases = [
        base
        for action in actions
        if os.path.dirname(action.path) in places.log_folders
        and (base := offset_name(os.path.basename(action.path))) is not None
    ]
    log = layout.commit_log().files
    low = log[0].base if log else -1
    return replace(
        report,
        minPhyOffset=min(bases, default=low),
        newMinPhyOffset=low,
        files=[
            replace(file, file=os.path.relpath(action.path, layout.root))
            for file, action in zip(report.files, actions, strict=True)
        ],
        warnings=["a run that was interrupted has been finished, and nothing else was removed"],
        applied=True,
        backup=folder,
    )


def _delete(
    layout: StoreLayout, paths: list[str], files: list[ExpiredFile], signals: Signals, *, limited: bool = False
) -> None:
    """Delete permanently: the log from its beginning, as a broker does, then files that point before its new one.

    If killed in between, the next run or a broker finds the rest expired. This takes no disk space.

    Args:
        limited: whether the number of log files was limited; running the same command would start counting again.
    """
    logs = Places.of(layout).log_folders
    signals.defer()
    with stage("deleting", len(paths), "files") as deleting:
        for done, (path, planned) in enumerate(zip(paths, files, strict=True)):
            try:
                status = os.lstat(path)
                if (status.st_size, status.st_mtime_ns // 1_000_000) != (planned.bytes, planned.modified):
                    raise Refused(
                        f"{path}: was changed while files were removed: "
                        f"{counted(done, 'file was', 'files were')} deleted before it"
                    )
                remove(path)
            except OSError as err:
                raise UnreadableStore(
                    f"{path}: {os.strerror(err.errno or 0)}: "
                    f"{counted(done, 'file was', 'files were')} deleted before it"
                ) from err
            deleting.done += 1
            left = len(paths) - done - 1
            following = os.path.dirname(paths[done + 1]) if left else None
            if following != os.path.dirname(path):
                sync(os.path.dirname(path))
            if signals.asked is not None:
                sync(os.path.dirname(path))
                of_log = sum(os.path.dirname(path) in logs for path in paths[done + 1 :])
                go_on = "the same command continues with them" if left else "nothing is left to do"
                if left and limited:
                    go_on = f"with --files {of_log} it continues with them" if of_log else "the next clean takes them"
                raise signals.error(f"{done + 1} of {len(paths)} files are deleted, {left} are left: {go_on}")


def _report(
    layout: StoreLayout, reserved_hours: float, paths: list[str], before: int, low: int, warnings: Sequence[str] = ()
) -> CleanReport:
    files = []
    for path in paths:
        status = os.stat(path)
        files.append(
            ExpiredFile(
                file=os.path.relpath(path, layout.root),
                bytes=status.st_size,
                diskBytes=status.st_blocks * 512,
                modified=status.st_mtime_ns // 1_000_000,
            )
        )
    return CleanReport(
        store=layout.root,
        reservedHours=reserved_hours,
        minPhyOffset=before,
        newMinPhyOffset=low,
        files=files,
        diskBytes=sum(file.diskBytes for file in files),
        warnings=list(warnings),
    )
