"""Provides a Spark context: an existing one, or else a quiet local one that is stopped afterwards."""

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
    """Yield a SparkContext for the duration of a ``with`` block.

    A context that exists in this process, or was prepared by spark-submit, is used as is. Otherwise one is started, and
    its Java process is terminated when the block ends, for whatever reason. A context starts in half the time of a
    session and is sufficient for running our own tasks.

    Args:
        master: Spark master URL; None for this machine.
        settings: Spark settings that override ours.
        brief: tune the JVM for a fast start; pass False if the JVM itself does substantial work.
        worker_daemon: module from which local Python workers are forked; None for Spark's own.
        tell: receives a line if a master does not answer.

    Raises:
        BadValue: ``master`` is a Spark Connect URL.
        MissingRuntime: there is no suitable Java or no bash, or Spark did not start.
    """
    from pyspark import SparkConf, SparkContext

    if master is not None and master.startswith("sc://"):
        raise BadValue(f"master {master}: Spark Connect cannot run this; give a spark://, yarn, k8s:// or local")
    if SparkContext._active_spark_context is not None:
        yield SparkContext._active_spark_context
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM and set the master
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
    started = StartedSpark(master, settings or {}, brief=brief, tell=tell)
    try:
        yield started.running
    finally:
        started.stop()


@contextmanager
def spark_session(master: str | None = None, *, settings: Mapping[str, str] | None = None) -> Iterator["SparkSession"]:
    """As :func:`spark_context`, but yield a SparkSession, for SQL and data frames."""
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
    """Return a SparkSession for a context."""
    with environment(NOT_CONNECT):
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession() or SparkSession(context)


class StartedSpark:
    """A context with its own JVM.

    Args:
        java_options: additional JVM options; by default those for the archive of classes, if there is one.
        tell: receives a line if a master does not answer.
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
                # SparkContext's own handler would call the JVM in the middle of another call
                signal.signal(signal.SIGINT, interrupt)
            self._same_version()
        except _spark_errors() as err:
            reason = failure(err)  # calls the JVM, so before stopping it
            self.stop()
            raise MissingRuntime(f"Spark did not start: {reason}") from err
        except BaseException:
            self.stop()
            raise

    @property
    def running(self) -> "SparkContext":
        """The context; valid until :meth:`stop`."""
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
        """As :meth:`stop`, but let the JVM exit by itself; return the last relevant line of its output."""
        try:
            with suppress(Exception):
                self.running.stop()
            return self.jvm.finish()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop the context, terminate the JVM, and reset PySpark so that another context can be started."""
        from pyspark import SparkContext

        context, self._context = self._context, None
        if context is not None and self._orderly:
            with suppress(Exception):
                context.stop()  # so that a cluster is notified
        context = context or SparkContext._active_spark_context  # a partly created context is registered here
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            server.handle_error = lambda *_: None  # prints a stack trace when the JVM has ended
        self.jvm.stop()
        if context is not None:
            context._jsc = context._accumulatorServer = None  # there is nothing left to notify
            with suppress(Exception):
                context.stop()
        if server is not None:
            threading.Thread(target=server.shutdown, daemon=True).start()  # waits for its own polling, half a second
        SparkContext._gateway = SparkContext._jvm = None
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(_not_py4j)


# the filter of a logger is not applied to records of its child loggers
_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")


def _not_py4j(record: logging.LogRecord) -> bool:
    """Suppress py4j's stack traces about interrupted calls and connections; we report interruptions ourselves."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _spark_errors() -> tuple[type[BaseException], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, OSError, ValueError
