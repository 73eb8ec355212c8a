"""The ``report`` commands: ready questions to a store, answered here or through Spark."""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import (
    ANY_ORIGIN,
    ANY_TIME,
    BrokerConfOption,
    GroupOption,
    LimitOption,
    OriginChoice,
    Output,
    OutputOption,
    Times,
    TopicOption,
    option,
)
from rmqtool.cli.tables.sql import StoresDir

if TYPE_CHECKING:
    from rmqtool.cli.render.output import Column


class SameBy(StrEnum):
    """What makes two messages the same."""

    id = "id"
    key = "key"


class Bucket(StrEnum):
    """The time that a row of traffic is for."""

    hour = "hour"
    minute = "minute"


class ReportRunner(StrEnum):
    """What does the work."""

    auto = "auto"
    spark = "spark"
    local = "local"


_WIDTH = 20  # cells of the longest bar
_NUMBERS = {
    "messages", "bytes", "atMost", "smallest", "largest", "copies", "firstPhysicalOffset", "lastPhysicalOffset",
    "topics", "connections", "queues", "stored", "lag", "queueId", "queueOffset", "physicalOffset", "retries",
}  # fmt: skip
_WIDE = ("topic", "group", "keys", "chain")

RunnerOption = Annotated[
    ReportRunner, option("--runner", "RUNNER", "spark; local: this process; auto: this one for up to 96 MiB.")
]


PlotOption = Annotated[
    bool, typer.Option("--plot", help="Draw it in the terminal: a sparkline for each topic, or bars.")
]


@dataclass(frozen=True)
class How:
    """How a report is made and shown."""

    limit: LimitOption = None
    runner: RunnerOption = ReportRunner.auto
    output: OutputOption = Output.text
    broker_conf: BrokerConfOption = None


@dataclass(frozen=True)
class PlotChoice:
    """Whether a report is drawn."""

    plot: PlotOption = False


@dataclass(frozen=True)
class Drawn(How, PlotChoice):
    """How a report that can be drawn is made and shown; --plot is the first option."""


@dataclass(frozen=True)
class TopicChoice:
    """Whose messages are counted."""

    topic: TopicOption = None


@dataclass(frozen=True)
class TopicTimes(Times, TopicChoice):
    """Which messages are counted; --topic is the first option."""


PLAINLY, DRAWN, ANY_TOPIC = How(), Drawn(), TopicTimes()


def _run(
    name: str,
    store: str,
    how: How,
    *,
    topic: list[str] | None = None,
    group: list[str] | None = None,
    since: str | None = None,
    until: str | None = None,
) -> int:
    """Run a report: 0, or 1 when damage was met, duplicates were found, or nothing matches."""
    from contextlib import closing

    from rmqtool.analytics.source.read import Counters
    from rmqtool.analytics.sql.native import is_small, native_rows
    from rmqtool.analytics.sql.ready import READY
    from rmqtool.cli.framework.choice import no_match
    from rmqtool.cli.render.output import Column
    from rmqtool.cli.render.times import parse_time
    from rmqtool.cli.tables.asked import plain_row, request, say
    from rmqtool.errors import BadValue

    plot = isinstance(how, Drawn) and how.plot
    if plot and how.output is not Output.text:
        raise BadValue("--plot draws for people: it goes with no other --output")
    ready = READY[name]
    asked = request(
        store,
        how.broker_conf,
        topic or (),
        tables=ready.columns,
        tier="messages" in ready.columns,
        topic=",".join(topic) if topic else None,
        since=str(parse_time(since)) if since else None,
        until=str(parse_time(until)) if until else None,
    )
    shape = _Shape(name, how.output, topic, group, how.limit, plot)
    if how.runner is ReportRunner.local or (how.runner is ReportRunner.auto and is_small(asked)):
        counters = Counters()
        native = native_rows(name, asked, counters)
        every = (plain_row(row.items(), how.output) for row in native)
        columns = [Column(each, right=each in _NUMBERS, wide=each in _WIDE) for each in ready.names]
        count = shape.write(every, list(ready.names), columns)
        code = say(counters)
    else:
        from rmqtool.analytics.sql.query import answer
        from rmqtool.cli.tables.asked import columns_of, rows_of
        from rmqtool.cli.tables.spark import spark_process

        with spark_process(), answer(asked, ready.sql) as answered, closing(rows_of(answered, how.output)) as rows:
            count = shape.write(rows, answered.columns, columns_of(answered, _WIDE))
            code = say(answered.counters)
    if name.startswith("duplicates"):
        return 1 if count else code
    return no_match(count, code, topic=topic, group=group, since=since, until=until)


