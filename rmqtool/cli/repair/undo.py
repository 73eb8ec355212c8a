"""The command ``undo``: put back what a writing command replaced."""

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target, open_store
from rmqtool.cli.framework.options import (
    BackupOption,
    BrokerConfOption,
    Output,
    OutputOption,
    StoreOrTarget,
    option,
)
from rmqtool.cli.framework.planning import ASK, Consent
from rmqtool.words import command_line

if TYPE_CHECKING:
    from rmqtool.admin.target import Target
    from rmqtool.store.changes.places import Places


@command("undo", "rmqtool undo store --dry-run", progress=True)
def undo(
    store: StoreOrTarget,
    consent: Consent = ASK,
    force: Annotated[
        bool, typer.Option("--force", help="Even if files have changed since, by a broker for example.")
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Give up a run that was interrupted and cannot be finished: the store stays as it is, the backup too.",
        ),
    ] = False,
    broadcast: Annotated[
        str | None,
        option("--broadcast", "FILE", "The offsets.json of a broadcasting client, not the broker's offsets."),
    ] = None,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Restore what the last writing command replaced.

    This works after an interrupted command, too, and only while the store is as that command left it. In a live cluster
    it reverts the last change made from this machine, by requests. Exit code 0: done; 1: there is nothing to undo, or a
    dry run found that files have changed since, or that there is something to revert in a cluster.
    """
    if (target := live_target(store)) is not None:
        return _undo_live(target, consent, backup, output, force=force)
    from rmqtool.cli.framework.planning import carry_out, note_actions
    from rmqtool.cli.render.output import Column, write_all, write_object, writer
    from rmqtool.cli.render.text import note
    from rmqtool.errors import BadValue
    from rmqtool.store.changes import undo as changes
    from rmqtool.store.changes.places import Places, named_outside
    from rmqtool.store.roles.table import heed

    layout = open_store(store, broker_conf)
    root = Places.of(layout, named_outside([broadcast]))
    if forget:
        if force or consent.dry_run:
            raise BadValue("--forget cannot be given with --force or --dry-run")
        return _forget(root, backup, consent)
    consent.need("undo")
    for text in heed(layout, "undo --force" if force else "undo"):
        note(f"warning: {text}")

    def do(shown: changes.UndoReport | None) -> changes.UndoReport:
        plan = shown or changes.plan_undo(root, backup)
        return plan if plan.backup is None else changes.undo(root, backup, force=force, shown=shown)

    report, _done = carry_out(
        consent,
        plan=lambda: changes.plan_undo(root, backup),
        settled=lambda plan: plan.backup is None,
        show=lambda plan: note_actions(plan.actions),
        question=lambda _plan: "Do this?",
        do=do,
    )
    if output in (Output.json, Output.ndjson):
        write_object(output.value, report.to_dict())
    else:
        rows = ({"action": action} for action in report.actions)
        write_all(writer(output.value, ("action",), [Column("action")]), rows)
    for reason in report.reasons:
        note(f"has changed since: {reason}")
    if report.backup is None:
        note("nothing to undo")
        return 1
    note(f"{'undone' if report.applied else 'would undo'}: {report.backup}")
    return 1 if report.reasons and not report.applied else 0


def _undo_live(target: "Target", consent: Consent, backup: str | None, output: Output, *, force: bool) -> int:
    from rmqtool.admin.changes.run import last_journal, plan_undo
    from rmqtool.cli.framework.changing import carry_out_change, write_changes
    from rmqtool.cli.render.text import note

    consent.need("undo")
    journal = last_journal(target, backup)
    if journal is None:
        note("nothing to undo")
        return 1
    note(f"{journal.path}: {journal.command}" + (", interrupted" if journal.state == "begun" else ""))
    return carry_out_change(
        target, lambda warn: plan_undo(target, journal, force=force, warn=warn), command="undo", consent=consent,
        backup=backup, output=output.value, write=write_changes,
    )  # fmt: skip


def _forget(root: "Places", backup: str | None, consent: Consent) -> int:
    from rmqtool.cli.framework.planning import ask
    from rmqtool.cli.render.text import note
    from rmqtool.store.changes.undo import give_up
    from rmqtool.store.changes.writing import pending_runs

    for run in pending_runs(root, backup):
        note(f"interrupted: {run.folder or root.root}")
        for warning in run.warnings(root.root):
            note(f"  {warning}")
    if not consent.yes:
        consent.need("undo")
        ask("Give it up, and leave the store as it is?")
    given_up = give_up(root, backup)
    if given_up is None:
        note("no interrupted run")
        return 1
    note(f"given up: {given_up}; the store is as it was left, see {command_line('recover', root.root, '--dry-run')}")
    return 0
