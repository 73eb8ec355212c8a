"""undo."""

import sys
from typing import Annotated

import typer

from rmqtool.cli.app import command
from rmqtool.cli.options import BackupOption, BrokerConfOption, DryRunOption, Output, OutputOption, StoreDir, YesOption
from rmqtool.cli.run_query import open_store


@command("undo", "rmqtool undo store --dry-run")
def undo(
    store: StoreDir,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also where files have changed since, for example by a broker.")
    ] = False,
    backup: BackupOption = None,
    output: OutputOption = Output.table,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Put back what the last writing command replaced.

    Exit code 0: done; 1: there is nothing to undo, or a dry run found that files have changed since.
    """
    from rmqtool.cli.output import Column, confirm, note, write_all, write_object, writer
    from rmqtool.errors import Refused
    from rmqtool.store.transaction import undo as engine

    root = open_store(store, broker_conf).root
    asking = not yes and not dry_run
    if asking and not sys.stdin.isatty():
        raise Refused("undo writes: give --yes to do it, or --dry-run to look only")
    report = engine.plan_undo(root, backup)
    if report.backup is not None and not dry_run:
        if asking:
            for action in report.actions:
                note(f"  {action}")
            if not confirm("Do this?"):
                raise Refused("not confirmed: nothing was changed")
        report = engine.undo(root, backup, force=force)
    if output in (Output.json, Output.ndjson):
        write_object(output.value, report.to_dict())
    else:
        rows = ({"action": action} for action in report.actions)
        write_all(writer(output.value, ("action",), [Column("action")]), rows)
    for path in report.conflicts:
        note(f"{path}: has changed since")
    if report.backup is None:
        note("nothing to undo")
        return 1
    note(f"{'undone' if report.applied else 'would undo'}: {report.backup}")
    return 1 if report.conflicts and not report.applied else 0
