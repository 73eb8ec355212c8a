"""Times and ranges as people write them on a command line."""

import re

from rmqtool.errors import BadValue

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MQADMIN = r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})"


def parse_time(text: str) -> int:
    """Milliseconds since the epoch.

    Accepts plain digits (ms, RocketMQ's own unit), digits with ``s`` (epoch seconds), RFC 3339 / ISO 8601, a date,
    mqadmin's ``yyyy-MM-dd#HH:mm:ss:SSS``, ``now``, and ``-48h`` style offsets from now. Without a zone a time is UTC.

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
            f"{text!r} is no time: give ms since the epoch, 2026-01-31, 2026-01-31T12:00:00Z, -48h or now"
        ) from None
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return round(parsed.timestamp() * 1000)


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


def iso_utc(millis: int) -> str:
    """A time for people; what no calendar has is given as the number it is."""
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{millis % 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return str(millis)
