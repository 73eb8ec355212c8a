"""``dump-to-parquet``: every message of a store's commit log as Parquet files, decoded by one task per split.

Messages come from the log itself and not through the queues, so those that no queue points at are there too.
"""

import json
import os
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from rmqtool import __version__
from rmqtool.analytics.arrow import MAX_DETAILS, Choice, Tally
from rmqtool.analytics.output import MANIFEST, SUCCESS, OutputDir
from rmqtool.analytics.parquet import Part
from rmqtool.analytics.report import DumpOptions, DumpReport
from rmqtool.analytics.schema import MESSAGE_SCHEMA
from rmqtool.analytics.splits import Split, plan, repairs
from rmqtool.analytics.tasks import Done, Job, run_splits
from rmqtool.store.commit_log import CommitLog, Damage
from rmqtool.store.layout import StoreLayout

if TYPE_CHECKING:
    from pyspark import SparkContext


def dump_to_parquet(layout: StoreLayout, out: str, options: DumpOptions | None = None) -> DumpReport:
    """Write the messages of a store to a directory of Parquet files.

    The directory appears when all of it is written; a failure leaves nothing, or what was there before.

    Args:
        out: a directory that is absent or empty, or an older output with ``options.overwrite``.

    Raises:
        BadValue: an option has a value that it cannot have.
        Refused: the output exists or cannot be written.
        MissingRuntime: Spark cannot be started.
        UnreadableStore: a file of the log cannot be read.
        RmqError: writing failed, or Spark did.
    """
    began = time.monotonic()
    options = options or DumpOptions()
    options.check()
    output = OutputDir(out, [layout.root, *layout.commit_log_paths], overwrite=options.overwrite)
    splits, unusable = plan(CommitLog(layout), options.start_offset, options.stop_offset, options.split_bytes)
    choice = Choice(options.topics, options.since, options.until, options.start_offset, options.stop_offset)
    job = Job(output.staging, output.run, choice, options.partition_by, options.codec)
    try:
        with _spark(options, splits) as context:
            startup = time.monotonic() - began
            output.create()
            done = _read_all(job, splits, context)
            spark = None if context is None else f"Spark {context.version}, {context.master}"
        parts = [part for split in done for part in split.parts] or _empty(job)
        output.keep_only(part.path for part in parts)
        report = DumpReport(
            out=output.path,
            files=len(parts),
            partitions=len({os.path.dirname(part.path) for part in parts}),
            bytes_written=sum(part.bytes for part in parts),
            splits=len(splits),
            spark=spark,
            startup_seconds=startup,
            seconds=time.monotonic() - began,
            **_sums([split.tally for split in done], [d for d in unusable if choice.in_range(d.physical_offset)]),
        )
        _write_marks(output, report, parts, layout, options)
        output.publish()
        return report
    finally:
        output.discard()


def _spark(options: DumpOptions, splits: list[Split]) -> AbstractContextManager["SparkContext | None"]:
    if options.engine == "local" or not splits:
        return nullcontext()
    from rmqtool.analytics.session import spark_context

    return spark_context(options.master)


def _read_all(job: Job, splits: list[Split], context: "SparkContext | None") -> list[Done]:
    """Every split, again where its neighbour shows that it began at the wrong place."""
    splits = list(splits)
    done = run_splits(job, splits, context)
    while True:
        again, empty = repairs(splits, lambda split: done[split.number])
        if not again and not empty:
            return done
        for split in again + empty:
            for part in done[split.number].parts:
                os.unlink(os.path.join(job.folder, part.path))
        for split in empty:
            done[split.number] = Done(Tally(first=split.stop, next=split.stop), [])
        for split, result in zip(again, run_splits(job, again, context), strict=True):
            splits[split.number], done[split.number] = split, result


def _empty(job: Job) -> list[Part]:
    """Without any row, one file that has the schema: a directory without files is an error to most readers."""
    writer = job.writer(0)
    writer.empty_file()
    return writer.close()


def _sums(tallies: list[Tally], unusable: list[Damage]) -> dict[str, Any]:
    whole = Tally()
    for item in unusable:
        whole.add_damage(item)
    whole.bytes = 0
    every = [whole, *tallies]
    details: Iterable[Damage] = (item for tally in every for item in tally.damage)
    return {
        "rows": sum(tally.rows for tally in every),
        "records": sum(tally.records for tally in every),
        "bytes_read": sum(tally.bytes for tally in every),
        "damaged": sum(tally.damaged for tally in every),
        "damaged_bytes": sum(tally.damaged_bytes for tally in every),
        "damage": tuple(islice(details, MAX_DETAILS)),
        "not_decompressed": sum(tally.not_decompressed for tally in every),
        "times_out_of_range": sum(tally.times_out_of_range for tally in every),
    }


def _write_marks(
    output: OutputDir, report: DumpReport, parts: list[Part], layout: StoreLayout, options: DumpOptions
) -> None:
    """The manifest, then the mark that Hadoop's readers and schedulers know a whole output by."""
    manifest = {
        "rmqtool": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "store": layout.root,
        "options": asdict(options),
        "schema": {field.name: str(field.type) for field in MESSAGE_SCHEMA},
        "report": report.to_dict(),
        "files": [asdict(part) for part in parts],
    }
    with open(os.path.join(output.staging, MANIFEST), "w", encoding="utf-8") as file:
        json.dump(manifest, file, ensure_ascii=False, indent=1)
        file.write("\n")
    with open(os.path.join(output.staging, SUCCESS), "w", encoding="utf-8"):
        pass
