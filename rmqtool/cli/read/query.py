"""The commands ``query-key``, ``query-id``, ``query-offset`` and ``query-time``: find messages."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import (
    Body,
    BodyOption,
    BrokerConfOption,
    EngineOption,
    LimitOption,
    Output,
    OutputOption,
    ScanOption,
    SinceOption,
    StoreDir,
    TopicOption,
    UntilOption,
)
from rmqtool.cli.read import run_query

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic, as stored (with %RETRY% and the like).")]
Queue = Annotated[int, typer.Argument(metavar="QUEUE", min=0, help="Queue id.")]


@command("query-key", "rmqtool query-key store Orders order-65 --output ndjson")
def query_key(
    store: StoreDir,
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="An application key, or a unique id.")],
    scan: ScanOption = False,
    limit: LimitOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    body: BodyOption = Body.auto,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Find the messages of a topic by key, through the index."""
    return run_query.run_query_key(
        store, topic, key, scan=scan, limit=limit, since=since, until=until,
        body=body.value, output=output.value, broker_conf=broker_conf,
    )  # fmt: skip


@command("query-id", "rmqtool query-id store C0A8070100002A9F0000000000000B33")
def query_id(
    store: StoreDir,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Offset id (offsetMsgId) or unique id (msgId).")],
    topic: TopicOption = None,
    scan: ScanOption = False,
    limit: LimitOption = None,
    body: BodyOption = Body.auto,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Find a message by its offset id or its unique id.

    Exit code 1: there is none, or none of the topics asked for.
    """
    return run_query.run_query_id(
        store, message_id, topic=topic, scan=scan, limit=limit,
        body=body.value, output=output.value, broker_conf=broker_conf,
    )  # fmt: skip


@command("query-offset", "rmqtool query-offset store Orders 0 100 --max-msgs 5")
def query_offset(
    store: StoreDir,
    topic: Topic,
    queue: Queue,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", help="Queue offset to begin at.")],
    max_msgs: Annotated[
        int, typer.Option("--max-msgs", min=1, metavar="N", help="Messages to read, as in one pull.")
    ] = 1,
    status: Annotated[
        bool, typer.Option("--status", help="Print the broker's answer to the pull, not the messages.")
    ] = False,
    engine: EngineOption = "auto",
    body: BodyOption = Body.auto,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Read messages of a queue from a queue offset on."""
    return run_query.run_query_offset(
        store, topic, queue, offset, max_msgs=max_msgs, status=status, engine=engine,
        body=body.value, output=output.value, broker_conf=broker_conf,
    )  # fmt: skip


@command("query-time", "rmqtool query-time store Orders 0 2026-11-20T20:35:00Z")
def query_time(
    store: StoreDir,
    topic: Topic,
    queue: Queue,
    time: Annotated[str, typer.Argument(metavar="TIME", help="Store time: ms since the epoch, ISO 8601, -48h, now.")],
    upper: Annotated[bool, typer.Option("--upper", help="5.3: the last message at or before the time.")] = False,
    engine: EngineOption = "auto",
    body: BodyOption = Body.auto,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Find the queue offset for a store time.

    The search is the broker's: binary, as if times grew along the queue. Where they step back, other messages of that
    time may lie elsewhere.
    """
    return run_query.run_query_time(
        store, topic, queue, time, upper=upper, engine=engine,
        body=body.value, output=output.value, broker_conf=broker_conf,
    )  # fmt: skip
