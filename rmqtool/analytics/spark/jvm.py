"""Spark's Java process: started without output, and always terminated by us.

PySpark's own launcher passes our stderr to the JVM, does not say why a start failed, and does not keep the process.
This one uses the same protocol: the JVM writes port and secret to a file, and PySpark connects to that gateway.
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

_OPEN_FILES = 1024  # Spark needs half as many at start, and some more for each task
_POLL = 0.02  # seconds between polls for the JVM's answer
_START_LIMIT = 300.0  # seconds; a loaded machine may take a minute
_LOG_TAIL = 1 << 16  # bytes of the JVM's output searched for an error


class Jvm:
    """A running ``spark-submit pyspark-shell`` and the connection to it.

    Attributes:
        gateway: py4j's connection, for ``SparkContext(gateway=...)``.
        work_dir: temporary directory for all files of Spark; removed by :meth:`stop`.
    """

    def __init__(self, environ: Mapping[str, str], options: Sequence[str], scratch: Scratch) -> None:
        """Start the process and wait until it answers.

        Args:
            environ: complete environment of the process; must contain SPARK_HOME and JAVA_HOME.
            options: arguments for spark-submit.
            scratch: ownership is taken over.

        Raises:
            MissingRuntime: it did not start; the message contains the reason it printed.
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
                stdin=subprocess.PIPE,  # the JVM exits when this pipe breaks, even if we are killed
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is handled by us
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
        """Return the line of the process's output that best explains a failure."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - _LOG_TAIL, 0))
        return reason_line(self._log.read().decode("utf-8", "replace"))

    def finish(self) -> str:
        """Wait for the process to end by itself, which takes some time; return :meth:`reason`."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_START_LIMIT)
        return self.reason()

    def stop(self) -> None:
        """Terminate the process and its children. Never raises and may be called twice."""
        process = self._process
        if self.gateway is not None and process is not None and process.poll() is None:
            with suppress(Exception):
                self.gateway.shutdown()  # before terminating the JVM, since py4j logs lost connections
        if process is not None:
            # the files of a killed JVM are in work_dir; an orderly shutdown would sleep for a second
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
    """Return a hint about a low limit of open files, which Java does not mention in its error."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _OPEN_FILES:
        return ""
    return f"; at most {soft} files may be open here, and Spark needs more: ulimit -n {_OPEN_FILES}"


_NOISE = ("WARNING:", "Picked up ", "Using Spark's default", "Setting default log level", "To adjust logging", "\tat ")
_ERROR_WORDS = ("error:", "Error:", "Exception", "Unrecognized", "Unsupported", "Could not", "Cannot", "not found")


def reason_line(output: str) -> str:
    """Return the first line that looks like an error, else the last line that is not known noise."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(_NOISE)]
    for line in lines:
        if any(word in line for word in _ERROR_WORDS):
            return line
    return lines[-1] if lines else "it gave no reason"


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for a ``with`` block; None removes a variable."""
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
