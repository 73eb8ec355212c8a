"""The commands for lite topics of live brokers, of 5.5."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import list_rows, need_target
from rmqtool.cli.framework.choice import matches
from rmqtool.cli.framework.options import (
    BrokersOption,
    LimitOption,
    Output,
    OutputOption,
    TargetArgument,
    TopicOption,
    option,
)
from rmqtool.cli.framework.planning import ASK, Consent
from rmqtool.cli.render.text import note

if TYPE_CHECKING:
    from rmqtool.admin.live.lite import LiteDispatch

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group that reads lite topics.")]
ClientName = Annotated[str, typer.Argument(metavar="CLIENT", help="Client id.")]


@command("lite brokers", "rmqtool lite brokers @prod")
def lite_brokers(store: TargetArgument, output: OutputOption = Output.text) -> int:
    """Count the lite topics of each broker: light queues, subscriptions, and what is noted for clients.

    Exit code 1: a broker does not answer, or is older than 5.5.
    """
    from rmqtool.admin.live.lite import LiteBroker, list_lite_brokers

    spare = ("storeType", "cqTableSize", "offsetTableSize", "orderInfoCount")
    return list_rows(store, LiteBroker, list_lite_brokers, output, spare=spare)


@command("lite list", "rmqtool lite list @prod --topic Chats")
def lite_list(
    store: TargetArgument, topic: TopicOption = None, limit: LimitOption = None, output: OutputOption = Output.text
) -> int:
    """List the topics that have lite topics: how many, when these are removed, and which groups read them.

    A lite topic without new messages is removed after ttl minutes. Exit code 1: a broker does not answer or is older
    than 5.5, or no topic matches.
    """
    from rmqtool.admin.live.lite import LiteParent, list_lite_parents

    return list_rows(
        store, LiteParent, lambda target, warn: list_lite_parents(target, warn, lambda name: matches(name, topic)),
        output, limit=limit, wide=("groups",), spare=("lmqNum",), topic=topic,
    )  # fmt: skip


@command("lite show", "rmqtool lite show @prod Chats room-17")
def lite_show(
    store: TargetArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic whose lite topic it is.")],
    lite_topic: Annotated[str, typer.Argument(metavar="LITETOPIC", help="Name of the lite topic.")],
    output: OutputOption = Output.text,
) -> int:
    """Show one lite topic: offsets, time of the last message, and which clients subscribe to it.

    Exit code 1: a broker does not answer or is older than 5.5, or none has it.
    """
    from rmqtool.admin.live.lite import LiteTopicRow, describe_lite_topic
    from rmqtool.cli.render.rows import Warnings, write_rows

    target, warn = need_target(store), Warnings()
    rows = describe_lite_topic(target, warn, topic, lite_topic)
    spare = ("shardingToBroker", "topic", "subscriberCount")
    write_rows(output.value, LiteTopicRow, rows, wide=("subscribers",), spare=spare)
    if not rows:
        note(f"no broker that answers has messages or subscribers of lite topic {lite_topic} of {topic}")
    return warn.tell() or int(not rows)


@command("lite lag", "rmqtool lite lag @prod readers --limit 20")
def lite_lag(
    store: TargetArgument,
    consumer_group: GroupName,
    lite_topic: Annotated[
        str | None, option("--lite-topic", "NAME", "Only this one, with offsets, also without a lag.")
    ] = None,
    limit: LimitOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Show the lag of a group in lite topics, greatest first.

    Brokers list the lite topics in which a group has begun; at most 1000 of each broker, or --limit. Exit code 1: a
    broker does not answer or is older than 5.5, or none has such a group or lite topic.
    """
    from rmqtool.admin.live import lite
    from rmqtool.admin.live.lite import LiteLagRow, list_lite_lags

    offsets = ("brokerOffset", "consumerOffset") if lite_topic is not None else ()
    return list_rows(
        store, LiteLagRow,
        lambda target, warn: list_lite_lags(target, warn, note, consumer_group, lite_topic, limit or lite.TOP),
        output, limit=limit, names=("liteTopic", "brokerName", *offsets, "lag", "earliestUnconsumedTimestamp"),
        lite_topic=lite_topic,
    )  # fmt: skip


@command("lite client", "rmqtool lite client @prod readers 10.0.0.7@1234")
def lite_client(
    store: TargetArgument, consumer_group: GroupName, client: ClientName, output: OutputOption = Output.text
) -> int:
    """Show the lite topics to which a client subscribes.

    Exit code 1: a broker does not answer or is older than 5.5, or none knows the client.
    """
    from rmqtool.admin.live.lite import LiteClientRow, describe_lite_client
    from rmqtool.cli.render.rows import Warnings, write_rows

    target, warn = need_target(store), Warnings()
    rows = describe_lite_client(target, warn, note, consumer_group, client)
    write_rows(output.value, LiteClientRow, rows, wide=("liteTopics",), spare=("group", "lastConsumeTimestamp"))
    if not rows:
        note(f"no broker that answers knows client {client} of group {consumer_group}")
    return warn.tell() or int(not rows)


@command("lite dispatch", "rmqtool lite dispatch @prod readers --dry-run")
def lite_dispatch(
    store: TargetArgument,
    consumer_group: GroupName,
    client: Annotated[str | None, option("--client", "ID", "Only for this client.")] = None,
    broker: BrokersOption = None,
    consent: Consent = ASK,
    output: OutputOption = Output.text,
) -> int:
    """Have brokers tell the clients of a group again which lite topics have messages left.

    For clients that wait although there are messages. It changes no offset and no setting, and there is nothing to
    undo. Exit code 1: a dry run, a broker did not do it, or none has such a group.
    """
    from rmqtool.admin.live.lite import DISPATCHED, LiteDispatch, dispatch, plan_dispatch
    from rmqtool.cli.framework.planning import carry_out
    from rmqtool.cli.render.rows import Warnings, write_rows

    consent.need("lite dispatch")
    target, warn = need_target(store), Warnings()

    def make_plan(shown: "Sequence[LiteDispatch] | None" = None) -> "Sequence[LiteDispatch]":
        return shown or plan_dispatch(target, warn, consumer_group, client, broker or ())

    def show(plan: "Sequence[LiteDispatch]") -> None:
        for row in plan:
            note(f"  {row.brokerName}: {row.lag} left of {row.topic} for {client or 'all clients'}")

    plan, done = carry_out(
        consent, plan=make_plan, show=show, question=lambda _plan: "Have them handed out again?", do=make_plan,
        settled=lambda plan: not plan,
    )  # fmt: skip
    rows = dispatch(target, warn, plan) if done and plan else plan
    write_rows(output.value, LiteDispatch, rows)
    if not rows:
        note(f"no broker that answers has a group {consumer_group} that reads lite topics")
    return warn.tell() or int(not rows or any(row.state != DISPATCHED for row in rows))
