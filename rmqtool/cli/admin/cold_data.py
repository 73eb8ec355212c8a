"""The commands for limits on cold data that groups read from live brokers, of 5.x."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change_brokers, need_target
from rmqtool.cli.framework.options import BrokersOption, GroupOption, Output, OutputOption, TargetArgument
from rmqtool.cli.framework.planning import CHANGE, ChangeOptions

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")]


@command("cold-data list", "rmqtool cold-data list @prod")
def cold_data_list(store: TargetArgument, group: GroupOption = None, output: OutputOption = Output.text) -> int:
    """List groups with a limit of their own on cold data, and those that have read some.

    Brokers count only with coldDataFlowControlEnable. Exit code 1: a broker does not answer, or no group matches.
    """
    from rmqtool.cli.framework.choice import matches, no_match
    from rmqtool.cli.render.rows import Warnings, write_rows

    target, warn = need_target(store), Warnings()
    from rmqtool.admin.live.cold_data import ColdGroup, list_cold_groups

    rows = [row for row in list_cold_groups(target, warn) if matches(row.group, group)]
    write_rows(output.value, ColdGroup, rows)
    return no_match(len(rows), warn.tell(), group=group)


@command("cold-data set", "rmqtool cold-data set @prod billing 1M --dry-run")
def cold_data_set(
    store: TargetArgument,
    consumer_group: GroupName,
    limit: Annotated[str, typer.Argument(metavar="BYTES", help="Bytes in a period of the broker: 1048576, 500K, 3M.")],
    broker: BrokersOption = None,
    options: ChangeOptions = CHANGE,
) -> int:
    """Limit the cold data that a group may read from every broker, after showing the plan.

    Brokers keep the limit in memory only. Exit codes as for topic create.
    """
    from rmqtool.cli.framework.sizes import parse_size

    return _change(store, consumer_group, parse_size(limit, "BYTES", "a size such as 1M"), broker, options)


@command("cold-data remove", "rmqtool cold-data remove @prod billing --dry-run")
def cold_data_remove(
    store: TargetArgument,
    consumer_group: GroupName,
    broker: BrokersOption = None,
    options: ChangeOptions = CHANGE,
) -> int:
    """Remove a group's own limit on cold data, after showing the plan: the brokers' limit applies again.

    Exit codes as for topic create.
    """
    return _change(store, consumer_group, None, broker, options)


def _change(
    store: str, group: str, threshold: int | None, brokers: list[str] | None, options: ChangeOptions
) -> int:  # fmt: skip
    from rmqtool.admin.changes.plans import plan_cold_threshold

    return change_brokers(
        store, brokers, lambda questions, where: plan_cold_threshold(questions, where, group, threshold),
        command=f"cold-data {'remove' if threshold is None else 'set'}", options=options,
    )  # fmt: skip
