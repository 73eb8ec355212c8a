"""Recovery, and what else goes its way: plan it, or do it under the broker's lock as one transaction."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from formats.endings import Ending
from rmqtool.errors import Refused
from rmqtool.store.changes.change import Transaction
from rmqtool.store.changes.pending import pending_runs
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.writing import changing, planning
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.actions import prepare
from rmqtool.store.recovery.actions import report as report_of
from rmqtool.store.recovery.plan import Recovery, Stage
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.store.recovery.truncate import Truncate

Make = Callable[[StoreLayout, Stage], Recovery]
Guard = Callable[[RecoveryReport], None]  # raises Refused


class Opened(NamedTuple):
    """What is known of a store that is about to be written."""

    report: RecoveryReport  # of a plan
    ends: dict[tuple[str, int], int]  # queue offset at which each queue ends
    queue_size: int  # bytes of each of its files


def look(layout: StoreLayout) -> Opened:
    """Plan, and tell what was learnt of the queues: whoever goes on from there need not read them once more."""
    made: list[Recovery] = []

    def make(layout: StoreLayout, stage: Stage) -> Recovery:
        made.append(Recovery(layout, stage))
        return made[0]

    report = _plan(layout, make, None)
    queues = made[0].queues
    size = next(iter(queues.values())).file_size if queues else layout.queue_size()
    return Opened(report, made[0].found_ends, size)


def _prepare(recovery: Recovery, transaction: Transaction) -> list[str]:
    if recovery.refusals:
        return []
    words = prepare(recovery, transaction)
    files = [(file.path, file.size) for file in recovery.log.segments]
    if recovery.stop_file is None or recovery.stop is None:
        transaction.expect_log(files, None, 0)
    else:
        at = recovery.stop.at + (8 if recovery.stop.ending is Ending.FILLER else 0)
        transaction.expect_log(files, recovery.stop_file.path, min(at, recovery.stop_file.size))
    return words


def _plan(layout: StoreLayout, make: Make, backup: str | None) -> RecoveryReport:
    with planning(layout.root) as transaction:
        recovery = make(layout, transaction.staging)
        recovery.run()
        actions = _prepare(recovery, transaction)
        stuck: list[str] = []
        # what is seen now is half of two states; the rest of this plan holds once what was interrupted is finished
        for run in pending_runs(Places.of(layout), backup):
            actions.insert(0, run.action())
            recovery.warnings += run.warnings(layout.root)
            if run.undoing or not run.to_finish:
                stuck.append(f"{run.folder or layout.root}: {run.reason()}")
        return replace(report_of(recovery, actions=actions, applied=False, backup=None), pending=stuck)


def _do(
    layout: StoreLayout, command: str, make: Make, backup: str | None, guard: Guard | None = None
) -> RecoveryReport:
    if not os.access(layout.path("lock"), os.W_OK) and not pending_runs(Places.of(layout), backup):
        # taking the lock would make its file, or fail on a read-only medium; a healthy store needs neither
        report = _plan(layout, make, backup)
        if report.clean or not report.loadOk:
            return report
    with changing(layout, command, backup) as transaction:
        recovery = make(StoreLayout(layout.root, layout.conf), transaction.staging)
        recovery.run()
        actions = _prepare(recovery, transaction)
        kept = transaction.path if actions else None
        report = report_of(recovery, actions=actions, applied=bool(actions), backup=kept)
        if guard is not None:
            guard(report)
        if actions:
            transaction.commit()
    return report


def plan(
    layout: StoreLayout,
    *,
    engine: str = "auto",
    exactly: bool = False,
    fix_delay_times: bool = False,
    backup: str | None = None,
) -> RecoveryReport:
    """What recovery would do; the store is only read. Arguments are those of :func:`recover`.

    Changed queues and indexes are still built, in the system's temporary directory, because what is dispatched depends
    on them.
    """

    def make(layout: StoreLayout, stage: Stage) -> Recovery:
        return Recovery(layout, stage, engine=engine, exactly=exactly, fix_delay_times=fix_delay_times)

    return _plan(layout, make, backup)


def recover(
    layout: StoreLayout,
    *,
    engine: str = "auto",
    exactly: bool = False,
    fix_delay_times: bool = False,
    backup: str | None = None,
    guard: Guard | None = None,
) -> RecoveryReport:
    """Recover a store under the broker's lock, keeping what is replaced. A healthy store is not touched at all.

    A recovery that was killed is finished first.

    Args:
        engine: whose rules: "4.9", "5.3", or "auto" for the release that seems to have written the store.
        exactly: what a 5.3 broker gets wrong is done as it does it: after a clean stop it leaves out the first message
            that no queue has, and it does not load a queue whose last file is empty.
        fix_delay_times: keep deliver times that a 4.9 broker would lose.
        backup: directory for what is replaced, instead of ``<store>.rmqtool`` beside the store.
        guard: sees the report before anything is changed, and raises where that must not be.

    Raises:
        Refused: the store is in use, or there is no place for the backup.
    """

    def make(layout: StoreLayout, stage: Stage) -> Recovery:
        return Recovery(layout, stage, engine=engine, exactly=exactly, fix_delay_times=fix_delay_times)

    return _do(layout, "recover", make, backup, guard)


def truncate(
    layout: StoreLayout, physical_offset: int, *, dry_run: bool = False, backup: str | None = None
) -> RecoveryReport:
    """Cut the log at a message, and queues and index with it; what goes is kept. At its end there is nothing to cut.

    Args:
        physical_offset: of the first message that goes.

    Raises:
        Refused: the store is in use, or was not stopped cleanly.
        BadValue: no message begins there.
        CorruptFile: the log does not read that far.
    """

    def make(layout: StoreLayout, stage: Stage) -> Recovery:
        return Truncate(layout, stage, physical_offset)

    return _plan(layout, make, backup) if dry_run else _do(layout, "truncate", make, backup)


def dispatch(layout: StoreLayout, *, dry_run: bool = False, backup: str | None = None) -> RecoveryReport:
    """Bring queues and index up with the log, as a broker's start does it behind its recovery; nothing is cut.

    A run that was killed is finished first.

    Raises:
        Refused: the store is in use, was not stopped cleanly, or a broker would cut something.
    """

    def adds_only(report: RecoveryReport) -> None:
        cut = [action for action in report.actions if not action.startswith(("create", "replace"))]
        if report.abort or report.refusals or cut:
            why = "was not stopped cleanly" if report.abort else (*report.refusals, *cut)[0]
            raise Refused(f"{layout.root}: {why}: see rmqtool recover --dry-run")

    interrupted = bool(pending_runs(Places.of(layout), backup))
    if dry_run or not interrupted:
        report = _plan(layout, Recovery, backup)
        if not interrupted:
            adds_only(report)
        if dry_run or report.clean:
            return report
    return _do(layout, "dispatch", Recovery, backup, adds_only)
