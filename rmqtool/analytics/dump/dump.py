"""``dump-to-parquet``: writes all messages of a store's commit log to Parquet files, with one task per split.

Messages are read from the log itself, not through the queues, so messages missing from the queues are included.
"""

import json
import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, Any

from rmqtool.analytics.dump.names import is_plain
from rmqtool.analytics.dump.output import DONE, DumpOutput, manifest_of, open_output
from rmqtool.analytics.dump.parquet import PartFile
from rmqtool.analytics.dump.position import Position, has_changed, is_as_read
from rmqtool.analytics.dump.report import DumpOptions, DumpReport
from rmqtool.analytics.dump.spill import Merge, merges
from rmqtool.analytics.dump.tasks import Done, Job, Progress, Task, done_before, run_splits
from rmqtool.analytics.ranges.splits import Split, plan, plan_tier, repairs
from rmqtool.analytics.ranges.tail import Budget, frontier
from rmqtool.analytics.remote.files import Folder, local_path
from rmqtool.analytics.remote.secrets import clean
from rmqtool.analytics.remote.stores import keep_apart, open_log, resolve_store
from rmqtool.analytics.spark.awaiting import Tell, is_local
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.analytics.table.tally import MAX_DETAILS, SplitTally
from rmqtool.errors import Refused, RmqError
from rmqtool.store.dispatch.batch import BULK_BYTES
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.roles.elsewhere import log_elsewhere, messages_elsewhere, need_readable_log
from rmqtool.version import __version__

if TYPE_CHECKING:
    from pyspark import SparkContext

    from rmqtool.analytics.spark.where import SparkCondition

_AGAIN = 3  # how often a split is read again because a broker is writing to it
# options that must be the same for all files of a growing output
_KEPT = ("partition_by", "topics", "where")
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
    need_readable_log(layout)
    with clean(out):
        for warning in _elsewhere(layout, out, options):
            if tell is not None:
                tell(f"warning: {warning}")
            else:
                warnings.warn(warning, stacklevel=2)
        output = open_output(
            out, [layout.root, *layout.commit_log_paths], overwrite=options.overwrite, grow=options.since_last
        )
        keep_apart(out, layout.root)
        return run_holding(output, lambda beside: _Dump(layout, out, options, output, progress, tell).run(beside))


def run_holding(output: DumpOutput, work: Callable[[ExitStack], DumpReport]) -> DumpReport:
    """Run work that no other run disturbs, and remove what it leaves unless another run can use that.

    Args:
        work: receives a stack for cleanup that need not be waited for.
    """
    with ExitStack() as beside:
        beside.callback(output.leave)
        try:
            output.hold()  # from here on no other run changes the output
            return work(beside)
        except RmqError:
            output.discard()
            raise
        except BaseException:
            if not output.staging.files(DONE):
                output.discard()
            raise


