"""recover."""

import sys
from typing import Annotated

import typer

from rmqtool.cli.app import command
from rmqtool.cli.options import BackupOption, BrokerConfOption, DryRunOption, Output, OutputOption, StoreDir, YesOption
from rmqtool.cli.run_query import need_log


@command("recover", "rmqtool recover store --dry-run")
def recover(
    store: StoreDir,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    backup: BackupOption = None,
    fix_delay_times: Annotated[
        bool,
        typer.Option("--fix-delay-times", help="Keep the deliver time of delayed messages, where 4.9 would lose it."),
    ] = False,
    output: OutputOption = Output.table,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Bring a store in order as a broker would at its next start, keeping what is cut.

    The plan is shown first. Every byte and file that goes is kept in STORE.rmqtool beside the store. A killed run is
    finished by the next one. Exit code 0: nothing to do, or done; 1: a dry run found work, or the broker would refuse
    to load the store.
    """
    from rmqtool.cli.output import confirm, note
    from rmqtool.cli.show_recovery import write_report
    from rmqtool.errors import Refused
    from rmqtool.store import recover as engine
    from rmqtool.store.lock import holder

    layout = need_log(store, broker_conf).layout
    pid = holder(layout.root)
    if pid is not None:
        who = f"process {pid or '(unknown)'} holds the lock"
        if not dry_run:
            raise Refused(f"{layout.root}: {who}: stop the broker first")
        note(f"warning: {who}: the store changes while it is read, so this plan may be wrong")
    asking = not yes and not dry_run
    if asking and not sys.stdin.isatty():
        raise Refused("recover writes: give --yes to do it, or --dry-run to look only")
    if dry_run or asking:
        plan = engine.plan(layout, fix_delay_times=fix_delay_times, backup=backup)
        if dry_run or plan.clean or not plan.loadOk:
            write_report(plan, output.value)
            return 0 if plan.clean else 1
        write_report(plan, "table", to_stderr=True)
        if not confirm("Do this?"):
            raise Refused("not confirmed: nothing was changed")
    report = engine.recover(layout, fix_delay_times=fix_delay_times, backup=backup)
    write_report(report, output.value)
    return 0 if report.loadOk else 1
