"""What a salvage has carved out, and what not."""

from dataclasses import asdict, dataclass, field
from typing import Any

from rmqtool.store.layout.parts import PartFate
from rmqtool.store.salvage.empty_queues import EmptyQueue
from rmqtool.store.salvage.lost_found import LostRange
from rmqtool.store.tier.left_behind import NotTaken


@dataclass(frozen=True, slots=True, kw_only=True)
class Renumbered:
    """A queue whose later messages moved down, because messages before them are lost."""

    topic: str
    queueId: int
    lost: int  # queue offsets that no record has


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageReport:
    """What was carved out, and what was not."""

    source: str
    store: str
    messages: int
    bytes: int
    lostRanges: list[LostRange] = field(default_factory=list)  # the first thousand; the manifest has all
    lostRangeCount: int = 0
    lostBytes: int = 0
    renumbered: list[Renumbered] = field(default_factory=list)
    wrongOffsets: int = 0  # messages whose queue offset was damaged: they got the one that they must have had
    restarted: int = 0  # messages of queues that restarted at a lower offset: they follow those before them
    duplicates: int = 0  # older records whose queue offset another one before them had: stale bytes come back to life
    configs: list[str] = field(default_factory=list)
    leftOut: list[str] = field(default_factory=list)  # what of the source, beside messages, could not be read
    warnings: list[str] = field(default_factory=list)
    tornProperties: int = 0  # messages that are taken, though the end of their properties is lost; lost+found has them
    takenFromTier: int = 0  # of the messages, those that only tiered storage had
    notTaken: list[NotTaken] = field(default_factory=list)  # messages that are elsewhere: in the tier alone
    emptyQueues: list[EmptyQueue] = field(default_factory=list)  # that the log has no message of
    parts: list[PartFate] = field(default_factory=list)  # every part of the source, and what the new store has of it

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return {**asdict(self), "parts": [part._asdict() for part in self.parts]}