class _Dump:
    """One run writing to an output that it holds."""

    def __init__(
        self,
        layout: StoreLayout,
        out: str,
        options: DumpOptions,
        output: DumpOutput,
        progress: Progress | None,
        tell: Tell | None,
    ) -> None:
        self._began, self._tell = time.monotonic(), tell
        self._layout, self._options, self._output, self._progress = layout, options, output, progress
        self._log = open_log(layout)
        self._before = manifest_of(out) if options.since_last else None
        self._position, self._expired = Position(), 0
        start, stop = options.start_offset, options.stop_offset
        if options.since_last:
            kept = jsonable({name: getattr(options, name) for name in _KEPT})
            self._position = Position.of(output.name, self._before, kept)
            self._expired = self._position.check(self._log, output.name, (self._before or {}).get("store"))
            start = max(self._position.next, self._log.min_offset, 0)
            stop = frontier(self._log, start, Budget())
            # the state of the log now; at the end of the run it must still be the same log
            self._reached = Position.at(self._log, stop)
        self._splits, self._unusable = plan(self._log, start, stop, options.split_bytes)
        if options.since_last:
            self._splits = self._position.exact(self._splits)
        if _reads_tier(options, begun=self._before is not None):
            self._splits += plan_tier(layout, number=len(self._splits))
        self._choice = MessageChoice(options.topics, options.since, options.until, start, stop)

    def run(self, beside: ExitStack) -> DumpReport:
        """Read, write and publish. Cleanup that need not be waited for is pushed to ``beside``."""
        options, output, splits = self._options, self._output, self._splits
        same = output.begin(_run_of(self._layout, options, self._position))
        job = Job(
            output.staging.location,
            uuid.uuid4().hex[:8],
            self._choice,
            options.partition_by,
            options.codec,
            row_group_bytes=options.row_group_bytes,
            file_bytes=options.file_bytes,
            spill=bool(options.partition_by) and len(splits) > 1,
        )
        done = _still_true(splits, done_before(output.staging, splits)) if same else {}
        resumed = len(done)
        left = [split for split in splits if split.number not in done]
        with open_spark(options, left, beside, self._tell) as context:
            startup = time.monotonic() - self._began
            _Reading(job, splits, done, context, options.where, self._tell).all(self._log, self._progress)
            merged = run_splits(job, _merges(job, splits, done), context, tell=self._tell)
            spark = None if context is None else f"Spark {context.version}, {context.master}"
        reports = [done[split.number] for split in splits]
        parts = [part for each in (*reports, *merged) for part in each.parts]
        if not parts and not self._before:
            parts = write_empty(job, output)
        output.keep_only(part.path for part in parts)
        position = self._after()
        report = DumpReport(
            out=local_path(output.location) or output.name,
            files=len(parts),
            partitions=len({os.path.dirname(part.path) for part in parts}),
            bytes_written=sum(part.bytes for part in parts),
            splits=len(splits),
            resumed=resumed,
            expired_bytes=self._expired,
            position=None if position is None else position.next,
            spark=spark,
            startup_seconds=startup if options.where is not None else _first(reports, startup, self._began),
            seconds=time.monotonic() - self._began,
            **sum_up(
                [each.tally for each in reports],
                [item for item in self._unusable if self._choice.in_range(item.physical_offset)],
            ),
        )
        files = [*(self._before["files"] if self._before else []), *map(PartFile.to_dict, parts)]
        output.publish(_manifest(report, files, self._layout, options, position))
        return report

    def _after(self) -> Position | None:
        """Return the position after this run; None without ``since_last``.

        Raises:
            Refused: the log was truncated while it was read.
        """
        if not self._options.since_last:
            return None
        if (changed := self._reached.differs(open_log(self._layout))) is not None:
            raise Refused(
                f"{self._layout.root}: was changed while it was read, so nothing was kept: its log was read "
                f"up to {self._reached.next}, and {changed}"
            )
        # if the last verified record is still the last one, it remains the proof
        return replace(self._position, next=self._reached.next) if self._reached.last < 0 else self._reached


def _elsewhere(layout: StoreLayout, out: str, options: DumpOptions) -> Iterator[str]:
    """Describe the messages that are not in this log, and that no earlier run has written into the output."""
    begun = options.since_last and manifest_of(out) is not None
    if begun:
        return log_elsewhere(layout, "not written")
    return messages_elsewhere(layout, what="not written", reads=_reads_tier(options, begun=False))


def _reads_tier(options: DumpOptions, *, begun: bool) -> bool:
    """Return whether messages only in tiered storage are dumped too; they are outside any range of offsets.

    Args:
        begun: whether an earlier run has written them into the output.
    """
    return not begun and options.start_offset is None and options.stop_offset is None


def _still_true(splits: list[Split], done: dict[int, Done]) -> dict[int, Done]:
    """Return the completed splits of an earlier run that still match the log, which may have changed since."""
    by_number = {split.number: split for split in splits}
    return {
        number: each
        for number, each in done.items()
        if all(is_plain(part.path) for part in each.parts)
        and all(type(value) is int for name, value in asdict(each.tally).items() if name != "damage")
        and is_as_read(by_number[number], each.tally)
    }


def _run_of(layout: StoreLayout, options: DumpOptions, position: Position) -> dict[str, Any]:
    """Return the properties that must match for a run to resume another one."""
    same = {name: getattr(options, name) for name in _SAME}
    return jsonable({"rmqtool": __version__, "store": layout.root, "options": same, "position": position.to_dict()})


