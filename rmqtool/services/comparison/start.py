"""What the start of its broker does to a copy: whether it loads, where its log ends then, and what that cuts off."""

from dataclasses import dataclass
from functools import cached_property

from rmqtool.errors import RmqError
from rmqtool.services.comparison.replica import Replica
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import has_rocksdb_queues
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.recovery.command import load_refusals, plan
from rmqtool.store.recovery.dledger.command import plan_dledger
from rmqtool.store.recovery.dledger.member import MemberRefused, judge_member
from rmqtool.store.recovery.dledger.queue_start import predict_queues
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.store.recovery.rocks.command import plan_rocks
from rmqtool.store.repair.rebuild import rebuild
from rmqtool.words import command_line, counted


@dataclass(frozen=True, kw_only=True)
class BrokerStart:
    """The start of the broker of a copy, as ``recover --dry-run`` foretells it.

    Attributes:
        report: the plan of the recovery; None if there is none.
        refusal: why the broker refuses to load the store; None if it loads it.
    """

    replica: Replica
    report: RecoveryReport | None = None
    refusal: str | None = None

    @classmethod
    def of(cls, replica: Replica, *, damaged: bool) -> "BrokerStart":
        """Foretell the start.

        Args:
            damaged: whether there is damage in the log, at which the start may end it; else the log is not read.
        """
        layout = replica.layout.passing_over()
        try:
            if not (damaged or replica.is_dledger):
                return cls(replica=replica, refusal=next(iter(load_refusals(layout)), None))
            report = _plan(replica, layout)
        except RmqError:
            return cls(replica=replica)
        return cls(replica=replica, report=report, refusal=next(iter([*report.refusals, *report.unloaded]), None))

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

    @property
    def unserved(self) -> int:
        """Number of messages of a DLedger member that are in no queue after the start, though they stay in the log."""
        ledger = self.report.dledger if self.report is not None else None
        return sum(queue.messages for queue in ledger.unserved) if ledger is not None else 0

    @cached_property
    def unserved_when_rebuilt(self) -> int | None:
        """Number of these messages if the queues are rebuilt before the start; None if they cannot be.

        The whole log is read.
        """
        layout = self.replica.layout
        try:
            rebuild(layout, ("consumequeue",), dry_run=True)
            log = DLedgerLog.of(layout)[0]
            verdict = judge_member(log, layout.commit_log_size(log.data))
            return predict_queues(layout, verdict, rebuilt=True).unserved.total()
        except (MemberRefused, RmqError):
            return None

    @property
    def is_better_rebuilt(self) -> bool:
        """Whether to rebuild the queues of a member before the start."""
        rebuilt = self.unserved_when_rebuilt if self.unserved else None
        return rebuilt is not None and rebuilt < self.unserved

    @property
    def lost(self) -> int:
        """Number of intact messages that its broker does not serve after the start, whatever is done before."""
        return self.cuts + ((self.unserved_when_rebuilt or 0) if self.is_better_rebuilt else self.unserved)

    def preparation(self, *, may_be_emptied: bool) -> str | None:
        """What to do before the start, so that it loses nothing more than it has to; None if there is nothing.

        Args:
            may_be_emptied: whether it is better that the leader fills it up than that it keeps what it has.
        """
        path, options = self.replica.path, self.replica.layout.conf.options
        if unserved := self.unserved:
            first = None
            if self.is_better_rebuilt:
                unserved -= self.unserved_when_rebuilt or 0
                first = f"{command_line('rebuild', path, 'consumequeue', *options)}, before its broker starts"
            elif may_be_emptied:
                first = f"Empty the directory {path} before it follows"
            return first and (
                f"{first}: otherwise {counted(unserved, 'message')} {'is' if unserved == 1 else 'are'} in no queue "
                "after its start and not served, though the log has them"
            )
        if self.refusal is not None and self.replica.is_dledger:
            if not may_be_emptied:
                return None
            return f"Empty the directory {path} before it follows: otherwise its broker does not start: {self.refusal}"
        if self.refusal is not None:
            recover = command_line("recover", path, *options)
            return f"{recover}, before its broker starts: otherwise that does not load the store: {self.refusal}"
        return None


def _plan(replica: Replica, layout: StoreLayout) -> RecoveryReport:
    if replica.is_dledger:
        return plan_dledger(layout)
    if has_rocksdb_queues(layout):
        return plan_rocks(layout)
    return plan(layout, quick=True, predict=True)
