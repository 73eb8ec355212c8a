"""What an answer to a pull has at most."""

from typing import NamedTuple


class Limit(NamedTuple):
    """The first message goes whatever its size."""

    bytes: int
    messages: int
