"""Recovery, and what else goes its way: plan it, or do it under the broker's lock as one transaction."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace

from rmqtool.errors import Refused
from rmqtool.store.disk.lock import StoreLock
from rmqtool.store.layout import StoreLayout
from rmqtool.store.recovery import Recovery, Stage
from rmqtool.store.recovery_actions import prepare
from rmqtool.store.recovery_actions import report as report_of
from rmqtool.store.recovery_report import RecoveryReport
from rmqtool.store.transaction.change import PLAN_HINT, Transaction, sweep, unfinished
from rmqtool.store.transaction.pending import pending
from rmqtool.store.truncate import Truncate

Make = Callable[[StoreLayout, Stage], Recovery]
Guard = Callable[[RecoveryReport], None]  # raises Refused


def _plan(layout: StoreLayout, make: Make, backup: str | None) -> RecoveryReport:
    with (
        tempfile.TemporaryDirectory(prefix="rmqtool-") as directory,
        Transaction(layout.root, "plan", directory, PLAN_HINT) as transaction,
    ):
        recovery = make(layout, transaction.staging)
        recovery.run()
        actions = [] if recovery.refusals else prepare(recovery, transaction)
        stuck: list[str] = []
        for run in reversed(pending(layout.root, backup)):
            if run.state == "committed":
                # what is seen now is half of two states; the rest of this plan holds once the first is finished
                actions.insert(0, f"finish the interrupted run in {run.path}")
            else:
                ways = "rmqtool undo STORE goes on with it" if run.state == "undoing" else "no command writes before"
                stuck.insert(0, f"{run.path}: {run.reason}: {ways}")
        return replace(report_of(recovery, actions=actions, applied=False, backup=None), pending=stuck)


def _do(
    layout: StoreLayout, command: str, make: Make, backup: str | None, guard: Guard | None = None
) -> RecoveryReport:
    if not os.access(layout.path("lock"), os.W_OK) and unfinished(layout.root, backup) is None:
        # taking the lock would make its file, or fail on a read-only medium; a healthy store needs neither
        report = _plan(layout, make, backup)
        if report.clean or not report.loadOk:
            return report
    with StoreLock(layout.root):
        if (interrupted := unfinished(layout.root, backup)) is not None:
            interrupted.apply()
        sweep(layout.root, backup)
        layout = StoreLayout(layout.root, layout.conf)
        with Transaction(layout.root, command, backup) as transaction:
            recovery = make(layout, transaction.staging)
            recovery.run()
            actions = [] if recovery.refusals else prepare(recovery, transaction)
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

    interrupted = unfinished(layout.root, backup) is not None
    if dry_run or not interrupted:
        report = _plan(layout, Recovery, backup)
        if not interrupted:
            adds_only(report)
        if dry_run or report.clean:
            return report
    return _do(layout, "dispatch", Recovery, backup, adds_only)
