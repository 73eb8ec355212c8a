"""``dump-to-parquet``: writes all messages of a store's commit log to Parquet files, with one task per split.

Messages are read from the log itself, not through the queues, so messages missing from the queues are included.
"""

import os
import time
import uuid
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from rmqtool.analytics.dump.output import DumpOutput, describe_run, holding, open_output
from rmqtool.analytics.dump.position import Position
from rmqtool.analytics.dump.report import DumpOptions, DumpReport, jsonable, sum_up
from rmqtool.analytics.dump.tasks import Done, Job, Progress, done_before, files_of, open_spark, write_splits
from rmqtool.analytics.ranges.splits import Split, plan, plan_tier
from rmqtool.analytics.ranges.tail import Budget, frontier
from rmqtool.analytics.remote.secrets import clean
from rmqtool.analytics.remote.stores import keep_apart, open_log, resolve_store
from rmqtool.analytics.spark.awaiting import Tell
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.errors import Refused
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.roles.elsewhere import log_elsewhere, messages_elsewhere, need_readable_log
from rmqtool.version import __version__

# options that must be the same for all files of a growing output
_KEPT = ("partition_by", "topics", "where", "body_schema")
_SAME = (
    *_KEPT,
    "since",
    "until",
    "start_offset",
    "stop_offset",
    "codec",
    "row_group_bytes",
    "file_bytes",
    "since_last",
)


