"""The shape of a commit log: its files, where they are damaged, and where the next start ends it."""

from dataclasses import dataclass, field
from typing import NamedTuple


class FileSpan(NamedTuple):
    """One file of a log.

    Attributes:
        name: its path as findings name it.
        base: physical offset of its first byte.
        size: bytes.
    """

    name: str
    base: int
    size: int

    @property
    def end(self) -> int:
        """Physical offset after it."""
        return self.base + self.size


class DamagedRange(NamedTuple):
    """Bytes of a log that should hold messages, but cannot be read as such."""

    physical_offset: int
    length: int
    code: str  # of the finding


@dataclass(frozen=True, slots=True)
class LogShape:
    """What a check has seen of a log.

    Attributes:
        files: by physical offset; files may be missing between them.
        end: physical offset after the last readable record.
        damaged: in log order.
        cut: physical offset at which the next start ends the log because of damage, and cuts off what follows; None if
            it cuts off no intact message.
    """

    files: list[FileSpan] = field(default_factory=list)
    end: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    cut: int | None = None
