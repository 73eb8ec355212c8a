"""What a comparison of several copies of one store finds, as uniform rows."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rmqtool.contract import PlainRow, row_dict


class Acknowledged(StrEnum):
    """Whether messages were acknowledged to their producers, as far as the copies prove it."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Follows(StrEnum):
    """What becomes of a copy's log when it follows another one."""

    GOES_ON = "goes-on"  # keeps all it has
    CUT = "cut"
    KEEPS_DAMAGE = "keeps-damage"  # keeps its own damaged records forever
    BREAKS = "breaks"  # takes bytes that are no messages
    REFUSES = "refuses"  # does not follow


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts(PlainRow):
    """One copy. Offsets are physical; None for what is not known.

    Attributes:
        forms: further roles, such as a tier.
        clean: whether the last stop was clean.
        endOffset: after the last intact record.
        tornBytes: bytes written after it.
        tornProperties: why the last record's properties are incomplete.
        lastPeriod: its last term (DLedger) or epoch (controller).
        currentTerm: the term of its last vote.
        confirmedOffset: up to which its group is known to have everything.
        alone, lacks: number of messages that no other copy has, and that another one has and this one lacks.
        contradicts: number of places where it does not have what another one has.
        damaged: of these, how many hold no intact message.
        tierOnly: number of messages that are in its tier alone; they are not compared.
        startEndOffset, startPeriod, startIndex: end of the log, and term and index of the last DLedger entry, after
            the start of its broker, if there is damage at which that may end the log.
    """

    store: str
    role: str
    reason: str
    forms: str | None
    release: str
    releaseReason: str
    clean: bool
    beginOffset: int
    endOffset: int
    tornBytes: int
    tornReason: str | None
    tornProperties: str | None
    lastStoreTimestamp: int | None
    lastPeriod: int | None
    lastIndex: int | None
    currentTerm: int | None
    committedIndex: int | None
    confirmedOffset: int | None
    alone: int
    lacks: int
    contradicts: int
    damaged: int
    tierOnly: int
    startEndOffset: int | None
    startPeriod: int | None
    startIndex: int | None


class HistoryFault(StrEnum):
    """What is wrong with a copy's own account of its history."""

    STALE_TAIL = "stale-tail"  # its log has messages again that were truncated in memory alone
    EPOCH_MISSING = "epoch-missing"
    EPOCH_ELSEWHERE = "epoch-elsewhere"  # begins at another place than in another copy
    MASTER_CHANGES = "master-changes"  # another broker stored messages within an epoch
    COMMITTED_AHEAD = "committed-ahead"  # the committed index is higher than that of its last entry


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryProblem(PlainRow):
    """A contradiction between a copy's epochs or committed index and its log, or those of another copy.

    Attributes:
        fault: see :class:`HistoryFault`.
        physicalOffset: where it shows in the log; None for a committed index.
        words: what it is.
        other: the copy that shows it; None if the copy itself does.
    """

    store: str
    fault: str
    physicalOffset: int | None
    words: str
    other: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodFacts(PlainRow):
    """One term or epoch in a copy's history: physical offsets [fromOffset, toOffset), entries from fromIndex on."""

    store: str
    kind: str
    number: int
    fromIndex: int | None
    fromOffset: int
    toOffset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRun(PlainRow):
    """Messages of a queue with consecutive queue offsets [fromOffset, toOffset).

    Attributes:
        store: the copy.
        what: ``alone``: no other copy has them; ``lacks``: it has none at these offsets, and ``other`` has;
            ``different``: it has other messages there than ``other``.
        acknowledged: ``yes``, ``no`` or ``unknown``; of the messages of ``other`` if they are lacking.
        physicalOffset: of the first one, in the copy that has them.
    """

    store: str
    what: str
    topic: str
    queueId: int
    fromOffset: int
    toOffset: int
    messages: int
    acknowledged: str
    physicalOffset: int
    other: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction(PlainRow):
    """What a copy has at a physical offset at which the copies do not agree.

    Attributes:
        has: ``intact``, ``torn`` (properties), ``rotten`` (checksum) or ``nothing``.
        fields: fields that differ from the first intact record there.
    """

    store: str
    physicalOffset: int
    has: str
    topic: str | None
    queueId: int | None
    queueOffset: int | None
    fields: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOutcome(PlainRow):
    """What becomes of a copy when it follows another one.

    Attributes:
        what: see :class:`Follows`.
        at: physical offset at which it is cut, or from which on it is filled.
        bytes: how many are cut.
        messages: how many of them the other one does not have.
        why: the reason.
    """

    store: str
    master: str
    what: str
    at: int | None
    bytes: int
    messages: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDifference(PlainRow):
    """An offset or a setting of a copy that differs from the one in the copy to start."""

    store: str
    part: str
    what: str
    name: str | None
    topic: str | None
    queueId: int | None
    group: str | None
    started: str | None
    here: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The copy to start, and what is lost then.

    Attributes:
        role: in which it starts.
        why: why this one.
        lost: number of messages of other copies that it does not have.
        lostAcknowledged: how many of them were certainly acknowledged.
        lostUnknown: of how many that is not known.
        damaged: number of its messages that are rotten or torn, and intact in another copy.
        cut: number, at most, of its own intact messages that its broker will not serve whatever is done before its
            start, as that cuts them off behind damage, or as they are in no queue although the log keeps them.
        steps: what to do, in this order.
    """

    store: str
    role: str
    why: str
    lost: int
    lostAcknowledged: int
    lostUnknown: int
    damaged: int
    cut: int
    steps: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasReport:
    """The comparison of several copies.

    Attributes:
        equal: whether logs, offsets and settings are the same, and no log is torn.
        agreedFrom, agreedTo: physical offsets up to which all logs are the same, but for the contradictions before
            the end; None without a common history.
    """

    equal: bool
    agreedFrom: int | None
    agreedTo: int | None
    copies: list[CopyFacts] = field(default_factory=list)
    messages: list[MessageRun] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    following: list[FollowOutcome] = field(default_factory=list)
    history: list[PeriodFacts] = field(default_factory=list)
    problems: list[HistoryProblem] = field(default_factory=list)
    settings: list[SettingDifference] = field(default_factory=list)
    advice: Advice
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        rows = {
            name: [row.to_dict() for row in getattr(self, name)]
            for name in ("copies", "messages", "contradictions", "following", "history", "problems", "settings")
        }
        return {**row_dict(self), **rows, "advice": row_dict(self.advice)}
