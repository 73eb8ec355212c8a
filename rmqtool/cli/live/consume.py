"""The command ``consume``: messages of a live cluster."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import (
    AclOption,
    Body,
    BodyOption,
    LimitOption,
    Output,
    OutputOption,
    TagOption,
    TlsOption,
)
from rmqtool.cli.live.send import NAMESRV, NamesrvOption
from rmqtool.errors import BadValue


@command("consume", "rmqtool consume --namesrv 127.0.0.1:9876 Orders --from -1h --follow")
def consume(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="The topic.")] = None,
    namesrv: NamesrvOption = NAMESRV,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every ordinary topic that is there, in the place of TOPIC.")
    ] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="START",
            help="Where to begin: earliest, latest, a time, or an offset (digits below 10^11).",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Begin where this group is; with --ack, consume in it."),
    ] = None,
    ack: Annotated[
        bool, typer.Option("--ack", help="Consume: what has been written is committed for --group.")
    ] = False,
    orderly: Annotated[
        bool, typer.Option("--orderly", help="With --ack: each queue in order, locked by the broker for this process.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new messages, until a signal.")] = False,
    exit_idle: Annotated[
        float | None,
        typer.Option("--exit-idle", metavar="SECONDS", min=0, help="With --follow: end when none came for so long."),
    ] = None,
    tag: TagOption = None,
    sql: Annotated[
        str | None,
        typer.Option("--sql", metavar="CONDITION", help="Only messages of which this SQL92 filter is true."),
    ] = None,
    limit: LimitOption = None,
    body: BodyOption = Body.auto,
    tls_config: TlsOption = None,
    acl: AclOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Show messages of a live topic, or of all topics. Without --ack it only looks, joins no group and moves no offset.

    It begins at the first messages of the queues, with --follow at their ends, with --group at the group's offsets. It
    shows queue by queue up to what was the end when it began; with --follow, messages as they come. The rows are those
    of commitlog dump. --sql filters by properties in the broker, which must have enablePropertyFilter=true.

    With --group and --ack it is a member of the group, beside others of any language: it gets a share of the queues,
    and the group's retries; --from says where a new group begins. It commits what stdout has taken and nothing else:
    a reader that ends, a signal or a kill loses no message, but some may come twice after a kill.

    --all-topics leaves out those of the system, retries and dead letters, and topics that are made later. Topics that
    cannot be read are named on stderr, and make the exit code 1; else that says that there was no message.
    """
    if (topic is None) is not all_topics:
        raise BadValue("give TOPIC or --all-topics" + ("" if topic is None else ", not both"))
    if group is not None or ack or orderly:
        from rmqtool.cli.live.run_consume import check_group_options

        check_group_options(group, ack=ack, orderly=orderly)
    if exit_idle is not None and not follow:
        raise BadValue("--exit-idle: goes with --follow; without it the end is that of the queues")
    if ack and group is not None:
        from rmqtool.cli.live.run_acked import run as run_acked

        return run_acked(
            namesrv, topic, group, orderly=orderly, start=start, follow=follow, tags=tuple(tag or ()), sql=sql,
            limit=limit, exit_idle=exit_idle, body=body.value, tls_config=tls_config, acl=acl, output=output.value,
        )  # fmt: skip
    from rmqtool.cli.live.run_consume import run

    return run(
        namesrv, topic, group, start=start, follow=follow, tags=tuple(tag or ()), sql=sql, limit=limit,
        exit_idle=exit_idle, body=body.value, tls_config=tls_config, acl=acl, output=output.value,
    )  # fmt: skip
