"""What to do about a finding in this very store: what a code advises, made safe by all that is known of the store.

What mends one store destroys another. A log that is not mounted looks like one that was deleted; a recovery that cuts
a torn tail here cuts a hundred intact messages there; parts cannot be built from a log that does not read as a whole.
"""

from dataclasses import dataclass, field

from rmqtool.store.check.advice.steps import (
    REBUILD_COMPACTION,
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
from rmqtool.words import command_line

_PARTS_FROM_LOG = ("consumequeue", "index", "checkpoint")
# what keeps queues from being rebuilt; the index and the checkpoint need less
_BROKEN_LOG = {"log-damage", "log-blank-missing", "log-blank-size", "log-batch-numbers", "log-ordinal-gap"}
_BROKEN_LOG |= {"log-ordinal-repeat"}
_STRANGE_FILES = {"file-size", "file-gap", "file-duplicate", "file-misnamed", "file-foreign", "file-unreadable"}
_MISPLACED = {"log-position"}
_MISLEADING = {*_MISPLACED, "file-gap"}  # recovery goes by positions that records or files say

LOG_BACK = by_hand(
    "find the log first: is its disk mounted? Does storePathCommitLog name another path (then give --broker-conf)? "
    "Until the log is back, start no broker and no command that writes: they would remove all queues"
)
STOP_BROKER = by_hand(
    "stop the broker and check again, or check a copy: while it runs, records may be seen half written"
)
MEND_FILES = by_hand(
    "put the files right that a broker refuses to load (file-size, file-foreign), then check again; until then only "
    f"{command_line('salvage')} works on this store"
)


BROKER_MENDS = by_hand(
    "copy the store, then start a broker of the same release on it: it repairs what it can. rmqtool does not change "
    "this kind of store; its recover --dry-run shows beforehand what that start does"
)
GROUP_MENDS = by_hand(
    "copy the directory, then start the brokers of its group: the member repairs what it can, and is filled up by the "
    "others. rmqtool does not change a DLedger log"
)


@dataclass(slots=True)
class Situation:
    """What decides which advice is safe; filled in while the store is checked.

    Attributes:
        settled: the log was read, so that the rest is true.
        in_use: a process holds the lock.
        aborted: the store was not stopped cleanly.
        log_absent: there are no messages, though queues or checkpoint know of some.
        form: why no command of ours writes this kind of store; None where they do.
        dledger: its log is a DLedger log.
        cuts: intact messages that the next start cuts off.
        log_codes: codes that were found in the log.
        refused: a broker would not load the store.
        stuck: recovery would not either, before a person has put files right.
        unfit: a broker with the configuration that was given does not start on the store.
        misnamed: files of the log have other names than their records say.
        queues_damaged: more is wrong with queues than their tails; a start may cut them there.
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

    def advise(self, code: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """A code's own advice as it is right here."""
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
            # what recovery leaves damaged is in the new store in any case, and stays in this one
            advised.remove(RECOVER_UNHARMED)
        return tuple(advised)

    def _for_form(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """What serves a store that no command of ours writes."""
        kept = tuple(step for step in steps if {"salvage", "config", "files"} & set(step.command))
        if (REBUILD_TIMER in steps and not self.aborted) or REBUILD_COMPACTION in steps:
            return steps  # which need no more of queues than to read them
        if RECOVER in steps and self.cuts:
            kept = (SALVAGE,)
        return kept or (GROUP_MENDS if self.dledger else BROKER_MENDS)

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
        """Recovery; salvage where it would leave queues worse than they are."""
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
        """A part that is built after recovery."""
        before = self._recover()
        return before if step in before or RECOVER_UNHARMED not in before else (*before, step)

    @property
    def _torn(self) -> bool:
        return "log-torn" in self.log_codes

    def _builds(self, step: Step) -> bool:
        """Whether this log is good enough to build a part from, once it was recovered."""
        hinders = _STRANGE_FILES | _MISPLACED | (_BROKEN_LOG if step is REBUILD_QUEUES else set())
        return not (self.cuts or self.log_codes & hinders)
