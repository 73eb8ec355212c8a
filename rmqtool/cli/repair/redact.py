"""The command ``redact``: overwrite bodies of messages."""

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log
from rmqtool.cli.framework.options import (
    ANY_MESSAGE,
    BackupOption,
    BrokerConfOption,
    MessageOptions,
    Output,
    OutputOption,
    StoreDir,
    option,
)
from rmqtool.cli.framework.planning import ASK, Consent

if TYPE_CHECKING:
    from rmqtool.services.redaction.redact import RedactionReport


@command(
    "redact",
    "rmqtool redact store --id FD0000000000000000000000000000020FB630946E09664346080028 --dry-run",
    progress=True,
    tables=("messages", "report"),
)
def redact(
    store: StoreDir,
    id: Annotated[list[str] | None, option("--id", "ID", "Unique or offset id; may be repeated.")] = None,
    messages: MessageOptions = ANY_MESSAGE,
    also: Annotated[
        list[str] | None, option("--also", "NAME", "Overwrite the value of this property too; may be repeated.")
    ] = None,
    keep_backup: Annotated[
        bool, typer.Option("--keep-backup", help="Keep the files that are replaced, so that undo brings them back.")
    ] = False,
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Overwrite bodies, and chosen properties, of messages of a stopped store, and compute their checksums again.

    Select them by --id, --key, --where or other options. Lengths, tags and keys stay, so queues and index remain valid.
    All copies of a message are overwritten: retries and dead letters, and those in compaction logs and in the tier; a
    copy that cannot be is refused by name. Other replicas keep theirs. There is no undo without --keep-backup. With a
    directory of backups for STORE, messages are overwritten in all of them, and their manifests brought up to date.
    Exit code 0: done; 1: a dry run has messages to overwrite, or nothing matches.
    """
    from rmqtool.cli.framework.planning import carry_out
    from rmqtool.cli.read.run_files import say_unmet, selection
    from rmqtool.cli.render.text import note
    from rmqtool.errors import BadValue
    from rmqtool.services.redaction.redact import RedactionReport
    from rmqtool.services.redaction.redact import redact as run
    from rmqtool.store.layout.backup_signs import is_home
    from rmqtool.words import counted

    if not id and messages == ANY_MESSAGE:
        raise BadValue("say which messages: --id, --key, --where or another selection")
    chosen = selection(messages)
    if in_backups := is_home(store):
        if keep_backup or backup:
            raise BadValue("--keep-backup and --backup: nothing is kept of what is overwritten in backups")
        from rmqtool.services.redaction.backups import redact_backups
        from rmqtool.store.layout.broker_conf import load

        conf = load(broker_conf) if broker_conf else None
    else:
        layout = need_log(store, broker_conf, say=False).layout

    def overwritten(shown: RedactionReport | None, *, dry_run: bool) -> RedactionReport:
        if in_backups:
            return redact_backups(
                store, chosen, ids=id or (), properties=also or (), conf=conf, dry_run=dry_run, shown=shown
            )
        return run(
            layout, chosen, id or (), properties=also or (), keep_backup=keep_backup, dry_run=dry_run,
            backup=backup, shown=shown,
        )  # fmt: skip

    def question(report: RedactionReport) -> str:
        back = "undo brings them back" if keep_backup else "for good: undo cannot bring them back"
        return f"Overwrite {counted(len(report.messages), 'message')} ({back})?"

    consent.need("redact")
    report, done = carry_out(
        consent,
        plan=lambda: overwritten(None, dry_run=True),
        settled=lambda report: False,
        show=lambda report: _show(report, "text", to_stderr=True),
        question=lambda report: question(report) if report.messages else None,
        do=lambda shown: overwritten(shown, dry_run=False),
    )
    _show(report, output.value)
    if not report.messages:
        note("nothing to overwrite: no message matches, or all are overwritten already")
        say_unmet(chosen)
        return 1
    if report.backup:
        note(f"kept in {report.backup}: undo brings it back; delete it when that is no longer wanted")
    return 0 if done else 1


def _show(report: "RedactionReport", form: str, *, to_stderr: bool = False) -> None:
    """Write a row for each message, and warnings."""
    import sys

    from rmqtool.cli.render.output import write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.rows import columns_of, names_of
    from rmqtool.cli.render.text import note
    from rmqtool.services.redaction.redact import Redacted
    from rmqtool.words import counted

    if form in ("json", "ndjson"):
        write_object(form, report.to_dict())
    elif not PARTS.write(report, form):
        out = sys.stderr if to_stderr else sys.stdout
        columns = columns_of(Redacted, wide=("properties",), spare=("file",))
        write_all(writer(form, names_of(Redacted), columns, out), report.to_dict()["messages"])
    if form in ("text", "table"):
        for warning in report.warnings:
            note(f"warning: {warning}")
        verb = "overwritten" if report.applied else "would be overwritten"
        for rest in report.cleared:
            what = "cleared" if report.applied else "would be cleared"
            note(f"{rest.file} from byte {rest.at}: {counted(rest.bytes, 'byte')} of remains of old messages {what}")
        note(f"{counted(len(report.messages), 'message')} in {counted(len(report.files), 'file')} {verb}")
