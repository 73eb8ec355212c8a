"""The tasks of a dump, run in this process or in Spark's workers: read, decode and write Parquet.

Spark pickles functions by reference, so everything passed to it is defined here and not in a closure.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from rmqtool.analytics.bodies.columns import BodyColumns, add_fields
from rmqtool.analytics.bodies.schema import TableSchema
from rmqtool.analytics.dump.live_task import LiveTask
from rmqtool.analytics.dump.names import DONE, is_plain
from rmqtool.analytics.dump.parquet import ROW_GROUP_BYTES, PartFile, PartWriter
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.analytics.dump.spill import Merge, Spill, merges, read_spilled
from rmqtool.analytics.local.claims import Claims, new_claims
from rmqtool.analytics.ranges.splits import Split
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.spark.awaiting import Tell, is_local, wait_for
from rmqtool.analytics.table.arrow import BATCH_BYTES, batches
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.analytics.table.tally import SplitTally, crc_of
from rmqtool.analytics.table.views import has_views, take
from rmqtool.errors import MissingRuntime, RmqError, UnreadableStore
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.batch import BULK_BYTES
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.records import next_record

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from rmqtool.analytics.spark.where import SparkCondition

_DAEMON = "rmqtool.analytics.dump.daemon"  # imports this module
_STOP = "_failed"  # file in the output directory: a task has failed and the others should stop
_OTHER = "another task has failed"
_LOOK = 1.0  # seconds between polls
_AGAIN = 3  # how often a split is read again because a broker is writing to it

Task = Split | Merge | LiveTask
T = TypeVar("T", Split, Merge, LiveTask)
Progress = Callable[[int, int], None]  # called with the bytes of log read so far and the total


@dataclass(frozen=True, slots=True)
class Job:
    """Settings shared by the tasks of one dump."""

    folder: str
    run: str
    choice: MessageChoice
    partition_by: tuple[str, ...] = ()
    codec: str = "zstd"
    batch_bytes: int = BATCH_BYTES
    row_group_bytes: int = ROW_GROUP_BYTES
    file_bytes: int | None = None
    selection: str | None = None  # directory with the offsets that match the condition; None without one
    spill: bool = False  # whether rows of small partitions are merged with those of other splits
    bodies: TableSchema | None = None
    table: pa.Schema = MESSAGE_SCHEMA

    @property
    def schema(self) -> pa.Schema:
        """The columns of the files."""
        return add_fields(self.table, self.bodies)

    def writer(self, folder: Folder, task: "Task | None", *, spill: bool = False) -> PartWriter:
        """Return a writer for the files of one task, named by its position in the log."""
        if isinstance(task, Merge):
            name = f"part-{task.offset:020d}-m{task.number:05d}"
        else:
            name = f"part-{task.place if task else f'{0:020d}'}"
        suffix = self.run if self.codec == "none" else f"{self.run}.{self.codec}"
        options = (self.partition_by, self.codec, self.row_group_bytes, self.file_bytes)
        return PartWriter(folder, name, suffix, *options, spill=spill, schema=self.schema)

    def write_empty(self) -> list[PartFile]:
        """Write one file without rows: most readers cannot open a directory without files."""
        writer = self.writer(Folder(self.folder), None)
        writer.empty_file()
        return writer.close()


@dataclass(frozen=True, slots=True)
class Done:
    """A completed split: tally, files, and start time in seconds since the epoch (0 if unknown)."""

    tally: SplitTally
    parts: list[PartFile]
    began: float = 0.0
    spills: list[Spill] = field(default_factory=list)  # rows that are not in a Parquet file yet


def files_of(results: Iterable[Done]) -> list[PartFile]:
    """Return the files of all tasks."""
    return [part for each in results for part in each.parts]


def done_before(folder: Folder, splits: Sequence[Split]) -> dict[int, Done]:
    """Return the results that an earlier run left for these splits and that still match the log, by split number.

    The last file of the log is excluded, because it may have grown since.
    """
    earlier = _noted(folder)
    left = ((split, earlier.get(json.dumps(_definition(split)))) for split in splits if not split.last)
    return {split.number: done for split, done in left if done is not None and _is_still_true(split, done)}


def pulled_before(folder: Folder, tasks: Sequence[LiveTask]) -> dict[int, Done]:
    """Return the results that an earlier run left for these ranges of queues, by number of the task."""
    earlier = _noted(folder)
    left = ((task, earlier.get(json.dumps(_definition(task)))) for task in tasks)
    return {task.number: done for task, done in left if done is not None and _is_well_formed(done)}


def _noted(folder: Folder) -> dict[str, Done]:
    """Return the results that tasks have left, by definition of the task."""
    earlier: dict[str, Done] = {}
    for name in folder.files(DONE):
        report = folder.read_json(name)
        with suppress(KeyError, TypeError, ValueError):
            parts, spills = [PartFile(**part) for part in report["parts"]], list(map(Spill.from_dict, report["spills"]))
            done = Done(SplitTally.from_dict(report["tally"]), parts, spills=spills)
            sizes = {each.path: each.bytes for each in parts} | {each.path: each.bytes for each in spills}
            if all(folder.size(path) == size for path, size in sizes.items()):
                earlier[json.dumps(report["split"])] = done
    return earlier


def _is_well_formed(done: Done) -> bool:
    return all(is_plain(part.path) for part in done.parts) and all(
        type(value) is int for name, value in asdict(done.tally).items() if name != "damage"
    )


def _is_still_true(split: Split, done: Done) -> bool:
    """Return whether a result is well-formed, and the log is still as it was read."""
    return _is_well_formed(done) and _is_as_read(split, done.tally)


def _definition(task: Split | LiveTask) -> dict[str, Any]:
    if isinstance(task, LiveTask):
        return {"number": task.number, "range": task.part.to_list()}
    # a URI can contain credentials, which may differ next time
    return {name: value for name, value in asdict(task).items() if name not in ("number", "uri")}


@dataclass(frozen=True, slots=True)
class SplitFailure:
    """A split that failed, described without the stack traces that Spark would add to an exception."""

    reason: str
    unreadable: bool


def run_split(job: Job, split: Split) -> Done | SplitFailure:
    """Read one split and write its rows; return the result or the failure."""
    return _run_writing(job, split, _read_split, spill=job.spill)


def run_merge(job: Job, merge: Merge) -> Done | SplitFailure:
    """Write the files of the partitions in a range of hashes from the rows spilled by the splits."""
    return _run_writing(job, merge, _merge_spilled)


def run_live(job: Job, task: LiveTask) -> Done | SplitFailure:
    """Read a range of a queue from its broker and write its rows."""
    return _run_writing(job, task, _read_queue)


def _run_writing(
    job: Job, task: T, work: Callable[[Job, T, Folder, PartWriter], Done], *, spill: bool = False
) -> Done | SplitFailure:
    """Do the work of a task with a writer for its files, which are discarded on failure."""
    folder = Folder(job.folder)
    writer = job.writer(folder, task, spill=spill)
    try:
        return work(job, task, folder, writer)
    except (RmqError, OSError) as err:
        return _report_failure(folder, writer, err)
    except BaseException:
        writer.discard()
        raise


def _read_split(job: Job, split: Split, folder: Folder, writer: PartWriter) -> Done:
    began, tally, stop = time.time(), SplitTally(), _StopLook(folder)
    file = split.segment()
    for batch in _rows(job, split, file, tally):
        if writer.write(batch) and has_views(batch.schema):
            file.forget(split.start, split.stop)  # writing has read the bodies from the mapping again
        stop.look()
    done = Done(tally, writer.close(), began, writer.spills)
    _note(folder, split, done)
    return done


def _merge_spilled(_job: Job, merge: Merge, folder: Folder, writer: PartWriter) -> Done:
    for batch in read_spilled(folder, merge):
        writer.write(batch)
    return Done(SplitTally(), writer.close())


def _read_queue(job: Job, task: LiveTask, folder: Folder, writer: PartWriter) -> Done:
    began, tally, stop = time.time(), SplitTally(), _StopLook(folder)
    for batch in task.read(job.schema.names, tally):
        writer.write(batch)
        stop.look()
    done = Done(tally, writer.close(), began)
    _note(folder, task, done)
    return done


class _StopLook:
    """Looks from time to time whether another task has failed."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._looked = folder, time.monotonic()

    def look(self) -> None:
        """Stop this task if another one has failed.

        Raises:
            RmqError: one has.
        """
        if time.monotonic() - self._looked > _LOOK:
            self._looked = time.monotonic()
            if self._folder.size(_STOP) is not None:
                raise RmqError(_OTHER)


