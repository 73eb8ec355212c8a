"""What becomes of the copies of a group when their brokers start together: who can lead, and what is cut from whom.

Source: io.openmessaging.storage.dledger.DLedgerLeaderElector (handleVote).
"""

from dataclasses import dataclass
from typing import Any

from rmqtool.contract import PlainRow, row_dict
from rmqtool.services.comparison.report import CopyFacts, FollowOutcome, ReplicasReport
from rmqtool.store.roles.table import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStart(PlainRow):
    """The start of a group.

    Attributes:
        leaders: copies that can become leader or master, the one to prefer first.
        why: why these.
        following: what becomes of every other copy under each of them.
        lost: number of messages of other copies that the first one does not have.
        lostAcknowledged: how many of them were certainly acknowledged.
    """

    leaders: list[str]
    why: str
    following: list[FollowOutcome]
    lost: int
    lostAcknowledged: int

    def to_dict(self) -> dict[str, Any]:
        return {**row_dict(self), "following": [row.to_dict() for row in self.following]}


def group_start(report: ReplicasReport) -> GroupStart:
    """Derive the start of a group from the comparison of its copies."""
    advice, copies = report.advice, report.copies
    leaders, why = [advice.store], advice.why
    if all(copy.role == Role.DLEDGER for copy in copies):
        votes = {copy.store: sum(_last(other) <= _last(copy) for other in copies) for copy in copies}
        elected = [store for store, number in votes.items() if number > len(copies) // 2]
        leaders = sorted(elected, key=lambda store: store != advice.store)
        why = (
            f"a member votes for one whose last entry has at least the term and index of its own, and {len(copies)} "
            f"members elect by {len(copies) // 2 + 1} votes"
        )
    return GroupStart(
        leaders=leaders,
        why=why,
        following=[row for row in report.following if row.master in leaders],
        lost=advice.lost,
        lostAcknowledged=advice.lostAcknowledged,
    )


def _last(copy: CopyFacts) -> tuple[int, int]:
    """Term and index of a member's last entry when it votes."""
    if copy.startPeriod is not None and copy.startIndex is not None:
        return copy.startPeriod, copy.startIndex
    return copy.lastPeriod or 0, -1 if copy.lastIndex is None else copy.lastIndex
