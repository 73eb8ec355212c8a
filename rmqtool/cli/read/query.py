"""The commands ``query-key``, ``query-id``, ``query-offset`` and ``query-time``: find messages."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.bodies import body_form
from rmqtool.cli.framework.opening import chosen_release, live_target, need_messages
from rmqtool.cli.framework.options import (
    ANY_TIME,
    BODIES,
    LISTING,
    BodyOptions,
    BrokerConfOption,
    EngineOption,
    Listing,
    Output,
    OutputOption,
    ScanOption,
    StoreOrTarget,
    Times,
    TopicOption,
    option,
)
from rmqtool.cli.read import lookups
from rmqtool.cli.read.lookups import describe_unknown, note_unknown
from rmqtool.cli.render.messages import body_fields, write_messages
from rmqtool.cli.render.output import Column, Writer, rank_in, write_all, writer
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import parse_time, time_text
from rmqtool.contract import MESSAGE_FIELDS, BodyForm, message_row
from rmqtool.errors import BadValue
from rmqtool.store.disk.directories import exists
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord

if TYPE_CHECKING:
    from rmqtool.admin.live.messages import WireMessage, WireRead
    from rmqtool.services.lookup.get_message import GetResult

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic as stored, with prefixes such as %RETRY%.")]
Queue = Annotated[int, typer.Argument(metavar="QUEUE", min=0, help="Queue id.")]
BrokerNameOption = Annotated[
    str | None, option("--broker", "NAME", "Whose queue, where several brokers of a live cluster have it.")
]

PULL_FIELDS = (
    "topic",
    "queueId",
    "offset",
    "maxMsgNums",
    "status",
    "nextBeginOffset",
    "minOffset",
    "maxOffset",
    "count",
)
TIME_FIELDS = ("topic", "queueId", "timestamp", "offset", *MESSAGE_FIELDS[2:])

TIME_COLUMNS = (
    Column("topic"),
    Column("queueId", right=True),
    Column("timestamp", right=True),
    Column("offset", right=True),
    Column("storeTime", lambda row: time_text(row["storeTimestamp"]) if "storeTimestamp" in row else None),
    Column("msgId"),
)


@command("query-key", "rmqtool query-key store Orders order-65 --output ndjson")
def query_key(
    store: StoreOrTarget,
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="An application key, or a unique id.")],
    scan: ScanOption = False,
    times: Times = ANY_TIME,
    bodies: BodyOptions = BODIES,
    listing: Listing = LISTING,
) -> int:
    """Find the messages of a topic by key, through the index."""
    return lookups.run_query_key(
        store, topic, key, scan=scan, **vars(times), body=body_form(bodies),
        limit=listing.limit, output=listing.output.value, broker_conf=listing.broker_conf,
    )  # fmt: skip


@command("query-id", "rmqtool query-id store C0A8070100002A9F0000000000000B33")
def query_id(
    store: StoreOrTarget,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Offset id (offsetMsgId) or unique id (msgId).")],
    topic: TopicOption = None,
    scan: ScanOption = False,
    bodies: BodyOptions = BODIES,
    listing: Listing = LISTING,
) -> int:
    """Find a message by its offset id or its unique id.

    Exit code 1: there is none, or none in the given topics.
    """
    return lookups.run_query_id(
        store, message_id, topic=topic, scan=scan, body=body_form(bodies),
        limit=listing.limit, output=listing.output.value, broker_conf=listing.broker_conf,
    )  # fmt: skip


@command("query-offset", "rmqtool query-offset store Orders 0 100 --max-msgs 5")
def query_offset(
    store: StoreOrTarget,
    topic: Topic,
    queue_id: Queue,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", help="First queue offset.")],
    max_msgs: Annotated[
        int, typer.Option("--max-msgs", min=1, metavar="N", help="Number of messages, as in one pull.")
    ] = 1,
    status: Annotated[
        bool, typer.Option("--status", help="Show the broker's answer to the pull instead of the messages.")
    ] = False,
    engine: EngineOption = "auto",
    bodies: BodyOptions = BODIES,
    broker: BrokerNameOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Read messages of a queue from a queue offset on."""
    body = body_form(bodies)
    if (target := live_target(store)) is not None:
        from rmqtool.cli.read.live_lookups import read_live

        answer = read_live(target, topic, queue_id, offset, max_msgs, broker)
        if isinstance(answer, str):
            write_messages(output.value, [], body)
            note(answer)
            return 1
        _write_pull(answer, answer.messages, (topic, queue_id, offset, max_msgs), output.value, body, status=status)
        if not answer.messages:
            _note_nothing(answer, offset, "")
        return 0 if answer.messages else 1
    from rmqtool.services.lookup.get_message import first_messages, get_message
    from rmqtool.services.lookup.tiered import get_tiered, only_tiered
    from rmqtool.store.queues.batch import open_any_queue

    _refuse_broker(broker)
    release = chosen_release(engine)
    log = need_messages(store, broker_conf, lambda *queue: queue == (topic, queue_id), reads_tier=True)
    queue = open_any_queue(log.layout, topic, queue_id)
    compacted = None
    if exists(log.layout.path("compaction")):
        from rmqtool.services.lookup.compacted import compacted_queue, get_compacted

        compacted = compacted_queue(log.layout, topic, queue_id, note)
    if compacted is not None:
        note(f"{topic} is compacted: read from its compaction log, in which physicalOffset is a position")
        result = get_compacted(compacted, offset, max_msgs)
    else:
        high = queue.max_offset if queue is not None else 0
        tiered = only_tiered(log.layout, lambda *asked: asked == (topic, queue_id))
        result = get_tiered(tiered, topic, queue_id, offset, max_msgs, high) or get_message(
            log, queue, offset, max_msgs, release=release
        )
    asked = (topic, queue_id, offset, max_msgs)
    _write_pull(result, first_messages(result, queue, offset, max_msgs), asked, output.value, body, status=status)
    if not result.messages:
        _note_unbuilt(log)
        known = ""
        if queue is None:
            missing = describe_unknown(log.layout, topic) or f"the store has no queue {queue_id} of topic {topic}"
            known = f": {missing}"
        _note_nothing(result, offset, known)
    return 0 if result.messages else 1


