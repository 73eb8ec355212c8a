"""Values of the page as text."""

from rmqtool.cli.render.text import plain
from rmqtool.cli.render.times import time_text

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def clean(text: str) -> str:
    """Text that is valid in a page: control characters and bytes that are not UTF-8 are escaped."""
    return plain(text.encode("utf-8", "backslashreplace").decode())


def number_text(value: float) -> str:
    """A whole number, with commas."""
    return f"{value:,.0f}"


def moment_text(millis: int | None) -> str:
    """A time to the second; empty for None."""
    return time_text(millis)[:19] if millis is not None else ""


def short_moment_text(millis: int, span: int) -> str:
    """A time for a chart with intervals of ``span`` ms: without date or without time of day."""
    text = moment_text(millis)
    return text[11:] if span < _UNITS[2][0] else text[5:16] if span < _UNITS[0][0] else text[:10]


def span_text(millis: int) -> str:
    """A length of time in its two largest units: ``3 d 4 h``."""
    for at, (unit, name) in enumerate(_UNITS):
        if millis >= unit:
            text = f"{millis // unit} {name}"
            if at + 1 < len(_UNITS) and (rest := millis % unit // _UNITS[at + 1][0]):
                text += f" {rest} {_UNITS[at + 1][1]}"
            return text
    return f"{max(millis, 0)} ms"


def age_text(millis: int | None, now: int) -> str:
    """How long ago a time was; empty for None."""
    if millis is None:
        return ""
    return span_text(now - millis) if millis <= now else "in the future"
