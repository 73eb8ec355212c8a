"""The command ``clean``: remove expired files."""

import sys
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log
from rmqtool.cli.framework.options import (
    AcceptLossOption,
    BackupOption,
    BrokerConfOption,
    Output,
    OutputOption,
    StoreDir,
)
from rmqtool.cli.framework.planning import ASK, Consent
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
            help="Age at which a commit-log file expires; default: fileReservedTime or 72.",
        ),
    ] = None,
    files: Annotated[
        int | None,
        typer.Option("--files", min=1, metavar="N", help="Remove at most this many commit-log files, oldest first."),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete for good, which frees space; otherwise undo can restore them.")
    ] = False,
    accept_loss: AcceptLossOption = False,
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Remove expired commit-log files, and the queue and index entries that point into them.

    The age of a file is that of its modification time, as for a broker; the last file always stays. The plan is shown
    first, with the messages that each group has not read, by topic, and the delayed messages that still wait; with
    --yes such a loss needs --accept-loss. With --delete nothing is written, so it works on a full disk. Exit code 0:
    done, or nothing has expired; 1: a dry run found expired files.
    """
    from dataclasses import replace

    from rmqtool.cli.framework.planning import carry_out
    from rmqtool.cli.render.output import Column, write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.text import note
    from rmqtool.cli.render.times import time_text
    from rmqtool.errors import Refused
    from rmqtool.services.consumers.unread import Unread, unread_below
    from rmqtool.store.changes.writing import hold_to_plan
    from rmqtool.store.repair.expiry import CleanReport
    from rmqtool.store.repair.expiry import clean as run

    layout = need_log(store, broker_conf, say=False).layout

    unread: list[Unread] = []

    def plan() -> CleanReport:
        report = run(layout, reserved_hours=hours, most_files=files, dry_run=True, backup=backup)
        unread[:] = unread_below(layout, report.newMinPhyOffset, note) if report.files else []
        return report

    def show(report: CleanReport, form: str, *, to_stderr: bool = False) -> None:
        fields = ("file", "bytes", "diskBytes", "modified")
        report = replace(report, unread=[topic.to_dict() for topic in unread])
        if form in ("json", "ndjson"):
            write_object(form, report.to_dict())
        elif not PARTS.write(report, form):
            columns = [
                Column(name, right=name.endswith("ytes"), text=time_text if name == "modified" else None)
                for name in fields
            ]
            out = sys.stderr if to_stderr else sys.stdout
            write_all(writer(form, fields, columns, out), report.to_dict()["files"])
        verb = "deleted" if report.deleted else "removed" if report.applied else "would be removed"
        for warning in report.warnings:
            note(f"warning: {warning}")
        for topic in unread:
            note(f"LOSS: {topic.words}")
        note(
            f"{counted(len(report.files), 'file')}"
            f", {counted(report.diskBytes, 'byte')} on disk {verb}; log from {report.newMinPhyOffset} on"
        )

    def question(report: CleanReport) -> str:
        how = "Delete" if delete else "Remove"
        back = "for good; undo cannot bring them back" if delete else "undo brings them back"
        return f"{how} {counted(len(report.files), 'file')} and the messages in them ({back})?"

    def guard(report: CleanReport) -> None:
        now = unread_below(layout, report.newMinPhyOffset, lambda _text: None)
        hold_to_plan(layout.root, [topic.words for topic in unread], [topic.words for topic in now])

    def do(shown: CleanReport | None) -> CleanReport:
        if shown is None:
            shown = plan()
            if unread and not accept_loss:
                raise Refused(
                    f"{layout.root}: {'; '.join(topic.words for topic in unread)}: they would go. Nothing was changed; "
                    "--accept-loss does it all the same"
                )
        return run(
            layout, reserved_hours=hours, most_files=files, delete=delete, backup=backup, shown=shown, guard=guard
        )

    consent.need("clean")
    report, done = carry_out(
        consent,
        plan=plan,
        settled=lambda report: not report.files,
        show=lambda report: show(report, "text", to_stderr=True),
        question=question,
        do=do,
    )
    show(report, output.value)
    if not done:
        return 1 if report.files else 0
    if report.backup:
        note(f"kept in {report.backup}: delete it to free the space")
    return 0
