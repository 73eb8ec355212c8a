"""The commands for limits on cold data that groups read from live brokers, of 5.x."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change_brokers, list_rows
from rmqtool.cli.framework.choice import matches
from rmqtool.cli.framework.options import GroupOption, Output, OutputOption, TargetArgument
from rmqtool.cli.framework.planning import CHANGE_BROKERS, BrokerChange

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")]


@command("cold-data list", "rmqtool cold-data list @prod")
def cold_data_list(store: TargetArgument, group: GroupOption = None, output: OutputOption = Output.text) -> int:
    """List groups with a limit of their own on cold data, and those that have read some.

    Brokers count only with coldDataFlowControlEnable. Exit code 1: a broker does not answer, or no group matches.
    """
    from rmqtool.admin.live.cold_data import ColdGroup, list_cold_groups

    return list_rows(
        store, ColdGroup,
        lambda target, warn: (row for row in list_cold_groups(target, warn) if matches(row.group, group)),
        output, group=group,
    )  # fmt: skip


@command("cold-data set", "rmqtool cold-data set @prod billing 1M --dry-run")
def cold_data_set(
    store: TargetArgument,
    consumer_group: GroupName,
    limit: Annotated[str, typer.Argument(metavar="BYTES", help="Bytes in a period of the broker: 1048576, 500K, 3M.")],
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Limit the cold data that a group may read from every broker, after showing the plan.

    Brokers keep the limit in memory only. Exit codes as for topic create.
    """
    from rmqtool.cli.framework.sizes import parse_size

    return _change(store, consumer_group, parse_size(limit, "BYTES", "a size such as 1M"), options)


@command("cold-data remove", "rmqtool cold-data remove @prod billing --dry-run")
def cold_data_remove(store: TargetArgument, consumer_group: GroupName, options: BrokerChange = CHANGE_BROKERS) -> int:
    """Remove a group's own limit on cold data, after showing the plan: the brokers' limit applies again.

    Exit codes as for topic create.
    """
    return _change(store, consumer_group, None, options)


def _change(store: str, group: str, threshold: int | None, options: BrokerChange) -> int:
    from rmqtool.admin.changes.plans import plan_cold_threshold

    return change_brokers(
        store, lambda questions, where: plan_cold_threshold(questions, where, group, threshold),
        command=f"cold-data {'remove' if threshold is None else 'set'}", options=options,
    )  # fmt: skip