def dump_to_parquet(
    store: StoreLayout | str | os.PathLike[str],
    out: str,
    options: DumpOptions | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> DumpReport:
    """Write the messages of a store to a directory of Parquet files.

    The directory appears once it is complete; on failure, it is absent or as before. A run that is killed or
    interrupted leaves what it has read in a hidden directory, and the same call resumes it.

    Args:
        store: the store's directory, or a URI such as ``s3://bucket/path``.
        out: a directory that is absent or empty, or an older output with ``options.overwrite`` or
            ``options.since_last``; or a URI of a file system that pyarrow knows, such as ``s3://bucket/path``.
        progress: called from time to time.
        tell: receives one line about messages stored elsewhere (without it, a warning is issued), and one if a cluster
            does not start the job.

    Raises:
        BadValue: an option has an invalid value.
        CorruptFile: the messages are in a DLedger log, which is not supported.
        Refused: the output exists or cannot be written.
        MissingRuntime: Spark cannot be started.
        UnreadableStore: a file of the log cannot be read.
        RmqError: writing or Spark failed.
    """
    layout = store if isinstance(store, StoreLayout) else StoreLayout(resolve_store(os.fspath(store)))
    options = options or DumpOptions()
    options.check()
    with clean(out):
        output = open_output(
            out, [layout.root, *layout.commit_log_paths], overwrite=options.overwrite, grow=options.since_last
        )
        keep_apart(out, layout.root)
        return dump_to(output, layout, options, progress, tell)


def dump_to(
    output: DumpOutput,
    layout: StoreLayout,
    options: DumpOptions,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> DumpReport:
    """As :func:`dump_to_parquet`, to an output that has been checked."""
    with holding(output) as beside:
        began = time.monotonic()
        options = output.settle_bodies(options, layout)
        for text in _find_elsewhere(layout, output, options):
            if tell is not None:
                tell(f"warning: {text}")
            else:
                warnings.warn(text, stacklevel=3)
        part = _plan_log(layout, output, options)
        splits = part.splits
        resumes = output.begin(_run_of(layout, options, part.position))
        job = Job(
            output.staging.location,
            uuid.uuid4().hex[:8],
            part.choice,
            options.partition_by,
            options.codec,
            row_group_bytes=options.row_group_bytes,
            file_bytes=options.file_bytes,
            spill=bool(options.partition_by) and len(splits) > 1,
            bodies=output.bodies,
        )
        done = done_before(output.staging, splits) if resumes else {}
        resumed = len(done)
        left = [split for split in splits if split.number not in done]
        with open_spark(options, left, beside, tell) as context:
            startup = time.monotonic() - began
            results = write_splits(job, part.log, splits, done, context, options.where, progress, tell)
            spark = None if context is None else f"Spark {context.version}, {context.master}"
        files = files_of(results) or (job.write_empty() if part.before is None and output.writes_empty_file else [])
        position = part.position_after(layout) if options.since_last else None
        report = DumpReport(
            out=output.place,
            splits=len(splits),
            resumed=resumed,
            expired_bytes=part.expired,
            position=None if position is None else position.next,
            spark=spark,
            startup_seconds=startup if options.where is not None else _first(results, startup, began),
            seconds=time.monotonic() - began,
            **sum_up([each.tally for each in results], files, part.unusable),
        )
        output.publish(
            {
                **describe_run(report, options, job.schema, part.before, files),
                "store": layout.root,
                "position": position and position.to_dict(),
            }
        )
        return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogPart:
    """The part of a log that one run reads.

    Attributes:
        before: manifest of the output that grows; None without one.
        position: where that output ends.
        expired: bytes of log after it that were deleted before they were dumped.
        reached: where it will end; the same as ``position`` without ``since_last``.
        unusable: files that cannot be read.
    """

    log: CommitLog
    before: dict[str, Any] | None
    position: Position
    expired: int
    reached: Position
    splits: list[Split]
    unusable: list[Damage]
    choice: MessageChoice

    def position_after(self, layout: StoreLayout) -> Position:
        """Return the position after this run.

        Raises:
            Refused: the log was truncated while it was read.
        """
        if (changed := self.reached.differs(open_log(layout))) is not None:
            raise Refused(
                f"{layout.root}: was changed while it was read, so nothing was kept: its log was read "
                f"up to {self.reached.next}, and {changed}"
            )
        # if the last verified record is still the last one, it remains the proof
        return replace(self.position, next=self.reached.next) if self.reached.last < 0 else self.reached


def _plan_log(layout: StoreLayout, output: DumpOutput, options: DumpOptions) -> _LogPart:
    """Return what to read; with ``since_last``, from where the output ends."""
    log, position, expired = open_log(layout), Position(), 0
    before, reached = None, position
    start, stop = options.start_offset, options.stop_offset
    if options.since_last:
        before = output.manifest()
        kept = jsonable({name: getattr(options, name) for name in _KEPT})
        position = Position.of(output.name, before, kept, adds_columns=output.adds_columns)
        expired = position.check(log, output.name, (before or {}).get("store"))
        start = max(position.next, log.min_offset, 0)
        stop = frontier(log, start, Budget())
        # the state of the log now; at the end of the run it must still be the same log
        reached = Position.at(log, stop)
    splits, unusable = plan(log, start, stop, options.split_bytes)
    if options.since_last:
        splits = position.exact(splits)
    if _reads_tier(options, begun=before is not None):
        splits += plan_tier(layout, number=len(splits))
    choice = MessageChoice(options.topics, options.since, options.until, start, stop)
    return _LogPart(
        log=log,
        before=before,
        position=position,
        expired=expired,
        reached=reached,
        splits=splits,
        unusable=[item for item in unusable if choice.in_range(item.physical_offset)],
        choice=choice,
    )


def _find_elsewhere(layout: StoreLayout, output: DumpOutput, options: DumpOptions) -> Iterable[str]:
    """Describe the messages that are not in this log, and that no earlier run has written into the output.

    Raises:
        CorruptFile: all messages are in a log that cannot be read.
    """
    need_readable_log(layout)
    if options.since_last and output.manifest() is not None:
        return log_elsewhere(layout, "not written")
    return messages_elsewhere(layout, what="not written", reads=_reads_tier(options, begun=False))


def _reads_tier(options: DumpOptions, *, begun: bool) -> bool:
    """Return whether messages only in tiered storage are dumped too; they are outside any range of offsets.

    Args:
        begun: whether an earlier run has written them into the output.
    """
    return not begun and options.start_offset is None and options.stop_offset is None


def _run_of(layout: StoreLayout, options: DumpOptions, position: Position) -> dict[str, Any]:
    """Return the properties that must match for a run to resume another one."""
    same = {name: getattr(options, name) for name in _SAME}
    return jsonable({"rmqtool": __version__, "store": layout.root, "options": same, "position": position.to_dict()})


def _first(results: Iterable[Done], startup: float, began: float) -> float:
    """Return the seconds until the first split was read, including the start of Spark's workers."""
    starts = [done.began for done in results if done.began]
    waited = time.monotonic() - began
    since = time.time() - waited
    return min(max(min(starts, default=0.0) - since, startup), waited)  # clocks of other machines may differ
