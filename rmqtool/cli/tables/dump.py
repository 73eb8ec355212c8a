"""The commands ``dump-to-parquet`` and ``dump``: all messages to Parquet, or to a table of a lakehouse."""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_log
from rmqtool.cli.framework.options import (
    BrokerConfOption,
    OffsetOption,
    Output,
    OutputOption,
    SchemaOption,
    SinceOption,
    TopicOption,
    UntilOption,
    option,
)
from rmqtool.errors import BadValue
from rmqtool.words import counted

if TYPE_CHECKING:
    from rmqtool.admin.target import Target
    from rmqtool.analytics.dump.report import DumpReport


class Runner(StrEnum):
    """What does the work."""

    spark = "spark"
    local = "local"


class Codec(StrEnum):
    """Compression of Parquet pages."""

    zstd = "zstd"
    snappy = "snappy"
    gzip = "gzip"
    none = "none"


class Format(StrEnum):
    """A kind of table."""

    delta = "delta"
    iceberg = "iceberg"


_FIELDS = (
    "out",
    "rows",
    "files",
    "partitions",
    "bytesRead",
    "bytesWritten",
    "damaged",
    "damagedBytes",
    "notDecompressed",
)
_SIZE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes: a number, with K, M or G for units of 1024.

    Raises:
        BadValue: not of this form.
    """
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise BadValue(f"{text!r} is not a size: give bytes, or 512K, 128M, 1G")
    return int(match[1]) * _SIZE[match[2].upper()]


SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Store directory, or URI like s3://bucket/store; or a live cluster: rocketmq://HOST:9876, or @NAME of "
        "the config file.",
    ),
]
PartitionOption = Annotated[
    list[str] | None,
    option("--partition-by", "FIELDS", "Partition by topic, bucket (of topics), day or hour (UTC); comma-separated."),
]
SinceLastOption = Annotated[bool, typer.Option("--since-last", help="Add what is not there yet, for repeated runs.")]
WhereOption = Annotated[str | None, option("--where", "SQL", "Only rows that satisfy this Spark SQL condition.")]
CodecOption = Annotated[Codec, option("--codec", "CODEC", "Compression: zstd, snappy, gzip or none.")]
MasterOption = Annotated[str | None, option("--master", "URL", "Spark master; by default all cores of this machine.")]


@command("dump-to-parquet", "rmqtool dump-to-parquet store messages --partition-by topic,day", progress=True)
def dump_to_parquet(
    store: SourceArgument,
    out: Annotated[
        str,
        typer.Argument(metavar="OUT", help="Directory to write, or URI like s3://...; must be absent or empty."),
    ],
    partition_by: PartitionOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
    since_last: SinceLastOption = False,
    topic: TopicOption = None,
    offset: OffsetOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    body_schema: SchemaOption = None,
    codec: CodecOption = Codec.zstd,
    row_group_size: Annotated[
        str, option("--row-group-size", "BYTES", "Memory for a row group, like 128M; needed by each task.")
    ] = "128M",
    file_size: Annotated[
        str | None, option("--file-size", "BYTES", "Start a new file after about this size, like 1G.")
    ] = None,
    split_size: Annotated[
        str, option("--split-size", "BYTES", "Size of the part of the log that a task reads, like 64M.")
    ] = "128M",
    split_mb: Annotated[int | None, typer.Option("--split-mb", min=1, hidden=True, help="The same in MiB.")] = None,
    runner: Annotated[
        Runner,
        typer.Option("--runner", "--engine", metavar="RUNNER", help="spark, or local (in this process, without Java)."),
    ] = Runner.spark,
    master: MasterOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Write all messages to Parquet through Spark.

    Damaged records are counted and reported, and the messages after them are written. The same command continues a run
    that was killed or interrupted. With --since-last, OUT keeps the position in the log, and each message is written
    once, however often the command runs. Exit code 0: everything is written; 1: everything readable is written, but
    parts were damaged, or expired before they were written.

    A live cluster is read without a consumer group, queue by queue; files then have the column broker. With
    --since-last, OUT keeps the position in each queue, and the message before it proves that it still is that queue.
    """
    from rmqtool.analytics.dump.dump import dump_to_parquet as dump
    from rmqtool.analytics.dump.report import DumpOptions
    from rmqtool.analytics.remote.stores import resolve_store
    from rmqtool.cli.framework.opening import live_target
    from rmqtool.cli.render.text import note
    from rmqtool.cli.render.times import parse_range, parse_time

    first, after = parse_range(offset) if offset else (None, None)
    options = DumpOptions(
        partition_by=_split(partition_by),
        topics=tuple(topic or ()),
        since=parse_time(since) if since else None,
        until=parse_time(until) if until else None,
        start_offset=first,
        stop_offset=after,
        where=where,
        body_schema=body_schema,
        codec=codec.value,
        row_group_bytes=parse_size(row_group_size),
        file_bytes=parse_size(file_size) if file_size else None,
        split_bytes=split_mb << 20 if split_mb else parse_size(split_size),
        overwrite=overwrite,
        since_last=since_last,
        runner=runner.value,
        master=master,
    )
    target = live_target(store)
    with _reading(target) as show:
        if target is None:
            report = dump(need_log(resolve_store(store), broker_conf, say=False).layout, out, options, show, note)
        else:
            from rmqtool.analytics.dump.live import dump_cluster_to_parquet

            report = dump_cluster_to_parquet(target, out, options, show, note)
    _write_report(report, output.value)
    return 1 if report.damaged or report.expired_bytes or report.lost else 0


