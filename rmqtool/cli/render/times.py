"""Times and ranges as people write them on a command line."""

import re
from typing import TYPE_CHECKING, Any

from rmqtool.errors import BadValue

if TYPE_CHECKING:
    from datetime import tzinfo

_zone: "tzinfo | None" = None  # the user's time zone; UTC if None
_named = False  # the user has named it

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MQADMIN = r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})"


def use_zone(name: str | None) -> None:
    """Set the zone for reading and showing times without one; UTC by default.

    Raises:
        BadValue: no such zone.
    """
    global _zone, _named
    _zone, _named = zone_of(name) if name else None, bool(name)


def chosen_zone() -> "tzinfo | None":
    """The zone of :func:`use_zone`; None where none was named."""
    from datetime import UTC

    return _zone or (UTC if _named else None)


def zone_of(name: str) -> "tzinfo | None":
    """A time zone by its name (``Asia/Shanghai``), its offset (``+08:00``), or ``UTC``.

    Raises:
        BadValue: none of these, or the machine has no time zone data.
    """
    from datetime import datetime, timedelta, timezone

    if name.upper() in ("UTC", "Z"):
        return None
    if match := re.fullmatch(r"([+-])([01][0-9]|2[0-3]):?([0-5][0-9])", name):
        minutes = int(match[2]) * 60 + int(match[3])
        return timezone(timedelta(minutes=minutes if match[1] == "+" else -minutes))
    from zoneinfo import ZoneInfo

    try:
        zone = ZoneInfo(name)
        datetime.now(zone).utcoffset()
    except (OSError, ValueError, KeyError):
        raise BadValue(f"{name!r} is not a time zone: give UTC, +08:00 or a name like Asia/Shanghai") from None
    return zone


def parse_time(text: str) -> int:
    """Milliseconds since the epoch.

    Accepts plain digits (ms, RocketMQ's own unit), digits with ``s`` (epoch seconds), RFC 3339 / ISO 8601, a date,
    mqadmin's ``yyyy-MM-dd#HH:mm:ss:SSS``, ``now``, and ``-48h`` style offsets from now. Without a zone a time
    is UTC, or of the zone that the user has chosen.

    Raises:
        BadValue: none of these.
    """
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if re.fullmatch(r"[0-9]{1,12}s", text):
        return int(text[:-1]) * 1000
    import time
    from datetime import UTC, datetime

    if text == "now":
        return int(time.time() * 1000)
    if match := re.fullmatch(r"-([0-9]{1,9})(ms|s|m|h|d)", text):
        return int(time.time() * 1000) - int(match[1]) * _UNITS[match[2]]
    if match := re.fullmatch(_MQADMIN, text):
        text = f"{match[1]}T{match[2]}.{match[3]}"
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise BadValue(
            f"{text!r} is not a time: give ms since the epoch, 2026-01-31, 2026-01-31T12:00:00Z, -48h or now"
        ) from None
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=_zone or UTC)
    return round(parsed.timestamp() * 1000)


def parse_span(text: str) -> int:
    """Milliseconds of a span of time: ``2s``, ``500ms``, ``1m``, or seconds.

    Raises:
        BadValue: it is none.
    """
    match = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h|d)?", text)
    if match is None:
        raise BadValue(f"{text!r} is not a span of time: give 2s, 500ms or 1m")
    return int(match[1]) * _UNITS[match[2] or "s"]


def parse_range(text: str) -> tuple[int, int | None]:
    """``A:B`` (B not included), ``A:``, ``:B``, or one number.

    Raises:
        BadValue: neither.
    """
    match = re.fullmatch(r"([0-9]{0,18})(:?)([0-9]{0,18})", text)
    if not match or not (match[1] or match[3]):
        raise BadValue(f"{text!r} is not a range: give A:B, A:, :B or A")
    first = int(match[1] or 0)
    if not match[2]:
        return first, first + 1
    return first, int(match[3]) if match[3] else None


def time_text(millis: int) -> str:
    """A readable time in the user's zone; a time out of range stays a number."""
    if _zone is None:
        return iso_utc(millis)
    from datetime import datetime

    try:
        shown = datetime.fromtimestamp(millis // 1000, _zone)
    except (ValueError, OverflowError, OSError):
        return str(millis)
    return f"{shown:%Y-%m-%d %H:%M:%S}.{millis % 1000:03d}{shown.isoformat()[19:]}"


def iso_utc(millis: int) -> str:
    """A time in UTC; a time out of range stays a number."""
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{millis % 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return str(millis)


def with_times(value: Any) -> Any:
    """A copy with a readable time beside each one in ms: ``storeTime`` beside ``storeTimestamp``."""
    if isinstance(value, list):
        return [with_times(element) for element in value]
    if not isinstance(value, dict):
        return value
    shown: dict[str, Any] = {}
    for name, inner in value.items():
        shown[name] = inner if name == "groups" else with_times(inner)  # groups may have any name
        twin = "isoTime" if name == "time" else name.replace("Timestamp", "Time")
        if twin != name and (inner is None or type(inner) is int):
            shown[twin] = time_text(inner) if inner else None
    return shown
