"""The command ``grep``: messages by a text that they have."""

from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_messages
from rmqtool.cli.framework.options import (
    ANY_MESSAGE,
    BODIES,
    BodyOptions,
    BrokerConfOption,
    LimitOption,
    MessageOptions,
    Output,
    OutputOption,
    StoreDir,
    option,
)

if TYPE_CHECKING:
    from rmqtool.cli.render.output import Column
    from rmqtool.contract import BodyForm
    from rmqtool.services.open_store.store import Store
    from rmqtool.services.search.grep import Match


class SearchIn(StrEnum):
    """Where to look."""

    body = "body"
    key = "key"
    property = "property"
    host = "host"


@command("grep", "rmqtool grep store 'timeout|refused' --topic 'Order*' --since -1h", progress=True)
def grep(
    store: StoreDir,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Regular expression in Python's syntax.")],
    messages: MessageOptions = ANY_MESSAGE,
    places: Annotated[
        list[SearchIn] | None,
        option("--in", "PLACE", "Search only there: body, key, property or host; may be repeated."),
    ] = None,
    fixed: Annotated[bool, typer.Option("--fixed", "-F", help="PATTERN is a fixed string.")] = False,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case.")] = False,
    invert: Annotated[bool, typer.Option("--invert", "-v", help="Select the messages that do not match.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Show only the number of messages.")] = False,
    neighbours: Annotated[
        int,
        typer.Option(
            "--neighbours", "-C", min=0, metavar="N", help="Also the N messages before and after each in its queue."
        ),
    ] = 0,
    limit: LimitOption = None,
    bodies: BodyOptions = BODIES,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Find the messages that contain a text in the body, a key, a property (as NAME=VALUE) or a host.

    Compressed bodies are decompressed; bodies that are not UTF-8 are searched as bytes. All messages of the commit log
    are read, so no index is needed. Exit code 1: no message matches, or parts of the log are damaged.
    """
    from rmqtool.cli.framework.bodies import body_form
    from rmqtool.cli.framework.choice import limit_rows
    from rmqtool.cli.read.run_files import say_damage, say_unmet, selection
    from rmqtool.cli.render.messages import body_fields
    from rmqtool.cli.render.output import PEOPLE, write_all, writer
    from rmqtool.cli.render.text import note
    from rmqtool.contract import GREP_FIELDS
    from rmqtool.errors import BadValue
    from rmqtool.services.search.grep import PLACES
    from rmqtool.services.search.grep import grep as search
    from rmqtool.services.search.pattern import BadPattern, Pattern
    from rmqtool.store.log.commit_log import Damage

    try:
        wanted = Pattern(pattern, fixed=fixed, ignore_case=ignore_case)
    except BadPattern as err:
        raise BadValue(f"PATTERN {pattern}: {err}; --fixed takes it as it stands") from None
    if count and (limit is not None or neighbours):
        raise BadValue("--count goes with neither --limit nor --neighbours")
    body = body_form(bodies)
    chosen = selection(messages, body)
    log = need_messages(store, broker_conf, chosen.has_queue_of, reads_tier=not messages.offset)
    damaged = False

    def matches() -> Iterator["Match"]:
        nonlocal damaged
        for item in source:
            if isinstance(item, Damage):
                damaged = True
                say_damage(item)
            else:
                yield item

    source = search(log, wanted, chosen, places=tuple(places or PLACES), invert=invert)
    if count:
        number = sum(1 for _match in matches())
        if output in PEOPLE:
            typer.echo(number)
        else:
            write_all(writer(output, ("messages",), ()), iter([{"messages": number}]))
    else:
        beside = _Neighbours(store, broker_conf, neighbours, body)
        rows = _rows(limit_rows(matches(), limit, source), beside, body)
        number = write_all(
            writer(output, body_fields(GREP_FIELDS, body), _columns(body) if output in PEOPLE else ()), rows
        )
    if not number and not count:
        note("nothing matches the pattern")
    if not number:
        say_unmet(chosen)
    return 1 if damaged or not number else 0


def _rows(matches: Iterator["Match"], beside: "_Neighbours", body: "BodyForm") -> Iterator[dict[str, Any]]:
    """A row for each match, and for its neighbours around it."""
    from rmqtool.contract import message_row

    for match in matches:
        message = match.message
        row = message_row(message.record, message.physical_offset, body)
        at = message.record.queue_offset
        yield from beside.rows(row, range(max(at - beside.number, 0), at))
        yield {**row, "matchedIn": list(match.places), "match": match.excerpt, "neighbourOf": None}
        yield from beside.rows(row, range(at + 1, at + 1 + beside.number))


class _Neighbours:
    """Reads messages beside others in their queues.

    Args:
        number: how many before and after each.
        body: form of their bodies.
    """

    def __init__(self, store: str, broker_conf: str | None, number: int, body: "BodyForm") -> None:
        self.number, self._body = number, body
        self._path, self._broker_conf = store, broker_conf

    def rows(self, of: dict[str, Any], offsets: range) -> Iterator[dict[str, Any]]:
        """A row for each message of the same queue at these queue offsets."""
        from rmqtool.contract import message_row

        if not offsets:
            return
        for message in self._store.queue_messages(of["topic"], of["queueId"], offsets.start, offsets.stop):
            row = message_row(message.record, message.physical_offset, self._body)
            yield {**row, "matchedIn": [], "match": None, "neighbourOf": of["queueOffset"]}

    @cached_property
    def _store(self) -> "Store":
        from rmqtool.services.open_store.store import Store

        return Store(self._path, broker_conf=self._broker_conf)


def _columns(body: "BodyForm") -> "list[Column]":
    from rmqtool.cli.render.messages import MESSAGE_COLUMNS, body_columns
    from rmqtool.cli.render.output import Column

    left_out = ("storeSize", "tags", "keys", "body")
    return [
        *(column for column in body_columns(MESSAGE_COLUMNS, body) if column.title not in left_out),
        Column("matchedIn", lambda row: " ".join(row["matchedIn"])),
        Column("match", wide=True),
    ]
