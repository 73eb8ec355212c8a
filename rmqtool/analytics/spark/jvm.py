"""Spark's Java process: started quietly, and always ended by us.

PySpark's own launcher hands the JVM our stderr, does not say why a start failed, and forgets the process. This one
speaks the same protocol: the JVM writes port and secret to a file, and PySpark connects to a gateway that is there.
"""

import os
import resource
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rmqtool.analytics.local.scratch import Scratch
from rmqtool.errors import MissingRuntime
from rmqtool.store.disk.mapping import raise_open_files

_OPEN_FILES = 1024  # Spark starts with half as many, and takes some for each task
_POLL = 0.02  # seconds between looks for the JVM's answer
_START_LIMIT = 300.0  # seconds; a loaded machine may take a minute
_LOG_TAIL = 1 << 16  # bytes of the JVM's output that are searched for a reason


class Jvm:
    """A running ``spark-submit pyspark-shell`` and the connection to it.

    Attributes:
        gateway: py4j's connection, for ``SparkContext(gateway=...)``.
        work_dir: temporary directory for whatever Spark puts down; gone after :meth:`stop`.
    """

    def __init__(self, environ: Mapping[str, str], options: Sequence[str], scratch: Scratch) -> None:
        """Start it and wait until it answers.

        Args:
            environ: the whole environment of the process; SPARK_HOME and JAVA_HOME must be in it.
            options: arguments of spark-submit.
            scratch: owned from here on.

        Raises:
            MissingRuntime: it did not start; the message has the reason that it gave.
        """
        self._scratch, self.work_dir = scratch, scratch.path
        self._process: subprocess.Popen[bytes] | None = None
        self.gateway: Any = None
        raise_open_files(_OPEN_FILES)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            self._start(environ, options)
            self.gateway = self._connect()
        except BaseException:
            self.stop()
            raise

    def _start(self, environ: Mapping[str, str], options: Sequence[str]) -> None:
        answer = os.path.join(self.work_dir, "gateway")
        command = [os.path.join(environ["SPARK_HOME"], "bin", "spark-submit"), *options, "pyspark-shell"]
        try:
            process = self._process = subprocess.Popen(
                command,
                env={**environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": answer},
                stdin=subprocess.PIPE,  # the JVM ends when this pipe breaks, also when we are killed
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        except OSError as err:
            raise MissingRuntime(f"Spark did not start: {command[0]}: {os.strerror(err.errno or 0)}") from err
        deadline = time.monotonic() + _START_LIMIT
        while not os.path.isfile(answer):
            if process.poll() is not None:
                raise MissingRuntime(f"Spark did not start: {self.reason()}{_few_open_files()}")
            if time.monotonic() > deadline:
                raise MissingRuntime(f"Spark did not answer within {_START_LIMIT:.0f} s: {self.reason()}")
            time.sleep(_POLL)
        # written under another name and then renamed, so it is complete: port, then a string with its length
        with open(answer, "rb") as file:
            port, length = struct.unpack(">ii", file.read(8))
            self._address = port, file.read(length).decode()
        os.unlink(answer)

    def _connect(self) -> Any:
        from pyspark.java_gateway import launch_gateway

        port, secret = self._address
        with environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            return launch_gateway()  # type: ignore[no-untyped-call]

    def reason(self) -> str:
        """One line of what the process has written that says most about a failure."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - _LOG_TAIL, 0))
        return reason_line(self._log.read().decode("utf-8", "replace"))

    def finish(self) -> str:
        """Have the process end by itself, which takes its time; one line of what it has written."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_START_LIMIT)
        return self.reason()

    def stop(self) -> None:
        """End the process and what belongs to it. Never raises, and may be called twice."""
        process = self._process
        if self.gateway is not None and process is not None and process.poll() is None:
            with suppress(Exception):
                self.gateway.shutdown()  # before the end of the JVM: py4j logs what it finds no answer to
        if process is not None:
            # what a killed JVM leaves behind lies in work_dir; its orderly end sleeps a whole second
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        self._process = self.gateway = None
        self._log.close()
        self._scratch.remove()


def _few_open_files() -> str:
    """What Java says nothing of: it opens each archive of Spark's."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _OPEN_FILES:
        return ""
    return f"; at most {soft} files may be open here, and Spark needs more: ulimit -n {_OPEN_FILES}"


_NOISE = ("WARNING:", "Picked up ", "Using Spark's default", "Setting default log level", "To adjust logging", "\tat ")
_TELLING = ("error:", "Error:", "Exception", "Unrecognized", "Unsupported", "Could not", "Cannot", "not found")


def reason_line(output: str) -> str:
    """The first line that tells of an error, else the last that is not known to be noise."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(_NOISE)]
    for line in lines:
        if any(word in line for word in _TELLING):
            return line
    return lines[-1] if lines else "it gave no reason"


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables set for a while; None takes one away."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
