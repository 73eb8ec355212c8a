"""Values of the options of a data source."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from rmqtool.errors import BadValue

# properties that Spark's catalog adds when a table is created
OF_A_CATALOG = {"provider", "location", "owner", "comment", "external", "is_managed_location", "collation"}
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of the tasks of a stream."""
_MEANT = {  # of a live cluster: names that Kafka's source and RocketMQ's clients have, in lower case
    "kafka.bootstrap.servers": "namesrv",
    "nameserver": "namesrv",
    "nameserveraddress": "namesrv",
    "namesrvaddr": "namesrv",
    "topic": "subscribe",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "groupidprefix": "commitGroup",
    "kafka.group.id": "commitGroup",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def suggest(names: Iterable[str]) -> str:
    """Return what to give in place of unknown options, for the text of an error; empty if that is unclear."""
    pairs = [f"{_MEANT[name.lower()]} instead of {name}" for name in names if name.lower() in _MEANT]
    return f"; for a live cluster give {', '.join(pairs)}" if pairs else ""


def time_of(text: str) -> datetime:
    """Parse milliseconds since the epoch, or ISO 8601; UTC if there is no zone.

    Raises:
        ValueError, OverflowError: it is neither.
    """
    if text.lstrip("-").isdecimal():
        return _EPOCH + timedelta(milliseconds=int(text))
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def millis_of(name: str, text: str) -> int:
    """Return the value of an option that is a time, in milliseconds since the epoch.

    Raises:
        BadValue: the value is not a time.
    """
    try:
        return (time_of(text.strip()) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise BadValue(f"option {name}: {text!r} is not a time: give milliseconds or ISO 8601") from None


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
