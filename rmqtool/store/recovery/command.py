"""The commands recover, truncate and dispatch: plan them, or carry them out under the broker's lock."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypedDict, Unpack

from formats.endings import Ending
from formats.message.build import BLANK_SIZE
from rmqtool.errors import Refused
from rmqtool.rules.releases import Release
from rmqtool.store.changes.change import Change
from rmqtool.store.changes.pending import pending_runs
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.writing import changing, planning
from rmqtool.store.config.fit import misfit_warnings
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.actions import prepare
from rmqtool.store.recovery.actions import report as report_of
from rmqtool.store.recovery.beside_tier import beside_tier
from rmqtool.store.recovery.dispatcher import QueueKey
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import Stage
from rmqtool.store.recovery.plan import Recovery, run_recovery
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.store.recovery.truncate import run_truncate
from rmqtool.store.recovery.whole_log import FittedFile
from rmqtool.store.roles.table import heed
from rmqtool.store.tier.guard import refuse

Run = Callable[[StoreLayout, Stage], Recovery]  # works out what a command would do
Guard = Callable[[RecoveryReport], None]  # raises Refused


class Examined(NamedTuple):
    """What a plan has shown of a store that is about to be written."""

    report: RecoveryReport
    inputs: StoreInputs
    ends: dict[QueueKey, int]  # queue offset at which each queue ends


def examine(layout: StoreLayout) -> Examined:
    """Plan a recovery, and hand on what was learnt: who goes on to write need not read the store once more.

    Raises:
        Refused: the store has a form that no command of ours writes.
        UnreadableStore: a file cannot be read.
    """
    report, recovery = _plan_in(layout, _recovering(), None)
    return Examined(report, recovery.inputs, recovery.found_ends)


class Options(TypedDict, total=False):
    """How to recover; see :func:`recover`."""

    release: Release | None
    exactly: bool
    fix_delay_times: bool
    quick: bool


def _recovering(*, whole: bool = False, **options: Unpack[Options]) -> Run:
    def run(layout: StoreLayout, stage: Stage) -> Recovery:
        return run_recovery(StoreInputs.of(layout, whole=whole, **options), stage)

    return run


def _prepare(recovery: Recovery, change: Change) -> list[str]:
    if recovery.refusals:
        return []
    steps = prepare(recovery, change)
    verdict = recovery.verdict
    files = [(file.path, file.size) for file in recovery.inputs.log.segments]
    if verdict.stop_file is None or verdict.stop is None:
        change.expect_log(files, None, 0)
    else:
        at = verdict.stop.at + (BLANK_SIZE if verdict.stop.ending is Ending.FILLER else 0)
        file = verdict.stop_file
        size = file.source.size if isinstance(file, FittedFile) else file.size
        change.expect_log(files, file.path, min(at, size))
    return steps


def _plan(layout: StoreLayout, run: Run, backup: str | None, said: list[str]) -> RecoveryReport:
    return _beside(layout, _plan_in(layout, run, backup)[0], said)


def _beside(layout: StoreLayout, report: RecoveryReport, said: list[str]) -> RecoveryReport:
    """A report with what tier and configuration have to do with it."""
    return replace(beside_tier(layout, report, said), unfit=misfit_warnings(layout))


def _plan_in(layout: StoreLayout, run: Run, backup: str | None) -> tuple[RecoveryReport, Recovery]:
    with planning(layout.root) as change:
        recovery = run(layout, change.staging)
        actions = _prepare(recovery, change)
        stuck: list[str] = []
        # what is seen now is half of two states; the rest of this plan holds once what was interrupted is finished
        for pending in pending_runs(Places.of(layout), backup):
            actions.insert(0, pending.action())
            recovery.warnings += pending.warnings(layout.root)
            if pending.undoing or not pending.to_finish:
                stuck.append(f"{pending.folder or layout.root}: {pending.reason()}")
        report = report_of(recovery, actions=actions, applied=False, backup=None)
        return replace(report, pending=stuck), recovery


def _do(
    layout: StoreLayout, command: str, run: Run, backup: str | None, said: list[str], guard: Guard | None = None
) -> RecoveryReport:
    if not os.access(layout.path("lock"), os.W_OK) and not pending_runs(Places.of(layout), backup):
        # taking the lock would make its file, or fail on a read-only medium; a healthy store needs neither
        report = _plan(layout, run, backup, said)
        if report.clean or not report.loadOk:
            return report
    with changing(layout, command, backup) as change:
        # The store is read again, whatever a plan before this one has seen, and after the snapshot that the commit
        # compares it with: so the listings that are kept here are never older than what the change is held against.
        recovery = run(StoreLayout(layout.root, layout.conf), change.staging)
        actions = _prepare(recovery, change)
        kept = change.path if actions else None
        report = _beside(layout, report_of(recovery, actions=actions, applied=bool(actions), backup=kept), said)
        if guard is not None:
            guard(report)
        if actions:
            change.commit()
    return report


def plan(layout: StoreLayout, *, backup: str | None = None, **options: Unpack[Options]) -> RecoveryReport:
    """What recovery would do; the store is only read. Arguments are those of :func:`recover`.

    Changed queues and indexes are still built, in the system's temporary directory, because what is dispatched depends
    on them.
    """
    warnings = heed(layout, "recover")
    layout = layout.passing_over()
    report = _plan(layout, _recovering(whole=True, **options), backup, warnings)
    consequence = "no broker starts over it, and recover stops at it: this plan is for when it is out of the way"
    ignored = [f"{reason}: {consequence}" for reason in (layout.passed or {}).values()]
    return replace(report, warnings=[*report.warnings, *ignored])


def recover(
    layout: StoreLayout, *, backup: str | None = None, guard: Guard | None = None, **options: Unpack[Options]
) -> RecoveryReport:
    """Recover a store under the broker's lock, keeping what is replaced. A healthy store is not touched at all.

    The log ends where a broker's start ends it. Behind that judgement queues, index, checkpoint and settings are made
    whole: every message that the log has is in its queue once, and nothing else. A recovery that was killed is finished
    first.

    Args:
        release: whose rules; None for those of the release that seems to have written the store.
        exactly: nothing is done but what the broker does, also where it loses or doubles: after a clean stop 5.3 leaves
            out the first message that no queue has, and it does not load a queue whose last file is empty.
        quick: queues and index are not compared with the log; what a broker's start does is done, and what is known to
            be damaged without that is mended.
        fix_delay_times: keep deliver times that a 4.9 broker would lose.
        backup: directory for what is replaced, instead of ``<store>.rmqtool`` beside the store.
        guard: sees the report before anything is changed, and raises where that must not be.

    Raises:
        Refused: the store is in use, its role forbids it, or there is no place for the backup.
    """
    warnings = heed(layout, "recover")
    run = _recovering(whole=True, **options)
    return _do(layout, "recover", run, backup, warnings, guard)


def truncate(
    layout: StoreLayout, physical_offset: int, *, dry_run: bool = False, backup: str | None = None
) -> RecoveryReport:
    """Cut the log at a message, and queues and index with it; what goes is kept. At its end there is nothing to cut.

    Args:
        physical_offset: of the first message that goes.

    Raises:
        Refused: the store is in use, was not stopped cleanly, its role forbids it, or queues would no longer fit the
            tier.
        BadValue: no message begins there.
        CorruptFile: the log does not read that far.
    """
    warnings = heed(layout, "truncate")

    def run(layout: StoreLayout, stage: Stage) -> Recovery:
        return run_truncate(StoreInputs.of(layout), stage, physical_offset)

    def fits(report: RecoveryReport) -> None:
        refuse(layout, report.tierDangers)

    if dry_run:
        return _plan(layout, run, backup, warnings)
    return _do(layout, "truncate", run, backup, warnings, fits)


def dispatch(layout: StoreLayout, *, dry_run: bool = False, backup: str | None = None) -> RecoveryReport:
    """Bring queues and index up with the log, as a broker's start does it behind its recovery; nothing is cut.

    A run that was killed is finished first.

    Raises:
        Refused: the store is in use, was not stopped cleanly, its role forbids it, or a broker would cut something.
    """
    warnings = heed(layout, "dispatch")

    def adds_only(report: RecoveryReport) -> None:
        cut = [action for action in report.actions if not action.startswith(("create", "replace"))]
        if report.abort or report.refusals or cut:
            why = "was not stopped cleanly" if report.abort else (*report.refusals, *cut)[0]
            raise Refused(f"{layout.root}: {why}: see {layout.command('recover', '--dry-run')}")
        refuse(layout, report.tierDangers)

    interrupted = bool(pending_runs(Places.of(layout), backup))
    if dry_run or not interrupted:
        report = _plan(layout, _recovering(), backup, warnings)
        if not interrupted:
            adds_only(report)
        if dry_run or report.clean:
            return report
    return _do(layout, "dispatch", _recovering(), backup, warnings, adds_only)
