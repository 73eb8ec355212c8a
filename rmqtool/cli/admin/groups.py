"""The commands that create, change and delete groups of a live cluster."""

from dataclasses import dataclass
from typing import Annotated

import typer

from rmqtool.cli.admin.attributes import AttributeOption, attributes_of
from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change_brokers
from rmqtool.cli.framework.options import TargetArgument
from rmqtool.cli.framework.planning import CHANGE_BROKERS, BrokerChange
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


@dataclass(frozen=True)
class GroupOptions:
    """The options for settings of a group."""

    consume: EnableOption = None
    broadcasting: BroadcastEnableOption = None
    orderly: OrderlyOption = None
    max_retries: RetriesOption = None
    retry_queues: RetryQueuesOption = None
    attribute: AttributeOption = None

    @property
    def named(self) -> dict[str, object]:
        """What is set, by the names of subscriptionGroup.json."""
        values = {
            "consumeEnable": self.consume,
            "consumeBroadcastEnable": self.broadcasting,
            "consumeMessageOrderly": self.orderly,
            "retryMaxTimes": self.max_retries,
            "retryQueueNums": self.retry_queues,
        }
        return {name: value for name, value in values.items() if value is not None}


NOTHING_SET = GroupOptions()


@command("group create", "rmqtool group create @lab billing --max-retries 5 --dry-run")
def group_create(
    store: TargetArgument,
    consumer_group: GroupName,
    settings: GroupOptions = NOTHING_SET,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Create a group on every broker of a cluster, after showing the plan.

    Settings that are not given are those of a group that the broker creates itself. undo deletes the group. Exit codes
    as for topic create.
    """
    return _change(store, consumer_group, settings, options, create=True)


@command("group update", "rmqtool group update @lab lab-consumer --no-consume --dry-run")
def group_update(
    store: TargetArgument,
    consumer_group: GroupName,
    settings: GroupOptions = NOTHING_SET,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Change a group on every broker that has it, after showing the plan.

    Settings that are not given stay as they are. Exit codes as for topic create.
    """
    if not settings.named and not settings.attribute:
        raise BadValue(
            "give what is to change: --consume, --broadcasting, --ordered, --max-retries, --retry-queues or --attribute"
        )
    return _change(store, consumer_group, settings, options, create=False)


@command("group delete", "rmqtool group delete @lab lab-orderly --dry-run")
def group_delete(store: TargetArgument, consumer_group: GroupName, options: BrokerChange = CHANGE_BROKERS) -> int:
    """Delete a group and its offsets, after showing the plan; the group must be offline.

    Its retry topic and dead letters stay: topic delete removes them. undo restores settings and offsets. Exit codes as
    for topic create.
    """
    from rmqtool.admin.changes.plans import plan_group_deletion

    return change_brokers(
        store, lambda questions, where: plan_group_deletion(questions, where, consumer_group),
        command="group delete", options=options,
    )  # fmt: skip


@command("group mode", "rmqtool group mode @lab lab-consumer Orders POP --dry-run")
def group_mode(
    store: TargetArgument,
    consumer_group: GroupName,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    mode: Annotated[str, typer.Argument(metavar="MODE", help="PULL or POP.")],
    share: Annotated[
        int,
        typer.Option("--share", min=0, max=65536, metavar="N", help="POP: clients that share queues; 0: all."),
    ] = 0,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Have a group pull a topic or pop it, on every broker that has the topic (5.x), after showing the plan.

    Only clients that let brokers assign their queues follow it. Exit codes as for topic create.
    """
    if mode.upper() not in ("PULL", "POP"):
        raise BadValue(f"{mode}: give PULL or POP")
    if share and mode.upper() == "PULL":
        raise BadValue("--share: goes with POP")
    from rmqtool.admin.changes.plans import plan_mode

    return change_brokers(
        store, lambda questions, where: plan_mode(questions, where, consumer_group, topic, mode.upper(), share),
        command="group mode", options=options,
    )  # fmt: skip


def _change(
    store: str,
    group: str,
    settings: GroupOptions,
    options: BrokerChange,
    *,
    create: bool,
) -> int:
    from rmqtool.admin.changes.plans import plan_group, settings_edit

    edit = settings_edit(settings.named, attributes_of(settings.attribute))
    return change_brokers(
        store, lambda questions, where: plan_group(questions, where, group, edit, create=create),
        command=f"group {'create' if create else 'update'}", options=options,
    )  # fmt: skip