def _report_failure(folder: Folder, writer: PartWriter, err: RmqError | OSError) -> SplitFailure:
    writer.discard()
    with suppress(OSError):
        folder.write(_STOP, "")
    return SplitFailure(_reason(err), isinstance(err, UnreadableStore))


def _run(job: Job, task: Task) -> Done | SplitFailure:
    if isinstance(task, LiveTask):
        return run_live(job, task)
    return run_merge(job, task) if isinstance(task, Merge) else run_split(job, task)


def _rows(job: Job, split: Split, file: Segment, tally: SplitTally) -> Iterator[Any]:
    read = batches(split, job.choice.of_tier(split.tier), tally, job.batch_bytes, file=file, views=job.bodies is None)
    yield from BodyColumns(job.bodies, job.schema.names).add(_selected(job, split, tally, read))


def _selected(job: Job, split: Split, tally: SplitTally, read: Iterable[Any]) -> Iterator[Any]:
    if job.selection is None:
        yield from read
        return
    import numpy as np

    from rmqtool.analytics.spark.where import read_selected

    wanted, rows = read_selected(Folder(job.selection), split), 0
    for batch in read:
        offsets = batch.column("physicalOffset").to_numpy()
        at = np.searchsorted(wanted, offsets)
        matching = at < len(wanted)
        matching[matching] = wanted[at[matching]] == offsets[matching]
        kept = take(batch, np.flatnonzero(matching))
        rows += kept.num_rows
        yield kept
    tally.rows = rows


