"""The commands ``du`` and ``retention``: what takes up a store's space, and when it is freed."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_messages, open_to_read
from rmqtool.cli.framework.options import (
    ANY_TIME,
    BrokerConfOption,
    LimitOption,
    Output,
    OutputOption,
    StoreDir,
    Times,
    TopicOption,
    option,
)

if TYPE_CHECKING:
    from rmqtool.cli.render.output import Column

_BAR = 12  # cells of the longest


class UsageBy(StrEnum):
    """What is added up."""

    topic = "topic"
    queue = "queue"
    tag = "tag"
    group = "group"
    host = "host"
    day = "day"
    hour = "hour"
    size = "size"
    part = "part"


class UsageOrder(StrEnum):
    """What comes first."""

    bytes = "bytes"
    messages = "messages"
    name = "name"


_FIELDS = {
    UsageBy.topic: ("topic", "purpose"),
    UsageBy.queue: ("topic", "queueId"),
    UsageBy.tag: ("topic", "tag"),
    UsageBy.group: ("group", "kind"),
    UsageBy.host: ("host",),
    UsageBy.day: ("beginTimestamp",),
    UsageBy.hour: ("beginTimestamp",),
    UsageBy.size: ("atMost",),
    UsageBy.part: ("part",),
}


@command("du", "rmqtool du store --by tag --top 10", progress=True)
def du(
    store: StoreDir,
    by: Annotated[
        UsageBy,
        option(
            "--by",
            "WHAT",
            "topic, queue, tag, group, host, day, hour (UTC), size (to a power of two), or part: files on disk.",
        ),
    ] = UsageBy.topic,
    sort: Annotated[
        UsageOrder | None,
        option("--sort", "ORDER", "bytes or messages, largest first; or name, also for times and sizes."),
    ] = None,
    limit: LimitOption = None,
    top: Annotated[int | None, typer.Option("--top", min=1, metavar="N", help="The same as --limit.")] = None,
    topic: TopicOption = None,
    times: Times = ANY_TIME,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show how much space messages take in the commit log, or the parts of a store on disk.

    The share is that of the bytes of all records in the log; checksums are not compared, so damaged bodies count. By
    group, messages that a group failed to consume and its dead letters are counted. Exit code 1: parts of the log that
    should hold messages are unreadable.
    """
    from rmqtool.cli.framework.choice import first, no_match
    from rmqtool.cli.render.output import PEOPLE, write_all, writer
    from rmqtool.cli.render.rows import Warnings
    from rmqtool.errors import BadValue

    warn = Warnings()
    if by is UsageBy.part:
        if topic or times != ANY_TIME:
            raise BadValue("--by part adds up files: it goes with none of --topic, --since and --until")
        rows, code = _parts(store, broker_conf), 0
    else:
        rows, code = _messages(store, broker_conf, by, topic, times, warn)
    fields = (*_FIELDS[by], *_numbers(by))
    if sort is not None or by in (UsageBy.day, UsageBy.hour, UsageBy.size):
        _sort(rows, sort or UsageOrder.name, _FIELDS[by])
    shown = [*first(rows, limit if top is None else top)]
    people = output in PEOPLE
    write_all(writer(output, fields, _columns(by, shown) if people else ()), iter(shown))
    if people and shown:
        _sum_up(rows, by)
    return no_match(len(rows), max(code, warn.tell()), topic=topic, since=times.since, until=times.until)


def _numbers(by: UsageBy) -> tuple[str, ...]:
    return ("files", "bytes", "allocated") if by is UsageBy.part else ("messages", "bytes", "share")


def _parts(store: str, broker_conf: str | None) -> list[dict[str, Any]]:
    from rmqtool.services.usage.parts import measure_parts

    return [part.to_dict() for part in measure_parts(open_to_read(store, broker_conf))]


def _messages(
    store: str, broker_conf: str | None, by: UsageBy, topic: list[str] | None, times: Times, warn: Any
) -> tuple[list[dict[str, Any]], int]:
    """The rows and the exit code."""
    from rmqtool.cli.framework.options import MessageOptions
    from rmqtool.cli.read.run_files import selection
    from rmqtool.cli.render.text import note
    from rmqtool.services.usage.usage import measure
    from rmqtool.words import command_line, counted

    log = need_messages(store, broker_conf, what="not counted")
    choice = MessageOptions(topic=topic, since=times.since, until=times.until)
    usage = measure(log, by.value, selection(choice), warn)
    if usage.damaged:
        ranges = counted(usage.damaged, "range")
        note(
            f"damage: {ranges} with {counted(usage.damaged_bytes, 'byte')} not counted: {command_line('check', store)}"
        )
    return usage.rows, 1 if usage.damaged else 0


