"""The work of the query commands: open, search, write, exit code.

Free of Typer and other slow imports, so that :mod:`rmqtool.cli.startup.quick` can call them.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from rmqtool.cli.framework.opening import live_target, need_messages, open_store
from rmqtool.cli.render.messages import write_messages
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import parse_time
from rmqtool.services.lookup.query import Search, query_id, query_key
from rmqtool.store.index.reader import MAX_TIME
from rmqtool.store.layout.paths import StoreLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqtool.admin.subjects import MessageSubject
    from rmqtool.admin.target import Target
    from rmqtool.contract import BodyForm
    from rmqtool.services.lookup.stored import LogMessage

FOUND, NOTHING = 0, 1
T = TypeVar("T")


def search_of(scan: bool, limit: int | None, since: str | None, until: str | None) -> Search:
    """A search from options of the command line."""
    begin = parse_time(since) if since else 0
    end = parse_time(until) - 1 if until else MAX_TIME
    if end < begin:
        note("--until is not later than --since: an empty range")
    return Search(scan, limit + 1 if limit else None, begin, end)


def first(items: list[T], limit: int | None) -> list[T]:
    """At most ``limit`` messages; a note says that there are more (:func:`search_of` asks for one more)."""
    if limit is None or len(items) <= limit:
        return items
    note(f"stopped after {limit} {'row' if limit == 1 else 'rows'} (--limit)")
    return items[:limit]


def _scanning(scan: bool) -> AbstractContextManager[None]:
    """Show progress on a terminal if the whole log may be read."""
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
    body: "BodyForm" = "auto",
    output: str = "text",
    broker_conf: str | None = None,
) -> int:
    """``query-key``: 0 when a message was found, else 1."""
    if (target := live_target(store)) is not None:
        search = search_of(scan, limit, since, until)
        nothing = f"no message of topic {topic} with key {key} found through the indexes of the brokers"
        return _ask(target, lambda messages: messages.by_key(topic, key, search), limit, body, output, nothing)
    layout = need_messages(store, broker_conf, lambda name, _queue_id: name == topic, reads_tier=True).layout
    search = search_of(scan, limit, since, until)
    with _scanning(scan):
        messages = first(query_key(layout, topic, key, search, note), limit)
    write_messages(output, messages, body)
    if not messages and not note_unknown(layout, topic):
        where = "in the log" if scan else "through the index; --scan reads the whole log"
        note(f"no message of topic {topic} with key {key} found {where}")
    return FOUND if messages else NOTHING


def run_query_id(
    store: str,
    message_id: str,
    *,
    topic: list[str] | None = None,
    scan: bool = False,
    limit: int | None = None,
    body: "BodyForm" = "auto",
    output: str = "text",
    broker_conf: str | None = None,
) -> int:
    """``query-id``: 0 when a message was found, else 1."""
    if (target := live_target(store)) is not None:
        chosen, search = tuple(topic or ()), search_of(scan, limit, None, None)
        nothing = f"no message with id {message_id} found"
        return _ask(target, lambda messages: messages.by_id(message_id, chosen, search), limit, body, output, nothing)
    layout, search = need_messages(store, broker_conf, reads_tier=True).layout, search_of(scan, limit, None, None)
    with _scanning(scan):
        messages = first(query_id(layout, message_id, search, note, tuple(topic or ())), limit)
    write_messages(output, messages, body)
    if not messages:
        note(f"no message with id {message_id} found" + ("" if scan else "; --scan reads the whole log"))
    return FOUND if messages else NOTHING


def _ask(
    target: "Target",
    find: "Callable[[MessageSubject], Sequence[LogMessage]]",
    limit: int | None,
    body: "BodyForm",
    output: str,
    nothing: str,
) -> int:
    """Write the messages that a live cluster finds: 0 when there are some, else 1."""
    from rmqtool.admin.live.messages import LiveMessages
    from rmqtool.cli.render.rows import Warnings
    from rmqtool.client.cluster.errors import NoRoute

    warn = Warnings()
    try:
        messages = first(list(find(LiveMessages(target, warn))), limit)
    except NoRoute as err:
        messages, nothing = [], str(err)
    write_messages(output, messages, body)
    if not messages:
        note(nothing)
    return warn.tell() or (FOUND if messages else NOTHING)


def describe_unknown(layout: StoreLayout, topic: str) -> str | None:
    """A note that the store does not have a topic; None if it has."""
    from rmqtool.services.lookup.topic_names import unknown_topic

    return unknown_topic(layout, topic)


def say_unknown(store: str, broker_conf: str | None, topic: str) -> str:
    """That a store or a live cluster does not have a topic, in words."""
    if live_target(store) is not None:
        return f"no broker has topic {topic}"
    return describe_unknown(open_store(store, broker_conf), topic) or f"the store has no topic {topic}"


def note_unknown(layout: StoreLayout, topic: str) -> bool:
    """Note that the store does not have a topic; returns whether it was noted."""
    reason = describe_unknown(layout, topic)
    if reason is not None:
        note(reason)
    return reason is not None
