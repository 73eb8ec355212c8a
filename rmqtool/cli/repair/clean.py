"""The command ``clean``: remove expired files."""

import sys
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import (
    AcceptLossOption,
    BackupOption,
    BrokerConfOption,
    DryRunOption,
    Output,
    OutputOption,
    StoreDir,
    YesOption,
)
from rmqtool.cli.read.run_query import need_log
from rmqtool.words import counted


@command("clean", "rmqtool clean store --dry-run", progress=True, tables=("files", "unread", "warnings", "report"))
def clean(
    store: StoreDir,
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours",
            min=0,
            metavar="HOURS",
            help="Age at which a commit-log file expires; else fileReservedTime, or 72.",
        ),
    ] = None,
    files: Annotated[
        int | None,
        typer.Option("--files", min=1, metavar="N", help="Remove no more commit-log files than this, oldest first."),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete for good, which frees space; else undo brings all back.")
    ] = False,
    accept_loss: AcceptLossOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Remove expired commit-log files, and what in queues and index points into them.

    The age of a file is its modification time, as for a broker; the last file always stays. The plan is shown first.
    It says what goes unread, by group and topic, and how many delayed messages still wait; with --yes such a loss needs
    --accept-loss. With --delete nothing is written, so that it works on a full disk. Exit code 0: done, or nothing has
    expired; 1: a dry run found expired files.
    """
    from dataclasses import replace

    from rmqtool.cli.render.output import Column, confirm, note, write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.errors import Refused
    from rmqtool.services.consumers.unread import Unread, unread_below
    from rmqtool.store.repair.expiry import CleanReport
    from rmqtool.store.repair.expiry import clean as run

    layout = need_log(store, broker_conf, say=False).layout

    def going(report: CleanReport) -> list[Unread]:
        return unread_below(layout, report.newMinPhyOffset, note) if report.files else []

    def show(report: CleanReport, unread: list[Unread], form: str, *, to_stderr: bool = False) -> None:
        fields = ("file", "bytes", "diskBytes", "modified")
        report = replace(report, unread=[one.to_dict() for one in unread])
        if form in ("json", "ndjson"):
            write_object(form, report.to_dict())
        elif not PARTS.write(report, form):
            columns = [Column(name, right=name != "file") for name in fields]
            out = sys.stderr if to_stderr else sys.stdout
            write_all(writer(form, fields, columns, out), report.to_dict()["files"])
        verb = "deleted" if report.deleted else "removed" if report.applied else "would be removed"
        for warning in report.warnings:
            note(f"warning: {warning}")
        for one in unread:
            note(f"LOSS: {one.words}")
        note(
            f"{counted(len(report.files), 'file')}"
            f", {counted(report.diskBytes, 'byte')} on disk {verb}; log from {report.newMinPhyOffset} on"
        )

    asking = not yes and not dry_run
    if asking and not sys.stdin.isatty():
        raise Refused("clean writes: give --yes to do it, or --dry-run to look only")
    plan = None
    if dry_run or asking:
        plan = run(layout, reserved_hours=hours, most_files=files, dry_run=True, backup=backup)
        unread = going(plan)
        if dry_run or not plan.files:
            show(plan, unread, output.value)
            return 1 if plan.files else 0
        show(plan, unread, "text", to_stderr=True)
        how = "Delete" if delete else "Remove"
        back = "for good; undo cannot bring them back" if delete else "undo brings them back"
        if not confirm(f"{how} {len(plan.files)} commit-log files and the messages in them ({back})?"):
            raise Refused("not confirmed: nothing was changed")
    else:
        plan = run(layout, reserved_hours=hours, most_files=files, dry_run=True, backup=backup)
        unread = going(plan)
        if unread and not accept_loss:
            raise Refused(
                f"{layout.root}: {'; '.join(one.words for one in unread)}: they would go. Nothing was changed; "
                "--accept-loss does it all the same"
            )
    report = run(layout, reserved_hours=hours, most_files=files, delete=delete, backup=backup, shown=plan)
    show(report, unread, output.value)
    if report.backup:
        note(f"kept in {report.backup}: delete it to gain the space")
    return 0
