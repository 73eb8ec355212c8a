"""The command ``consume``: messages of a live cluster."""

from typing import Annotated

import typer

from rmqtool.cli.live.send import NamesrvOption, TopicArgument
from rmqtool.cli.shell.app import command
from rmqtool.cli.shell.options import Body, BodyOption, LimitOption, Output, OutputOption, TagOption, TlsOption


@command("consume", "rmqtool consume --namesrv 127.0.0.1:9876 Orders --from -1h --follow")
def consume(
    namesrv: NamesrvOption,
    topic: TopicArgument,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="START",
            help="Where to begin: earliest, latest, a time, or an offset (digits below 10^11).",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until a signal.")] = False,
    tag: TagOption = None,
    sql: Annotated[
        str | None,
        typer.Option("--sql", metavar="CONDITION", help="Only messages of which this SQL92 filter is true."),
    ] = None,
    limit: LimitOption = None,
    body: BodyOption = Body.auto,
    tls_config: TlsOption = None,
    output: OutputOption = Output.table,
) -> int:
    """Show messages of a live topic. It only looks: it joins no group, and no offset is changed.

    It begins at the first messages of the queues, with --follow at their ends, and ends at what was the end when it
    began. Then messages come queue by queue; with --follow as brokers have them. The rows are those of commitlog dump.
    --sql filters by properties in the broker, which must have enablePropertyFilter=true.
    """
    from rmqtool.cli.live.run_consume import run

    return run(
        namesrv, topic, start=start, follow=follow, tags=tuple(tag or ()), sql=sql, limit=limit, body=body.value,
        tls_config=tls_config, output=output.value,
    )  # fmt: skip
