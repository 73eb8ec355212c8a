"""Adapt the advice on a finding to the store at hand, so that it is safe.

What repairs one store destroys another. An unmounted log looks like a deleted one; a recovery that cuts off a torn tail
in one store cuts off a hundred intact messages in another; and nothing can be rebuilt from a damaged log.
"""

from dataclasses import dataclass, field

from rmqtool.store.check.advice.steps import (
    REBUILD_COMPACTION,
    REBUILD_MEMBER_QUEUES,
    REBUILD_QUEUES,
    REBUILD_TIMER,
    RECOVER,
    RECOVER_UNHARMED,
    SALVAGE,
    UNDO,
    Step,
    by_hand,
    recover_cutting,
)
from rmqtool.store.log.shape import LogShape
from rmqtool.words import command_line

_PARTS_FROM_LOG = ("consumequeue", "index", "checkpoint")
# codes that rule out rebuilding queues; index and checkpoint need less
_BROKEN_LOG = {"log-damage", "log-blank-missing", "log-blank-size", "log-batch-numbers", "log-ordinal-gap"}
_BROKEN_LOG |= {"log-ordinal-repeat"}
_STRANGE_FILES = {"file-size", "file-gap", "file-duplicate", "file-misnamed", "file-foreign", "file-unreadable"}
_MISPLACED = {"log-position"}
_MISLEADING = {*_MISPLACED, "file-gap"}  # recovery relies on positions stated by records or file names

LOG_BACK = by_hand(
    "find the log first: is its disk mounted? Does storePathCommitLog name another path (then give --broker-conf)? "
    "Until the log is back, start no broker and no writing command: they would remove all queues"
)
STOP_BROKER = by_hand(
    "stop the broker and check again, or check a copy: while it runs, the newest records may be half written"
)
MEND_FILES = by_hand(
    "repair the files that a broker refuses to load (file-size, file-foreign), then check again; until then only "
    f"{command_line('salvage')} works on this store"
)


BROKER_MENDS = by_hand(
    "copy the store, then start a broker of the same release on it: it repairs what it can. rmqtool does not change "
    "this kind of store; its recover --dry-run shows in advance what that start does"
)
GROUP_MENDS = by_hand(
    "copy the directory, then start the brokers of its group: the member repairs what it can, and gets the rest from "
    "the others. rmqtool does not change a DLedger log"
)


@dataclass(slots=True)
class Situation:
    """The facts that decide which advice is safe; collected during the check.

    Attributes:
        settled: whether the log has been read, so that the other facts are complete.
        in_use: whether a process holds the lock.
        aborted: whether the store was not stopped cleanly.
        log_absent: whether there are no messages, although queues or checkpoint refer to some.
        form: why rmqtool does not write this kind of store; None if it does.
        dledger: whether its log is a DLedger log.
        cuts: number of intact messages that the next start would cut off.
        log_codes: codes of the findings in the log.
        refused: whether a broker would refuse to load the store.
        stuck: whether recovery would, too, until the user has repaired files.
        unfit: whether a broker with the given configuration would not start on the store.
        misnamed: whether the names of log files disagree with their records.
        queues_damaged: whether more than the tails of queues is damaged, where a start may truncate them.
        log: files of the log, damage in them, and where the next start ends it; None until the log has been read.
    """

    settled: bool = False
    in_use: bool = False
    aborted: bool = False
    log_absent: bool = False
    form: str | None = None
    dledger: bool = False
    cuts: int = 0
    log_codes: set[str] = field(default_factory=set)
    refused: bool = False
    stuck: bool = False
    unfit: bool = False
    misnamed: bool = False
    queues_damaged: bool = False
    log: LogShape | None = None

    def advise(self, code: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Adapt the steps that a code advises."""
        if code == "log-absent" or UNDO in steps or not any(step.command for step in steps):
            return steps
        if self.log_absent:
            return LOG_BACK
        if self.in_use:
            return STOP_BROKER
        if self.form is not None:
            return self._for_form(steps)
        advised: list[Step] = []
        for step in steps:
            advised += [new for new in self._safe(step) if new not in advised]
        if SALVAGE in advised and RECOVER_UNHARMED in advised:
            # NEWSTORE gets what recovery would keep in any case, and salvage leaves this store alone
            advised.remove(RECOVER_UNHARMED)
        return tuple(advised)

    def _for_form(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The steps that are useful for a store that rmqtool does not write."""
        usable = tuple(step for step in steps if {"salvage", "config", "files"} & set(step.command))
        if (REBUILD_TIMER in steps and not self.aborted) or REBUILD_COMPACTION in steps:
            return steps  # which need no more of queues than to read them
        if REBUILD_MEMBER_QUEUES in steps:
            return steps if self._builds(REBUILD_QUEUES) else (SALVAGE,)
        if RECOVER in steps and self.cuts:
            usable = (SALVAGE,)
        return usable or (GROUP_MENDS if self.dledger else BROKER_MENDS)

    def _safe(self, step: Step) -> tuple[Step, ...]:
        if step.command[:2] == ("rmqtool", "rebuild") and step.command[3] in _PARTS_FROM_LOG:
            if self._builds(step):
                return self._with_recovery(step) if self.aborted or self._torn else (step,)
            return (SALVAGE,)
        if step is REBUILD_TIMER and self.aborted:
            before = self._recover()
            return (*before, step) if RECOVER_UNHARMED in before else before
        return self._recover() if step is RECOVER else (step,)

    def _recover(self) -> tuple[Step, ...]:
        """Recovery, or salvage if recovery would damage queues further."""
        if self.stuck:
            return MEND_FILES
        if self.log_codes & _MISLEADING:
            return (SALVAGE,)
        if self.cuts:
            return SALVAGE, recover_cutting(self.cuts)
        if self.queues_damaged and not self._builds(REBUILD_QUEUES):
            return (SALVAGE,)
        return (RECOVER_UNHARMED,)

    def _with_recovery(self, step: Step) -> tuple[Step, ...]:
        """Rebuild a part after recovery."""
        before = self._recover()
        return before if step in before or RECOVER_UNHARMED not in before else (*before, step)

    @property
    def _torn(self) -> bool:
        return "log-torn" in self.log_codes

    def _builds(self, step: Step) -> bool:
        """Whether the log, once recovered, is good enough to rebuild a part from it."""
        hinders = _STRANGE_FILES | _MISPLACED | (_BROKEN_LOG if step is REBUILD_QUEUES else set())
        return not (self.cuts or self.log_codes & hinders)
