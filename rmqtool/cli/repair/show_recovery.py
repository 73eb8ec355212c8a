"""A recovery report for people and for scripts, of a plan or of a run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console

from rmqtool.cli.render.console import console, facts_table, say, say_step, table, text
from rmqtool.cli.render.output import Column, write_all, write_object, writer
from rmqtool.cli.render.parts import PARTS
from rmqtool.cli.render.text import size_text
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.words import command_line, counted, with_store

if TYPE_CHECKING:
    from rmqtool.services.comparison.group import GroupStart

_ENDS = {"unwritten": "nothing is written after it", "filler": "the next file goes on"}
_QUEUES = 20  # messages named one by one
QUEUE_FIELDS = ("topic", "queueId", "minOffset", "maxOffset", "entriesCut", "entriesAdded")


def question(plan: RecoveryReport) -> str:
    """The question before a plan is carried out, with the number of messages that it loses."""
    messages = sum(loss.messages for loss in plan.lost)
    if messages and not plan.destroys:  # a truncate, at a place that the user gave
        return f"Do this, and cut off {counted(messages, 'message')}? undo brings {_them(messages)} back."
    if plan.destroys and messages:
        saved = _them(messages) if plan.salvageKeeps == messages else f"{plan.salvageKeeps} of them"
        first = f"salvage, run before this, keeps {saved} in a new store. " if plan.salvageKeeps else ""
        return f"{first}Recover all the same, and cut off {counted(messages, 'intact message')}?"
    if plan.tierDangers:
        return "Do this? A broker's next start then does harm to the tier."
    if plan.destroys and plan.startFile is None:
        return "Do this, though the log is missing, and remove its queues?"
    return "Do this all the same?" if plan.destroys else "Do this?"


def _them(messages: int) -> str:
    return "it" if messages == 1 else "them"


def write_report(
    report: RecoveryReport,
    form: str,
    *,
    to_stderr: bool = False,
    conf: str | None = None,
    group: "GroupStart | None" = None,
) -> None:
    """Print a report; CSV has one row per queue.

    Args:
        conf: the broker's properties file, for the suggested commands.
        group: what the group of the store does when its brokers start together.
    """
    if form in ("json", "ndjson"):
        write_object(form, report.to_dict() | ({"group": group.to_dict()} if group is not None else {}))
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
        out = console(form, stderr=to_stderr)
        _show(report, out, ["--broker-conf", conf] if conf else [])
        if group is not None:
            _show_group(group, out)


def _show_group(group: "GroupStart", out: Console) -> None:
    leaders = " or ".join(group.leaders) or "none of them"
    say(out, f"Started together, the leader is {leaders}: {group.why}.", "bold")
    for row in group.following:
        lost = f", and loses {counted(row.messages, 'message')}" if row.messages else ""
        at = f" at {row.at}" if row.at is not None else ""
        say(out, f"{row.store} under {row.master}: {row.what}{at}{lost}: {row.why}", indent="  ")


def _show(report: RecoveryReport, out: Console, options: list[str]) -> None:
    would = "" if report.applied else "would be "
    if not report.loadOk:
        say(out, f"A {report.engine} broker refuses to load this store; nothing is changed:", "bold")
        for reason in report.refusals:
            say(out, reason, indent="  ")
        say(out, "What to do:", "bold")
        for number, way in enumerate(report.nextSteps, 1):
            say_step(out, f"  {number}. ", way)
        return
    rows = [
        ("rules of", f"{report.engine}: {report.engineReason}"),
        ("last stop", "unclean (abort is there)" if report.abort else "clean"),
    ]
    if report.startFile:
        rows.append(("check begins in", f"{report.startFile}: {report.startReason}"))
    if report.stop:
        stop = report.stop
        why = _ENDS.get(stop.ending, stop.reason)
        rows.append(("log ends at", f"{stop.physicalOffset} ({stop.file}, byte {stop.at}): {why}"))
    lost = sum(loss.messages for loss in report.lost)
    if report.bytesCut:
        rows.append((f"{would}cut", f"{size_text(report.bytesCut)}, in them {counted(lost, 'intact message')}"))
    added = sum(change.entriesAdded for change in report.queues)
    cut = sum(change.entriesCut for change in report.queues)
    if added or cut:
        queues = counted(len(report.queues), "queue")
        rows.append(("queue entries", f"{added} {would}added, {cut} {would}cut, in {queues}"))
    if report.indexFilesRemoved or report.indexEntriesAdded:
        files = counted(report.indexFilesRemoved, "file")
        entries = counted(report.indexEntriesAdded, "entry", "entries")
        rows.append(("index", f"{files} {would}removed, {entries} {would}added"))
    out.print(facts_table(rows))
    if report.lost:
        losses = table("topic", "queue", "messages cut off", right=("queue", "messages cut off"))
        for loss in report.lost:
            losses.add_row(text(loss.topic), str(loss.queueId), str(loss.messages))
        out.print()
        out.print(losses)
    for path in report.pending:
        say(out, f"warning: {path}", "yellow")
    for warning in report.warnings:
        say(out, f"warning: {warning}", "yellow")
    for line in _more(report):
        say(out, line)
    for line in report.notes:
        say(out, f"note: {with_store(line, report.store)}")
    out.print()
    if not report.actions:
        does = "changes nothing" if report.dledger is None else "leaves the log as it is"
        reason = f"a broker's next start {does}"
        if report.unfit:
            reason = "the warnings say what a broker with this configuration does"
        say(out, f"Nothing to do: {reason}.")
        return
    say(out, "Done:" if report.applied else "Plan:", "bold")
    for action in report.actions:
        say(out, action, indent="  ")
    if report.backup:
        say(out, f"What was replaced is kept in {report.backup}")
    if report.applied:
        say(out, "Next:", "bold")
        say_step(
            out, "  ", f"{command_line('check', report.store, *options)}: checks the result; then start the broker"
        )
        undo = "puts back what was replaced, as long as nothing else was written"
        say_step(out, "  ", f"{command_line('undo', report.store, *options)}: {undo}")
    for gone in report.destroys:
        say(out, f"LOSS: {with_store(gone, report.store)}", "bold red")


def _more(report: RecoveryReport) -> Iterator[str]:
    """The lines about what goes beyond a broker's start."""
    for why in report.unloaded:
        yield f"mended: {why}: a {report.engine} broker does not load this"
    for queue in report.mended[:_QUEUES]:
        messages, entries = queue.entriesPutIn, queue.entriesTakenOut
        where = f"topic {queue.topic!r} queue {queue.queueId}"
        if messages:
            yield (
                f"mended: {counted(messages, 'message')} that a {report.engine} broker would leave out of {where}, or "
                f"have at another place, {_are(messages)} put in"
            )
        if entries:
            yield f"mended: {counted(entries, 'entry', 'entries')} of {where} that lead to no message of it go"
        if queue.endsAt is not None:
            yield f"mended: {where} ends at queue offset {queue.endsAt} again: its messages are no longer in the log"
    if report.mended[_QUEUES:]:
        yield f"mended: and {counted(len(report.mended) - _QUEUES, 'more queue')}"
    if report.indexFilesMended:
        yield f"mended: {counted(report.indexFilesMended, 'index file')} that did not fit the log, or had not all keys"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