def _write_pull(
    result: "GetResult[LocatedRecord] | WireRead",
    messages: "Sequence[LocatedRecord | WireMessage]",
    asked: tuple[str, int, int, int],
    output: str,
    body: BodyForm,
    *,
    status: bool,
) -> None:
    """The messages of a pull, or with ``status`` the answer without them."""
    if not status:
        write_messages(output, messages, body)
        return
    answer = (result.status, result.next_begin_offset, result.min_offset, result.max_offset, len(result.messages))
    columns = [Column(name, rank=rank_in(("minOffset", "maxOffset"), name)) for name in PULL_FIELDS]
    write_all(writer(output, PULL_FIELDS, columns), [dict(zip(PULL_FIELDS, (*asked, *answer), strict=True))])


def _note_nothing(result: "GetResult[LocatedRecord] | WireRead", offset: int, known: str) -> None:
    note(
        f"{result.status}: offset {offset}, queue holds {result.min_offset} to {result.max_offset}, "
        f"next offset {result.next_begin_offset}{known}"
    )


def _refuse_broker(broker: str | None) -> None:
    if broker is not None:
        raise BadValue("--broker: goes with a live cluster; a store directory is of one broker")


@command("query-time", "rmqtool query-time store Orders 0 2026-11-20T20:35:00Z")
def query_time(
    store: StoreOrTarget,
    topic: Topic,
    queue_id: Queue,
    time: Annotated[str, typer.Argument(metavar="TIME", help="Store time: ms since the epoch, ISO 8601, -48h, now.")],
    upper: Annotated[bool, typer.Option("--upper", help="5.3: the last message at or before the time.")] = False,
    engine: EngineOption = "auto",
    bodies: BodyOptions = BODIES,
    broker: BrokerNameOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Find the queue offset for a store time.

    The search is binary, like the broker's, as if times only increased along the queue. Where they step back, other
    messages of that time may lie elsewhere.
    """
    timestamp, body = parse_time(time), body_form(bodies)
    if (target := live_target(store)) is not None:
        from rmqtool.cli.read.live_lookups import time_row_of

        if upper:
            raise BadValue("--upper: goes with a store directory; a broker is asked for the first message")
        answer = time_row_of(target, topic, queue_id, timestamp, broker, body)
        write_all(_time_writer(output.value, body), [] if isinstance(answer, str) else [answer])
        if isinstance(answer, str):
            note(answer)
        return 1 if isinstance(answer, str) else 0
    from rmqtool.services.lookup.query_time import offset_by_time, offset_by_time_v4
    from rmqtool.services.lookup.tiered import tiered_by_time
    from rmqtool.store.config.release import release_of
    from rmqtool.store.queues.batch import open_any_queue
    from rmqtool.store.queues.reader import ConsumeQueue

    _refuse_broker(broker)
    release = chosen_release(engine)
    log = need_messages(
        store, broker_conf, lambda *queue: queue == (topic, queue_id), reads_tier=True, what="not looked at"
    )
    release = release or release_of(log.layout)
    if upper and not release.finds_time_bounds:
        raise BadValue("--upper needs --engine 5.3: 4.9 answers with the nearest message only")
    queue = open_any_queue(log.layout, topic, queue_id)
    to = _time_writer(output.value, body)
    in_tier = tiered_by_time(log.layout, topic, queue_id, timestamp) if not upper else None
    if in_tier is not None:
        offset, stored = in_tier
    elif queue is None:
        to.close()
        _note_unbuilt(log)
        if not note_unknown(log.layout, topic):
            note(f"the store has no queue {queue_id} of topic {topic}")
        return 1
    else:
        if isinstance(queue, ConsumeQueue) and not release.finds_time_bounds:
            offset = offset_by_time_v4(log, queue, timestamp)
        else:
            offset = offset_by_time(log, queue, timestamp, upper=upper)
        entry = queue.entry(offset) if offset < queue.max_offset else None
        stored = log.read(entry.physical_offset, crc=False) if entry else None
    first = next(stored.messages()) if stored else None
    message = message_row(first.record, first.physical_offset, body) if first else {"queueOffset": offset}
    write_all(to, [{**message, "topic": topic, "queueId": queue_id, "timestamp": timestamp, "offset": offset}])
    return 0


def _time_writer(form: str, body: BodyForm) -> Writer:
    added = [Column(name, wide=True) for name in body_fields((), body)]
    return writer(form, body_fields(TIME_FIELDS, body), [*TIME_COLUMNS, *added])


def _note_unbuilt(log: CommitLog) -> None:
    """Warn that a queue in RocksDB may seem shorter than it is."""
    from rmqtool.services.lookup.queue_messages import warn_of_unbuilt

    warn_of_unbuilt(log, lambda text: note(f"warning: {text}"))
