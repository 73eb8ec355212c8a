"""The command ``trace``: the whole life of one message."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target, need_messages
from rmqtool.cli.framework.options import (
    Body,
    BodyOption,
    BrokerConfOption,
    Output,
    OutputOption,
    StoreOrTarget,
    option,
)


@command(
    "trace",
    "rmqtool trace store FD0000000000000000000000000000020FB630946E09664343CD0000",
    tables=("events", "groups", "keys", "reports", "report"),
)
def trace(
    store: StoreOrTarget,
    message_id: Annotated[
        str, typer.Argument(metavar="MSGID", help="Unique id (msgId), or offset id of any copy (offsetMsgId).")
    ],
    scan: Annotated[bool, typer.Option("--scan", help="Read the whole log, even if the index has an answer.")] = False,
    trace_topic: Annotated[
        str, option("--trace-topic", "TOPIC", "Where clients report what they do with messages.")
    ] = "RMQ_SYS_TRACE_TOPIC",
    body: BodyOption = Body.auto,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show the whole life of one message: every copy of it, and the groups that have passed it.

    A message may be stored, delayed and delivered, committed or rolled back, retried, and become a dead letter. Copies
    are found through the index; without an intact index, the whole log is read. A group has passed a message if its
    offset is beyond it. As far as the store shows, the reason is given: acked, given back, filtered by the group's SQL
    condition, or skipped by an offset reset; brokers do not store the tags that a group subscribes to. What
    clients with message tracing have reported follows: sent, received and consumed, with times and results. Exit code
    1: not found.
    """
    import time

    from rmqtool.cli.read.show_trace import write_trace
    from rmqtool.cli.render.progress import showing
    from rmqtool.cli.render.rows import Warnings
    from rmqtool.cli.render.text import note
    from rmqtool.services import trace as tracing

    warn, now = Warnings(), int(time.time() * 1000)
    if (target := live_target(store)) is not None:
        from rmqtool.admin.live.questions import Session
        from rmqtool.admin.live.queues import LiveQueues
        from rmqtool.admin.live.trace import LiveTracer

        with Session(target, warn) as session:
            live = LiveTracer(LiveQueues(session, warn), now, warn).trace(message_id, body.value, trace_topic)
        if live.events or output in (Output.json, Output.ndjson):
            write_trace(live, output.value)
        if not live.events:
            note(f"no message with id {message_id} found in the indexes of brokers")
        return warn.tell() or (0 if live.events else 1)
    with showing("auto", streams=False):
        log = need_messages(store, broker_conf, reads_tier=True)
        report = tracing.trace(log, message_id, now, warn, scan=scan, body=body.value, trace_topic=trace_topic)
    if report.events or output in (Output.json, Output.ndjson):
        write_trace(report, output.value)
    if not report.events:
        note(f"no message with id {message_id} found in the log")
        for topic in tracing.topics_with_key(log.layout, message_id):
            query = log.layout.command("query-key", topic, message_id)
            note(f"{message_id} is a key in topic {topic}: {query} lists the messages, with their ids")
    return warn.tell() or (0 if report.events else 1)