def _sort(rows: list[dict[str, Any]], order: UsageOrder, names: tuple[str, ...]) -> None:
    """Sort rows; those without a name come first in an order by name."""
    if order is UsageOrder.name:
        rows.sort(key=lambda row: [(name is not None, name) for name in map(row.get, names)])
    else:
        rows.sort(key=lambda row: -row.get(order.value, row["bytes"]))  # files are no messages


def _columns(by: UsageBy, rows: list[dict[str, Any]]) -> "list[Column]":
    from rmqtool.cli.render.output import Column
    from rmqtool.cli.render.text import bar, size_text
    from rmqtool.cli.render.times import iso_utc

    weight = "allocated" if by is UsageBy.part else "bytes"
    most = max((row[weight] for row in rows), default=0)

    def begin(row: dict[str, Any]) -> str:
        text = iso_utc(row["beginTimestamp"])
        return text[: 10 if by is UsageBy.day else 16] if text.endswith("Z") else text

    columns = []
    for name in _FIELDS[by]:
        if name == "beginTimestamp":
            columns.append(Column(by.value, begin))
        elif name == "atMost":
            columns.append(Column("at most", lambda row: size_text(row["atMost"]), right=True))
        elif name == "group":
            columns.append(Column("group", lambda row: row["group"] or "(of no group)", wide=True))
        else:
            columns.append(Column(name, right=name == "queueId", wide=name != "queueId"))
    if by is UsageBy.part:
        columns += [Column("files", right=True), _size("bytes"), _size("allocated")]
    else:
        columns += [
            Column("messages", right=True), _size("bytes"),
            Column("share", lambda row: f"{row['share']:.1%}", right=True),
        ]  # fmt: skip
    return [*columns, Column("bar", lambda row: bar(row[weight], most, _BAR))]


def _size(name: str) -> "Column":
    from rmqtool.cli.render.output import Column
    from rmqtool.cli.render.text import size_text

    return Column(name, lambda row: size_text(row[name]), right=True)


def _sum_up(rows: list[dict[str, Any]], by: UsageBy) -> None:
    """Print on stderr the sum of all rows, including those not shown."""
    from rmqtool.cli.render.text import note, size_text
    from rmqtool.words import counted

    what = "file" if by is UsageBy.part else "message"
    number = sum(row[f"{what}s"] for row in rows)
    note(f"{counted(number, what)}, {size_text(sum(row['bytes'] for row in rows))} in all {counted(len(rows), 'row')}")


@command("retention", "rmqtool retention store --tz Asia/Shanghai", tables=("files", "unread", "levels", "report"))
def retention(
    store: StoreDir,
    at: Annotated[str, option("--at", "TIME", "Assume this time instead of now (ms, ISO 8601, -48h).")] = "now",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Show when a running broker removes which files, what is lost unread with them, and how long the disk lasts.

    The broker's settings apply: fileReservedTime, deleteWhen and the disk ratios. Its hours are in the zone of --tz, by
    default that of this machine. The time at which the disk reaches a level is estimated from the growth of the last
    day and of the last week. Exit code 1: messages will go that a group has not consumed, or delayed messages that are
    still waiting.
    """
    from rmqtool.cli.framework.opening import need_log
    from rmqtool.cli.render.output import PEOPLE, Column, write_all, write_object, writer
    from rmqtool.cli.render.parts import PARTS
    from rmqtool.cli.render.rows import Warnings, names_of
    from rmqtool.cli.render.times import chosen_zone, parse_time, with_times
    from rmqtool.services.usage.retention import LogFile, foresee

    warn = Warnings()
    retention = foresee(need_log(store, broker_conf), parse_time(at), chosen_zone(), warn)
    if output in PEOPLE:
        from rmqtool.cli.read.show_retention import show

        show(retention, output)
    elif output is Output.csv:
        if not PARTS.write(retention, output):
            names = names_of(LogFile)
            write_all(writer("csv", names, [Column(name) for name in names]), retention.to_dict()["files"])
    else:
        write_object(output.value, with_times(retention.to_dict()))
    return max(1 if retention.unread else 0, warn.tell())
