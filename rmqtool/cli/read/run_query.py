"""The query commands behind their options: open, ask, write, exit code.

Free of Typer and everything else that is slow to import, so that
:mod:`rmqtool.cli.startup.quick` can call them at once.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from rmqtool.cli.framework.opening import need_messages
from rmqtool.cli.render.messages import write_messages
from rmqtool.cli.render.output import Column, rank_in, write_all, writer
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import parse_time, time_text
from rmqtool.contract import MESSAGE_FIELDS, message_row
from rmqtool.errors import BadValue
from rmqtool.services.lookup.query import Search, query_id, query_key
from rmqtool.store.disk.remote import exists
from rmqtool.store.index.reader import MAX_TIME
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog

FOUND, NOTHING = 0, 1
T = TypeVar("T")


def search_of(scan: bool, limit: int | None, since: str | None, until: str | None) -> Search:
    """Search options as the command line gives them."""
    begin = parse_time(since) if since else 0
    end = parse_time(until) - 1 if until else MAX_TIME
    if end < begin:
        note("--until is not later than --since: an empty range")
    return Search(scan, limit + 1 if limit else None, begin, end)


def first(found: list[T], limit: int | None) -> list[T]:
    """No more than so many; a line on stderr says that there are more, which :func:`search_of` looks for."""
    if limit is None or len(found) <= limit:
        return found
    note(f"stopped after {limit} {'row' if limit == 1 else 'rows'} (--limit)")
    return found[:limit]


def _scanning(scan: bool) -> AbstractContextManager[None]:
    """Where the whole log may be read, a terminal shows how far that is."""
    if not scan:
        return nullcontext()
    from rmqtool.cli.render.progress import showing

    return showing("auto", streams=False)


def run_query_key(
    store: str,
    topic: str,
    key: str,
    *,
    scan: bool = False,
    limit: int | None = None,
    since: str | None = None,
    until: str | None = None,
    body: str = "auto",
    output: str = "text",
    broker_conf: str | None = None,
) -> int:
    """``query-key``: 0 when a message was found, else 1."""
    layout = need_messages(store, broker_conf, lambda name, _queue_id: name == topic).layout
    search = search_of(scan, limit, since, until)
    with _scanning(scan):
        found = first(query_key(layout, topic, key, search, note), limit)
    write_messages(output, found, body)
    if not found and not _note_unknown(layout, topic):
        where = "in the log" if scan else "through the index; --scan reads the whole log"
        note(f"no message of topic {topic} with key {key} found {where}")
    return FOUND if found else NOTHING


def run_query_id(
    store: str,
    message_id: str,
    *,
    topic: list[str] | None = None,
    scan: bool = False,
    limit: int | None = None,
    body: str = "auto",
    output: str = "text",
    broker_conf: str | None = None,
) -> int:
    """``query-id``: 0 when a message was found, else 1."""
    layout, search = need_messages(store, broker_conf).layout, search_of(scan, limit, None, None)
    with _scanning(scan):
        found = first(query_id(layout, message_id, search, note, tuple(topic or ())), limit)
    write_messages(output, found, body)
    if not found:
        note(f"no message with id {message_id} found" + ("" if scan else "; --scan reads the whole log"))
    return FOUND if found else NOTHING


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


def run_query_offset(
    store: str,
    topic: str,
    queue_id: int,
    offset: int,
    *,
    max_msgs: int = 1,
    status: bool = False,
    engine: str = "auto",
    body: str = "auto",
    output: str = "text",
    broker_conf: str | None = None,
) -> int:
    """``query-offset``: 0 when a message was found, else 1."""
    from rmqtool.cli.framework.opening import chosen_release
    from rmqtool.services.lookup.get_message import asked_for, get_message
    from rmqtool.store.queues.batch import open_any_queue

    release = chosen_release(engine)
    log = need_messages(store, broker_conf, lambda *queue: queue == (topic, queue_id))
    queue = open_any_queue(log.layout, topic, queue_id)
    compacted = None
    if exists(log.layout.path("compaction")):
        from rmqtool.services.lookup.compacted import compacted_queue, get_compacted

        compacted = compacted_queue(log.layout, topic, queue_id, note)
    if compacted is not None:
        note(f"{topic} is compacted: read from its compaction log, in which physicalOffset is a position")
        result = get_compacted(compacted, offset, max_msgs)
    else:
        result = get_message(log, queue, offset, max_msgs, release=release)
    if status:
        row = dict(
            zip(
                PULL_FIELDS,
                (topic, queue_id, offset, max_msgs, *result[:-1], len(result.messages)),
                strict=True,
            )
        )
        write_all(
            writer(
                output,
                PULL_FIELDS,
                [Column(name, rank=rank_in(("minOffset", "maxOffset"), name)) for name in PULL_FIELDS],
            ),
            [row],
        )
    else:
        write_messages(output, asked_for(result, queue, offset, max_msgs), body)
    if not result.messages:
        _note_unbuilt(log)
        known = ""
        if queue is None:
            missing = _unknown(log.layout, topic) or f"the store has no queue {queue_id} of topic {topic}"
            known = f": {missing}"
        note(
            f"{result.status}: offset {offset}, queue holds {result.min_offset} to {result.max_offset}, "
            f"next offset {result.next_begin_offset}{known}"
        )
    return FOUND if result.messages else NOTHING


def _unknown(layout: StoreLayout, topic: str) -> str | None:
    from rmqtool.services.lookup.near import unknown_topic

    return unknown_topic(layout, topic)


def _note_unknown(layout: StoreLayout, topic: str) -> bool:
    """Say so where the store does not have a topic; whether that is so."""
    words = _unknown(layout, topic)
    if words is not None:
        note(words)
    return words is not None


def _note_unbuilt(log: "CommitLog") -> None:
    """Why a queue in RocksDB may seem shorter than it is."""
    from rmqtool.services.lookup.queue_messages import warn_of_unbuilt

    warn_of_unbuilt(log, lambda text: note(f"warning: {text}"))


def run_query_time(
    store: str,
    topic: str,
    queue_id: int,
    time: str,
    *,
    upper: bool = False,
    engine: str = "auto",
    body: str = "auto",
    output: str = "text",
    broker_conf: str | None = None,
) -> int:
    """``query-time``: 0 when the queue exists, else 1. The row is the message at the offset, where there is one."""
    from rmqtool.cli.framework.opening import chosen_release
    from rmqtool.services.lookup.query_time import offset_by_time, offset_by_time_v4
    from rmqtool.store.layout.version import release_of
    from rmqtool.store.queues.batch import open_any_queue
    from rmqtool.store.queues.reader import ConsumeQueue

    timestamp = parse_time(time)
    release = chosen_release(engine)
    log = need_messages(store, broker_conf, lambda *queue: queue == (topic, queue_id), what="not looked at")
    release = release or release_of(log.layout)
    if upper and not release.finds_time_bounds:
        raise BadValue("--upper needs --engine 5.3: 4.9 answers with the nearest message only")
    queue = open_any_queue(log.layout, topic, queue_id)
    to = writer(output, TIME_FIELDS, TIME_COLUMNS)
    if queue is None:
        to.close()
        _note_unbuilt(log)
        if not _note_unknown(log.layout, topic):
            note(f"the store has no queue {queue_id} of topic {topic}")
        return NOTHING
    if isinstance(queue, ConsumeQueue) and not release.finds_time_bounds:
        offset = offset_by_time_v4(log, queue, timestamp)
    else:
        offset = offset_by_time(log, queue, timestamp, upper=upper)
    entry = queue.entry(offset) if offset < queue.max_offset else None
    found = log.read(entry.physical_offset, crc=False) if entry else None
    first = next(found.messages()) if found else None
    message = message_row(first.record, first.physical_offset, body) if first else {"queueOffset": offset}
    write_all(to, [{**message, "topic": topic, "queueId": queue_id, "timestamp": timestamp, "offset": offset}])
    return FOUND
