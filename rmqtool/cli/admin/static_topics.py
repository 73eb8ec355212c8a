"""The commands for static topics (5.x), whose queues move between brokers."""

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change_brokers
from rmqtool.cli.framework.opening import live_target, open_to_read
from rmqtool.cli.framework.options import (
    LISTING,
    BrokerConfOption,
    Listing,
    Output,
    OutputOption,
    StoreOrTarget,
    TargetArgument,
    TopicOption,
)
from rmqtool.cli.framework.planning import CHANGE_BROKERS, BrokerChange
from rmqtool.cli.render.text import note

if TYPE_CHECKING:
    from formats.config.files_of_5 import TopicQueueMapping
    from rmqtool.cli.render.rows import Warnings

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]


@command("static-topic list", "rmqtool static-topic list store")
def static_topic_list(store: StoreOrTarget, topic: TopicOption = None, listing: Listing = LISTING) -> int:
    """List static topics: how many queues, and which brokers lead them.

    A store directory knows its own broker's part only. Exit code 1: no topic matches.
    """
    from rmqtool.cli.framework.choice import RowChoice
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.services.lookup.static_topics import StaticTopic, list_static_topics

    warn = Warnings()
    choice = RowChoice({"topic": topic})
    rows = choice(list_static_topics(_mappings(store, listing.broker_conf, warn)), listing.limit)
    write_rows(listing.output.value, StaticTopic, rows)
    return choice.ends(warn.tell())


@command("static-topic show", "rmqtool static-topic show store Ledger")
def static_topic_show(
    store: StoreOrTarget, topic: TopicName, output: OutputOption = Output.text, broker_conf: BrokerConfOption = None
) -> int:
    """Show the ranges of each queue of a static topic: their brokers, queues there, and offsets.

    A store directory knows its own broker's part only. Exit code 1: it is no static topic.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.services.lookup.static_topics import StaticRange, list_static_ranges

    warn = Warnings()
    rows = list_static_ranges(_mappings(store, broker_conf, warn), topic)
    write_rows(output.value, StaticRange, rows)
    code = warn.tell()
    if not rows:
        note(f"{topic} is no static topic {'of the brokers that answer' if code else 'here'}")
    return code or (0 if rows else 1)


@command("static-topic create", "rmqtool static-topic create @lab Ledger --queues 8 --dry-run")
def static_topic_create(
    store: TargetArgument,
    topic: TopicName,
    queues: Annotated[
        int,
        typer.Option("--queues", min=1, max=65536, metavar="N", help="Queues of the topic, on all brokers together."),
    ],
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Create a static topic, or add queues to one, after showing the plan.

    Its number of queues stays when brokers come and go. undo deletes a new topic; added queues stay. Exit codes as for
    topic create.
    """
    from rmqtool.admin.changes.journal import find_journals
    from rmqtool.admin.changes.static_topic_plans import plan_static_creation

    return change_brokers(
        store, lambda questions, where: plan_static_creation(
            questions, where, topic, queues, begun=find_journals(options.backup, where.target)
        ),
        command="static-topic create", options=options,
    )  # fmt: skip


@command("static-topic remap", "rmqtool static-topic remap @lab Ledger --broker lab-b --dry-run")
def static_topic_remap(store: TargetArgument, topic: TopicName, options: BrokerChange = CHANGE_BROKERS) -> int:
    """Move queues of a static topic, so that the named brokers, or all, lead as many each, after showing the plan.

    Messages stay where they are; consumers get them through the new brokers. An interrupted move is finished by the
    same command. It is not undone, but can be moved once more. Exit codes as for topic create.
    """
    from rmqtool.admin.changes.static_topic_plans import plan_static_remap

    return change_brokers(
        store, lambda questions, where: plan_static_remap(questions, where, topic),
        command="static-topic remap", options=options,
    )  # fmt: skip


def _mappings(store: str, broker_conf: str | None, warn: "Warnings") -> "list[TopicQueueMapping]":
    if (target := live_target(store)) is not None:
        from rmqtool.admin.live.static_topics import fetch_mappings

        return fetch_mappings(target, warn)
    from rmqtool.services.lookup.static_topics import stored_mappings

    return stored_mappings(open_to_read(store, broker_conf), warn)
