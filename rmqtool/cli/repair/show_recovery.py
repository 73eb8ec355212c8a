"""A recovery report for people and for scripts; a plan and a deed read alike."""

import shlex

from rich.console import Console

from rmqtool.cli.look.show_info import console, facts_table, size_text, table, text
from rmqtool.cli.shell.output import Column, write_all, write_object, writer
from rmqtool.cli.shell.parts import PARTS
from rmqtool.store.recovery.report import RecoveryReport

QUEUE_FIELDS = ("topic", "queueId", "minOffset", "maxOffset", "entriesCut", "entriesAdded")


def question(plan: RecoveryReport) -> str:
    """What to ask before a plan is carried out: with the number of messages that are lost by it."""
    messages = sum(loss.messages for loss in plan.lost)
    if messages and not plan.destroys:  # a truncate, whose place the user has named
        return f"Do this, and cut off {messages} messages? undo brings them back."
    if plan.destroys and messages:
        return f"Do this, and cut off {messages} intact messages, of which salvage keeps {plan.salvageKeeps}?"
    return "Do this, though the log is missing, and remove its queues?" if plan.destroys else "Do this?"


def write_report(report: RecoveryReport, form: str, *, to_stderr: bool = False, conf: str | None = None) -> None:
    """Print a report; as CSV it is one row a queue.

    Args:
        conf: the broker's properties file that was named, for the commands that come next.
    """
    if form in ("json", "ndjson"):
        write_object(form, report.to_dict())
    elif PARTS.write(report, form):
        pass
    elif form == "csv":
        changes = {(c.topic, c.queueId): c for c in report.queues}
        state = report.afterStart or report.afterLoad
        rows = (
            {
                "topic": q.topic,
                "queueId": q.queueId,
                "minOffset": q.minOffset,
                "maxOffset": q.maxOffset,
                "entriesCut": changes[q.topic, q.queueId].entriesCut if (q.topic, q.queueId) in changes else 0,
                "entriesAdded": changes[q.topic, q.queueId].entriesAdded if (q.topic, q.queueId) in changes else 0,
            }
            for q in state.queues
        )
        write_all(writer("csv", QUEUE_FIELDS, [Column(f) for f in QUEUE_FIELDS]), rows)
    else:
        _show(report, console(stderr=to_stderr), f" --broker-conf {shlex.quote(conf)}" if conf else "")


def _show(report: RecoveryReport, out: Console, options: str) -> None:
    would = "" if report.applied else "would be "
    if not report.loadOk:
        out.print(text(f"A {report.engine} broker refuses to load this store; nothing is changed:", "bold"))
        for reason in report.refusals:
            out.print(text(f"  {reason}"))
        out.print(text("What to do:", "bold"))
        for number, way in enumerate(report.nextSteps, 1):
            out.print(text(f"  {number}. {way}"))
        return
    rows = [
        ("rules of", f"{report.engine}: {report.engineReason}"),
        ("last stop", "unclean (abort is there)" if report.abort else "clean"),
    ]
    if report.startFile:
        rows.append(("check begins in", f"{report.startFile}: {report.startReason}"))
    if report.stop:
        stop = report.stop
        rows.append(("log ends at", f"{stop.physicalOffset}: {stop.file} byte {stop.at}: {stop.ending}: {stop.reason}"))
    lost = sum(loss.messages for loss in report.lost)
    if report.bytesCut:
        rows.append((f"{would}cut", f"{size_text(report.bytesCut)}, in them {lost} intact messages"))
    added = sum(change.entriesAdded for change in report.queues)
    cut = sum(change.entriesCut for change in report.queues)
    if added or cut:
        rows.append(("queue entries", f"{added} {would}added, {cut} {would}cut, in {len(report.queues)} queues"))
    if report.indexFilesRemoved or report.indexEntriesAdded:
        rows.append(
            (
                "index",
                f"{report.indexFilesRemoved} files {would}removed, {report.indexEntriesAdded} entries {would}added",
            )
        )
    out.print(facts_table(rows))
    if report.lost:
        losses = table("topic", "queue", "messages cut off", right=("queue", "messages cut off"))
        for loss in report.lost:
            losses.add_row(text(loss.topic), str(loss.queueId), str(loss.messages))
        out.print()
        out.print(losses)
    for path in report.pending:
        out.print(text(f"warning: {path}", "yellow"))
    for warning in report.warnings:
        out.print(text(f"warning: {warning}", "yellow"))
    for words in report.notes:
        out.print(text(f"note: {words}"))
    out.print()
    if not report.actions:
        out.print("Nothing to do: a broker's next start changes nothing.")
        return
    out.print(text("Done:" if report.applied else "Plan:", "bold"))
    for action in report.actions:
        out.print(text(f"  {action}"))
    if report.backup:
        out.print(text(f"What was replaced is kept in {report.backup}"))
    store = shlex.quote(report.store)
    if report.applied:
        out.print(text("Next:", "bold"))
        out.print(text(f"  rmqtool check {store}{options}: looks whether all is in order; then start the broker"))
        out.print(text(f"  rmqtool undo {store}{options}: puts back what was replaced, as long as nothing was written"))
    for gone in report.destroys:
        out.print(text(f"LOSS: {gone.replace(' STORE ', f' {store} ')}", "bold red"))
