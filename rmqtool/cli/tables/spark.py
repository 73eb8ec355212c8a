"""Shared by ``sql`` and ``report`` when Spark answers: its process."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rmqtool.analytics.spark.jvm import environment


def _unraisable(raised: "sys.UnraisableHookArgs") -> None:
    """Ignore errors of abandoned Spark iterators whose JVM has gone; that is already reported."""
    if not isinstance(raised.exc_value, ConnectionError):
        sys.__unraisablehook__(raised)


@contextmanager
def spark_process() -> Iterator[None]:
    """Run Spark: with UTC as the zone, as PySpark returns local times, and with Java ended by SIGTERM too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.unraisablehook = _unraisable
    with environment({"TZ": "UTC"}):
        time.tzset()
        yield
    time.tzset()
