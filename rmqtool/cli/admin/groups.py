"""The commands that create, change and delete groups of a live cluster."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change, need_target, servers_of
from rmqtool.cli.framework.options import (
    BackupOption,
    BrokersOption,
    Output,
    OutputOption,
    TargetArgument,
)
from rmqtool.cli.framework.planning import ASK, Consent
from rmqtool.errors import BadValue

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")]
EnableOption = Annotated[
    bool | None, typer.Option("--consume/--no-consume", help="Whether its consumers get messages.")
]
BroadcastEnableOption = Annotated[
    bool | None, typer.Option("--broadcasting/--no-broadcasting", help="Whether they may read as broadcasting ones.")
]
OrderlyOption = Annotated[
    bool | None, typer.Option("--ordered/--no-ordered", help="Whether they get messages in order, of 5.x.")
]
RetriesOption = Annotated[
    int | None,
    typer.Option("--max-retries", min=-1, max=2**31 - 1, metavar="N", help="Retries before the dead letters."),
]
RetryQueuesOption = Annotated[
    int | None, typer.Option("--retry-queues", min=0, max=65536, metavar="N", help="Queues of its retry topic.")
]


@command("group create", "rmqtool group create @lab billing --max-retries 5 --dry-run")
def group_create(
    store: TargetArgument,
    consumer_group: GroupName,
    consume: EnableOption = None,
    broadcasting: BroadcastEnableOption = None,
    orderly: OrderlyOption = None,
    max_retries: RetriesOption = None,
    retry_queues: RetryQueuesOption = None,
    broker: BrokersOption = None,
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Create a group on every broker of a cluster, after showing the plan.

    Settings that are not given are those of a group that the broker creates itself. undo deletes the group. Exit codes
    as for topic create.
    """
    settings = _settings(consume, broadcasting, orderly, max_retries, retry_queues)
    return _change(store, consumer_group, settings, broker, consent, backup, output, create=True)


@command("group update", "rmqtool group update @lab lab-consumer --no-consume --dry-run")
def group_update(
    store: TargetArgument,
    consumer_group: GroupName,
    consume: EnableOption = None,
    broadcasting: BroadcastEnableOption = None,
    orderly: OrderlyOption = None,
    max_retries: RetriesOption = None,
    retry_queues: RetryQueuesOption = None,
    broker: BrokersOption = None,
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Change a group on every broker that has it, after showing the plan.

    Settings that are not given stay as they are. Exit codes as for topic create.
    """
    settings = _settings(consume, broadcasting, orderly, max_retries, retry_queues)
    if not settings:
        raise BadValue("give what is to change: --consume, --broadcasting, --ordered, --max-retries or --retry-queues")
    return _change(store, consumer_group, settings, broker, consent, backup, output, create=False)


@command("group delete", "rmqtool group delete @lab lab-orderly --dry-run")
def group_delete(
    store: TargetArgument,
    consumer_group: GroupName,
    broker: BrokersOption = None,
    consent: Consent = ASK,
    backup: BackupOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Delete a group and its offsets, after showing the plan; the group must be offline.

    Its retry topic and dead letters stay: topic delete removes them. undo restores settings and offsets. Exit codes as
    for topic create.
    """
    target = need_target(store)
    from rmqtool.admin.changes.plans import plan_group_deletion

    where = servers_of(target, broker)
    return change(
        target, lambda questions: plan_group_deletion(questions, where, consumer_group), command="group delete",
        consent=consent, backup=backup, output=output.value,
    )  # fmt: skip


def _settings(
    consume: bool | None, broadcasting: bool | None, orderly: bool | None, retries: int | None, queues: int | None
) -> dict[str, object]:
    """What is set, by the names of subscriptionGroup.json."""
    values = {
        "consumeEnable": consume,
        "consumeBroadcastEnable": broadcasting,
        "consumeMessageOrderly": orderly,
        "retryMaxTimes": retries,
        "retryQueueNums": queues,
    }
    return {name: value for name, value in values.items() if value is not None}


def _change(
    store: str,
    group: str,
    settings: dict[str, object],
    brokers: list[str] | None,
    consent: Consent,
    backup: str | None,
    output: Output,
    *,
    create: bool,
) -> int:
    target = need_target(store)
    from rmqtool.admin.changes.plans import plan_group

    where = servers_of(target, brokers)
    return change(
        target, lambda questions: plan_group(questions, where, group, settings, create=create),
        command=f"group {'create' if create else 'update'}", consent=consent, backup=backup, output=output.value,
    )  # fmt: skip
