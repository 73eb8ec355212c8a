"""``sql`` and ``report`` behind their options: ask Spark, write the rows."""

import os
import signal
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from rmqtool.analytics.source.plan import Request, request_of
from rmqtool.analytics.spark.jvm import environment
from rmqtool.analytics.sql.query import Answer, answer
from rmqtool.analytics.table.schema import TIME_COLUMNS
from rmqtool.cli.shell.output import Column, note, write_all, writer
from rmqtool.contract import render_body
from rmqtool.errors import Refused

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def request(store: str, broker_conf: str | None, **options: str | None) -> Request:
    """The stores of a command line, and what the options of the data source say besides."""
    given = {"path": store, "brokerConf": broker_conf, **options}
    return request_of({name: value for name, value in given.items() if value is not None})


def run_sql(asked: Request, query: str, *, to: str | None, overwrite: bool, output: str) -> int:
    """``sql``: 0, or 1 when damage was met on the way."""
    if to is not None:
        _may_write(to, overwrite=overwrite)
    with spark_process(), answer(asked, query) as found:
        if to is not None:
            found.write_parquet(to)
        else:
            with closing(rows_of(found, output)) as rows:
                write_all(writer(output, found.columns, columns_of(found)), rows)
        return say(found)


def columns_of(found: Answer, wide: Sequence[str] = ()) -> list[Column]:
    """Columns of a table for people; numbers to the right."""
    kinds = (kind for _name, kind in found.frame.dtypes)
    return [
        Column(name, right=kind.startswith(_NUMBERS), wide=name in wide)
        for name, kind in zip(found.columns, kinds, strict=True)
    ]


def rows_of(found: Answer, output: str) -> Generator[dict[str, Any], None, None]:
    """Rows as an output has them."""
    names = found.columns
    with closing(found.rows()) as rows:  # behind a pipe that breaks, Spark is told before it ends
        for row in rows:
            yield plain_row(zip(names, row, strict=True), output)


def plain_row(values: Iterable[tuple[str, Any]], output: str) -> dict[str, Any]:
    """A row as an output has it: the times of a message are numbers of ms for programs, as in every other command."""
    if output == "table":
        return {name: plain_value(value) for name, value in values}
    return {
        name: _millis(value) if name in TIME_COLUMNS and isinstance(value, datetime) else plain_value(value)
        for name, value in values
    }


def _millis(value: datetime) -> int:
    return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def plain_value(value: Any) -> Any:
    """A value of Spark's as JSON has it: times in ISO 8601, bytes as text where they are UTF-8, else base64."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return render_body(bytes(value), "auto")[0]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)  # JSON has no such numbers
    if isinstance(value, dict):
        return {str(plain_value(name)): plain_value(inner) for name, inner in value.items()}
    if hasattr(value, "asDict"):
        return {name: plain_value(inner) for name, inner in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [plain_value(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def say(found: Answer) -> int:
    """What reading has shown, on stderr; the exit code."""
    counters = found.counters
    if counters.damaged:
        note(
            f"damage: {counters.damagedBytes} bytes in {counters.damaged} ranges of the log hold no record "
            "although they should; rmqtool check, or the table findings, says where"
        )
    if counters.bytesRead:
        fetched = f", {counters.bytesFetched} fetched" if counters.bytesFetched else ""
        note(f"{counters.bytesRead} bytes of the store were read{fetched}")
    return 1 if counters.damaged else 0


def _may_write(path: str, *, overwrite: bool) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise Refused(f"{folder}: no such directory")
    if os.path.isdir(path):
        raise Refused(f"{path}: is a directory")
    if os.path.exists(path) and not overwrite:
        raise Refused(f"{path}: exists; give --overwrite to replace it")


def _unraisable(told: "sys.UnraisableHookArgs") -> None:
    """An iterator of Spark's that is given up tells a Java that may be gone; that it is, is told already."""
    if not isinstance(told.exc_value, ConnectionError):
        sys.__unraisablehook__(told)


@contextmanager
def spark_process() -> Iterator[None]:
    """PySpark gives times in the process's own zone, without saying which. A service manager's stop ends Java too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.unraisablehook = _unraisable
    with environment({"TZ": "UTC"}):
        time.tzset()
        yield
    time.tzset()
