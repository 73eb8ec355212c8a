"""The command ``replay``: messages of a store, to a live cluster."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import (
    ANY_MESSAGE,
    AclOption,
    BrokerConfOption,
    DryRunOption,
    LimitOption,
    MessageChoice,
    Output,
    OutputOption,
    TlsOption,
)
from rmqtool.cli.live.send import NAMESRV, NamesrvOption


@command("replay", "rmqtool replay store --namesrv 127.0.0.1:9876 --topic Orders --since -1h --rate 500", progress=True)
def replay(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="Store directory; or Parquet, NDJSON, or - for NDJSON on stdin.")
    ],
    namesrv: NamesrvOption = NAMESRV,
    messages: MessageChoice = ANY_MESSAGE,
    limit: LimitOption = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Send all to this topic.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="Messages a second, at most.")
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, max=1000, help="At most this many messages in one request.")
    ] = 32,
    journal: Annotated[
        str | None,
        typer.Option(
            "--journal",
            metavar="FILE",
            help="Record of what was sent, by default STORE.replay; a later run continues it.",
        ),
    ] = None,
    group: Annotated[
        str, typer.Option("--group", "-g", metavar="GROUP", help="The producer group.")
    ] = "rmqtool-replay",
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="RELEASE", help="Which Java client to be like: 4.9, 5.3, or auto, which is 5.3."
        ),
    ] = "auto",
    tls_config: TlsOption = None,
    acl: AclOption = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Send stored messages to a live cluster, each once, in the order of their queues.

    STORE may be a Parquet file or a directory of them, or NDJSON as --output ndjson writes it. A queue's messages go to
    the queue with its number, or where there are fewer, always to the same of them. Body, flag, keys, tags, unique id
    and the application's properties are kept; RMQTOOL_ORIGIN tells where the message lay. Delays are not waited for
    again. Halves of transactions, messages that wait in a schedule, and topics of brokers are passed over; retries and
    dead letters too, but with --to.

    The same command goes on where it was ended, however that was, by its journal: of messages that may or may not have
    arrived it asks the broker, and none is sent twice. Exit code 1: messages were refused, or there was damage.
    """
    from rmqtool.cli.live.copying.run_replay import ReplayPlan, run

    plan = ReplayPlan(
        source=store, namesrv=namesrv, to=to, rate=rate, batch=batch, limit=limit, journal=journal, group=group,
        engine=engine, tls_config=tls_config, acl=acl, dry_run=dry_run, broker_conf=broker_conf,
        messages=messages,
    )  # fmt: skip
    return run(plan, output.value)
