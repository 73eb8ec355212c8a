"""Progress of Spark jobs, taken from Spark's status tracker."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from rmqtool.progress import Stage, is_heard, stage

if TYPE_CHECKING:
    from pyspark import SparkContext

_EVERY = 0.25  # seconds between polls


@contextmanager
def report_tasks(context: "SparkContext", name: str) -> Iterator[None]:
    """Show a stage of progress (:func:`rmqtool.progress.stage`) that counts the tasks of Spark jobs."""
    with stage(name, unit="tasks") as tasks:
        if not is_heard():
            yield
            return
        over, others = Event(), set(context.statusTracker().getActiveJobsIds())
        watch = Thread(target=_watch, args=(context, others, tasks, over), name="rmqtool-watch", daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()


def _watch(context: "SparkContext", others: set[int], progress: Stage, over: Event) -> None:
    tasks: dict[int, tuple[int, int]] = {}  # (completed, total) of each Spark stage
    with suppress(Exception):  # Spark may have ended, which the waiting call reports
        tracker = context.statusTracker()
        while not over.wait(_EVERY):
            for job in set(tracker.getActiveJobsIds()) - others:
                info = tracker.getJobInfo(job)
                for number in info.stageIds if info is not None else ():
                    if (stage := tracker.getStageInfo(number)) is not None:
                        tasks[number] = stage.numCompletedTasks, stage.numTasks
            if tasks:
                progress.done = sum(done for done, _all in tasks.values())
                progress.total = sum(number for _done, number in tasks.values())