def _note(folder: Folder, split: Split | LiveTask, done: Done) -> None:
    report = {
        "split": _definition(split),
        "tally": done.tally.to_dict(),
        "parts": [part.to_dict() for part in done.parts],
        "spills": [spill.to_dict() for spill in done.spills],
    }
    folder.make(DONE)
    folder.write(f"{DONE}/{split.place}-{split.stop}.json", json.dumps(report))


def _reason(err: RmqError | OSError) -> str:
    # reading raises UnreadableStore, so this concerns the output; pyarrow rewords the system's message
    if isinstance(err, OSError) and err.errno:
        return f"the output cannot be written: {os.strerror(err.errno)}"
    return str(err)


@contextmanager
def open_spark(
    options: DumpOptions, splits: Sequence[Task], beside: ExitStack, tell: Tell | None
) -> Iterator["SparkContext | None"]:
    """Yield a Spark context if there is anything to read. Its shutdown is pushed to ``beside``."""
    if options.runner == "local" or not splits:
        yield None
        return
    from rmqtool.analytics.spark.session import spark_context

    with ExitStack() as running:
        bulk = sum(split.stop - split.start for split in splits if isinstance(split, Split)) >= BULK_BYTES
        context = running.enter_context(
            spark_context(options.master, worker_daemon=_DAEMON if bulk else None, tell=tell)
        )
        yield context
        if is_local(context):  # on a cluster, an abandoned task may still be running
            ending = Thread(target=running.pop_all().close)
            ending.start()
            beside.callback(ending.join)


