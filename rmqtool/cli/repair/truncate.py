"""The commands ``truncate`` and ``dispatch``: cut the log, or bring queues and index up to it."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log
from rmqtool.cli.framework.options import (
    RECOVERY_TABLES,
    BackupOption,
    BrokerConfOption,
    DryRunOption,
    Output,
    OutputOption,
    StoreDir,
)
from rmqtool.cli.framework.planning import ASK, Consent


@command("truncate", "rmqtool truncate store 159407 --dry-run", progress=True, tables=RECOVERY_TABLES)
def truncate(
    store: StoreDir,
    physical_offset: Annotated[
        int, typer.Argument(metavar="OFFSET", min=0, help="Physical offset of the first message to remove.")
    ],
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Cut the log at a message: remove it and everything after it, from queues and index, too.

    The plan is shown first, with the messages that would be lost. What is removed is kept in STORE.rmqtool, and undo
    restores it. The store must have been stopped cleanly. Consumer offsets stay as they are; check reports those that
    are now beyond their queue, and rebuild config clamps them.
    """
    from rmqtool.cli.framework.planning import carry_out
    from rmqtool.cli.repair.show_recovery import question, write_report
    from rmqtool.store.recovery.command import truncate as run

    layout = need_log(store, broker_conf, say=False).layout
    consent.need("truncate")
    report, done = carry_out(
        consent,
        plan=lambda: run(layout, physical_offset, dry_run=True, backup=backup),
        settled=lambda plan: plan.clean or not plan.loadOk,
        show=lambda plan: write_report(plan, "text", to_stderr=True, conf=broker_conf),
        question=question,
        do=lambda _plan: run(layout, physical_offset, backup=backup),
    )
    write_report(report, output.value, conf=broker_conf)
    return 0 if (report.loadOk if done else report.clean) else 1


@command("dispatch", "rmqtool dispatch store --dry-run", progress=True, tables=RECOVERY_TABLES)
def dispatch(
    store: StoreDir,
    dry_run: DryRunOption = False,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Put messages that are in no queue yet into consume queues and index; nothing is cut.

    This is what a broker does at its start after recovery, from the last message in any queue on: a queue that ends
    before the others is repaired by rebuild consumequeue. A store in which a broker would cut something is refused.
    Exit code 0: nothing to do, or done; 1: a dry run found work.
    """
    from rmqtool.cli.repair.show_recovery import write_report
    from rmqtool.store.recovery.command import dispatch as run

    report = run(need_log(store, broker_conf, say=False).layout, dry_run=dry_run, backup=backup)
    write_report(report, output.value, conf=broker_conf)
    return 1 if dry_run and not report.clean else 0