def jsonable(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value after a round trip through JSON."""
    copy: dict[str, Any] = json.loads(json.dumps(value))
    return copy


@contextmanager
def open_spark(
    options: DumpOptions, splits: Sequence[Task], beside: ExitStack, tell: Tell | None
) -> Iterator["SparkContext | None"]:
    """Yield a Spark context if there is anything to read. Its shutdown is pushed to ``beside``."""
    if options.runner == "local" or not splits:
        yield None
        return
    from rmqtool.analytics.dump import daemon
    from rmqtool.analytics.spark.session import spark_context

    with ExitStack() as running:
        bulk = sum(split.stop - split.start for split in splits if isinstance(split, Split)) >= BULK_BYTES
        context = running.enter_context(
            spark_context(options.master, worker_daemon=daemon.__name__ if bulk else None, tell=tell)
        )
        yield context
        if is_local(context):  # on a cluster, an abandoned task may still be running
            ending = Thread(target=running.pop_all().close)
            ending.start()
            beside.callback(ending.join)


def _first(results: list[Done], startup: float, began: float) -> float:
    """Return the seconds until the first split was read, including the start of Spark's workers."""
    starts = [done.began for done in results if done.began]
    waited = time.monotonic() - began
    since = time.time() - waited
    return min(max(min(starts, default=0.0) - since, startup), waited)  # clocks of other machines may differ


class _Reading:
    """Reads the splits of a run.

    Args:
        splits, done: updated as splits are read.
    """

    def __init__(
        self,
        job: Job,
        splits: list[Split],
        done: dict[int, Done],
        context: "SparkContext | None",
        where: str | None,
        tell: Tell | None,
    ) -> None:
        self._tell = tell
        self._job, self._splits, self._done, self._context = job, splits, done, context
        self._where = self._parse_condition(where) if where is not None and context is not None else None
        self._rounds = 0

    def _parse_condition(self, where: str) -> "SparkCondition":
        from rmqtool.analytics.spark.session import session_of
        from rmqtool.analytics.spark.where import SparkCondition

        assert self._context is not None
        condition = SparkCondition(session_of(self._context), where)
        self._job = replace(self._job, choice=condition.narrow(self._job.choice))
        return condition

    def all(self, log: CommitLog, progress: Progress | None) -> None:
        """Read every open split; read one again if its neighbour shows that it began at the wrong place."""
        splits, done = self._splits, self._done
        self._run([split for split in splits if split.number not in done], progress)
        for _time in range(_AGAIN):
            changed = [split for split in splits if has_changed(log, split, done[split.number].tally)]
            if not changed:
                break
            self._run(changed)
        while True:
            again, empty = repairs(splits, lambda split: done[split.number])
            if not again and not empty:
                return
            for split in empty:
                done[split.number] = Done(SplitTally(first=split.stop, next=split.stop), [])
            for split in again:
                splits[split.number] = split
            self._run(again)

    def _run(self, splits: list[Split], progress: Progress | None = None) -> None:
        job = self._job
        if self._where is not None and splits:
            folder = Folder(job.folder).below(f"_where-{self._rounds}")
            self._rounds += 1
            folder.delete_dir("")
            self._where.select(splits, job.choice, folder, self._tell)
            job = replace(job, selection=folder.location)
        for split, result in zip(splits, run_splits(job, splits, self._context, progress, self._tell), strict=True):
            self._done[split.number] = result


def _merges(job: Job, splits: list[Split], done: dict[int, Done]) -> list[Merge]:
    """Return the merge tasks: they write the rows that splits put aside, one file per partition."""
    with_spills = [split for split in splits if done[split.number].spills]
    spills = [spill for split in with_spills for spill in done[split.number].spills]
    if not spills:
        return []
    return merges(spills, with_spills[0].base + with_spills[0].start, job.row_group_bytes // 2)


def write_empty(job: Job, output: DumpOutput) -> list[PartFile]:
    """Write one file without rows: most readers cannot open a directory without files."""
    writer = job.writer(output.staging, None)
    writer.empty_file()
    return writer.close()


def sum_up(tallies: list[SplitTally], unusable: list[Damage]) -> dict[str, Any]:
    """Fields of a report: the sums of all splits, and the files that cannot be read as damage."""
    whole = SplitTally()
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


def _manifest(
    report: DumpReport,
    files: list[dict[str, Any]],
    layout: StoreLayout,
    options: DumpOptions,
    position: Position | None,
) -> dict[str, Any]:
    return {
        "rmqtool": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "store": layout.root,
        "options": asdict(options),
        "schema": {field.name: str(field.type) for field in MESSAGE_SCHEMA},
        "report": report.to_dict(),
        "files": files,
        "position": position and position.to_dict(),
    }