def write_splits(
    job: Job,
    log: CommitLog,
    splits: list[Split],
    done: dict[int, Done],
    context: "SparkContext | None" = None,
    where: str | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> list[Done]:
    """Read and write splits, read again what a broker or a wrong start has changed, and merge what was put aside.

    Args:
        splits: the whole plan; changed where a split begins at another place than planned.
        done: results of an earlier run, by split number; gets the others.
        where: a condition for Spark.

    Returns:
        Results of the splits in order, then those of the merges.

    Raises:
        UnreadableStore: a file cannot be read.
        RmqError: the output cannot be written, or Spark failed.
    """
    reading = _Reading(job, splits, done, context, where, tell)
    reading.run(log, progress)
    results = [done[split.number] for split in splits]
    spills = [spill for result in results for spill in result.spills]
    if not spills:
        return results
    first = next(split for split in splits if done[split.number].spills)
    merging = merges(spills, first.base + first.start, job.row_group_bytes // 2)
    return results + run_splits(job, merging, context, tell=tell)


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

    def run(self, log: CommitLog, progress: Progress | None) -> None:
        """Read every open split; read one again if its neighbour shows that it began at the wrong place."""
        splits, done = self._splits, self._done
        self._run([split for split in splits if split.number not in done], progress)
        for _time in range(_AGAIN):
            changed = [split for split in splits if _has_changed(log, split, done[split.number].tally)]
            if not changed:
                break
            self._run(changed)
        while True:
            again, empty = reconcile(splits, lambda split: done[split.number].tally)
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


def reconcile(splits: Sequence[Split], tally_of: Callable[[Split], SplitTally]) -> tuple[list[Split], list[Split]]:
    """Return which splits were not read from where the previous one ended.

    Args:
        splits: the whole plan, in order.
        tally_of: returns the result of reading a split.

    Returns:
        Splits to read again (at most one per file, because its result determines the ones after it), and splits in
        which no record begins, whose rows must be dropped.
    """
    again: list[Split] = []
    empty: list[Split] = []
    path, expected, undecided = "", -1, False
    for split in splits:
        walk = tally_of(split)
        if split.path != path:
            path, expected, undecided = split.path, walk.next, False
        elif undecided:
            continue
        elif expected >= split.stop:
            if walk.first < split.stop:
                empty.append(split)
        elif walk.first == expected:
            expected = walk.next
        else:
            again.append(replace(split, start=expected, exact=True))
            undecided = True
    return again, empty


def _is_as_read(split: Split, tally: SplitTally) -> bool:
    """Return whether the last record read of a split is unchanged, or still missing; true if the file expired."""
    try:
        if tally.last < 0:
            view = split.segment().map()
            return next_record(view, split.base, split.start, split.stop) >= split.stop
        return crc_of(split.segment(), tally.last, tally.end) == tally.last_crc
    except UnreadableStore:
        return True


def _has_changed(log: CommitLog, split: Split, tally: SplitTally) -> bool:
    """Return whether a broker has written where a split was read: a record was incomplete or seemed to be missing."""
    if split.uri is None and tally.last >= 0 and not _is_as_read(split, tally):
        return True
    if not split.last:
        return False
    if tally.last >= 0 and crc_of(split.segment(), tally.last, tally.end) != tally.last_crc:
        return True
    return any(log.read(item.physical_offset) is not None for item in tally.damage)


def run_splits(
    job: Job,
    splits: Sequence[Task],
    context: "SparkContext | None" = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> list[Done]:
    """Read splits, or merge what they have spilled, sequentially or as a Spark job.

    Args:
        tell: receives a line if a cluster does not start the job.

    Raises:
        UnreadableStore: a file cannot be read.
        RmqError: the output cannot be written, or Spark failed.
    """
    folder = Folder(job.folder)
    folder.delete(_STOP)
    results: dict[int, Done | SplitFailure] = {}
    if context is None:
        total, read = _bytes_of(splits), 0
        for split in splits:
            results[split.number] = _run(job, split)
            if isinstance(results[split.number], SplitFailure):
                break
            read += _bytes_of([split])
            if progress is not None:
                progress(read, total)
    elif splits:
        results = _run_in_spark(job, splits, context, progress, tell)
    failures = [result for result in results.values() if isinstance(result, SplitFailure)]
    if failures:
        first = next((failed for failed in failures if failed.reason != _OTHER), failures[0])
        raise UnreadableStore(first.reason) if first.unreadable else RmqError(first.reason)
    done = (results[split.number] for split in splits)
    return [result for result in done if isinstance(result, Done)]


def _run_in_spark(
    job: Job, splits: Sequence[Task], context: "SparkContext", progress: Progress | None, tell: Tell | None
) -> dict[int, Done | SplitFailure]:
    """Return results by split number; complete unless a split has failed."""
    results = _share_out(job, splits, context, progress) if is_local(context) else {}
    failed = any(isinstance(result, SplitFailure) for result in results.values())
    # splits taken by a task that Spark restarted are not taken by any other task
    left = [] if failed else [split for split in splits if split.number not in results]
    return results | _one_by_one(job, left, context, progress, tell)


def _bytes_of(splits: Iterable[Task]) -> int:
    return sum(split.stop - split.start for split in splits)


def _share_out(
    job: Job, splits: Sequence[Task], context: "SparkContext", progress: Progress | None
) -> dict[int, Done | SplitFailure]:
    """Run one task per core, which takes splits until none are left."""
    count = min(len(splits), context.defaultParallelism)
    length = {split.number: _bytes_of([split]) for split in splits}
    with new_claims() as claims:
        read = lambda: sum(map(length.__getitem__, claims.read_done()))  # noqa: E731
        with _reporting(read, _bytes_of(splits), progress):
            tasks = context.parallelize(range(count), count).mapPartitions(
                partial(_run_what_is_left, job, splits, claims)
            )
            try:
                return dict(_collect(tasks))
            except RmqError as err:
                if claims.any():
                    raise
                raise MissingRuntime(f"Spark's Python workers do not start: {err}") from err


def _run_what_is_left(
    job: Job, splits: Sequence[Task], claims: Claims, _numbers: Iterable[int]
) -> Iterator[tuple[int, Done | SplitFailure]]:
    """Read splits that no other task has taken."""
    folder = Folder(job.folder)
    for split in splits:
        if claims.take(split.number):
            result = _run(job, split) if folder.size(_STOP) is None else SplitFailure(_OTHER, unreadable=False)
            claims.end(split.number)
            yield split.number, result
            if isinstance(result, SplitFailure):
                return


def _one_by_one(
    job: Job, splits: Sequence[Task], context: "SparkContext", progress: Progress | None, tell: Tell | None
) -> dict[int, Done | SplitFailure]:
    """Run one task per split, wherever and however often Spark runs it."""
    if not splits:
        return {}
    total, tracker = _bytes_of(splits), context.statusTracker()

    def read() -> int:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        shares = [total * stage.numCompletedTasks // stage.numTasks for stage in stages if stage and stage.numTasks]
        return max(shares, default=0)

    with _reporting(read, total, progress):
        results = _collect(context.parallelize(list(splits), len(splits)).map(partial(_run, job)), tell)
    return {split.number: result for split, result in zip(splits, results, strict=True)}


def _collect(tasks: "RDD[Any]", tell: Tell | None = None) -> list[Any]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from rmqtool.analytics.spark.failure import explain_lost, failure

    try:
        return wait_for(tasks.context, tasks.collect, tell)
    except (Py4JError, PySparkException, EOFError, ConnectionError) as err:
        reason = failure(err)
        reason = explain_lost(err) or reason
        if "stopped SparkContext" in reason:  # the only message if the cluster dropped the application
            reason = f"the master {tasks.context.master} does not answer, or has ended the job"
        raise RmqError(f"Spark job failed: {reason}") from err


@contextmanager
def _reporting(read: Callable[[], int], total: int, progress: Progress | None) -> Iterator[None]:
    """Report progress while a job is running."""
    if progress is None:
        yield
        return
    over = Event()

    def look() -> None:
        while not over.wait(_LOOK):
            with suppress(Exception):  # the job may have ended, or the JVM
                progress(read(), total)

    watcher = Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(2 * _LOOK)
