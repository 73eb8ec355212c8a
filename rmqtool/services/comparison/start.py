"""What the start of its broker does to a copy: whether it loads, where its log ends then, and what that cuts off."""

from dataclasses import dataclass
from functools import cached_property

from rmqtool.errors import RmqError
from rmqtool.services.comparison.replica import Replica
from rmqtool.store.recovery.command import plan
from rmqtool.store.recovery.dledger.command import plan_dledger
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.words import command_line, counted


@dataclass(frozen=True)
class BrokerStart:
    """The start of the broker of a copy, as ``recover --dry-run`` foretells it.

    Attributes:
        report: the plan of the recovery; None if it cannot be made.
    """

    replica: Replica
    report: RecoveryReport | None

    @classmethod
    def of(cls, replica: Replica) -> "BrokerStart":
        """Foretell the start."""
        try:
            if replica.is_dledger:
                return cls(replica, plan_dledger(replica.layout))
            return cls(replica, plan(replica.layout, quick=True, predict=True))
        except RmqError:
            return cls(replica, None)

    @property
    def end(self) -> int | None:
        """Physical offset at which the log ends then; None if that is unknown, or the broker refuses the store."""
        if self.report is None or not self.report.loadOk:
            return None
        return self.report.stop.physicalOffset if self.report.stop is not None else None

    @property
    def last_entry(self) -> tuple[int, int] | None:
        """Term and index of the last DLedger entry then."""
        ledger = self.report.dledger if self.report is not None else None
        return (ledger.endTerm, ledger.endIndex) if ledger is not None else None

    @property
    def cuts(self) -> int:
        """Number of intact messages behind the end of the log."""
        return sum(loss.messages for loss in self.report.lost) if self.report is not None else 0

    @cached_property
    def refusal(self) -> str | None:
        """Why the broker refuses to load the store; None if it loads it."""
        if self.report is None:
            return None
        return next(iter([*self.report.refusals, *self.report.unloaded]), None)

    def preparation(self) -> str | None:
        """What to do before the start, so that it loses nothing more than it has to; None if there is nothing."""
        if self.report is None:
            return None
        path, options = self.replica.path, self.replica.layout.conf.options
        if self.report.dledger is not None and (unserved := self.report.dledger.unserved):
            rebuild = command_line("rebuild", path, "consumequeue", *options)
            return (
                f"{rebuild}, before its broker starts: otherwise that cuts the queue entries of "
                f"{counted(sum(queue.messages for queue in unserved), 'message')}, which are not served then, though "
                "the log has them"
            )
        if self.refusal is not None and not self.replica.is_dledger:
            recover = command_line("recover", path, *options)
            return f"{recover}, before its broker starts: otherwise that does not load the store: {self.refusal}"
        return None
