"""dump-to-parquet."""

import signal
import sys
from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.cli.app import command
from rmqtool.cli.options import (
    BrokerConfOption,
    OffsetOption,
    Output,
    OutputOption,
    SinceOption,
    StoreDir,
    TopicOption,
    UntilOption,
)
from rmqtool.cli.run_query import need_log


class Engine(StrEnum):
    """What does the work."""

    spark = "spark"
    local = "local"


class Codec(StrEnum):
    """Compression of Parquet pages."""

    zstd = "zstd"
    snappy = "snappy"
    gzip = "gzip"
    none = "none"


@command("dump-to-parquet", "rmqtool dump-to-parquet store messages --partition-by topic,day")
def dump_to_parquet(
    store: StoreDir,
    out: Annotated[str, typer.Argument(metavar="OUT", help="Directory to write; must not exist, or be empty.")],
    partition_by: Annotated[
        str | None, typer.Option("--partition-by", metavar="topic,day", help="Directories by topic, day (UTC) or both.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an older output, once the new is whole.")
    ] = False,
    topic: TopicOption = None,
    offset: OffsetOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    codec: Annotated[Codec, typer.Option("--codec", help="Compression.")] = Codec.zstd,
    split_mb: Annotated[int, typer.Option("--split-mb", min=1, help="MiB of log for each task.")] = 128,
    engine: Annotated[
        Engine, typer.Option("--engine", help="spark, or local: this process alone, without Java.")
    ] = Engine.spark,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark master; all cores of this machine by default.")
    ] = None,
    output: OutputOption = Output.table,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Write all messages to Parquet through Spark.

    A damaged record is counted and reported, and the messages behind it are written. Exit code 0: all is written; 1:
    all that can be read is written, and there was damage.
    """
    from rmqtool.analytics.dump import dump_to_parquet as dump
    from rmqtool.analytics.report import DumpOptions
    from rmqtool.cli.show_dump import write_report
    from rmqtool.cli.times import parse_range, parse_time

    first, after = parse_range(offset) if offset else (None, None)
    options = DumpOptions(
        partition_by=tuple(part.strip() for part in partition_by.split(",")) if partition_by else (),
        topics=tuple(topic or ()),
        since=parse_time(since) if since else None,
        until=parse_time(until) if until else None,
        start_offset=first,
        stop_offset=after,
        codec=codec.value,
        split_bytes=split_mb << 20,
        overwrite=overwrite,
        engine=engine.value,
        master=master,
    )
    # a service manager's stop must not leave a half-written directory or a Java process behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = dump(need_log(store, broker_conf).layout, out, options)
    write_report(report, output.value)
    return 1 if report.damaged else 0
