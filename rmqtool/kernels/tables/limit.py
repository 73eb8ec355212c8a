"""Limits on the response to a pull."""

from typing import NamedTuple


class Limit(NamedTuple):
    """Maximum size of a response; the first message is included whatever its size."""

    bytes: int
    messages: int
