"""The command ``send``: messages to a live cluster."""

from typing import Annotated

import typer

from rmqtool.cli.shell.app import command
from rmqtool.cli.shell.options import Output, OutputOption, TlsOption

NamesrvOption = Annotated[
    str,
    typer.Option(
        "--namesrv", metavar="ADDRS", help="Name servers of the cluster: HOST:PORT, or several with ; between."
    ),
]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


@command("send", "rmqtool send --namesrv 127.0.0.1:9876 Orders messages.ndjson")
def send(
    namesrv: NamesrvOption,
    topic: TopicArgument,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="NDJSON, a message a line; - is stdin.")] = "-",
    lines: Annotated[bool, typer.Option("--lines", help="Each line is the body of a message, as it is.")] = False,
    key: Annotated[
        list[str] | None, typer.Option("--key", metavar="KEY", help="A key of every message; may be repeated.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="The tag of every message.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="PROPERTY", help="NAME=VALUE, of every message; may be repeated."),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay", metavar="DELAY", help="A level, or 30s, 2h, or a time (the last ones: brokers of 5.x)."
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", metavar="QUEUE", help="To this queue, ID or BROKER:ID; else they take turns."),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, help="Up to so many messages in one request.")
    ] = 1,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="Messages a second, at most.")
    ] = None,
    oneway: Annotated[bool, typer.Option("--oneway", help="Ask for no answers: what is lost is not known.")] = False,
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The producer group.")] = "rmqtool-send",
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="RELEASE", help="Which Java client to be like: 4.9, 5.3, or auto, which is 5.3."
        ),
    ] = "auto",
    tls_config: TlsOption = None,
    output: OutputOption = Output.table,
) -> int:
    """Send messages to a live cluster, given as NDJSON in the shape that this tool prints, or as lines.

    All go to TOPIC, whatever their rows say; body, bodyEncoding, properties, tags, keys and flag are used, the rest is
    not looked at. Of a row that says where its message was stored, the delay is not sent again.

    They go one after the other, and each line is answered: status, message id, broker, queue and queue offset. A line
    that is refused is named on stderr, and the exit code is 1. When no broker answers any more the command ends there
    with exit code 3; UNKNOWN is a message that may have been stored although no answer came. A signal ends the command
    when the message that is under way is answered; what follows was not read.
    """
    from rmqtool.cli.live.run_send import SendPlan, run

    plan = SendPlan(
        topic=topic, lines=lines, keys=tuple(key or ()), tag=tag, properties=tuple(properties or ()), delay=delay,
        queue=queue, batch=batch, rate=rate, oneway=oneway,
    )  # fmt: skip
    return run(namesrv, file, plan, group=group, engine=engine, tls_config=tls_config, output=output.value)