class _Shape(NamedTuple):
    """How the rows of a report are shown."""

    name: str
    output: str
    topics: list[str] | None
    groups: list[str] | None
    limit: int | None
    plot: bool

    def write(self, every: Generator[dict[str, Any], None, None], names: list[str], columns: "list[Column]") -> int:
        """Write the rows that match; returns their number."""
        from rmqtool.analytics.sql.ready import READY
        from rmqtool.cli.framework.choice import limit_rows, matches
        from rmqtool.cli.render.output import PEOPLE, Column, write_all, writer

        rows: Iterable[dict[str, Any]] = (
            row for row in every if matches(row.get("topic"), self.topics) and matches(row.get("group"), self.groups)
        )
        if self.plot:
            return self._draw(rows)
        rows = limit_rows(iter(rows), self.limit, every)
        bar = READY[self.name].bar
        if self.output in PEOPLE and bar is not None:
            rows = _draw_bars(list(rows), bar)
            columns.append(Column("bar"))
        return write_all(writer(self.output, names, columns), rows)

    def _draw(self, rows: Iterable[dict[str, Any]]) -> int:
        """Draw the rows; returns the number of lines."""
        import sys

        from rmqtool.cli.render.text import MOST_COLUMNS, room_of
        from rmqtool.cli.tables.plot import PLOTS, draw

        lines = list(draw(PLOTS[self.name], rows, room_of(sys.stdout) or MOST_COLUMNS, self.limit))
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return len(lines)


def _draw_bars(rows: list[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    """Rows with bars relative to the largest value; every positive value has a visible bar."""
    from rmqtool.cli.render.text import bar

    most = max((row[name] for row in rows), default=0)
    for row in rows:
        yield {**row, "bar": bar(row[name], most, _WIDTH)}


@command("report traffic", "rmqtool report traffic store --since 2026-11-20", progress=True)
def traffic(
    store: StoresDir,
    by: Annotated[Bucket, option("--by", "TIME", "hour or minute.")] = Bucket.hour,
    messages: TopicTimes = ANY_TOPIC,
    how: Drawn = DRAWN,
) -> int:
    """Count messages and bytes by topic and hour or minute (UTC)."""
    name = "traffic" if by is Bucket.hour else "traffic-by-minute"
    return _run(name, store, how, **vars(messages))


@command("report sizes", "rmqtool report sizes store --topic Orders", progress=True)
def sizes(store: StoresDir, messages: TopicTimes = ANY_TOPIC, how: Drawn = DRAWN) -> int:
    """Count messages by topic and stored size.

    A size class includes its upper end, atMost bytes, and starts above half of that.
    """
    return _run("sizes", store, how, **vars(messages))


@command("report duplicates", "rmqtool report duplicates store --by key", progress=True)
def duplicates(
    store: StoresDir,
    by: Annotated[
        SameBy, option("--by", "FIELD", "id (the client's unique id) or key (the application's).")
    ] = SameBy.id,
    messages: TopicTimes = ANY_TOPIC,
    how: How = PLAINLY,
) -> int:
    """List the messages that a topic has more than once.

    Retries, delayed messages and half messages are copies by design and do not count. Exit code 1: there are
    duplicates.
    """
    name = f"duplicates-by-{by.value}"
    return _run(name, store, how, **vars(messages))


@command("report producers", "rmqtool report producers store", progress=True)
def producers(store: StoresDir, messages: TopicTimes = ANY_TOPIC, how: Drawn = DRAWN) -> int:
    """Count messages by the host that sent them."""
    return _run("producers", store, how, **vars(messages))


@command("report lag", "rmqtool report lag store --group billing", progress=True)
def lag(store: StoresDir, topic: TopicOption = None, groups: GroupOption = None, how: Drawn = DRAWN) -> int:
    """Show the lag of consumer groups by topic."""
    return _run("lag", store, how, topic=topic, group=groups)


@command("report unconsumed", "rmqtool report unconsumed store --group billing --limit 20", progress=True)
def unconsumed(store: StoresDir, origin: OriginChoice = ANY_ORIGIN, how: How = PLAINLY) -> int:
    """List messages that were sent and not consumed.

    A message is listed for each group whose offset is not beyond it, and without a group if no group has an offset in
    its queue.
    """
    return _run("unconsumed", store, how, **vars(origin))


@command("report retries", "rmqtool report retries store --group billing", progress=True)
def retries(store: StoresDir, groups: GroupOption = None, times: Times = ANY_TIME, how: How = PLAINLY) -> int:
    """Follow messages that a group failed to consume, through their retries to the dead letters."""
    return _run("retries", store, how, group=groups, **vars(times))
