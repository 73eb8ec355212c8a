"""Errors in the Python processes that Spark starts."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rmqtool.errors import RmqError

_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # see pyspark.util.handle_worker_exception


@contextmanager
def without_traceback() -> Iterator[None]:
    """Show rmqtool's own errors to the user as one line, without the traceback that Spark's workers add."""
    try:
        yield
    except RmqError:
        if str(getattr(sys.modules["__main__"].__spec__, "name", "")).startswith("pyspark."):
            os.environ[_HIDE_TRACEBACK] = "1"  # only in this worker, which the error ends
        raise
