"""Check abort, lock, checkpoint, interrupted runs, and report parts that are not checked."""

import os

from formats import checkpoint
from formats.config.rocksdb import ACCOUNTS, SINGLE, TABLES, V2
from formats.variants.message_store import PLACE as MESSAGE_STORE
from formats.variants.rocksdb import describe
from rmqtool.errors import Refused, RmqError, UnreadableStore
from rmqtool.store.changes.places import MARKER, Places
from rmqtool.store.changes.writing import PendingRun, pending_runs
from rmqtool.store.check.codes.all import INFO
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.lock import holder
from rmqtool.store.layout.parts import part_of
from rmqtool.store.layout.tier_signs import tiered_folder
from rmqtool.store.layout.version import SEPARATE_QUEUES, queue_database_place, rocksdb_forms
from rmqtool.store.roles.table import Role, roles_of
from rmqtool.words import counted

_CHECKED_ELSEWHERE = {
    "consumequeue", SEPARATE_QUEUES, "kvStore", MESSAGE_STORE, SINGLE, V2,
    *(table.place for table in TABLES.values()), *(f"config/{name}" for name in ACCOUNTS),
}  # fmt: skip

_LOG_TIME_SET = 10_000  # ms after which the log's time is set at the latest (flushCommitLogThoroughInterval)
_EVERY_TIME_WRITTEN = 60_000  # ms after which the checkpoint is written (flushConsumeQueueThoroughInterval)


def _code_of(run: PendingRun) -> str:
    if run.problem is not None:
        return "journal-unreadable"
    return "undo-unfinished" if run.undoing else "recovery-unfinished"


def check_marks(ctx: Context) -> None:
    """Check the files next to the data."""
    findings, layout = ctx.found, ctx.layout
    pid = None
    try:
        pid = holder(layout.root)
    except UnreadableStore as err:
        layout.pass_over(layout.path("lock"), err)
    if pid is not None:
        who = f"process {pid}" if pid else "a process of another machine"
        findings.add("store-in-use", "lock", actual=f"held by {who}")
        findings.situation.in_use = True
    findings.situation.form = unwritable(ctx)
    findings.situation.dledger = bool(layout.dledger_dirs())
    for run in pending_runs(Places.of(layout)):
        findings.add(_code_of(run), ctx.name(run.folder or layout.path(MARKER)), actual=run.reason())
    if layout.aborted:
        about = {"severity": INFO} if pid is not None else {}
        findings.add("abort-present", "abort", **about)
    places = [*layout.commit_log_paths, *filter(None, (tiered_folder(layout),))]
    for entry in layout.entries():
        if (
            part_of(entry.name) is None
            and entry.name not in ("config", MARKER)
            and entry.path not in places
            and not _holds(entry.path, places)
        ):
            findings.add("file-ignored", entry.name)
    for place, form in rocksdb_forms(layout).items():
        if place not in _CHECKED_ELSEWHERE:
            findings.add("not-checked", place, actual=f"a RocksDB database: {form.holds}")


def _holds(folder: str, paths: list[str]) -> bool:
    """Whether a directory contains any of the paths."""
    return any(path.startswith(folder + os.sep) for path in paths)


def check_role(ctx: Context) -> None:
    """Report the roles of the directory, before all other findings; a plain master's needs no mention."""
    for fact in reversed(roles_of(ctx.layout)):
        if fact.role is not Role.MASTER:
            ctx.found.add("store-role", ".", actual=fact.words)
            ctx.found.first()


def unwritable(ctx: Context) -> str | None:
    """Why rmqtool does not write the queues of this kind of store; None if it does."""
    try:
        ctx.rules.check_forms()
    except Refused as err:
        return str(err).removeprefix(f"{ctx.layout.root}: ").removeprefix(f"{ctx.layout.root}/")
    except RmqError:
        pass  # reported by the check of the unreadable file
    return None


