"""The command ``apply``: topics and groups of a live cluster as a file declares them."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change_brokers, need_target
from rmqtool.cli.framework.options import BrokersOption, TargetArgument
from rmqtool.cli.framework.planning import CHANGE, ChangeOptions


@command("apply", "rmqtool apply @lab cluster.yaml --dry-run")
def apply(
    store: TargetArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML file with topics and groups.")],
    prune: Annotated[
        bool, typer.Option("--prune", help="Also delete what the file owns (its section owns) but does not name.")
    ] = False,
    broker: BrokersOption = None,
    options: ChangeOptions = CHANGE,
) -> int:
    """Create and change topics and groups as declared in a file, after showing the plan.

    config TARGET --yaml writes such a file, also from a store. Topics, groups and settings that the file does not name
    stay as they are. --dry-run shows the differences, and undo reverts the changes. Exit codes as for topic create.
    """
    from rmqtool.admin.changes.declared import plan_declared, read_declared

    need_target(store)
    declared = read_declared(file)
    return change_brokers(
        store, broker, lambda questions, where: plan_declared(questions, where, declared, prune=prune), command="apply",
        options=options,
    )  # fmt: skip
