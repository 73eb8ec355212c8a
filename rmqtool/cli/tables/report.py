"""The ``report`` commands: ready questions to a store, answered here or through Spark."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import (
    ANY_TIME,
    BrokerConfOption,
    GroupOption,
    LimitOption,
    Output,
    OutputOption,
    Times,
    TopicOption,
)
from rmqtool.cli.tables.sql import StoresDir


class By(StrEnum):
    """What makes two messages the same."""

    id = "id"
    key = "key"


class Bucket(StrEnum):
    """The time that a row of traffic is for."""

    hour = "hour"
    minute = "minute"


class Runner(StrEnum):
    """What does the work."""

    auto = "auto"
    spark = "spark"
    local = "local"


RunnerOption = Annotated[
    Runner,
    typer.Option("--runner", metavar="RUNNER", help="spark; local: this process; auto: this one for up to 96 MiB."),
]


@dataclass(frozen=True)
class How:
    """How a report is made and shown."""

    limit: LimitOption = None
    runner: RunnerOption = Runner.auto
    output: OutputOption = Output.text
    broker_conf: BrokerConfOption = None


PLAINLY = How()


def _run(
    name: str,
    store: str,
    how: How,
    *,
    topics: list[str] | None = None,
    groups: list[str] | None = None,
    times: Times = ANY_TIME,
) -> int:
    from rmqtool.cli.tables.run_report import run_report

    return run_report(
        name, store, output=how.output.value, runner=how.runner.value, topics=topics, groups=groups, since=times.since,
        until=times.until, limit=how.limit, broker_conf=how.broker_conf,
    )  # fmt: skip


@command("report traffic", "rmqtool report traffic store --since 2026-11-20", progress=True)
def traffic(
    store: StoresDir,
    by: Annotated[Bucket, typer.Option("--by", metavar="TIME", help="hour or minute.")] = Bucket.hour,
    topic: TopicOption = None,
    times: Times = ANY_TIME,
    how: How = PLAINLY,
) -> int:
    """Count messages and bytes by topic and hour or minute (UTC)."""
    name = "traffic" if by is Bucket.hour else "traffic-by-minute"
    return _run(name, store, how, topics=topic, times=times)


@command("report sizes", "rmqtool report sizes store --topic Orders", progress=True)
def sizes(
    store: StoresDir,
    topic: TopicOption = None,
    times: Times = ANY_TIME,
    how: How = PLAINLY,
) -> int:
    """Count messages by topic and stored size.

    A size class ends at atMost bytes and begins above half of that.
    """
    return _run("sizes", store, how, topics=topic, times=times)


@command("report duplicates", "rmqtool report duplicates store --by key", progress=True)
def duplicates(
    store: StoresDir,
    by: Annotated[
        By, typer.Option("--by", metavar="FIELD", help="id, the client's unique id, or key, the application's.")
    ] = By.id,
    topic: TopicOption = None,
    times: Times = ANY_TIME,
    how: How = PLAINLY,
) -> int:
    """List what a topic has more than once.

    Retries, delayed and half messages are copies by design and do not count. Exit code 1: there are duplicates.
    """
    name = f"duplicates-by-{by.value}"
    return _run(name, store, how, topics=topic, times=times)


@command("report producers", "rmqtool report producers store", progress=True)
def producers(
    store: StoresDir,
    topic: TopicOption = None,
    times: Times = ANY_TIME,
    how: How = PLAINLY,
) -> int:
    """Count messages by the host that sent them."""
    return _run("producers", store, how, topics=topic, times=times)


@command("report lag", "rmqtool report lag store --group billing", progress=True)
def lag(
    store: StoresDir,
    topic: TopicOption = None,
    groups: GroupOption = None,
    how: How = PLAINLY,
) -> int:
    """Show how far consumer groups are behind, by topic."""
    return _run("lag", store, how, topics=topic, groups=groups)


@command("report unconsumed", "rmqtool report unconsumed store --group billing --limit 20", progress=True)
def unconsumed(
    store: StoresDir,
    topic: TopicOption = None,
    groups: GroupOption = None,
    times: Times = ANY_TIME,
    how: How = PLAINLY,
) -> int:
    """List messages that were sent and not consumed.

    Lists each message that lies beyond a group's offset, for each such group, and without a group where none has an
    offset in the queue.
    """
    return _run("unconsumed", store, how, topics=topic, groups=groups, times=times)


@command("report retries", "rmqtool report retries store --group billing", progress=True)
def retries(
    store: StoresDir,
    groups: GroupOption = None,
    times: Times = ANY_TIME,
    how: How = PLAINLY,
) -> int:
    """Follow messages that a group failed to consume, through retries to the dead letters."""
    return _run("retries", store, how, groups=groups, times=times)
