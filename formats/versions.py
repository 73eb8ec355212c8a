"""Release lines of RocketMQ between which file formats differ."""

from typing import NamedTuple


class Version(NamedTuple):
    """A release line; versions compare by age."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


V4_9 = Version(4, 9)
V5_3 = Version(5, 3)
V5_4 = Version(5, 4)
V5_5 = Version(5, 5)
VERSIONS = (V4_9, V5_3, V5_4, V5_5)
