"""Reasons of failures inside Spark, in one line and without the secrets of URIs."""

from contextlib import suppress

from rmqtool.analytics.remote.secrets import remove_secrets


def explain_lost(err: BaseException) -> str | None:
    """Return a message if a process of Spark ended prematurely, or None."""
    from py4j.protocol import Py4JNetworkError

    cause: BaseException | None = err
    while cause is not None:
        if isinstance(cause, EOFError | ConnectionError | Py4JNetworkError):
            return "Spark's Java process ended before it was done: it was killed, or the memory did not suffice"
        cause = cause.__cause__ or cause.__context__
    text = str(err)
    if "Python worker exited unexpectedly" in text or "java.io.EOFException" in text:
        return "a Python worker of Spark's ended before it was done: it was killed, or the memory did not suffice"
    if "java.lang.OutOfMemoryError" in text:
        return "Spark's Java process ran out of memory"
    return None


def failure(err: BaseException) -> str:
    """Return the reason of a failure in one line; py4j's own messages are entire stack traces.

    Raises:
        KeyboardInterrupt: PySpark was interrupted and failed while cleaning up.
    """
    cause: BaseException | None = err
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        cause = cause.__context__
    text = str(err)
    java = getattr(err, "java_exception", None)
    if java is not None:
        with suppress(Exception):
            text = str(java.toString())
    lines = [line for line in text.splitlines() if line.strip()]
    headers = [number for number, line in enumerate(lines) if line.lstrip().startswith("Traceback (")]
    if headers:  # a task's own exception: the first line after the frames, which are indented
        indent = len(lines[headers[-1]]) - len(lines[headers[-1]].lstrip())
        for line in lines[headers[-1] + 1 :]:
            if not line[indent : indent + 1].isspace():
                return remove_secrets(line.strip())
    return remove_secrets(lines[0].strip()) if lines else type(err).__name__
