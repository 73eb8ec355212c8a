"""``recover --dry-run`` for a member of a DLedger group, whose log rmqtool does not write."""

import os
from collections import Counter
from collections.abc import Iterator

from formats.endings import Ending
from rmqtool.errors import Refused
from rmqtool.store.config.fit import misfit_warnings
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.recovery.dledger.member import MemberRefused, MemberVerdict, judge_member
from rmqtool.store.recovery.dledger.queue_start import predict_queues
from rmqtool.store.recovery.report import DLedgerEnd, LogStop, Loss, RecoveryReport, StoreState
from rmqtool.words import command_line, counted

RULES = "DLedger 0.3"
_WRITTEN_BY_OTHERS = (
    "recover does none of this, because rmqtool does not write DLedger logs: a broker does it at its next start, and "
    "the other members of its group fill up what it lacks then"
)
_QUEUES = "queues and index files are not looked at: the broker fits them to its log after that"


def plan_dledger(layout: StoreLayout, *, exactly: bool = False) -> RecoveryReport:
    """Plan what a broker's start would do with a store's DLedger log; the store is only read.

    Args:
        exactly: count queue entries that the start cuts without need among what it does; otherwise only warn of them.

    Raises:
        UnreadableStore: a file of the log cannot be read.
    """
    log = DLedgerLog.of(layout)[0]
    file_size = layout.commit_log_size(log.data)
    try:
        return _Report(layout, log, judge_member(log, file_size), exactly=exactly).plan()
    except MemberRefused as refusal:
        files = log.data.files
        return RecoveryReport(
            store=layout.root,
            engine=RULES,
            engineReason=_reason(log),
            loadOk=False,
            refusals=[str(refusal)],
            abort=layout.aborted,
            afterLoad=StoreState(
                minPhyOffset=files[0].base if files else -1, maxPhyOffset=files[-1].end if files else 0, queues=[]
            ),
            nextSteps=[
                "Start the other brokers of its group, and this one with an empty directory: they fill it up",
                f"{command_line('salvage', layout.root, 'NEWSTORE')}: makes an ordinary store of every intact message",
            ],
            unfit=misfit_warnings(layout),
        )


def _reason(log: DLedgerLog) -> str:
    return f"{os.path.basename(log.folder)} is there"


def _describe_stale(log: DLedgerLog, verdict: MemberVerdict) -> list[str]:
    """A warning about entries behind the log's end that its group has replaced."""
    if log.find_stale_tail() != verdict.end:
        return []
    reason = f"the entries behind {verdict.end} are of a lower term than the last one: the group has replaced them"
    return [reason]


def _losses(counts: Counter[tuple[str, int]]) -> list[Loss]:
    return [Loss(topic=topic, queueId=queue, messages=number) for (topic, queue), number in sorted(counts.items())]


