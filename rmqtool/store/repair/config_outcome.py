"""What mending the config files of a store changes, file by file."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from rmqtool.store.config.sources import EMPTY, FILE

BUILT = "built"
_SOURCES = {
    FILE: "itself",
    "tmp": "its .tmp",
    "bak": "its .bak",
    "beginning": "its beginning",
    "saved": "the entries that can be saved",
    EMPTY: "nothing",
    BUILT: "queues and log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One changed value; ``old`` is None for a new one."""

    key: str
    old: Any
    new: Any
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOutcome:
    """The result for one config file.

    Attributes:
        source: see :class:`rmqtool.store.config.sources.ConfigSource`; ``built``: from queues and log only.
        written: whether the file is rewritten.
    """

    file: str
    source: str
    reason: str
    written: bool
    changes: list[ConfigChange] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)

    def describe(self) -> Iterator[str]:
        """The plan, one line per change."""
        if self.written:
            yield f"config/{self.file}: from {_SOURCES[self.source]}: {self.reason}"
            for change in self.changes:
                old = "nothing" if change.old is None else change.old
                yield f"config/{self.file}: {change.key}: {old} -> {change.new}: {change.reason}"
