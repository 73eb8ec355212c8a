"""Predict the queue entries that a broker of 5.x in DLedger mode cuts off at its start after a kill.

It adds up the sizes of the messages in the last file of the log without the headers of their entries, takes the result
for the end of the log, and cuts queues that reach beyond. It then goes on at the end of what is known to be committed:
if that lies behind the cut, the entries are not made again in this run.

Source: store.dledger.DLedgerCommitLog.dledgerRecoverAbnormally and getConfirmOffset, store.DefaultMessageStore.start
(5.3.3, 5.5.0).
"""

from collections import Counter
from typing import NamedTuple

from formats.message.read import Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from rmqtool.errors import Refused, RmqError
from rmqtool.store.config.release import release_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.queues.batch import every_queue
from rmqtool.store.recovery.dledger.member import MemberRefused, MemberVerdict, judge_member

Key = tuple[str, int]


class QueueCut(NamedTuple):
    """Where a start cuts the queues, and the messages that it does not serve then, by queue."""

    position: int
    reaches: int  # end of the last message in any queue
    unserved: Counter[Key]


def find_queue_cut(layout: StoreLayout, verdict: MemberVerdict) -> QueueCut | None:
    """The cut at the next start; None if there is none, if all its entries are made again, or if it cannot be predicted
    because queues cannot be read.

    Args:
        verdict: the log after that start.

    Raises:
        UnreadableStore: a file of the log cannot be read.
    """
    if verdict.stop_file is None:
        return None
    try:
        reaches = max((queue.recovered.max_physical_offset for queue in every_queue(layout)), default=-1)
    except RmqError:
        return None
    log, position = CommitLog(layout), cut_position(layout, verdict)
    if position is None or reaches < position:
        return None
    unserved: Counter[Key] = Counter()
    committed = verdict.committed.position
    for item in log.walk(verdict.stop_file.base, verdict.end):
        if not isinstance(item, LocatedRecord) or item.physical_offset < position:
            continue
        if not unserved and committed <= item.physical_offset:
            return None  # the start goes on before the first entry that it cuts
        if _is_queued(item.record):
            unserved[item.record.topic.decode("utf-8", "surrogateescape"), item.record.queue_id] += 1
    return QueueCut(position, reaches, unserved)


def cut_position(layout: StoreLayout, verdict: MemberVerdict) -> int | None:
    """Where the next start takes the end of the log to be; None if it takes the right one.

    Queues are cut there if one of them has a message that ends there or later.
    """
    if not layout.aborted or not release_of(layout).is_5 or verdict.stop_file is None:
        return None
    items = CommitLog(layout).walk(verdict.stop_file.base, verdict.end)
    sizes = [item.record.total_size for item in items if isinstance(item, LocatedRecord)]
    return verdict.stop_file.base + sum(sizes)


def end_for_queues(layout: StoreLayout) -> int:
    """The physical offset at which rebuilt queues must end, so that the broker's start goes on behind them.

    That is the end of what is known to be committed, as brokers put nothing else into queues; for 5.x after a kill also
    the last record before :func:`cut_position`, as the start then puts the others into queues instead of cutting them.

    Raises:
        Refused: the member does not know what is committed, or does not start.
        UnreadableStore: a file of the log cannot be read.
    """
    log = DLedgerLog.of(layout)[0]
    try:
        verdict = judge_member(log, layout.commit_log_size(log.data))
    except MemberRefused as refusal:
        raise Refused(f"{layout.root}: its broker does not start: {refusal}") from refusal
    end = verdict.committed.position
    if end < 0:
        reason = "the checkpoint of its DLedger log does not have a committed index, up to which queues are made"
        raise Refused(f"{layout.root}: {reason}. Start the brokers of its group: they fill up what it lacks")
    cut = cut_position(layout, verdict)
    if cut is None or verdict.stop_file is None:
        return end
    # such a start reads the last file in any case, and puts all of it into queues, committed or not
    end = max(end, verdict.stop_file.base)
    if end < cut:
        return end
    for item in CommitLog(layout).walk(verdict.stop_file.base, verdict.end):
        if isinstance(item, LocatedRecord) and item.end >= cut:
            return min(item.physical_offset, end)
    return end


def _is_queued(record: Record) -> bool:
    """Whether a message is in a queue: half messages are in that of their own topic, rolled-back ones in none."""
    return record.sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)