class _Report:
    """Converts a verdict to the report of a recovery."""

    def __init__(self, layout: StoreLayout, log: DLedgerLog, verdict: MemberVerdict, *, exactly: bool) -> None:
        self._layout, self._log, self._verdict = layout, log, verdict
        self._queues, self._exactly = predict_queues(layout, verdict), exactly
        self._stale = _describe_stale(log, verdict)

    def plan(self) -> RecoveryReport:
        layout, verdict = self._layout, self._verdict
        actions, lost = self._actions(), self._list_lost()
        stop = None
        if verdict.stop_file is not None:
            clean = verdict.reason in ("nothing is written after it", "the last file is full")
            stop = LogStop(
                file=self._name(verdict.stop_file.path),
                at=verdict.stop_at,
                physicalOffset=verdict.end,
                ending=(Ending.UNWRITTEN if clean else Ending.DAMAGED).value,
                reason=verdict.reason,
            )
        return RecoveryReport(
            store=layout.root,
            engine=RULES,
            engineReason=_reason(self._log),
            loadOk=True,
            abort=layout.aborted,
            startFile=self._name(verdict.first.path) if verdict.first is not None else None,
            startReason="the third file from the end, or the newest before it to which the index leads",
            stop=stop,
            lost=lost,
            bytesCut=self._behind(),
            warnings=[
                *([_WRITTEN_BY_OTHERS] if actions else []),
                *self._cut_warnings(),
                *self._other_warnings(),
                *self._stale,
            ],
            actions=actions,
            notes=[_QUEUES],
            afterLoad=StoreState(minPhyOffset=self._begin(), maxPhyOffset=verdict.end, queues=[]),
            destroys=[*([] if self._stale else self._destroys(lost)), *(self._cut_warnings() if self._exactly else [])],
            salvageKeeps=sum(loss.messages for loss in lost),
            unfit=misfit_warnings(layout),
            dledger=DLedgerEnd(
                beginIndex=verdict.begin_index,
                endIndex=verdict.end_index,
                endTerm=verdict.end_term,
                committedIndex=verdict.committed.index,
                committedPosition=verdict.committed.position,
                endPosition=verdict.end,
                unitsWritten=verdict.index.rewritten,
                queuesCutAt=self._queues.position,
                unserved=_losses(self._queues.unserved),
                behindDamage=_losses(self._queues.behind_damage),
                repeated=_losses(self._queues.repeated),
            ),
        )

    def _name(self, path: str) -> str:
        name = os.path.relpath(path, self._layout.root)
        return path if name.startswith("..") else name

    def _begin(self) -> int:
        files = self._log.data.files
        return files[0].base if files else -1

    def _behind(self) -> int:
        """Return the number of bytes after the log's end, counted in each file up to its last non-zero byte."""
        verdict, files = self._verdict, self._log.data.files
        at = verdict.end
        return sum(has_bytes(f.path, max(at - f.base, 0), f.size) - max(at - f.base, 0) for f in files if f.end > at)

    def _actions(self) -> list[str]:
        verdict, steps = self._verdict, []
        file = verdict.stop_file
        if file is not None and file.base < verdict.end < file.end:
            at = verdict.end - file.base
            if has_bytes(file.path, at, file.size) > at:
                steps.append(f"end {self._name(file.path)} at byte {at}; what follows stays until entries go there")
        steps += [f"remove {self._name(file.path)}" for file in [*verdict.removed, *verdict.index.removed]]
        if self._exactly and self._queues.position is not None:
            steps.append(f"cut the queue entries of messages at or after {self._queues.position}")
        if (entries := verdict.index.rewritten_entries()) is not None:
            folder = os.path.join(self._name(self._log.folder), "index")
            steps.append(f"write the units of entries {entries[0]} to {entries[1]} in {folder}")
        return steps

    def _cut_warnings(self) -> list[str]:
        if self._queues.position is None:
            return []
        number, store = self._queues.cut.total(), self._layout.root
        messages, verb = counted(number, "message"), "is" if number == 1 else "are"
        if self._queues.behind_damage:
            messages = f"Up to {messages}"
        reason = (
            f"a 5.x broker cuts the queues at {self._queues.position} at this start, though the log goes on to "
            f"{self._verdict.end}: it leaves out the headers of the entries when it adds up the last file, and ends at "
            f"damage. {messages} {verb} not served then, though the log keeps {'it' if number == 1 else 'them'}: "
        )
        if self._is_better_rebuilt():
            return [f"{reason}{command_line('rebuild', store, 'consumequeue')}, before the start, prevents that"]
        return [f"{reason}start another member as the leader, or {command_line('salvage', store, 'NEWSTORE')}"]

    def _is_better_rebuilt(self) -> bool:
        """Whether more messages are served if the queues are rebuilt before the start."""
        try:
            rebuilt = predict_queues(self._layout, self._verdict, rebuilt=True)
        except Refused:
            return False
        return rebuilt.unserved.total() < self._queues.unserved.total()

    def _other_warnings(self) -> Iterator[str]:
        """Warnings of messages that are in no queue, without a cut."""
        repeated = self._queues.repeated.total()
        if repeated:
            yield (
                f"{counted(repeated, 'message')} {'has' if repeated == 1 else 'have'} the queue offset of an earlier "
                "one, as a start has cut its queue entry: one of the two is served; "
                f"{command_line('salvage', self._layout.root, 'NEWSTORE')} keeps both"
            )
        others = self._queues.unserved.total() - self._queues.cut.total() - repeated
        if others > 0 and self._queues.behind_damage:
            yield (
                f"up to {counted(others, 'other message')} behind damage {'is' if others == 1 else 'are'} in no queue "
                "after this start, as the broker passes over all that is committed when it reads the damage: "
                f"{command_line('salvage', self._layout.root, 'NEWSTORE')} has {'it' if others == 1 else 'them'}"
            )
        elif others > 0:
            yield (
                f"{counted(others, 'other message')} {'is' if others == 1 else 'are'} in no queue after this start, "
                "though the log keeps them, as the broker does not put what is committed into queues again: "
                f"{command_line('rebuild', self._layout.root, 'consumequeue')} does"
            )

    def _list_lost(self) -> list[Loss]:
        """Return the messages after the log's end, counted per queue."""
        if self._verdict.stop_file is None or not self._behind():
            return []
        counts: Counter[tuple[str, int]] = Counter()
        for item in CommitLog(self._layout).walk(self._verdict.end):
            if isinstance(item, LocatedRecord) and item.physical_offset > self._verdict.end:
                counts[item.record.topic.decode("utf-8", "replace"), item.record.queue_id] += 1
        return _losses(counts)

    @staticmethod
    def _destroys(lost: list[Loss]) -> list[str]:
        messages = sum(loss.messages for loss in lost)
        if not messages:
            return []
        keeps = f"{command_line('salvage', 'STORE', 'NEWSTORE')} keeps them"
        goes = f"{counted(messages, 'intact message')} after the end of the log {'is' if messages == 1 else 'are'}"
        return [f"{goes} cut off, unless other members have them; {keeps}"]
