"""Long calls into Spark that a signal ends, and a word about what they wait for.

py4j waits for an answer of the JVM in the thread that asked, and a thread whose wait was interrupted gets no answer to
anything else before the first one has come. So another thread asks, and the main thread waits for that.
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
_PATIENCE = 10.0  # seconds that a cluster has to begin a task
_LOOK = 0.25  # seconds between looks
_LOCAL = re.compile(r"local(\[.*\])?")


def is_local(context: "SparkContext") -> bool:
    """Whether all of Spark is one process on this machine, its workers beside it."""
    return _LOCAL.fullmatch(context.master or "") is not None


@contextmanager
def connecting(master: str, tell: Tell | None) -> Iterator[None]:
    """A context that is being made, which takes as long as a master does not answer."""
    text = f"waiting for {master}: it has not answered in {_PATIENCE:.0f} s. Ctrl-C or SIGTERM ends this"
    timer = Timer(_PATIENCE, tell or (lambda _words: None), [text])
    timer.daemon = True
    if not _LOCAL.fullmatch(master):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def wait_for(context: "SparkContext", call: Callable[[], _R], tell: Tell | None = None) -> _R:
    """The result of a call that has Spark do something. An exception that a signal raises here ends that too.

    Args:
        tell: gets a line, once, when a cluster does not begin with it.
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
            with suppress(Exception):  # Spark may have ended, which the call says
                if not _has_begun(context.statusTracker(), group):
                    tell(_words(context))
            tell = None


def _has_begun(tracker: Any, group: str) -> bool:
    jobs = [job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number)) is not None]
    stages = [stage for job in jobs for number in job.stageIds if (stage := tracker.getStageInfo(number)) is not None]
    return any(stage.numActiveTasks or stage.numCompletedTasks or stage.numFailedTasks for stage in stages)


def _words(context: "SparkContext") -> str:
    conf = context.getConf()
    memory, cores = conf.get("spark.executor.memory", "1g"), conf.get("spark.executor.cores")
    needs = f"{memory} of memory (spark.executor.memory)" + (f" and {cores} cores" if cores else "")
    return (
        f"waiting for {context.master}: no task has begun in {_PATIENCE:.0f} s. Each executor needs {needs}; "
        "the cluster may have no worker with so much free. Ctrl-C or SIGTERM ends this and frees what it has"
    )
