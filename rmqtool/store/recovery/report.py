"""What recovery found and did; a dry run and a real one report the same way."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange:
    """Offsets of one queue, by the names of the broker's own tools."""

    topic: str
    queueId: int
    minOffset: int
    maxOffset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """What a broker would report of its store."""

    minPhyOffset: int
    maxPhyOffset: int
    queues: list[QueueRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStop:
    """Where the commit log ends, and why there."""

    file: str
    at: int  # byte in the file
    physicalOffset: int
    ending: str  # clean | filler | unwritten | cut | damaged
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Messages of one queue that lie intact behind the stop, and that the log no longer reaches."""

    topic: str
    queueId: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """What became of one queue."""

    topic: str
    queueId: int
    entriesCut: int
    entriesAdded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMended:
    """What became of one queue beyond what a broker's start makes of it."""

    topic: str
    queueId: int
    entriesPutIn: int  # of messages that the broker leaves out, or has a wrong entry for
    entriesTakenOut: int  # that lead to no message
    endsAt: int | None = None  # its next queue offset, where only the tier or a compaction log still says it


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerEnd:
    """What a DLedger member says of its log after a start; -1 for what it does not know."""

    beginIndex: int
    endIndex: int
    endTerm: int
    committedIndex: int
    committedPosition: int  # behind the entry of that index
    endPosition: int  # behind the last entry
    unitsWritten: int  # of the index, anew


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """The whole report. ``applied`` tells whether the actions were carried out."""

    store: str
    engine: str  # whose rules, such as 5.3
    engineReason: str
    loadOk: bool
    refusals: list[str] = field(default_factory=list)  # why the broker would not load this store
    abort: bool  # the broker did not stop cleanly
    startFile: str | None = None  # first commit-log file that is checked
    startReason: str | None = None
    stop: LogStop | None = None
    lost: list[Loss] = field(default_factory=list)
    bytesCut: int = 0
    messagesRedispatched: int = 0
    queues: list[QueueChange] = field(default_factory=list)
    indexFilesRemoved: int = 0
    indexEntriesAdded: int = 0
    warnings: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)  # what is done to which file
    afterLoad: StoreState
    afterStart: StoreState | None = None
    applied: bool = False
    backup: str | None = None
    salvageKeeps: int = 0  # of the messages that are lost here, those that a salvage keeps
    destroys: list[str] = field(default_factory=list)  # what is lost of messages: needs a consent of its own
    notes: list[str] = field(default_factory=list)  # what was not looked at
    nextSteps: list[str] = field(default_factory=list)  # what to do about refusals, in this order
    unloaded: list[str] = field(default_factory=list)  # why a broker would not load this store, where that is mended
    mended: list[QueueMended] = field(default_factory=list)  # beyond what a broker's start does
    indexFilesMended: int = 0
    pending: list[str] = field(default_factory=list)  # journals that keep a command that writes from its work
    tierDangers: list[str] = field(default_factory=list)  # what a broker's start does to the tier beside these queues
    unfit: list[str] = field(default_factory=list)  # what of the store does not fit the broker's configuration
    dledger: DLedgerEnd | None = None  # of a member of a DLedger group

    @property
    def clean(self) -> bool:
        """Nothing to do."""
        return self.loadOk and not self.actions and not self.pending

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)
