"""The options of the data source ``rocketmq``."""

from rmqtool.analytics.source.filter import Condition
from rmqtool.analytics.spark.option_values import time_of
from rmqtool.errors import BadValue

# by lower-case name, as Spark passes them; values are the documented names
OPTIONS = {
    name.lower(): name
    for name in (
        "path", "paths", "table", "columns", "brokerConf", "splitBytes", "through", "counters",
        "topic", "queueId", "tag", "key", "since", "until", "startOffset", "stopOffset",
        "startingPosition", "maxBytesPerTrigger", "maxRecordsPerTrigger", "onExpired",
        "onUnproven", "storeTimes", "bodySchema",
    )
}  # fmt: skip
_CONDITIONS = {
    "topic": ("topic", "in"),
    "queueid": ("queueId", "in"),
    "tag": ("tags", "in"),
    "key": ("key", "in"),
    "since": ("storeTimestamp", ">="),
    "until": ("storeTimestamp", "<"),
    "startoffset": ("physicalOffset", ">="),
    "stopoffset": ("physicalOffset", "<"),
}


def condition_of(name: str, value: str) -> Condition | None:
    """Return the condition that an option sets, or None if it sets none. Lists are comma-separated.

    Raises:
        BadValue: the value is not a number or not a time.
    """
    if name.lower() not in _CONDITIONS:
        return None
    column, op = _CONDITIONS[name.lower()]
    try:
        if column == "storeTimestamp":
            return Condition(column, op, time_of(value))
        if column == "physicalOffset":
            return Condition(column, op, int(value))
        parts = [part.strip() for part in value.split(",")]
        return Condition(column, op, [_whole(part) if column == "queueId" else part for part in parts])
    except (ValueError, OverflowError):
        raise BadValue(f"option {OPTIONS[name.lower()]}: {value!r} is not understood") from None


def _whole(text: str) -> int:
    """Parse an integer; also accepts 3.0, as written from a column of floats."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)
