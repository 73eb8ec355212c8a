"""Sizes in options: a number of bytes, or of KiB, MiB or GiB."""

import re

from rmqtool.errors import BadValue

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str, option: str, expected: str) -> int:
    """Parse a size such as ``100M`` as a number of bytes.

    Args:
        option: its name, for the error.
        expected: what to give, with examples.

    Raises:
        BadValue: it is not a size, or is 0.
    """
    match = re.fullmatch(r"([1-9]\d{0,14})([KMG]?)", text, re.ASCII)
    if match is None:
        raise BadValue(f"{option} {text}: give {expected}")
    return int(match[1]) * _UNITS[match[2]]
