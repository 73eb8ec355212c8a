"""The command ``cluster clean``: have live brokers remove what has expired."""

from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change_brokers
from rmqtool.cli.framework.options import TargetArgument
from rmqtool.cli.framework.planning import CHANGE_BROKERS, BrokerChange


class Expired(StrEnum):
    """What brokers remove."""

    log = "log"
    queues = "queues"
    unused = "unused"


@command("cluster clean", "rmqtool cluster clean @prod log --dry-run")
def cluster_clean(
    store: TargetArgument,
    part: Annotated[
        Expired,
        typer.Argument(
            metavar="PART",
            help="log: expired commit-log files; queues: queues whose messages are no longer in the log; unused: "
            "queues of topics without settings.",
        ),
    ],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Also messages that a group has not consumed, or of unused queues.")
    ] = False,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Have brokers remove what has expired now rather than at night, after showing what that is.

    Brokers answer only that they have begun, so the plan is made from the times of their messages, and the result is
    read back. undo cannot bring anything back. Exit code 0: nothing to remove, or done; 1: a dry run found something,
    or a broker kept it; 4: messages would be lost that somebody may want, and --accept-loss was not given.
    """
    from rmqtool.admin.changes.cleaning_plans import COMMAND, plan_cleaning

    return change_brokers(
        store, lambda questions, where: plan_cleaning(questions, where, part.value, accept_loss=accept_loss),
        command=COMMAND, options=options,
    )  # fmt: skip
