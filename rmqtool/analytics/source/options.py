"""The options of the data source ``rocketmq``."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from rmqtool.analytics.source.filter import Condition
from rmqtool.errors import BadValue

# by lower-case name, as Spark passes them; values are the documented names
OPTIONS = {
    name.lower(): name
    for name in (
        "path", "paths", "table", "columns", "brokerConf", "splitBytes", "through", "counters",
        "topic", "queueId", "tag", "key", "since", "until", "startOffset", "stopOffset",
        "startingPosition", "maxBytesPerTrigger", "maxRecordsPerTrigger", "onExpired",
        "onUnproven", "storeTimes",
    )
}  # fmt: skip
# properties that Spark's catalog adds when a table is created
OF_A_CATALOG = {"provider", "location", "owner", "comment", "external", "is_managed_location", "collation"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
            return Condition(column, op, _time(value))
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


def _time(text: str) -> datetime:
    """Parse milliseconds since the epoch, or ISO 8601; UTC if there is no zone."""
    if text.lstrip("-").isdecimal():
        return _EPOCH + timedelta(milliseconds=int(text))
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def number_of(options: Mapping[str, str], name: str, default: int) -> int:
    """Return the value of an option that is a positive number.

    Raises:
        BadValue: the value is not a positive number.
    """
    text = options.get(name)
    if text is None:
        return default
    if not (text.isdecimal() and text.isascii() and len(text) < 19) or not int(text):
        raise BadValue(f"option {name}: {text!r} is not a positive number")
    return int(text)
