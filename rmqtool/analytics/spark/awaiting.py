"""Long calls into Spark that a signal can interrupt, with a message if they have to wait.

py4j waits for the JVM's answer in the calling thread, and after an interrupted wait that thread gets no other answer
until the first one has arrived. Calls are therefore made in another thread, for which the main thread waits.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Timer
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

_R = TypeVar("_R")
Tell = Callable[[str], None]
_PATIENCE = 10.0  # seconds after which a message is shown if a cluster has not started a task
_LOOK = 0.25  # seconds between polls
_LOCAL = re.compile(r"local(\[.*\])?")


def is_local(context: "SparkContext") -> bool:
    """Return whether Spark runs in a single process on this machine, with its workers as child processes."""
    return _LOCAL.fullmatch(context.master or "") is not None


@contextmanager
def connecting(master: str, tell: Tell | None) -> Iterator[None]:
    """Show a message if creating a context takes long, which it does while a master does not answer."""
    text = f"waiting for {master}: it has not answered in {_PATIENCE:.0f} s. Ctrl-C or SIGTERM ends this"
    timer = Timer(_PATIENCE, tell or (lambda _line: None), [text])
    timer.daemon = True
    if not _LOCAL.fullmatch(master):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def wait_for(context: "SparkContext", call: Callable[[], _R], tell: Tell | None = None) -> _R:
    """Return the result of a Spark call. An exception raised here by a signal cancels the call.

    Args:
        tell: receives one line if a cluster does not start the job.
    """
    from pyspark import InheritableThread

    over, group = Event(), f"rmqtool-{uuid.uuid4().hex}"
    results: list[_R] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            context.setJobGroup(group, "rmqtool", interruptOnCancel=True)
            results.append(call())
        except BaseException as err:
            errors.append(err)
        finally:
            over.set()

    InheritableThread(run, name="rmqtool-spark", daemon=True).start()
    try:
        _wait(context, group, over, None if is_local(context) else tell)
    except BaseException:
        with suppress(Exception):
            context.cancelJobGroup(group)
        raise
    if errors:
        raise errors[0]
    return results[0]


def _wait(context: "SparkContext", group: str, over: Event, tell: Tell | None) -> None:
    begun = time.monotonic()
    while not over.wait(_LOOK):
        if tell is not None and time.monotonic() - begun > _PATIENCE:
            with suppress(Exception):  # Spark may have ended, which the call itself reports
                if not _has_begun(context.statusTracker(), group):
                    tell(_waiting_message(context))
            tell = None


def _has_begun(tracker: Any, group: str) -> bool:
    jobs = [job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number)) is not None]
    stages = [stage for job in jobs for number in job.stageIds if (stage := tracker.getStageInfo(number)) is not None]
    return any(stage.numActiveTasks or stage.numCompletedTasks or stage.numFailedTasks for stage in stages)


def _waiting_message(context: "SparkContext") -> str:
    conf = context.getConf()
    memory, cores = conf.get("spark.executor.memory", "1g"), conf.get("spark.executor.cores")
    needs = f"{memory} of memory (spark.executor.memory)" + (f" and {cores} cores" if cores else "")
    return (
        f"waiting for {context.master}: no task has begun in {_PATIENCE:.0f} s. Each executor needs {needs}; "
        "the cluster may have no worker with so much free. Ctrl-C or SIGTERM ends this and frees what it has"
    )
