"""The report of a recovery, planned or carried out."""

from dataclasses import asdict, dataclass, field
from typing import Any

from rmqtool.words import command_line

NOT_IN_PLACE = (
    "recover does none of this, because rmqtool does not change RocksDB databases: a broker does it at its next start, "
    f"and {command_line('salvage', 'STORE', 'NEWSTORE')} makes a store with queue files and every intact message"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange:
    """Range of one queue, with the names that the broker's own tools use."""

    topic: str
    queueId: int
    minOffset: int
    maxOffset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """State of a store as a broker would report it."""

    minPhyOffset: int
    maxPhyOffset: int
    queues: list[QueueRange]

    @property
    def ranges(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(lowest, next) queue offset of every queue, by topic and queue id."""
        return {(queue.topic, queue.queueId): (queue.minOffset, queue.maxOffset) for queue in self.queues}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStop:
    """End of the commit log, and the reason."""

    file: str
    at: int  # byte in the file
    physicalOffset: int
    ending: str  # clean | filler | unwritten | cut | damaged
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Messages of one queue that are intact after the end of the log, where they cannot be reached."""

    topic: str
    queueId: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """Changes to one queue."""

    topic: str
    queueId: int
    entriesCut: int
    entriesAdded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMended:
    """Changes to one queue beyond those of a broker's start."""

    topic: str
    queueId: int
    entriesPutIn: int  # for messages that the broker skips, or has a wrong entry for
    entriesTakenOut: int  # entries that point to no message
    endsAt: int | None = None  # its next queue offset, if that is only known from the tier or a compaction log


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerEnd:
    """What a DLedger member reports about its log after a start; -1 for unknown values."""

    beginIndex: int
    endIndex: int
    endTerm: int
    committedIndex: int
    committedPosition: int  # position after the entry of that index
    endPosition: int  # position after the last entry
    unitsWritten: int  # number of index units rewritten
    queuesCutAt: int | None = None  # physical offset from which on queue entries are cut, though the log goes on
    unserved: list[Loss] = field(default_factory=list)  # messages that are in the log, and in no queue after the start
    behindDamage: list[Loss] = field(default_factory=list)  # those of them that are served if they are committed late
    repeated: list[Loss] = field(default_factory=list)  # messages that have the queue offset of an earlier one


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """The complete report. ``applied``: whether the actions were carried out."""

    store: str
    engine: str  # release whose rules were followed, such as 5.3
    engineReason: str
    loadOk: bool
    refusals: list[str] = field(default_factory=list)  # why the broker would not load this store
    abort: bool  # whether the broker did not stop cleanly
    startFile: str | None = None  # first commit-log file checked
    startReason: str | None = None
    stop: LogStop | None = None
    lost: list[Loss] = field(default_factory=list)
    bytesCut: int = 0
    messagesRedispatched: int = 0
    queues: list[QueueChange] = field(default_factory=list)
    indexFilesRemoved: int = 0
    indexEntriesAdded: int = 0
    warnings: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)  # changes to files, one sentence each
    afterLoad: StoreState
    afterStart: StoreState | None = None
    applied: bool = False
    backup: str | None = None
    salvageKeeps: int = 0  # how many of the lost messages a salvage would keep
    destroys: list[str] = field(default_factory=list)  # losses of messages, which need separate consent
    notes: list[str] = field(default_factory=list)  # what was not checked
    nextSteps: list[str] = field(default_factory=list)  # what to do about refusals, in order
    unloaded: list[str] = field(default_factory=list)  # why a broker would not load this store, where that is repaired
    mended: list[QueueMended] = field(default_factory=list)  # changes beyond those of a broker's start
    indexFilesMended: int = 0
    pending: list[str] = field(default_factory=list)  # interrupted runs that block writing commands
    tierDangers: list[str] = field(default_factory=list)  # what a broker's start would do to the tier
    unfit: list[str] = field(default_factory=list)  # conflicts between the store and the configuration
    dledger: DLedgerEnd | None = None  # only for a member of a DLedger group

    @property
    def clean(self) -> bool:
        """Whether there is nothing to do."""
        return self.loadOk and not self.actions and not self.pending

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)
