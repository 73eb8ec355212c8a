"""The result of a salvage."""

from dataclasses import asdict, dataclass, field
from typing import Any

from rmqtool.store.layout.parts import PartFate
from rmqtool.store.salvage.copies import CopyTaken
from rmqtool.store.salvage.empty_queues import EmptyQueue
from rmqtool.store.salvage.lost_found import LostRange
from rmqtool.store.tier.only_tiered import NotTaken


@dataclass(frozen=True, slots=True, kw_only=True)
class Renumbered:
    """A queue whose later messages moved down because messages before them are lost."""

    topic: str
    queueId: int
    lost: int  # queue offsets that no record has


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageReport:
    """Result of a salvage."""

    source: str
    store: str
    messages: int
    bytes: int
    lostRanges: list[LostRange] = field(default_factory=list)  # the first thousand; the manifest has all
    lostRangeCount: int = 0
    lostBytes: int = 0
    renumbered: list[Renumbered] = field(default_factory=list)
    wrongOffsets: int = 0  # messages with a damaged queue offset, which was corrected
    restarted: int = 0  # messages of queues that restarted at a lower offset, now appended to the others
    duplicates: int = 0  # older records whose queue offset a previous record has: stale bytes
    configs: list[str] = field(default_factory=list)
    leftOut: list[str] = field(default_factory=list)  # unreadable parts of the source other than messages
    warnings: list[str] = field(default_factory=list)
    tornProperties: int = 0  # messages copied although the end of their properties is lost; also in lost+found
    mendedPorts: int = 0  # messages copied with port 0 in place of an impossible one; also in lost+found
    takenFromTier: int = 0  # how many of the messages were only in tiered storage
    notTaken: list[NotTaken] = field(default_factory=list)  # messages left out because they are only in the tier
    emptyQueues: list[EmptyQueue] = field(default_factory=list)  # queues without messages in the log
    contradictions: int = 0  # records of several copies that contradict each other; they are in lostRanges, too
    contradictingBytes: int = 0
    logMissing: str | None = None  # the store has had messages, and no file of its log is there
    copies: list[CopyTaken] = field(default_factory=list)  # of several copies: what was taken from each
    parts: list[PartFate] = field(default_factory=list)  # every part of the source, and what the new store has of it

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**asdict(self), "parts": [part._asdict() for part in self.parts]}
