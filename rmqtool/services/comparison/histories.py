"""What the copies know of their own history, held against their logs and against each other."""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

from formats.variants.epoch import Epoch, is_increasing
from rmqtool.services.comparison.replica import Replica
from rmqtool.services.comparison.report import HistoryFault, HistoryProblem
from rmqtool.store.log.commit_log import LocatedRecord
from rmqtool.store.log.comparison import look_at
from rmqtool.store.log.epochs import EpochAudit, audit_epochs


class Histories:
    """The histories of several copies.

    Args:
        common: returns the physical offset up to which two copies, by number, have the same log; -1 without any.

    Raises:
        UnreadableStore: a log cannot be read.
    """

    def __init__(self, replicas: Sequence[Replica], common: Callable[[int, int], int]) -> None:
        self._replicas, self._common = replicas, common
        self._audits = [_audit(replica) for replica in replicas]
        self._stale: dict[int, tuple[int, int | None]] = {}  # of a copy: where, and the copy that shows it
        for number, replica in enumerate(replicas):
            at = replica.stale_tail if replica.is_dledger else self._audits[number].stale_from
            if at is not None:
                self._stale[number] = at, None
        for this, other in permutations(range(len(replicas)), 2):
            if (at := self._stale_against(this, other)) is not None and at < self.end(this):
                self._stale[this] = at, other

    def stale_from(self, number: int) -> int | None:
        """Physical offset from which on a copy has messages that its group has truncated; None without."""
        return self._stale[number][0] if number in self._stale else None

    def end(self, number: int) -> int:
        """The end of a copy's log, without such messages."""
        whole, stale = self._replicas[number].end.whole, self.stale_from(number)
        return whole if stale is None else min(whole, stale)

    def _stale_against(self, this: int, other: int) -> int | None:
        """Where one copy has older messages in the same epoch than another one: only one master wrote in it."""
        here, there = self._replicas[this], self._replicas[other]
        if not (here.is_controlled and there.is_controlled):
            return None
        at = self._common(this, other)
        if at < 0 or _epoch_at(here, at) != _epoch_at(there, at):
            return None
        records = [look_at(replica.log, at) for replica in (here, there)]
        times = [item.record.store_timestamp for item in records if isinstance(item, LocatedRecord)]
        return at if len(times) == 2 and times[0] < times[1] else None

    def problems(self) -> Iterator[HistoryProblem]:
        """Every contradiction, copy by copy."""
        for number, replica in enumerate(self._replicas):
            standing = replica.standing
            if number in self._stale:
                at, other = self._stale[number]
                yield self._problem(
                    number, HistoryFault.STALE_TAIL, at,
                    f"its messages from {at} on were truncated by its group" +
                    (", and a start takes them for real" if replica.is_controlled else ""), other,
                )  # fmt: skip
            for unlisted in self._audits[number].unlisted:
                yield self._problem(number, HistoryFault.MASTER_CHANGES, unlisted.handover.at, str(unlisted))
            if standing.committed_index > standing.last_index >= 0:
                text = f"index {standing.committed_index} is committed, and its last entry has {standing.last_index}"
                yield self._problem(number, HistoryFault.COMMITTED_AHEAD, None, text)
            if replica.is_controlled:
                yield from self._other_epochs(number)

    def _other_epochs(self, number: int) -> Iterator[HistoryProblem]:
        """Epochs of other copies that this one should have: they begin within the part of the log that both have."""
        own = {period.number: period.start for period in self._replicas[number].standing.periods}
        seen: set[int] = set()
        for other, replica in enumerate(self._replicas):
            for period in replica.standing.periods if other != number and replica.is_controlled else ():
                start = own.get(period.number)
                if start == period.start or period.number in seen:
                    continue
                if start is None and period.start < self._common(number, other):
                    fault, text = HistoryFault.EPOCH_MISSING, f"it lacks epoch {period.number}, which begins there"
                elif start is not None:
                    text = f"epoch {period.number} begins at {start} here, and at {period.start} in {replica.path}"
                    fault = HistoryFault.EPOCH_ELSEWHERE
                else:
                    continue
                seen.add(period.number)
                yield self._problem(number, fault, period.start, text, other)

    def _problem(
        self, number: int, fault: HistoryFault, at: int | None, text: str, other: int | None = None
    ) -> HistoryProblem:
        return HistoryProblem(
            store=self._replicas[number].path,
            fault=fault.value,
            physicalOffset=at,
            words=text,
            other=self._replicas[other].path if other is not None else None,
        )


def _audit(replica: Replica) -> EpochAudit:
    epochs = [Epoch(period.number, period.start) for period in replica.standing.periods]
    if not (replica.is_controlled and epochs and is_increasing(epochs)):
        return EpochAudit()
    return audit_epochs(replica.log, epochs)


def _epoch_at(replica: Replica, physical_offset: int) -> int | None:
    """The epoch that a replica's own file gives an offset."""
    reached = [period.number for period in replica.standing.periods if period.start <= physical_offset]
    return max(reached, default=None)
