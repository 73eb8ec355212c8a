"""What runs for each split, in this process or in Spark's workers: read, decode, write Parquet.

Spark pickles by reference, so everything it is handed lives here and not in a closure.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from rmqtool.analytics.arrow import BATCH_BYTES, batches
from rmqtool.analytics.choice import Choice
from rmqtool.analytics.files import Folder
from rmqtool.analytics.output import DONE
from rmqtool.analytics.parquet import ROW_GROUP_BYTES, Part, PartWriter
from rmqtool.analytics.splits import Split
from rmqtool.analytics.tally import Tally
from rmqtool.analytics.views import has_views, take
from rmqtool.errors import RmqError, UnreadableStore
from rmqtool.store.segments import Segment

if TYPE_CHECKING:
    from pyspark import SparkContext

_STOP = "_failed"  # in the output directory: a task has failed, the others need not go on
_LOOK = 1.0  # seconds between looks for what others have done

Progress = Callable[[int, int], None]  # called with bytes of log that are read, and all


@dataclass(frozen=True, slots=True)
class Job:
    """What the tasks of one dump have in common."""

    folder: str
    run: str
    choice: Choice
    partition_by: tuple[str, ...] = ()
    codec: str = "zstd"
    batch_bytes: int = BATCH_BYTES
    row_group_bytes: int = ROW_GROUP_BYTES
    file_bytes: int | None = None
    selection: str | None = None  # where the offsets are that a condition holds for; None without one

    def writer(self, folder: Folder, split: Split | None) -> PartWriter:
        """For the files of one task, named by where in the log it begins."""
        name = f"part-{split.base + split.start if split else 0:020d}"
        suffix = self.run if self.codec == "none" else f"{self.run}.{self.codec}"
        options = (self.partition_by, self.codec, self.row_group_bytes, self.file_bytes)
        return PartWriter(folder, name, suffix, *options)


@dataclass(frozen=True, slots=True)
class Done:
    """A split that was read, and the files with its rows."""

    tally: Tally
    parts: list[Part]

    @property
    def first(self) -> int:
        """See :class:`rmqtool.analytics.splits.Walked`."""
        return self.tally.first

    @property
    def next(self) -> int:
        """See :class:`rmqtool.analytics.splits.Walked`."""
        return self.tally.next


def done_before(folder: Folder, splits: Sequence[Split]) -> dict[int, Done]:
    """What an earlier run has done of these splits, by their numbers.

    The log's last file is not taken: more may be in it by now.
    """
    known: dict[str, Done] = {}
    for name in folder.files(DONE):
        told = folder.read_json(name)
        with suppress(KeyError, TypeError, ValueError):
            done = Done(Tally.from_dict(told["tally"]), [Part(**part) for part in told["parts"]])
            if all(folder.size(part.path) == part.bytes for part in done.parts):
                known[json.dumps(told["split"])] = done
    wanted = {split.number: json.dumps(_definition(split)) for split in splits if not split.last}
    return {number: known[key] for number, key in wanted.items() if key in known}


def _definition(split: Split) -> dict[str, Any]:
    # a URI may hold a secret, and another one the next time
    return {name: value for name, value in asdict(split).items() if name not in ("number", "uri")}


@dataclass(frozen=True, slots=True)
class Failed:
    """A split that was not read through, told without the stack traces that Spark wraps around an exception."""

    reason: str
    unreadable: bool


def run_split(job: Job, split: Split) -> Done | Failed:
    """Read one split and write its rows."""
    folder = Folder(job.folder)
    writer = job.writer(folder, split)
    tally = Tally()
    looked = time.monotonic()
    try:
        file = split.segment()
        for batch in _rows(job, split, file, tally):
            if writer.write(batch) and has_views(batch.schema):
                file.forget(split.start, split.stop)  # bodies have been read from it once more
            if time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                if folder.size(_STOP) is not None:
                    raise RmqError("another task has failed")
        done = Done(tally, writer.close())
        _note(folder, split, done)
        return done
    except (RmqError, OSError) as err:
        writer.discard()
        with suppress(OSError):
            folder.write(_STOP, "")
        return Failed(_reason(err), isinstance(err, UnreadableStore))
    except BaseException:
        writer.discard()
        raise


def _rows(job: Job, split: Split, file: Segment, tally: Tally) -> Iterator[Any]:
    read = batches(split, job.choice, tally, job.batch_bytes, file=file, views=True)
    if job.selection is None:
        yield from read
        return
    import numpy as np

    from rmqtool.analytics.where import selected

    wanted, rows = selected(Folder(job.selection), split), 0
    for batch in read:
        offsets = batch.column("physicalOffset").to_numpy()
        at = np.searchsorted(wanted, offsets)
        there = at < len(wanted)
        there[there] = wanted[at[there]] == offsets[there]
        kept = take(batch, np.flatnonzero(there))
        rows += kept.num_rows
        yield kept
    tally.rows = rows


def _note(folder: Folder, split: Split, done: Done) -> None:
    told = {"split": _definition(split), "tally": done.tally.to_dict(), "parts": [asdict(part) for part in done.parts]}
    folder.make(DONE)
    folder.write(f"{DONE}/{split.base + split.start:020d}-{split.stop}.json", json.dumps(told))


def _reason(err: RmqError | OSError) -> str:
    # reading raises UnreadableStore, so this is about the output; pyarrow puts its own words around the system's
    if isinstance(err, OSError) and err.errno:
        return f"the output cannot be written: {os.strerror(err.errno)}"
    return str(err)


def run_splits(
    job: Job, splits: Sequence[Split], context: "SparkContext | None" = None, progress: Progress | None = None
) -> list[Done]:
    """Read splits, one after the other or as a Spark job with a task for each.

    Raises:
        UnreadableStore: a file cannot be read.
        RmqError: the output cannot be written, or Spark failed.
    """
    folder = Folder(job.folder)
    folder.delete(_STOP)
    total = sum(split.stop - split.start for split in splits)
    if context is None:
        results, read = [], 0
        for split in splits:
            results.append(run_split(job, split))
            if isinstance(results[-1], Failed):
                break
            read += split.stop - split.start
            if progress is not None:
                progress(read, total)
    else:
        with _told_of(context, total, progress):
            results = _run_in_spark(job, splits, context)
    failures = [result for result in results if isinstance(result, Failed)]
    if failures:
        first = next((failed for failed in failures if failed.reason != "another task has failed"), failures[0])
        raise UnreadableStore(first.reason) if first.unreadable else RmqError(first.reason)
    return [result for result in results if isinstance(result, Done)]


def _run_in_spark(job: Job, splits: Sequence[Split], context: "SparkContext") -> list[Done | Failed]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from rmqtool.analytics.session import failure

    if not splits:
        return []
    try:
        return context.parallelize(list(splits), len(splits)).map(partial(run_split, job)).collect()
    except (Py4JError, PySparkException, EOFError, ConnectionError) as err:
        reason = failure(err)
        if "stopped SparkContext" in reason:  # all that is left when a cluster gave us up
            reason = f"the master {context.master} does not answer, or has ended the job"
        raise RmqError(f"Spark job failed: {reason}") from err


@contextmanager
def _told_of(context: "SparkContext", total: int, progress: Progress | None) -> Iterator[None]:
    """Tell of the job that runs meanwhile."""
    if progress is None:
        yield
        return
    over = Event()

    def look() -> None:
        tracker = context.statusTracker()
        while not over.wait(_LOOK):
            with suppress(Exception):  # the job may have ended, or the JVM
                for stage in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(stage)
                    if info is not None and info.numTasks:
                        progress(total * info.numCompletedTasks // info.numTasks, total)

    watcher = Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(2 * _LOOK)
