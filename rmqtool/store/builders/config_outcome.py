"""What repairing the config files of a store changes, file by file."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from rmqtool.store.config.sources import EMPTY, FILE

BUILT = "built"
SAVED = "saved"
_LOST = {
    "topics.json": "topics that it no longer has get default settings",
    "subscriptionGroup.json": "groups that it no longer has get default settings when they connect",
    "consumerOffset.json": "groups that it no longer has begin like new groups",
}
_ACTIONS = {
    "tmp": "restore from its .tmp",
    "bak": "restore from its .bak",
    "beginning": "cut off what is after the end of",
    SAVED: "restore the entries that can be saved of",
    EMPTY: "write an empty",
    BUILT: "build from queues and log",
}
_SOURCES = {
    FILE: "itself",
    "tmp": "its .tmp",
    "bak": "its .bak",
    "beginning": "its beginning",
    SAVED: "the entries that can be saved",
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

    def actions(self) -> Iterator[str]:
        """The plan as actions, each to be followed by the path of the file."""
        if self.written:
            yield _ACTIONS[self.source]
            for change in self.changes:
                if change.old is None:
                    new = f"offset {change.new}" if isinstance(change.new, int) else change.new
                    yield f"add {change.key}: {new}, since {change.reason}, to"
                else:
                    yield f"change {change.key} from {change.old} to {change.new}, since {change.reason}, in"

    def losses(self) -> str | None:
        """What is lost, because no generation of the file is whole; None if nothing is known to be."""
        if not self.written or self.source not in (SAVED, EMPTY, BUILT) or self.file not in _LOST:
            return None
        what = f"config/{self.file}: some entries may be lost: {_LOST[self.file]}"
        return f"{what}. Put it back from a copy, if there is one"
