"""The command ``send``: messages to a live cluster."""

from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import AclOption, Output, OutputOption, TlsOption


class TransactionOutcome(StrEnum):
    """How a transaction ends."""

    commit = "commit"
    rollback = "rollback"


NAMESRV = "127.0.0.1:9876"
"""Where --namesrv and NAMESRV_ADDR name no other."""
NamesrvOption = Annotated[
    str,
    typer.Option(
        "--namesrv",
        metavar="ADDRS",
        envvar="NAMESRV_ADDR",
        help="Name servers of the cluster: HOST:PORT, or several with ; between.",
    ),
]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


@command("send", "rmqtool send --namesrv 127.0.0.1:9876 Orders messages.ndjson")
def send(
    topic: TopicArgument,
    namesrv: NamesrvOption = NAMESRV,
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
        typer.Option("--delay", metavar="DELAY", help="A delay level; or 30s, 2h, or a time (brokers of 5.x only)."),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", metavar="QUEUE", help="To this queue, ID or BROKER:ID; else they take turns."),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, help="At most this many messages in one request.")
    ] = 1,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="Messages a second, at most.")
    ] = None,
    oneway: Annotated[
        bool, typer.Option("--oneway", help="Do not wait for answers; what is lost goes unnoticed.")
    ] = False,
    transaction: Annotated[
        TransactionOutcome | None,
        typer.Option("--transaction", metavar="END", help="Send transactions, and commit or rollback each."),
    ] = None,
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The producer group.")] = "rmqtool-send",
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="RELEASE", help="Which Java client to be like: 4.9, 5.3, or auto, which is 5.3."
        ),
    ] = "auto",
    tls_config: TlsOption = None,
    acl: AclOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Send messages to a live cluster, given as NDJSON in the shape that this tool prints, or as lines.

    All go to TOPIC, whatever their rows say; body, bodyEncoding, properties, tags, keys and flag are used, the rest is
    ignored. If a row states where its message was stored, its delay is not sent again.

    They go one after the other, and each line is answered: status, message id, broker, queue and queue offset. A line
    that is refused is named on stderr, and the exit code is 1. When no broker answers any more the command ends there
    with exit code 3; UNKNOWN is a message that may have been stored although no answer came. A signal ends the command
    when the message that is under way is answered; what follows was not read.

    --transaction sends each message as half of a transaction, and ends the transaction when that is stored. Its status
    is COMMITTED or ROLLED_BACK when the broker has confirmed it, else UNDECIDED: then the command waits at its end
    until the broker asks, for at most two and a half minutes. It answers nothing about messages of other runs.
    """
    from rmqtool.cli.live.run_send import SendPlan, run

    plan = SendPlan(
        topic=topic, lines=lines, keys=tuple(key or ()), tag=tag, properties=tuple(properties or ()), delay=delay,
        queue=queue, batch=batch, rate=rate, oneway=oneway,
        transaction=None if transaction is None else transaction.value,
    )  # fmt: skip
    return run(namesrv, file, plan, group=group, engine=engine, tls_config=tls_config, acl=acl, output=output.value)