def queues_are_files(ctx: Context) -> bool:
    """Whether queues are plain files instead of a database; reports foreign files beside them."""
    entries = ctx.layout.entries("consumequeue")
    names = [entry.name for entry in entries if entry.is_file()]
    database = describe(names, "consumequeue") is not None
    for name in () if database else names:
        ctx.found.add("file-ignored", os.path.join("consumequeue", name))
    return queue_database_place(ctx.layout) is None or bool(ctx.layout.queue_dirs())


def check_presence(ctx: Context, entries: int, *, read: bool = False) -> None:
    """Report it, before all other findings, if there are no messages but queues or the checkpoint refer to some.

    Args:
        entries: number of queue entries that should point to a message.
        read: whether the log has been read, and is empty.
    """
    files, point = ctx.log.segments.files, ctx.checkpoint
    times = point.physic_msg_timestamp or point.logics_msg_timestamp
    if (files and not read) or not (entries or (times and not files)):
        return
    ctx.log_seen.absent = ctx.found.situation.log_absent = True
    text = (
        f"{counted(entries, 'queue entry points', 'queue entries point')} to nothing; "
        if entries
        else "the checkpoint knows of messages; "
    )
    ctx.found.add(
        "log-absent",
        "commitlog",
        count=max(entries, 1),
        expected="messages",
        actual="files that hold no message" if files else f"no file in {', '.join(ctx.layout.commit_log_paths)}",
        consequence=f"{text}a broker's next start deletes all queues",
    )
    ctx.found.first()


def _span(ctx: Context) -> int:
    """Time between the first and the last message of the log, ms."""
    return (ctx.log_seen.last_timestamp or 0) - (ctx.log_seen.first_timestamp or 0)


def _leaves_no_times(ctx: Context) -> bool:
    """Whether a broker that was stopped cleanly leaves a checkpoint without times beside these messages.

    The log's time is only set when four pages are full or ten seconds have passed; the queues' time, up to 5.3, with
    each entry, since 5.4 once a minute, and never for queues in RocksDB.
    """
    if ctx.layout.aborted:
        return False
    if queue_database_place(ctx.layout) is not None and not ctx.layout.queue_dirs():
        return _span(ctx) <= _LOG_TIME_SET or len(ctx.log.segments.files) == 1  # it may have run briefly many times
    return ctx.rules.release.marks_flushed_queues and _span(ctx) <= _LOG_TIME_SET


def check_checkpoint(ctx: Context, index_end: int | None) -> None:
    """Check the checkpoint against the log.

    Args:
        index_end: highest end time of the index files; None without files.
    """
    findings, name = ctx.found, "checkpoint"
    try:
        data = ctx.layout.checkpoint()
    except RmqError as err:  # far too large
        findings.add("file-unreadable", name, actual=str(err))
        return
    if ctx.is_passed(name):
        return
    if data is None:
        findings.add("checkpoint-missing", name)
        return
    point = checkpoint.parse(data)
    if len(data) != checkpoint.SIZE:
        findings.add("checkpoint-empty", name, expected=f"{checkpoint.SIZE} bytes", actual=f"{len(data)} bytes")
    elif (
        ctx.log_seen.last_timestamp is not None
        and not (point.physic_msg_timestamp or point.logics_msg_timestamp)
        and not _leaves_no_times(ctx)
    ):
        about = {"severity": INFO} if ctx.layout.aborted and _span(ctx) <= _EVERY_TIME_WRITTEN else {}
        findings.add("checkpoint-empty", name, offset=0, expected="times", actual="zeros", **about)
    if ctx.log_seen.absent:
        return
    last = ctx.log_seen.last_timestamp
    ahead = [
        (0, "log", point.physic_msg_timestamp, last),
        (8, "queues", point.logics_msg_timestamp, last),
        (16, "index", point.index_msg_timestamp, index_end if index_end is not None else last),
    ]
    for at, what, says, highest in ahead:
        if says > (highest or 0) and (highest is not None or what != "index"):
            expected = (
                f"{what}: at most {highest}" if highest is not None else f"{what}: 0, because there is no message"
            )
            findings.add("checkpoint-ahead", name, offset=at, expected=expected, actual=says)
