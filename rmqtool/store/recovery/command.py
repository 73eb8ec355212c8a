"""The commands recover, truncate and dispatch: plan them, or carry them out under the broker's lock."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypedDict, Unpack

from formats.config.files import NAMES
from formats.variants.message_store import HALVES, INDEX
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.rules.releases import Release
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.writing import changing, hold_to_plan, pending_runs, planning
from rmqtool.store.config.fit import misfit_warnings
from rmqtool.store.layout.mending import find_in_the_way
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.message_store import SETTINGS
from rmqtool.store.recovery.actions import prepare
from rmqtool.store.recovery.dispatcher import QueueKey
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import Stage, StagedQueues, load
from rmqtool.store.recovery.plan import Recovery, run_recovery
from rmqtool.store.recovery.report import NOT_IN_PLACE, RecoveryReport
from rmqtool.store.recovery.summary import summarize
from rmqtool.store.recovery.truncate import run_truncate
from rmqtool.store.roles.table import heed
from rmqtool.store.tier.tier import DO_NOT_START, refuse_dangers, tier_dangers

Simulate = Callable[[StoreLayout, Stage], Recovery]  # what a command would leave; the stage returns new paths
Guard = Callable[[RecoveryReport], None]  # raises Refused
_MOST_BAD_FILES = 64  # for each of them there is another plan


class Options(TypedDict, total=False):
    """Options of a recovery; see :func:`recover`."""

    release: Release | None
    exactly: bool
    fix_delay_times: bool
    quick: bool


def recover(
    layout: StoreLayout, *, backup: str | None = None, guard: Guard | None = None, **options: Unpack[Options]
) -> RecoveryReport:
    """Recover a store under the broker's lock, backing up what is replaced. A healthy store is not touched.

    The log ends where a broker's start ends it. After that, queues, index, checkpoint and settings are made consistent
    with it: every message in the log is in its queue exactly once, and nothing else is. An interrupted recovery is
    completed first.

    Args:
        release: whose rules to follow; None for the release that seems to have written the store.
        exactly: do only what the broker does, even if that loses or repeats messages: after a clean stop 5.3 skips the
            first message that is missing in the queues, and does not load a queue whose last file is empty.
        quick: do not compare queues and index with the log; only do what a broker's start does, and repair what is
            found to be damaged on the way.
        fix_delay_times: keep deliver times that a 4.9 broker would lose.
        backup: directory for backups, instead of ``<store>.rmqtool`` next to the store.
        guard: called with the report before anything is changed; may raise to prevent that.

    Raises:
        Refused: the store is in use, its role forbids it, or the backup cannot be created.
    """
    with _advising(layout):
        return _carry_out(layout, "recover", partial(_simulate_start, whole=True, **options), backup, guard)


def _carry_out(
    layout: StoreLayout, command: str, simulate: Simulate, backup: str | None, guard: Guard | None = None
) -> RecoveryReport:
    """Plan a command under the lock, let the guard see the report, and change the store."""
    role_warnings = heed(layout, command)
    if not os.access(layout.path("lock"), os.W_OK) and not pending_runs(Places.of(layout), backup):
        # taking the lock would create its file, or fail on a read-only medium; a healthy store needs neither
        report = _plan_only(layout, simulate, backup, role_warnings)
        if report.clean or not report.loadOk:
            return report
    with changing(layout, command, backup) as change:
        # Read the store again even after a plan, and after the snapshot that the commit compares with: so the cached
        # directory listings are never older than the snapshot.
        recovery = simulate(StoreLayout(layout.root, layout.conf), change.staging)
        actions = prepare(recovery, change)
        report = summarize(recovery, actions, applied=bool(actions), backup=change.path if actions else None)
        report = _add_surroundings(report, layout, role_warnings)
        if guard is not None:
            guard(report)
        if actions:
            change.commit()
    return report


def _simulate_start(
    layout: StoreLayout, stage: Stage, *, whole: bool = False, predict: bool = False, **options: Unpack[Options]
) -> Recovery:
    inputs = StoreInputs.of(layout, whole=whole, **options)
    inputs.rules.only_predicts = predict
    return run_recovery(inputs, stage)


def _add_surroundings(report: RecoveryReport, layout: StoreLayout, role_warnings: list[str]) -> RecoveryReport:
    """Add the dangers for a tier and the warnings of the table of roles, before all others, and misfit settings."""
    dangers = tier_dangers(layout, (report.afterStart or report.afterLoad).ranges) if report.loadOk else []
    return replace(
        report,
        warnings=[*(f"{DO_NOT_START}: {danger}" for danger in dangers), *role_warnings, *report.warnings],
        destroys=[*report.destroys, *dangers] if report.actions else report.destroys,
        tierDangers=dangers,
        unfit=misfit_warnings(layout),
    )


@contextmanager
def _advising(layout: StoreLayout) -> Iterator[None]:
    """Name what is in the way, if something could not be read for that reason.

    Raises:
        UnreadableStore: as it was raised, with advice.
    """
    try:
        yield
    except UnreadableStore as err:
        advice = find_in_the_way(layout).values()
        if not advice:
            raise
        raise UnreadableStore(f"{err}: {'; '.join(advice)}") from err


# -- plans that only read ---------------------------------------------------------------------------------------------


def plan(
    layout: StoreLayout, *, backup: str | None = None, predict: bool = False, **options: Unpack[Options]
) -> RecoveryReport:
    """Plan a recovery; the store is only read. For the other arguments see :func:`recover`.

    Changed queues and index files are built nevertheless, in the system's temporary directory, since dispatch depends
    on them.

    Args:
        predict: also plan for a store that recover refuses to write because a database has to follow.
    """
    layout = layout.passing_over()
    warnings = heed(layout, "recover")
    with _advising(layout):
        report = _plan_over_bad_files(
            layout, partial(_simulate_start, whole=True, predict=predict, **options), backup, warnings
        )
    if report.actions and any(layout.conf.flag(SETTINGS[family], False) for family in (INDEX, HALVES)):
        report = replace(report, notes=[*report.notes, NOT_IN_PLACE])
    tables = {layout.path("config", name + suffix) for name in NAMES for suffix in ("", ".tmp", ".bak")}
    moved, passed = find_in_the_way(layout), layout.passed or {}
    ignored = [
        f"{advice}: recover stops at it; this plan is for when it is out of the way"
        for path, advice in moved.items()
        if path not in passed
    ]
    for path, reason in passed.items():
        if not any(path.startswith(f"{place}{os.sep}") for place in moved):
            broker = "a broker can neither read nor write it" if path in tables else "no broker starts over it"
            consequence = f"{broker}, and recover stops at it: this plan is for when it is out of the way"
            ignored.append(f"{reason}: {consequence}" + (f": {moved[path]}" if path in moved else ""))
    return replace(report, warnings=[*report.warnings, *ignored])


def load_refusals(layout: StoreLayout) -> list[str]:
    """Return why a broker would not load a store; of its files only names and lengths are read.

    Raises:
        Refused: the rules of its release would damage this form of store.
        UnreadableStore: a directory cannot be read.
    """
    with planning(layout) as change:
        inputs = StoreInputs.of(layout, exactly=True)
        return load(inputs, StagedQueues(inputs, change.staging)).refusals


def _plan_over_bad_files(
    layout: StoreLayout, simulate: Simulate, backup: str | None, role_warnings: list[str]
) -> RecoveryReport:
    """Plan without the files of queues that cannot be read."""
    for _file in range(_MOST_BAD_FILES):
        try:
            return _plan_only(layout, simulate, backup, role_warnings)
        except UnreadableStore as err:
            layout.pass_over_queue_file(err)
    return _plan_only(layout, simulate, backup, role_warnings)


class Examined(NamedTuple):
    """The result of planning a recovery of a store that is about to be opened for writing."""

    report: RecoveryReport
    inputs: StoreInputs
    ends: dict[QueueKey, int]  # end of each queue, as a queue offset


def examine(layout: StoreLayout) -> Examined:
    """Plan a recovery and return its data, so that a writer need not read the store again.

    Raises:
        Refused: the store has a form that rmqtool does not write.
        UnreadableStore: a file cannot be read.
    """
    report, recovery = _plan_in(layout, _simulate_start, None)
    return Examined(report, recovery.inputs, recovery.found_ends)


def _plan_only(layout: StoreLayout, simulate: Simulate, backup: str | None, role_warnings: list[str]) -> RecoveryReport:
    return _add_surroundings(_plan_in(layout, simulate, backup)[0], layout, role_warnings)


def _plan_in(layout: StoreLayout, simulate: Simulate, backup: str | None) -> tuple[RecoveryReport, Recovery]:
    with planning(layout) as change:
        recovery = simulate(layout, change.staging)
        actions = prepare(recovery, change)
        stuck: list[str] = []
        # the store is half changed; the rest of this plan applies after the interrupted run is completed
        for pending in pending_runs(Places.of(layout), backup):
            actions.insert(0, pending.action())
            recovery.warnings += pending.warnings(layout.root)
            if pending.undoing or not pending.to_finish:
                stuck.append(f"{pending.folder or layout.root}: {pending.reason()}")
        return replace(summarize(recovery, actions), pending=stuck), recovery


# -- truncate and dispatch --------------------------------------------------------------------------------------------


def truncate(
    layout: StoreLayout,
    physical_offset: int,
    *,
    dry_run: bool = False,
    backup: str | None = None,
    shown: RecoveryReport | None = None,
) -> RecoveryReport:
    """Truncate the log at a message, and queues and index with it; what is removed is backed up.

    Args:
        physical_offset: of the first message to remove; the end of the log, if there is nothing to remove.
        shown: a plan that was confirmed; if other messages would be removed, that is refused.

    Raises:
        Refused: the store is in use, was not stopped cleanly, its role forbids it, queues would no longer fit the tier,
            or the plan has changed.
        BadValue: no message begins there.
        CorruptFile: the log is not readable up to there.
    """

    def simulate(layout: StoreLayout, stage: Stage) -> Recovery:
        return run_truncate(StoreInputs.of(layout), stage, physical_offset)

    def guard(report: RecoveryReport) -> None:
        hold_to_plan(layout.root, shown and (shown.lost, shown.bytesCut), (report.lost, report.bytesCut))
        refuse_dangers(layout, report.tierDangers)

    if dry_run:
        return _plan_only(layout, simulate, backup, heed(layout, "truncate"))
    return _carry_out(layout, "truncate", simulate, backup, guard)


def dispatch(layout: StoreLayout, *, dry_run: bool = False, backup: str | None = None) -> RecoveryReport:
    """Dispatch the rest of the log to queues and index, as a broker's start does after its recovery; truncates nothing.

    An interrupted run is completed first.

    Raises:
        Refused: the store is in use, was not stopped cleanly, its role forbids it, or a broker would truncate
            something.
    """

    def adds_only(report: RecoveryReport) -> None:
        cut = [action for action in report.actions if not action.startswith(("create", "replace"))]
        if report.abort or report.refusals or cut:
            why = "was not stopped cleanly" if report.abort else (*report.refusals, *cut)[0]
            raise Refused(f"{layout.root}: {why}: see {layout.command('recover', '--dry-run')}")
        refuse_dangers(layout, report.tierDangers)

    interrupted = bool(pending_runs(Places.of(layout), backup))
    if dry_run or not interrupted:
        report = _plan_only(layout, _simulate_start, backup, heed(layout, "dispatch"))
        if not interrupted:
            adds_only(report)
        if dry_run or report.clean:
            return report
    return _carry_out(layout, "dispatch", _simulate_start, backup, adds_only)
