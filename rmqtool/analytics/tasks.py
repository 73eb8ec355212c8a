"""What runs for each split, in this process or in Spark's workers: read, decode, write Parquet.

Spark pickles by reference, so everything it is handed lives here and not in a closure.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rmqtool.analytics.arrow import BATCH_BYTES, Choice, Tally, batches
from rmqtool.analytics.parquet import ROW_GROUP_BYTES, Part, PartWriter
from rmqtool.analytics.splits import Split
from rmqtool.errors import RmqError, UnreadableStore

if TYPE_CHECKING:
    from pyspark import SparkContext

_STOP = "_failed"  # in the output directory: a task has failed, the others need not go on


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

    def writer(self, number: int) -> PartWriter:
        """For the files of one task."""
        suffix = self.run if self.codec == "none" else f"{self.run}.{self.codec}"
        return PartWriter(
            self.folder, f"part-{number:05d}", suffix, self.partition_by, self.codec, self.row_group_bytes
        )


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


@dataclass(frozen=True, slots=True)
class Failed:
    """A split that was not read through, told without the stack traces that Spark wraps around an exception."""

    reason: str
    unreadable: bool


def run_split(job: Job, split: Split) -> Done | Failed:
    """Read one split and write its rows."""
    stop = os.path.join(job.folder, _STOP)
    writer = job.writer(split.number)
    tally = Tally()
    try:
        for batch in batches(split, job.choice, tally, job.batch_bytes):
            writer.write(batch)
            if os.path.exists(stop):
                raise RmqError("another task has failed")
        return Done(tally, writer.close())
    except (RmqError, OSError) as err:
        writer.discard()
        with suppress(OSError), open(stop, "x"):
            pass
        return Failed(_reason(err), isinstance(err, UnreadableStore))
    except BaseException:
        writer.discard()
        raise


def _reason(err: RmqError | OSError) -> str:
    # reading raises UnreadableStore, so this is about the output; pyarrow puts its own words around the system's
    if isinstance(err, OSError) and err.errno:
        return f"the output cannot be written: {os.strerror(err.errno)}"
    return str(err)


def run_splits(job: Job, splits: Sequence[Split], context: "SparkContext | None" = None) -> list[Done]:
    """Read splits, one after the other or as a Spark job with a task for each.

    Raises:
        UnreadableStore: a file cannot be read.
        RmqError: the output cannot be written, or Spark failed.
    """
    if context is None:
        results = []
        for split in splits:
            results.append(run_split(job, split))
            if isinstance(results[-1], Failed):
                break
    else:
        results = _run_in_spark(job, splits, context)
    failures = [result for result in results if isinstance(result, Failed)]
    if failures:
        with suppress(OSError):
            os.unlink(os.path.join(job.folder, _STOP))
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
