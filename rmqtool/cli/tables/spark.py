"""Shared by ``sql`` and ``report`` when Spark answers: its process and its rows."""

import signal
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from rmqtool.analytics.spark.jvm import environment
from rmqtool.analytics.sql.query import Answer
from rmqtool.cli.render.output import Column, rank_in
from rmqtool.cli.tables.asked import plain_row

# columns that are dropped first on a narrow terminal; the last two only if there is a lag
_SPARE = (
    "configured", "order", "perm", "writeQueueNums", "readQueueNums", "slot", "timeDiff", "previous", "minOffset",
    "storeSize", "maxOffset", "brokerOffset", "consumerOffset",
)  # fmt: skip
_BESIDE_LAG = _SPARE[-2:]
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def columns_of(found: Answer, wide: Sequence[str] = ()) -> list[Column]:
    """Columns of a table for people; numbers to the right."""
    kinds = (kind for _name, kind in found.frame.dtypes)
    return [
        Column(
            name,
            right=kind.startswith(_NUMBERS),
            wide=name in wide,
            rank=rank_in(_SPARE, name) if name not in _BESIDE_LAG or "lag" in found.columns else 0,
        )
        for name, kind in zip(found.columns, kinds, strict=True)
    ]


def rows_of(found: Answer, output: str) -> Generator[dict[str, Any], None, None]:
    """Rows for an output form."""
    names = found.columns
    with closing(found.rows()) as rows:  # on a broken pipe Spark must stop before this process ends
        for row in rows:
            yield plain_row(zip(names, row, strict=True), output)


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