@command("dump", "rmqtool dump store --to delta tables/messages --since-last", progress=True)
def dump_to_table(
    store: SourceArgument,
    out: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="Delta: directory or URI; Iceberg: CATALOG.NAMESPACE.TABLE, a catalog of PyIceberg."
        ),
    ],
    to: Annotated[Format, option("--to", "FORMAT", "Kind of table: delta or iceberg.")],
    since_last: SinceLastOption = False,
    partition_by: PartitionOption = None,
    topic: TopicOption = None,
    where: WhereOption = None,
    source: Annotated[
        str | None, option("--source", "NAME", "Name of STORE in TABLE; by default its path or address.")
    ] = None,
    body_schema: SchemaOption = None,
    codec: CodecOption = Codec.zstd,
    runner: Annotated[
        Runner, option("--runner", "RUNNER", "spark, or local (in this process, without Java).")
    ] = Runner.local,
    master: MasterOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Add messages to a table of Delta Lake or Iceberg.

    The table itself knows which messages of STORE it has: position and files become part of it in one commit, so each
    message is there once, however often the command runs or is killed. A new table is partitioned by day and topic.
    Several stores can be added to one table; it keeps a position for each. Exit codes are those of dump-to-parquet.

    For Parquet files without a table: dump-to-parquet; for messages on the screen: commitlog dump. The formats need
    libraries: pip install 'rmqtool[delta]' or 'rmqtool[iceberg]'.
    """
    from rmqtool.analytics.dump.report import DumpOptions
    from rmqtool.analytics.lake.dump import dump_to_table as dump
    from rmqtool.analytics.remote.stores import resolve_store
    from rmqtool.cli.framework.opening import live_target
    from rmqtool.cli.render.text import note

    options = DumpOptions(
        partition_by=_split(partition_by),
        topics=tuple(topic or ()),
        where=where,
        body_schema=body_schema,
        codec=codec.value,
        since_last=since_last,
        runner=runner.value,
        master=master,
    )
    target = live_target(store)
    with _reading(target) as show:
        read = target if target is not None else need_log(resolve_store(store), broker_conf, say=False).layout
        report = dump(read, to.value, out, options, source_name=source, progress=show, tell=note)
    _write_report(report, output.value)
    return 1 if report.damaged or report.expired_bytes or report.lost else 0


@contextmanager
def _reading(target: "Target | None") -> Iterator[Callable[[int, int], None]]:
    """Read a store or a live cluster; gives what shows how far it is. SIGTERM ends it in order.

    Warnings, such as what is waited for, are notes.
    """
    import warnings

    from rmqtool.cli.render.text import note
    from rmqtool.progress import stage

    # SIGTERM must not leave a half-written directory or a Java process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    reads = stage("reading the log") if target is None else stage("reading the queues", unit="messages")
    with warnings.catch_warnings(), reads as reading:
        warnings.showwarning = lambda message, *_: note(str(message))

        def show(read: int, total: int) -> None:
            reading.done, reading.total = read, total

        yield show


def _split(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for text in texts or () for part in text.split(","))


def _write_report(report: "DumpReport", form: str) -> None:
    """Print a report; damage is named on stderr too."""
    from rmqtool.cli.render.output import Column, write_all, write_object, writer
    from rmqtool.cli.render.text import note

    row = report.to_dict()
    if form in ("json", "ndjson"):
        write_object(form, row)
    else:
        columns = [Column(name, right=name != "out") for name in _FIELDS]
        write_all(writer(form, _FIELDS, columns), [row])
    for item in report.damage:
        note(
            f"damage: {item.path}: byte {item.at}: {item.reason}; physical offset {item.physical_offset}, "
            f"{item.length} bytes skipped"
        )
    if report.damaged > len(report.damage):
        note(f"damage: {report.damaged - len(report.damage)} more damaged ranges")
    if report.not_decompressed:
        note(f"{report.not_decompressed} bodies do not decompress and are given as stored; see column bodyError")
    if report.expired_bytes:
        note(f"{report.expired_bytes} bytes of log were deleted before they could be written")
    for lost in report.lost:
        note(f"not written: {lost}")
    if report.resumed:
        note(f"{report.resumed} of {report.splits} splits had been read by an earlier run")
    where = report.spark or "this process"
    note(
        f"{counted(report.rows, 'message')}"
        f" by {where} in {report.seconds:.1f} s, {report.startup_seconds:.1f} s of it to start"
    )
