"""The commands that change topics of a live cluster."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from formats.topics import Perm
from rmqtool.cli.admin.attributes import AttributeOption, attributes_of
from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change_brokers
from rmqtool.cli.framework.options import TargetArgument, option
from rmqtool.cli.framework.planning import CHANGE_BROKERS, BrokerChange
from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from rmqtool.admin.changes.plans import Edit

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
QueuesOption = Annotated[
    int | None,
    typer.Option("--queues", min=1, max=65536, metavar="N", help="Queues on each broker, to read and write."),
]
ReadOption = Annotated[
    int | None, typer.Option("--read-queues", min=0, max=65536, metavar="N", help="Queues that consumers read.")
]
WriteOption = Annotated[
    int | None, typer.Option("--write-queues", min=0, max=65536, metavar="N", help="Queues that producers send to.")
]
PermOption = Annotated[str | None, option("--perm", "PERM", "What may be done: R, W, RW, or - for nothing.")]
_PERMS = {"RW": Perm.READ | Perm.WRITE, "R": Perm.READ, "W": Perm.WRITE, "-": 0}


@dataclass(frozen=True)
class TopicOptions:
    """The options for settings of a topic."""

    queues: QueuesOption = None
    read_queues: ReadOption = None
    write_queues: WriteOption = None
    perm: PermOption = None
    attribute: AttributeOption = None


NOTHING_SET = TopicOptions()


@command("topic create", "rmqtool topic create @lab NewOrders --queues 4 --dry-run")
def topic_create(
    store: TargetArgument,
    topic: TopicName,
    settings: TopicOptions = NOTHING_SET,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Create a topic on every broker of a cluster, after showing the plan.

    By default it has 8 queues on each broker, readable and writable. undo deletes the topic. Exit code 0: nothing to
    change, or done; 1: a dry run found something to change, or reading back showed that not everything was applied.
    """
    return _change(store, topic, _edit(settings), "topic create", options, create=True)


@command("topic update", "rmqtool topic update @lab Orders --queues 8 --dry-run")
def topic_update(
    store: TargetArgument,
    topic: TopicName,
    settings: TopicOptions = NOTHING_SET,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Change a topic on every broker that has it, after showing the plan.

    Settings that are not given stay as they are. The plan counts the messages in queues that would no longer be read.
    Exit codes as for topic create.
    """
    edit = _edit(settings)
    if replace(settings, attribute=settings.attribute or None) == NOTHING_SET:
        raise BadValue("give what is to change: --queues, --read-queues, --write-queues, --perm or --attribute")
    return _change(store, topic, edit, "topic update", options)


@command("topic perm", "rmqtool topic perm @lab Orders R --dry-run")
def topic_perm(
    store: TargetArgument,
    topic: TopicName,
    perm: Annotated[str, typer.Argument(metavar="PERM", help="R, W, RW, or - for none.")],
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Change the permission of a topic on every broker that has it, after showing the plan.

    Exit codes as for topic create.
    """
    return _change(store, topic, _edit(TopicOptions(perm=perm)), "topic perm", options)


@command("topic delete", "rmqtool topic delete @lab Orders --dry-run")
def topic_delete(store: TargetArgument, topic: TopicName, options: BrokerChange = CHANGE_BROKERS) -> int:
    """Delete a topic on brokers, and on name servers if no other broker has it, after showing the plan.

    Its messages can no longer be read. undo creates the topic again with its settings, but without messages. Exit codes
    as for topic create.
    """
    from rmqtool.admin.changes.plans import plan_topic_deletion

    return change_brokers(
        store, lambda questions, where: plan_topic_deletion(questions, where, topic),
        command="topic delete", options=options,
    )  # fmt: skip


def _change(
    store: str,
    topic: str,
    edit: "Edit",
    name: str,
    options: BrokerChange,
    *,
    create: bool = False,
) -> int:
    from rmqtool.admin.changes.plans import plan_topic

    return change_brokers(
        store, lambda questions, where: plan_topic(questions, where, topic, edit, create=create,
        command=name),
        command=name, options=options,
    )  # fmt: skip


def _edit(settings: TopicOptions) -> "Edit":
    from rmqtool.admin.changes.plans import topic_edit

    queues, read, write, perm = settings.queues, settings.read_queues, settings.write_queues, settings.perm
    if queues is not None and (read is not None or write is not None):
        raise BadValue("--queues cannot be given with --read-queues or --write-queues")
    if perm is not None and perm.upper() not in _PERMS:
        raise BadValue(f"{perm}: give R, W, RW, or - for nothing")
    return topic_edit(
        read=queues if read is None else read, write=queues if write is None else write,
        perm=None if perm is None else _PERMS[perm.upper()], attributes=attributes_of(settings.attribute),
    )  # fmt: skip
