"""A Spark to run on: the one that is there, else one of our own that is quiet, local and gone afterwards."""

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from rmqtool.analytics.local.scratch import Scratch
from rmqtool.analytics.spark.archive import archive_of
from rmqtool.analytics.spark.awaiting import Tell, connecting
from rmqtool.analytics.spark.failure import failure
from rmqtool.analytics.spark.java import find_java, need_bash
from rmqtool.analytics.spark.jvm import Jvm, environment
from rmqtool.analytics.spark.settings import NOT_CONNECT, apply_changes, environment_of, settings_of
from rmqtool.errors import BadValue, MissingRuntime

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"


@contextmanager
def spark_context(
    master: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    brief: bool = True,
    worker_daemon: str | None = None,
    tell: Tell | None = None,
) -> Iterator["SparkContext"]:
    """A SparkContext for the duration of a ``with`` block.

    One that runs in this process already, or that spark-submit has prepared, is used as it is. Else one is started,
    and its Java process is gone when the block is left, however it is left. A context takes half the time of a
    session to start, and is all that a job of our own tasks needs.

    Args:
        master: Spark master URL; this machine when None.
        settings: Spark settings over our own.
        brief: tune the JVM for a fast start; for work that the JVM itself does, say False.
        worker_daemon: the module from which the Python workers of this machine are forked; Spark's own when None.
        tell: gets a line when a master does not answer.

    Raises:
        BadValue: a Spark Connect URL as master.
        MissingRuntime: no fit Java, no bash, or Spark did not start.
    """
    from pyspark import SparkConf, SparkContext

    if master is not None and master.startswith("sc://"):
        raise BadValue(f"master {master}: Spark Connect cannot run this; give a spark://, yarn, k8s:// or local")
    if SparkContext._active_spark_context is not None:
        yield SparkContext._active_spark_context
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM and says where to run
        conf = SparkConf().setAll(list((settings or {}).items()))
        if master:
            conf.setMaster(master)
        context = SparkContext(conf=conf)
        try:
            yield context
        finally:
            context.stop()
        return
    master = master or LOCAL
    if worker_daemon is not None and master.startswith("local"):
        settings = {"spark.python.daemon.module": worker_daemon, **(settings or {})}
    started = Started(master, settings or {}, brief=brief, tell=tell)
    try:
        yield started.running
    finally:
        started.stop()


@contextmanager
def spark_session(master: str | None = None, *, settings: Mapping[str, str] | None = None) -> Iterator["SparkSession"]:
    """As :func:`spark_context`, a SparkSession; for SQL and data frames."""
    with spark_context(master, settings=settings, brief=False) as context, environment(NOT_CONNECT):
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        session = active or SparkSession.builder.getOrCreate()
        try:
            yield session
        finally:
            if active is None and context is session.sparkContext:
                session.stop()


def session_of(context: "SparkContext") -> "SparkSession":
    """A SparkSession on a context."""
    with environment(NOT_CONNECT):
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession() or SparkSession(context)


class Started:
    """A context with a JVM of its own, and how to undo both.

    Args:
        java_options: for the JVM, beside our own; when None, those for the archive of classes, where there is one.
        tell: gets a line when a master does not answer.
    """

    def __init__(
        self,
        master: str,
        settings: Mapping[str, str],
        *,
        brief: bool,
        java_options: Sequence[str] | None = None,
        tell: Tell | None = None,
    ) -> None:
        from pyspark import SparkConf, SparkContext

        interrupt = signal.getsignal(signal.SIGINT)
        java = find_java()
        need_bash()
        local = master.startswith("local")
        if java_options is None:
            archive = archive_of(java)
            java_options = [f"-XX:SharedArchiveFile={archive}"] if os.path.exists(archive) else []
        scratch = Scratch("spark")
        work_dir = scratch.path
        try:
            changes = environment_of(java, work_dir, local=local)
            ours = settings_of(work_dir, settings, local=local, brief=brief, java_options=java_options)
            options = {"spark.master": master, **ours}
            arguments = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
            self.jvm = Jvm(apply_changes(changes), arguments, scratch)
        except BaseException:
            scratch.remove()
            raise
        self._orderly = not local
        self._context: Any = None
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_not_py4j)
        try:
            with environment(changes), connecting(master, tell):
                conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
                self._context = SparkContext(conf=conf, gateway=self.jvm.gateway)
            if interrupt is not None and threading.current_thread() is threading.main_thread():
                # SparkContext's own handler calls the JVM in the middle of another call
                signal.signal(signal.SIGINT, interrupt)
            self._same_version()
        except _spark_errors() as err:
            reason = failure(err)  # asks the JVM
            self.stop()
            raise MissingRuntime(f"Spark did not start: {reason}") from err
        except BaseException:
            self.stop()
            raise

    @property
    def running(self) -> "SparkContext":
        """The context, until :meth:`stop`."""
        context: SparkContext = self._context
        return context

    def _same_version(self) -> None:
        import pyspark

        if self._context.version != pyspark.__version__:
            raise MissingRuntime(
                f"SPARK_HOME={os.environ.get('SPARK_HOME')} is Spark {self._context.version}, "
                f"the installed PySpark is {pyspark.__version__}; they must be the same"
            )

    def finish(self) -> str:
        """As :meth:`stop`, but let the JVM come to its own end; what it says then."""
        try:
            with suppress(Exception):
                self.running.stop()
            return self.jvm.finish()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop the context, end the JVM, and forget both, so that another can be started."""
        from pyspark import SparkContext

        context, self._context = self._context, None
        if context is not None and self._orderly:
            with suppress(Exception):
                context.stop()  # a cluster must hear of it
        context = context or SparkContext._active_spark_context  # one that failed half-way is registered
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            server.handle_error = lambda *_: None  # it prints a stack trace when the JVM is gone
        self.jvm.stop()
        if context is not None:
            context._jsc = context._accumulatorServer = None  # there is nothing left to notify
            with suppress(Exception):
                context.stop()
        if server is not None:
            threading.Thread(target=server.shutdown, daemon=True).start()  # waits for its own poll, half a second
        SparkContext._gateway = SparkContext._jvm = None
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(_not_py4j)


# a logger's filter is not asked about what comes from the loggers below it
_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")


def _not_py4j(record: logging.LogRecord) -> bool:
    """py4j logs stack traces when a call is interrupted and when closing fails then; that it was is ours to tell."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _spark_errors() -> tuple[type[BaseException], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, OSError, ValueError
