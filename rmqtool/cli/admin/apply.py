"""The command ``apply``: topics and groups of a live cluster as a file declares them."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change, need_target, servers_of
from rmqtool.cli.framework.options import BackupOption, BrokersOption, Output, OutputOption, TargetArgument
from rmqtool.cli.framework.planning import ASK, Consent


@command("apply", "rmqtool apply @lab cluster.yaml --dry-run")
def apply(
    store: TargetArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML file with topics and groups.")],
    prune: Annotated[
        bool, typer.Option("--prune", help="Also delete what the file owns (its part owns) and does not name.")
    ] = False,
    broker: BrokersOption = None,
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Create and change topics and groups so that they are as a file declares them; the plan is shown first.

    config TARGET --yaml writes such a file, also from a store. What the file does not name stays as it is, and so does
    each setting of a topic or group. --dry-run shows what differs. undo puts back what was before. Exit codes as for
    topic create.
    """
    target = need_target(store)
    from rmqtool.admin.changes.declared import plan_declared, read_declared

    declared, where = read_declared(file), servers_of(target, broker)
    return change(
        target, lambda questions: plan_declared(questions, where, declared, prune=prune), command="apply",
        consent=consent, backup=backup, output=output.value,
    )  # fmt: skip
