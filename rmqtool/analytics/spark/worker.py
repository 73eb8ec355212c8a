"""Errors in the Python processes that Spark starts."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rmqtool.errors import RmqError

_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # see pyspark.util.handle_worker_exception


def in_worker() -> bool:
    """Return whether this process is one that Spark has started."""
    return str(getattr(sys.modules["__main__"].__spec__, "name", "")).startswith("pyspark.")


@contextmanager
def without_traceback() -> Iterator[None]:
    """Show rmqtool's own errors to the user as one line, without the traceback that Spark's workers add."""
    try:
        yield
    except RmqError:
        if in_worker():
            os.environ[_HIDE_TRACEBACK] = "1"  # only in this worker, which the error ends
        raise


class RefusedStream(DataSourceStreamReader):
    """A stream that ends with an error as soon as it begins.

    PySpark 4.3 loses an error that is raised while a reader is made, and shows one of its own in its place.
    """

    def __init__(self, error: RmqError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, object]:
        return self._raise()

    def latestOffset(self, *_: object) -> dict[str, object]:
        return self._raise()

    def partitions(self, *_: object) -> Sequence[InputPartition]:
        return self._raise()

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        return self._raise()

    def _raise(self) -> NoReturn:
        with without_traceback():
            raise self._error
