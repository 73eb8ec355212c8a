"""The ``topic`` commands: settings, queues and consumers of topics."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import live_target, need_messages, open_topics
from rmqtool.cli.framework.options import (
    BODIES,
    LISTING,
    BodyOptions,
    BrokerConfOption,
    KeyOption,
    LimitOption,
    Listing,
    Output,
    OutputOption,
    StoreDir,
    StoreOrTarget,
    TopicOption,
)
from rmqtool.cli.render.text import note


@command("topic list", "rmqtool topic list store --topic 'Order*'")
def topic_list(
    store: StoreOrTarget,
    topic: TopicOption = None,
    system: Annotated[bool, typer.Option("--system", help="Also the broker's own topics.")] = False,
    listing: Listing = LISTING,
) -> int:
    """List topics: settings, queues on disk, messages and bytes, groups, and the time of the last message.

    Exit code 1: no topic matches.
    """
    from rmqtool.cli.framework.choice import RowChoice
    from rmqtool.cli.render.rows import Warnings, names_of, write_rows
    from rmqtool.services.lookup.topics import TopicRow

    warn = Warnings()
    choice = RowChoice({"topic": topic})
    topics = open_topics(store, listing.broker_conf, warn, system=system or bool(topic)).summaries()
    rows = choice((row for row in topics if system or topic or row.kind != "system"), listing.limit)
    hidden = ("messageType", "queueType", "cleanupPolicy", "bytes")
    shown = [name for name in names_of(TopicRow) if name not in hidden]
    if live_target(store) is None:
        shown.insert(shown.index("messages") + 1, "bytes")
    spare = ("configured", "order", "perm", "writeQueueNums", "readQueueNums", "lastStoreTimestamp")
    write_rows(listing.output.value, TopicRow, rows, shown, spare=spare)
    return choice.ends(warn.tell())


@command("topic show", "rmqtool topic show store Orders --output json", tables=("queueTable", "report"))
def topic_show(
    store: StoreOrTarget,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic as stored, with prefixes such as %RETRY%.")],
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show one topic: its settings, the range and times of each queue, and the lag of each group in it.

    Exit code 1: the store has no such topic.
    """
    from rmqtool.cli.read.lookups import say_unknown
    from rmqtool.cli.render.console import console, facts_table
    from rmqtool.cli.render.output import PEOPLE, write_object
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.rows import Warnings, names_of, write_rows
    from rmqtool.cli.render.times import with_times

    warn = Warnings()
    topics = open_topics(store, broker_conf, warn)
    details = topics.details(topic)
    if details is None:
        note(say_unknown(store, broker_conf, topic))
        return warn.tell() or 1
    if output in (Output.json, Output.ndjson):
        write_object(output.value, with_times(details.to_dict()))
        return warn.tell()
    if PARTS.write(details, output):
        return warn.tell()
    if output in PEOPLE:
        summary = details.summary
        settings = f"read queues {summary.readQueueNums}, write queues {summary.writeQueueNums}, "
        settings += summary.perm or "brokers differ"
        facts = [
            ("topic", f"{summary.topic} ({', '.join(summary.nature)})"),
            (
                "settings",
                settings + (", ordered" if summary.order else "") if summary.configured else "not in topics.json",
            ),
            ("messages", "not reported" if summary.messages is None else str(summary.messages)),
        ]
        out = console(output)
        out.print(facts_table(facts))
        out.print()
        out.file.flush()
    kind = topics.queue_row
    shown = [name for name in names_of(kind) if name != "bytes" or live_target(store) is None]
    write_rows(output.value, kind, details.queues, shown, spare=("minOffset", "lastStoreTimestamp", "maxOffset"))
    return warn.tell()


@command("topic latest", "rmqtool topic latest store Prices --key ACME")
def topic_latest(
    store: StoreDir,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic with cleanup.policy=COMPACTION.")],
    key: KeyOption = None,
    limit: LimitOption = None,
    bodies: BodyOptions = BODIES,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show the newest message of each key of a compacted topic, from its compaction log.

    A key whose newest message has no body is deleted and not shown. physicalOffset is the position in that log. Exit
    code 1: there is none.
    """
    from rmqtool.cli.framework.bodies import body_form
    from rmqtool.cli.read.lookups import first
    from rmqtool.cli.render.messages import write_messages
    from rmqtool.cli.render.text import note
    from rmqtool.services.lookup.compacted import latest
    from rmqtool.services.lookup.topic_names import unknown_topic

    body = body_form(bodies)
    layout = need_messages(store, broker_conf).layout
    messages = first(latest(layout, topic, key or ()), limit)
    write_messages(output.value, messages, body)
    if not messages:
        of = f" with key {', '.join(key)}" if key else ""
        note(unknown_topic(layout, topic) or f"no message of topic {topic}{of} in a compaction log")
    return 0 if messages else 1


@command("topic unused", "rmqtool topic unused store")
def topic_unused(store: StoreOrTarget, output: OutputOption = Output.text, broker_conf: BrokerConfOption = None) -> int:
    """List topics without messages, without consumers or without settings, and why they are listed.

    Exit code 1: there are some.
    """
    from rmqtool.cli.render.rows import Warnings, names_of, write_rows
    from rmqtool.services.lookup.topics import UnusedTopic

    warn = Warnings()
    rows = open_topics(store, broker_conf, warn, system=False).find_unused()
    shown = [name for name in names_of(UnusedTopic) if name != "bytes" or live_target(store) is None]
    count = write_rows(output.value, UnusedTopic, rows, shown, spare=("configured",))
    if not count:
        note("no topic is unused")
    return warn.tell() or (1 if count else 0)
